use k8s_openapi::api::core::v1::{Node, Service};
use serde_json::{Value, json};

use super::*;

/// A scheduler whose API server does not answer.
pub(super) fn scheduler() -> Scheduler {
    configured(&KubeSchedulerConfiguration::default())
}

fn configured(configuration: &KubeSchedulerConfiguration) -> Scheduler {
    let silent = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
    let client = kube::Client::try_from(silent).expect("a client");
    let (finished, _results) = mpsc::channel(1);
    let handle = Handle::detached(client.clone());
    Scheduler::new(configuration, None, DefaultSpread::default(), Writer { client, recorders: Arc::default() }, finished, &handle)
}

pub(super) fn pod(more: Value) -> Pod {
    let spec = json!({"schedulerName": "default-scheduler", "containers": [{"name": "c"}], "nodeName": more});
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": spec})).expect("a Pod")
}

pub(super) fn node() -> Node {
    let status = json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}});
    serde_json::from_value(json!({"metadata": {"name": "n"}, "status": status})).expect("a Node")
}

pub(super) fn failure() -> BindingResult {
    BindingResult::Failed(kube::Error::Service(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()))
}

#[tokio::test]
async fn a_binding_that_failed_is_tried_again() {
    let mut scheduler = scheduler();
    scheduler.node_changed(&ObjectKey::new("", "n"), Some(&node()));
    scheduler.pod_applied(&pod(Value::Null));
    scheduler.schedule_one();
    assert_eq!((scheduler.cache.pod_count(), scheduler.queue.next_flush()), (1, None), "assumed");
    let pod = Arc::new(PodInfo::new(&pod(Value::Null)));
    scheduler.binding_finished(&pod, failure());
    assert_eq!((scheduler.cache.pod_count(), scheduler.queue.next_flush()), (0, None), "its status is written");
    scheduler.status_written(&pod, Next::Backoff);
    assert!(scheduler.queue.next_flush().is_some());
}

fn requesting(name: &str, priority: i32, cpu: &str, node: Value) -> Pod {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    let spec = json!({"schedulerName": "default-scheduler", "priority": priority, "containers": [container], "nodeName": node});
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec})).expect("a Pod")
}

/// A Pod in the place of another one, which is preempted.
fn preempting(scheduler: &mut Scheduler) -> Arc<PodInfo> {
    scheduler.node_changed(&ObjectKey::new("", "n"), Some(&node()));
    scheduler.pod_applied(&requesting("victim", 0, "4", json!("n")));
    scheduler.pod_applied(&requesting("p", 1, "4", Value::Null));
    scheduler.schedule_one();
    Arc::clone(scheduler.queue.pod("p").expect("waiting"))
}

/// No plugin in particular ruled nodes out; these events may help.
pub(super) fn waiting_for<const N: usize>(events: [ClusterEvent; N]) -> Rejectors {
    Rejectors { events: events.into(), ..Rejectors::default() }
}

fn finished(is_complete: bool) -> PreemptionResult {
    PreemptionResult { displaced: Vec::new(), rejectors: waiting_for([ClusterEvent::AssignedPodDelete]), is_complete }
}

/// A Pod that no node is feasible for, whose status was written.
fn unschedulable(scheduler: &mut Scheduler, pod: &Pod) {
    scheduler.pod_applied(pod);
    scheduler.schedule_one();
    let (pod, events) = (PodInfo::new(pod), waiting_for([ClusterEvent::AssignedPodDelete, ClusterEvent::UpdatePodScaleDown]));
    scheduler.status_written(&pod, Next::Unschedulable(events));
}

#[tokio::test(start_paused = true)]
async fn a_preemptor_waits_for_the_end_of_its_victims() {
    for gone_while_in_flight in [true, false] {
        let mut scheduler = scheduler();
        let pod = preempting(&mut scheduler);
        assert_eq!(scheduler.cache.snapshot().nominated.node_of("p"), Some("n"));
        assert!(!scheduler.queue.has_active() && scheduler.queue.next_flush().is_none(), "in flight");
        let result = finished(true);
        if gone_while_in_flight {
            scheduler.pod_gone("victim");
            scheduler.preemption_finished(&pod, result);
        } else {
            scheduler.preemption_finished(&pod, result);
            scheduler.pod_gone("victim");
        }
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        scheduler.queue.flush(Instant::now());
        scheduler.schedule_one();
        assert_eq!(scheduler.cache.pod_count(), 1, "assumed");
        assert_eq!(scheduler.cache.snapshot().nominated.node_of("p"), None);
    }
}

