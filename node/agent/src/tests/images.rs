//! The images that the Node reports.

use super::*;

#[tokio::test]
async fn the_node_reports_its_images_and_writes_only_what_changed() {
    let mut cluster = Cluster::new(Script::default()).await;
    let often = Duration::from_millis(20);
    (cluster.config.status_check, cluster.config.image_list_refresh) = (often, often);
    *cluster.images.listed.lock() = vec![image("web:1").expect("an image"), image("wasm/hello:1").expect("an image")];
    let _agent = cluster.start();
    cluster.node_ready().await;
    let nodes = cluster.nodes();
    let node = async || nodes.get(NODE).await.expect("the node");
    let reported = async || node().await.status.and_then(|status| status.images).unwrap_or_default();
    let names = reported().await.into_iter().map(|image| (image.names.unwrap_or_default(), image.size_bytes));
    assert_eq!(names.collect::<Vec<_>>(), [(vec!["web:1".to_owned()], Some(7)), (vec!["wasm/hello:1".to_owned()], Some(7))]);

    let (before, readings) = (node().await.metadata.resource_version, cluster.images.readings.load(Ordering::SeqCst));
    until("the list is read again", async || cluster.images.readings.load(Ordering::SeqCst) > readings + 5).await;
    assert_eq!(node().await.metadata.resource_version, before, "nothing changed");

    cluster.images.listed.lock().clear();
    until("no image is reported", async || reported().await.is_empty()).await;
}
