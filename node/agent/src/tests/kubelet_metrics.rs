//! `/metrics` of the node's server, as a Pod starts, fails, is restarted and is removed.

use runtimes_fake::Behaviour;

use super::over_https::{ADMIN, port, send};
use super::*;

/// The page.
pub(super) async fn scrape(cluster: &Cluster) -> String {
    let (status, text) = send(port(cluster).await, ADMIN, http::Method::GET, "/metrics").await.expect("metrics");
    assert_eq!(status, 200, "{text}");
    text
}

/// The value of a series.
pub(super) fn value(text: &str, series: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Waits until a page is as wanted. A new agent may not have published its port yet.
pub(super) async fn scraped(cluster: &Cluster, what: &str, wanted: impl Fn(&str) -> bool) -> String {
    let latest = Mutex::new(String::new());
    let look = async || {
        let Ok((200, text)) = send(port(cluster).await, ADMIN, http::Method::GET, "/metrics").await else { return false };
        let good = wanted(&text);
        *latest.lock() = text;
        good
    };
    if !poll(look).await {
        panic!("no metrics of {what}: {}", latest.into_inner());
    }
    latest.into_inner()
}

/// The first instance of the container `crash` fails, the others run.
fn script() -> Script {
    Script::default().containers(|spec| match spec.labels["io.kubernetes.container.restartCount"].as_str() {
        "0" if spec.labels["io.kubernetes.container.name"] == "crash" => Behaviour::Exit { after: Duration::from_millis(10), code: 1 },
        _ if spec.labels["io.kubernetes.container.name"] == "broken" => Behaviour::FailStart("no such file".to_owned()),
        _ => Behaviour::Run,
    })
}

fn named(container: &str, image: &str) -> Value {
    json!({"containers": [{"name": container, "image": image}]})
}

#[tokio::test]
async fn the_life_of_pods_is_counted_under_upstreams_names() {
    let (cluster, agent) = Cluster::running_by(script()).await;
    let text = scrape(&cluster).await;
    for series in ["kubelet_started_pods_total", "kubelet_running_pods", "kubelet_pod_start_duration_seconds_count"] {
        assert_eq!(value(&text, series), Some(0), "{series}: {text}");
    }
    // Without a tag it is pulled, and the fake registry has it.
    cluster.create("web", named("c", "web")).await;
    cluster.create("crash", named("crash", "web:1")).await;
    cluster.create("broken", named("broken", "web:1")).await;
    cluster.create("absent", named("c", "missing:1")).await;
    cluster.ready("web").await;
    cluster.status("crash", "a restart", |status| status["containerStatuses"][0]["restartCount"] == 1).await;
    cluster.status("broken", "a failure", |status| status["containerStatuses"][0]["restartCount"].as_u64() >= Some(1)).await;
    let text = scraped(&cluster, "four Pods", |text| {
        value(text, "kubelet_pod_start_sli_duration_seconds_count").is_some_and(|count| count >= 2)
            && value(text, "kubelet_started_containers_errors_total{code=\"ErrImagePull\",container_type=\"container\"}").is_some()
            && text.contains("kubelet_container_log_filesystem_used_bytes{container=\"c\",namespace=\"default\",pod=\"web\"")
    })
    .await;
    let of = |series: &str| value(&text, series).unwrap_or_else(|| panic!("{series} is missing: {text}"));
    assert_eq!((of("kubelet_started_pods_total"), of("kubelet_started_pods_errors_total")), (4, 0), "{text}");
    assert_eq!(of("kubelet_image_pull_duration_seconds_count{image_size_in_bytes=\"0-10MB\"}"), 1, "{text}");
    let (started, errors) = (
        of("kubelet_started_containers_total{container_type=\"container\"}"),
        of("kubelet_started_containers_errors_total{code=\"RunContainerError\",container_type=\"container\"}"),
    );
    assert!(started >= 3 + errors && errors >= 1, "{text}");
    for (operation, least, errors) in [("run_podsandbox", 4, 0), ("start_container", 4, 1), ("pull_image", 2, 1), ("image_status", 4, 0)] {
        assert!(of(&format!("kubelet_runtime_operations_total{{operation_type=\"{operation}\"}}")) >= least, "{operation}: {text}");
        let count = of(&format!("kubelet_runtime_operations_duration_seconds_count{{operation_type=\"{operation}\"}}"));
        assert!(count >= least, "{operation}: {text}");
        let failed = value(&text, &format!("kubelet_runtime_operations_errors_total{{operation_type=\"{operation}\"}}"));
        assert!(failed.unwrap_or(0) >= errors && (errors > 0 || failed.is_none()), "{operation}: {text}");
    }
    assert_eq!((of("kubelet_desired_pods{static=\"\"}"), of("kubelet_desired_pods{static=\"true\"}")), (4, 0), "{text}");
    assert_eq!((of("kubelet_running_pods"), of("kubelet_running_containers{container_state=\"running\"}")), (4, 2), "{text}");
    assert_eq!(of("kubelet_pod_worker_start_duration_seconds_count"), 4, "{text}");
    assert!(of("kubelet_pod_worker_duration_seconds_count{operation_type=\"create\"}") >= 3, "{text}");
    assert!(of("kubelet_pod_status_sync_duration_seconds_count") >= 4 && of("kubelet_pod_start_duration_seconds_count") >= 2, "{text}");
    assert!(of("kubelet_certificate_manager_server_ttl_seconds") > 60, "{text}");
    let labels = "{long_running=\"false\",method=\"GET\",path=\"metrics\",server_type=\"readwrite\"}";
    assert_eq!(of(&format!("kubelet_http_inflight_requests{labels}")), 1, "this one: {text}");
    assert!(of(&format!("kubelet_http_requests_total{labels}")) > of(&format!("kubelet_http_requests_duration_seconds_count{labels}")));
    assert!(!text.contains("container_cpu_usage_seconds_total"), "it is on other pages: {text}");

    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    let text = scraped(&cluster, "three Pods", |text| value(text, "kubelet_desired_pods{static=\"\"}") == Some(3)).await;
    assert!(!text.contains("pod=\"web\"") && !text.contains("web\""), "it is gone: {text}");
    assert_eq!(value(&text, "kubelet_runtime_operations_total{operation_type=\"stop_container\"}"), Some(1), "{text}");
    assert_eq!(value(&text, "kubelet_runtime_operations_total{operation_type=\"stop_podsandbox\"}"), Some(1), "{text}");
    agent.stop().await;
}

#[tokio::test]
async fn pods_that_an_earlier_agent_started_are_not_started_again() {
    let (cluster, agent) = Cluster::running().await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    let agent = cluster.replace_agent(agent).await;
    let text = scraped(&cluster, "the later Pod", |text| value(text, "kubelet_pod_start_sli_duration_seconds_count") == Some(1)).await;
    let of = |series: &str| value(&text, series);
    assert_eq!(of("kubelet_started_pods_total"), Some(1), "{text}");
    assert_eq!(of("kubelet_started_containers_total{container_type=\"container\"}"), Some(1), "{text}");
    assert_eq!(of("kubelet_pod_start_duration_seconds_count"), Some(1), "{text}");
    assert_eq!(of("kubelet_running_containers{container_state=\"running\"}"), Some(2), "{text}");
    assert_eq!(of("kubelet_orphaned_runtime_pods_total"), Some(0), "{text}");
    agent.stop().await;
}
