//! Pods go where their images are.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::support::Cluster;

/// So many Pods in a row on one of two nodes are no accident: Pods take turns on nodes of the same score.
const ROW: usize = 4;

#[tokio::test]
async fn pods_go_to_the_node_that_has_their_large_image() {
    let cluster = Cluster::start(&["a", "b"], json!([])).await;
    let images = json!([{"names": ["registry.example/huge:latest"], "sizeBytes": 2_i64 << 30}]);
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let status = Patch::Merge(json!({"status": {"images": images}}));
    nodes.patch_status("b", &PatchParams::default(), &status).await.expect("its status");
    let spec = json!({"containers": [{"name": "c", "image": "registry.example/huge"}]});
    let (mut row, mut number) = (0, 0);
    // The first Pods may be scheduled before the scheduler has read the status.
    while row < ROW && number < 20 {
        let name = format!("p{number}");
        cluster.pod(&name, spec.clone()).await;
        row = if cluster.node_of(&name).await == "b" { row + 1 } else { 0 };
        number += 1;
    }
    assert_eq!(row, ROW, "{number} Pods");
    cluster.stop().await;
}