#[tokio::test]
async fn a_preemption_that_failed_is_tried_again() {
    let mut scheduler = scheduler();
    let pod = preempting(&mut scheduler);
    scheduler.preemption_finished(&pod, finished(false));
    assert_eq!(scheduler.cache.snapshot().nominated.node_of("p"), Some("n"), "some of its victims may be ending");
    assert!(scheduler.queue.next_flush().is_some(), "in back-off");
}

#[tokio::test(start_paused = true)]
async fn a_pod_follows_one_that_asks_for_less_or_gives_up_its_nomination() {
    let second = std::time::Duration::from_secs(1);
    let mut scheduler = scheduler();
    scheduler.node_changed(&ObjectKey::new("", "n"), Some(&node()));
    scheduler.pod_applied(&requesting("running", 5, "3", json!("n")));
    unschedulable(&mut scheduler, &requesting("waiting", 0, "2", Value::Null));
    scheduler.pod_applied(&requesting("running", 5, "3", json!("n")));
    tokio::time::advance(second).await;
    scheduler.queue.flush(Instant::now());
    assert!(!scheduler.queue.has_active(), "nothing changed");
    scheduler.pod_applied(&requesting("running", 5, "2", json!("n")));
    assert!(scheduler.queue.has_active());

    let mut nominated = requesting("nominated", 1, "1", Value::Null);
    nominated.status = serde_json::from_value(json!({"nominatedNodeName": "n"})).expect("a status");
    let mut scheduler = super::tests::scheduler();
    scheduler.pod_applied(&nominated);
    scheduler.queue.pop(api_clock::now()).expect("active");
    unschedulable(&mut scheduler, &requesting("less", 0, "9", Value::Null));
    unschedulable(&mut scheduler, &requesting("more", 2, "9", Value::Null));
    tokio::time::advance(second).await;
    scheduler.pod_applied(&requesting("nominated", 1, "1", Value::Null));
    let woken: Vec<_> = std::iter::from_fn(|| scheduler.queue.pop(api_clock::now())).map(|pod| pod.name.clone()).collect();
    assert_eq!(woken, ["less"], "a more important Pod did not mind the nomination");
}

#[tokio::test(start_paused = true)]
async fn back_off_ends_while_other_pods_are_active() {
    let mut scheduler = scheduler();
    scheduler.node_changed(&ObjectKey::new("", "n"), Some(&node()));
    scheduler.pod_applied(&requesting("first", 9, "1", Value::Null));
    scheduler.queue.pop(api_clock::now()).expect("active");
    scheduler.queue.move_to_backoff("first", Instant::now());
    scheduler.pod_applied(&requesting("less", 0, "1", Value::Null));
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    scheduler.schedule_one();
    assert_eq!((scheduler.cache.pod("first").is_some(), scheduler.cache.pod("less").is_some()), (true, false));
}

#[tokio::test]
async fn a_nomination_of_an_earlier_scheduler_holds_until_it_is_removed() {
    let nominated = |node: Value| {
        let mut pod = pod(Value::Null);
        pod.status = serde_json::from_value(json!({"nominatedNodeName": node})).expect("a status");
        pod
    };
    let mut scheduler = scheduler();
    scheduler.pod_applied(&nominated(json!("n")));
    assert_eq!(scheduler.cache.snapshot().nominated.node_of("u"), Some("n"));
    scheduler.pod_applied(&nominated(Value::Null));
    assert_eq!(scheduler.cache.snapshot().nominated.node_of("u"), None);
}

#[tokio::test]
async fn a_binding_whose_answer_was_lost_stands() {
    let mut scheduler = scheduler();
    scheduler.node_changed(&ObjectKey::new("", "n"), Some(&node()));
    scheduler.pod_applied(&pod(Value::Null));
    scheduler.schedule_one();
    scheduler.pod_applied(&pod(json!("n")));
    scheduler.binding_finished(&Arc::new(PodInfo::new(&pod(Value::Null))), failure());
    assert_eq!((scheduler.cache.pod_count(), scheduler.queue.next_flush()), (1, None), "the informer has the Pod with its node");
}

/// A scheduler with these profiles.
fn with_profiles(profiles: Value) -> Scheduler {
    let file = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": profiles});
    configured(&KubeSchedulerConfiguration::parse(&file.to_string()).expect("valid"))
}

