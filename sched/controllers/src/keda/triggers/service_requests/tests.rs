//! The settings of the trigger, and what it reads from the reports of nodes.

use api_client::demand::{CONNECTIONS, REQUESTS};
use serde_json::{Value, json};

use super::*;
use crate::keda::spec::TriggerSpec;

fn parse(metadata: Value) -> Result<ServiceRequests, String> {
    let spec: TriggerSpec = serde_json::from_value(json!({"type": TYPE, "metadata": metadata})).expect("a trigger");
    let config = Config { index: 0, namespace: "default", spec: &spec, credentials: Default::default() };
    ServiceRequests::parse(&config).map_err(String::from)
}

#[test]
fn wrong_settings_are_refused() {
    for (metadata, wanted) in [
        (json!({}), "missing required parameter \"service\" in [triggerMetadata]"),
        (json!({"service": "other/web"}), "service \"other/web\" must be the name of a Service in the same namespace"),
        (json!({"service": "web", "targetRequestRate": "0"}), "targetRequestRate must be a float greater than 0"),
        (json!({"service": "web", "targetConcurrency": "-1"}), "targetConcurrency must be a float greater than 0"),
        (
            json!({"service": "web", "targetRequestRate": "5", "targetConcurrency": "5"}),
            "targetRequestRate and targetConcurrency exclude each other",
        ),
        (json!({"service": "web", "window": "1m"}), "parameter \"window\" does not exist"),
        (json!({"service": "web", "targetConnectionRate": "5"}), "parameter \"targetConnectionRate\" does not exist"),
    ] {
        let problem = parse(metadata).err().unwrap_or_default();
        assert_eq!(problem, format!("error parsing service requests metadata: {wanted}"));
    }
    for (metadata, target, name) in [
        (json!({"service": "web"}), 100.0, "requests-web"),
        (json!({"service": "web", "targetRequestRate": "2.5"}), 2.5, "requests-web"),
        (json!({"service": "web", "targetConcurrency": "8"}), 8.0, "concurrency-web"),
    ] {
        assert_eq!(parse(metadata).map(|one| (one.target, one.metric_name())), Ok((target, name.to_owned())));
    }
}

/// Nodes with whether they are ready and their reports of requests and connections; Pods with their node and the second of the test in
/// which they became ready.
struct World {
    nodes: Vec<(&'static str, &'static str, Value, Value)>,
    pods: Vec<(&'static str, &'static str, Option<i64>)>,
    service: Value,
}

const NOW: i64 = 1_000;

impl World {
    fn read(&self, metadata: Value) -> Result<Sample, String> {
        let reports = Reports { leases: Informer::detached(), nodes: Informer::detached(), services: Informer::detached() };
        for (name, ready, requests, connections) in &self.nodes {
            let annotations = json!({REQUESTS: requests.to_string(), CONNECTIONS: connections.to_string()});
            let lease = json!({"metadata": {"name": name, "namespace": "kube-node-lease", "annotations": annotations}});
            reports.leases.put(serde_json::from_value(lease).expect("a Lease"));
            let conditions = json!([{"type": "Ready", "status": ready}]);
            let node = json!({"metadata": {"name": name}, "status": {"conditions": conditions}});
            reports.nodes.put(serde_json::from_value(node).expect("a Node"));
        }
        let service = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": self.service});
        reports.services.put(serde_json::from_value(service).expect("a Service"));
        let pods = Informer::detached();
        for (index, (namespace, node, ready)) in self.pods.iter().enumerate() {
            let since = ready.map(|second| Timestamp::from_second(second).expect("a time").to_string());
            let conditions = since.map_or(json!([]), |since| json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]));
            let metadata = json!({"name": format!("web-{index}"), "namespace": namespace, "labels": {"app": "web"}});
            let spec = json!({"containers": [], "nodeName": node});
            let pod = json!({"metadata": metadata, "spec": spec, "status": {"phase": "Running", "conditions": conditions}});
            pods.put(serde_json::from_value(pod).expect("a Pod"));
        }
        let trigger = parse(metadata).expect("a trigger");
        trigger.read(&reports, &pods, Timestamp::from_second(NOW).expect("a time")).map_err(String::from)
    }
}

