//! Gangs that preempt Pods: what is written, and what becomes of the gang meanwhile.

use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;

use super::*;

/// The requests that the server got, but for statuses and bindings.
type Requests = Arc<Mutex<Vec<String>>>;

/// A client of a server that accepts everything, but for deletions as long as there are `failures` left.
fn client(failures: usize) -> (kube::Client, Requests) {
    let (requests, failures) = (Requests::default(), Arc::new(Mutex::new(failures)));
    let log = Arc::clone(&requests);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (log, failures) = (Arc::clone(&log), Arc::clone(&failures));
        async move {
            let (parts, body) = request.into_parts();
            let body: Value = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap_or_default();
            let (path, method) = (parts.uri.path(), parts.method.as_str());
            let name = path.trim_end_matches("/status").rsplit('/').next().unwrap_or_default();
            let target = body.pointer("/status/conditions/0").filter(|condition| condition["type"] == "DisruptionTarget");
            let node = body.pointer("/status/nominatedNodeName");
            let nominated = node.map(|node| format!("nominate {name} {}", node.as_str().unwrap_or("-")));
            let message = target.map(|condition| format!("{name}: {}", condition["message"].as_str().unwrap_or_default()));
            log.lock().extend((method == "DELETE").then(|| format!("delete {name}")).into_iter().chain(nominated).chain(message));
            let mut left = failures.lock();
            let status = if method == "DELETE" && *left > 0 { 500 } else { 200 };
            *left = left.saturating_sub(usize::from(status == 500));
            let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}});
            let response = http::Response::builder().status(status).body(Body::from(object.to_string().into_bytes()));
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response?)
        }
    });
    (kube::Client::new(service, "default"), requests)
}

fn taken(requests: &Requests) -> Vec<String> {
    let mut taken = std::mem::take(&mut *requests.lock());
    taken.sort();
    taken
}

fn deletions(requests: &Requests) -> Vec<String> {
    taken(requests).into_iter().filter(|request| request.starts_with("delete")).collect()
}

impl Run {
    fn important_gang(&mut self, name: &str, min_count: usize) {
        let spec = json!({"schedulingPolicy": {"gang": {"minCount": min_count}}, "priority": 10});
        let group: PodGroup =
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}))
                .expect("a group");
        self.scheduler.group_changed(&ObjectKey::new("default", name), Some(&group));
    }

    fn important_pods(&mut self, group: &str, numbers: std::ops::Range<usize>, more: &Value) {
        for number in numbers {
            let mut spec = json!({"priority": 10});
            crate::plugins::fixtures::merge(&mut spec, more.clone());
            self.pod_with(group, &format!("{group}{number}"), &spec);
        }
    }

    /// A Pod without a group that requests a core.
    fn single(&mut self, name: &str, more: &Value) {
        let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
        let mut spec = json!({"schedulerName": "default-scheduler", "containers": [container]});
        crate::plugins::fixtures::merge(&mut spec, more.clone());
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec})).expect("a Pod");
        self.scheduler.pod_changed(&ObjectKey::new("default", name), Some(&pod));
    }

    fn on_node(&mut self, name: &str, node: &str) {
        self.single(name, &json!({"nodeName": node}));
    }

    fn node_of(&self, name: &str) -> Option<&str> {
        self.scheduler.cache.snapshot().nominated.node_of(name)
    }
}