#[tokio::test]
async fn the_scheduler_name_of_a_pod_chooses_the_profile() {
    let most = json!({"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}});
    let scores = json!({"disabled": [{"name": "NodeResourcesBalancedAllocation"}]});
    let packing = json!({"schedulerName": "packing", "plugins": {"score": scores}, "pluginConfig": [most]});
    let mut scheduler = with_profiles(json!([{"schedulerName": "default-scheduler"}, packing]));
    for name in ["busy", "idle"] {
        let mut node = node();
        node.metadata.name = Some(name.to_owned());
        scheduler.node_changed(&ObjectKey::new("", name), Some(&node));
    }
    scheduler.pod_applied(&requesting("running", 0, "1", json!("busy")));
    let of_profile = |name: &str, profile: &str| {
        let mut pod = requesting(name, 0, "1", Value::Null);
        pod.spec.as_mut().expect("a spec").scheduler_name = Some(profile.to_owned());
        pod
    };
    scheduler.pod_applied(&of_profile("packed", "packing"));
    scheduler.schedule_one();
    scheduler.pod_applied(&of_profile("spread", "default-scheduler"));
    scheduler.schedule_one();
    scheduler.pod_applied(&of_profile("other", "somebody-else"));
    assert!(!scheduler.queue.has_active() && !scheduler.queue.contains("other"), "left alone");
    let on = |node: &str| {
        let node = scheduler.cache.snapshot().node(node).expect("a node");
        let mut names: Vec<_> = node.pods.iter().map(|pod| pod.name.clone()).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!((on("busy"), on("idle")), ("packed running".to_owned(), "spread".to_owned()));
}

#[tokio::test]
async fn scheduling_gates_hold_where_their_plugin_is_enabled() {
    for (pre_enqueue, waits) in [(json!({}), true), (json!({"disabled": [{"name": "SchedulingGates"}]}), false)] {
        let mut scheduler = with_profiles(json!([{"plugins": {"preEnqueue": pre_enqueue}}]));
        let mut gated = pod(Value::Null);
        gated.spec.as_mut().expect("a spec").scheduling_gates = serde_json::from_value(json!([{"name": "a"}])).expect("gates");
        scheduler.pod_applied(&gated);
        assert_eq!(scheduler.queue.has_active(), !waits, "{pre_enqueue}");
    }
}

/// The default constraints of the profile are not in the Pod as the informer has it.
#[tokio::test(start_paused = true)]
async fn a_pod_that_must_be_spread_by_default_is_tried_again_when_another_one_is_bound() {
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
    let spread = json!({"name": "PodTopologySpread", "args": {"defaultingType": "List", "defaultConstraints": [constraint]}});
    let mut scheduler = with_profiles(json!([{"pluginConfig": [spread]}]));
    let (finished, mut results) = mpsc::channel(1);
    scheduler.finished = finished;
    let service: Service = serde_json::from_value(json!({"spec": {"selector": {"app": "web"}}})).expect("a Service");
    scheduler.default_spread.set_service(&ObjectKey::new("default", "web"), Some(&service));
    for name in ["a", "b"] {
        let mut node = node();
        node.metadata.name = Some(name.to_owned());
        node.metadata.labels = Some([("zone".to_owned(), name.to_owned())].into());
        node.spec.get_or_insert_default().unschedulable = Some(name == "b");
        scheduler.node_changed(&ObjectKey::new("", name), Some(&node));
    }
    let web = |name: &str, node: Value| {
        let mut pod = requesting(name, 0, "1", node);
        pod.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
        pod
    };
    scheduler.pod_applied(&web("first", json!("a")));
    scheduler.pod_applied(&web("p", Value::Null));
    scheduler.schedule_one();
    let Some(Finished::Status(pod, next)) = results.recv().await else { panic!("no status") };
    scheduler.status_written(&pod, next);
    scheduler.pod_applied(&requesting("other", 0, "1", json!("b")));
    assert_eq!(scheduler.queue.counts(), [0, 0, 1], "nothing is spread with the other Pod");
    scheduler.pod_applied(&web("second", json!("b")));
    assert_eq!(scheduler.queue.counts(), [0, 1, 0]);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    scheduler.schedule_one();
    assert!(scheduler.cache.snapshot().node("a").is_some_and(|node| node.pods.get("p").is_some()));
}