fn of(milli_per_second: u64, milli_in_flight: u64) -> Value {
    json!({"default/web": {"milliPerSecond": milli_per_second, "milliInFlight": milli_in_flight, "containers": 1}})
}

fn by_rate() -> Value {
    json!({"service": "web"})
}

fn service() -> Value {
    json!({"clusterIP": "10.96.0.1", "selector": {"app": "web"}})
}

#[test]
fn the_nodes_with_pods_of_the_service_count_together() {
    let nothing = || json!({});
    let waits = |waiting: u32| json!({"default/web": {"waiting": waiting, "milliPerSecond": 7_000}});
    let cases = [
        ("two nodes", vec![("a", "True", of(1_500, 0), nothing()), ("b", "True", of(500, 2_000), nothing())], (2_000, 2_000, true)),
        ("a node without a Pod of the Service", vec![("c", "True", of(9_000, 9_000), nothing())], (0, 0, false)),
        ("a lost node", vec![("a", "Unknown", of(9_000, 9_000), nothing())], (0, 0, false)),
        ("an idle one", vec![("a", "True", of(0, 0), nothing()), ("b", "True", of(0, 0), nothing())], (0, 0, false)),
        ("a long request", vec![("a", "True", of(0, 250), nothing())], (0, 250, true)),
        ("a connection that waits, on any node", vec![("c", "True", nothing(), waits(2))], (0, 0, true)),
        ("connections without requests", vec![("a", "True", of(0, 0), waits(0))], (0, 0, false)),
        ("the Service of another namespace", vec![("a", "True", json!({"other/web": {"milliPerSecond": 5}}), nothing())], (0, 0, false)),
        ("more than a number holds", vec![("a", "True", of(u64::MAX, u64::MAX), nothing())], (i64::MAX, i64::MAX, true)),
    ];
    for (name, nodes, (rate, concurrency, is_active)) in cases {
        let pods = vec![("default", "a", None), ("default", "b", None), ("other", "c", None)];
        let world = World { nodes, pods, service: service() };
        assert_eq!(world.read(by_rate()), Ok(Sample { milli: rate, is_active }), "{name}");
        let by_concurrency = json!({"service": "web", "targetConcurrency": "10"});
        assert_eq!(world.read(by_concurrency), Ok(Sample { milli: concurrency, is_active }), "{name}");
    }
}

#[test]
fn pods_that_do_not_count_are_a_problem_and_not_idle() {
    let problem = "requests to pod web-0 of service default/web are not counted: only wasi:http components count them";
    let waits = json!({"default/web": {"waiting": 1}});
    for (ready, report, connections, wanted) in [
        (Some(NOW - 31), json!({}), json!({}), Err(problem)),
        (Some(NOW - 29), json!({}), json!({}), Ok(false)),
        (None, json!({}), json!({}), Ok(false)),
        (Some(NOW - 31), of(0, 0), json!({}), Ok(false)),
        (Some(NOW - 31), json!("lost"), json!({}), Ok(false)),
        (Some(NOW - 31), json!({}), waits, Ok(true)),
    ] {
        let node = if report == "lost" { "Unknown" } else { "True" };
        let world = World { nodes: vec![("a", node, report, connections)], pods: vec![("default", "a", ready)], service: service() };
        let found = world.read(by_rate()).map(|sample| sample.is_active);
        assert_eq!(found, wanted.map_err(str::to_owned), "{ready:?}");
    }
    let headless = World { nodes: Vec::new(), pods: Vec::new(), service: json!({"clusterIP": "None", "selector": {"app": "web"}}) };
    let wanted = "service default/web has no cluster IP, through which connections wait";
    assert_eq!(headless.read(by_rate()), Err(wanted.to_owned()));
}