#[tokio::test(start_paused = true)]
async fn a_gang_waits_for_its_victims_and_preempts_each_once() {
    let (client, requests) = client(0);
    let mut run = Run::of(client, &[("n", 1), ("m", 1)]);
    run.on_node("low0", "n");
    run.on_node("low1", "m");
    run.important_gang("g", 2);
    run.important_pods("g", 0..2, &json!({}));
    run.run().await;
    let message = "default-scheduler: preempting to accommodate a higher priority podgroup";
    let nominations = ["g0", "g1"].map(|pod| format!("nominate {pod} {}", run.node_of(pod).expect("a node")));
    let wanted = [vec!["delete low0".to_owned(), "delete low1".to_owned()], vec![format!("low0: {message}"), format!("low1: {message}")]];
    assert_eq!(taken(&requests), [wanted.concat(), nominations.to_vec()].concat());
    // The informer does not have the deletions yet.
    run.node("other", 0);
    run.run_after(BACKOFF).await;
    assert_eq!((deletions(&requests), run.placed("g")), (vec![], 0));
    run.gone("low0");
    // A less important Pod has no part in the room.
    run.single("thief", &json!({}));
    run.run_after(BACKOFF).await;
    assert_eq!((deletions(&requests), run.placed("g"), run.scheduler.cache.pod("thief").is_some()), (vec![], 0, false));
    assert!(run.node_of("g0").is_some() && run.node_of("g1").is_some(), "they stay nominated");
    run.gone("low1");
    run.run_after(BACKOFF).await;
    assert_eq!((deletions(&requests), run.placed("g")), (vec![], 2));
    assert!(run.scheduler.preempted_for_gangs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_preempted_in_vain() {
    let never = json!({"preemptionPolicy": "Never"});
    for (least, pods, more) in [(3, 3, json!({})), (3, 2, json!({})), (1, 1, never)] {
        let (client, requests) = client(0);
        let mut run = Run::of(client, &[("n", 1), ("m", 1)]);
        run.on_node("low0", "n");
        run.on_node("low1", "m");
        run.important_gang("g", least);
        run.important_pods("g", 0..pods, &more);
        run.run().await;
        run.run_after(BACKOFF).await;
        assert_eq!((deletions(&requests), run.node_of("g0")), (vec![], None), "{least} of {pods} Pods, {more}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_failed_is_tried_again() {
    let (client, requests) = client(1);
    let mut run = Run::of(client, &[("n", 2)]);
    run.on_node("low0", "n");
    run.on_node("low1", "n");
    run.important_gang("g", 2);
    run.important_pods("g", 0..2, &json!({}));
    run.run().await;
    assert_eq!(deletions(&requests).len(), 2);
    let deleted = run.scheduler.preempted_for_gangs.iter().next().expect("one of them").clone();
    let other = if deleted == "low0" { "low1" } else { "low0" };
    run.run_after(BACKOFF).await;
    assert_eq!((deletions(&requests), run.placed("g")), (vec![], 0), "the gang waits for the one that is ending");
    run.gone(&deleted);
    run.run_after(BACKOFF).await;
    assert_eq!((deletions(&requests), run.placed("g")), (vec![format!("delete {other}")], 0));
    run.gone(other);
    run.run_after(BACKOFF).await;
    assert_eq!(run.placed("g"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_lost_a_pod_or_its_group_during_the_choice_preempts_nothing() {
    let cores = MEMBERS_PER_STEP * 2;
    for is_group_gone in [true, false] {
        let (client, requests) = client(0);
        let mut run = Run::of(client, &[("n", cores)]);
        (0..cores).for_each(|number| run.on_node(&format!("low{number}"), "n"));
        run.important_gang("g", cores);
        run.important_pods("g", 0..cores, &json!({}));
        let is_choosing = |run: &Run| run.scheduler.gang_cycle.as_ref().is_some_and(|cycle| cycle.preempting.is_some());
        while !is_choosing(&run) {
            run.scheduler.schedule_one();
        }
        run.scheduler.schedule_one();
        assert!(is_choosing(&run), "it takes several steps");
        if is_group_gone {
            run.scheduler.group_changed(&ObjectKey::new("default", "g"), None);
        } else {
            run.gone("g0");
        }
        run.run().await;
        assert_eq!((deletions(&requests), run.placed("g")), (vec![], 0), "group gone: {is_group_gone}");
    }
}

/// A budget allows the disruption of one Pod. Two of the three victims are preempted as a whole.
#[tokio::test(start_paused = true)]
async fn preemptions_for_gangs_are_counted() {
    let (client, requests) = client(0);
    let mut run = Run::of(client, &[("n", 3)]);
    let spec = json!({"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}});
    let whole = serde_json::from_value(json!({"metadata": {"name": "w", "namespace": "default", "uid": "w"}, "spec": spec}));
    run.scheduler.group_changed(&ObjectKey::new("default", "w"), Some(&whole.expect("a group")));
    run.on_node("low", "n");
    ["w0", "w1"].into_iter().for_each(|name| run.pod_with("w", name, &json!({"nodeName": "n"})));
    let budget = json!({"metadata": {"namespace": "default"}, "spec": {"selector": {}},
        "status": {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3}});
    let budget = sched_framework::DisruptionBudget::new(&serde_json::from_value(budget).expect("a budget"));
    run.scheduler.cache.set_budget("default/b".to_owned(), Some(budget));
    run.important_gang("never", 4);
    run.important_pods("never", 0..4, &json!({}));
    run.run().await;
    run.important_gang("g", 3);
    run.important_pods("g", 0..3, &json!({}));
    run.run().await;
    assert_eq!(deletions(&requests), ["delete low", "delete w0", "delete w1"]);
    for (series, number) in [
        ("scheduler_workload_preemption_attempts_total{result=\"Unschedulable\"}", 1),
        ("scheduler_workload_preemption_attempts_total{result=\"Success\"}", 1),
        ("scheduler_preemption_evaluation_duration_seconds_count{preemptor=\"podgroup\",result=\"Success\"}", 1),
        ("scheduler_workload_preemption_victims_sum", 3),
        ("scheduler_preemption_workload_disruptions_sum{preemptor=\"podgroup\"}", 1),
        ("scheduler_preemption_pdb_violations_total{preemptor=\"podgroup\"}", 2),
        ("scheduler_preemption_execution_duration_seconds_count{preemptor=\"podgroup\",result=\"success\"}", 1),
        ("scheduler_podgroup_schedule_attempts_total{profile=\"default-scheduler\",result=\"unschedulable\"}", 1),
        ("scheduler_podgroup_schedule_attempts_total{profile=\"default-scheduler\",result=\"waiting_on_preemption\"}", 1),
    ] {
        assert_eq!(metrics::lines(series), [format!("{series} {number}")]);
    }
    assert_eq!(metrics::lines("scheduler_preemption_victims_count"), [""; 0], "that is for single Pods");
}
