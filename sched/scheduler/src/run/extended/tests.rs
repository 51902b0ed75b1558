use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::bind::Writer;
use crate::config::KubeSchedulerConfiguration;
use crate::cycle::Rejected;
use crate::default_spread::DefaultSpread;
use crate::extender::VISITS_MAX;
use crate::plugins::Handle;
use crate::run::tests::waiting_for;
use api_client::informer::ObjectKey;
use api_tasks::Tasks;
use tokio_util::sync::CancellationToken;

/// A scheduler with an extender for the Pods that request `example.com/gpu`. Neither the API server nor the extender answers.
fn scheduler() -> Scheduler {
    let managed = json!([{"name": "example.com/gpu", "ignoredByScheduler": true}]);
    let extender = json!({"urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter", "preemptVerb": "preempt", "managedResources": managed,
        "nodeCacheCapable": true});
    let file = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "extenders": [extender]});
    let configuration = KubeSchedulerConfiguration::parse(&file.to_string()).expect("valid");
    let silent = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
    let client = kube::Client::try_from(silent).expect("a client");
    let (finished, _results) = mpsc::channel(1);
    let handle = Handle::detached(client.clone());
    let extenders = Extenders::new(&configuration.extenders, &client, &Tasks::new(CancellationToken::new()));
    let mut scheduler =
        Scheduler::new(&configuration, None, DefaultSpread::default(), Writer { client, recorders: Arc::default() }, finished, &handle);
    scheduler.extension = extenders.map(Extension::new);
    for name in ["a", "b"] {
        let status = json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}});
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name}, "status": status})).expect("a Node");
        scheduler.node_changed(&ObjectKey::new("", name), Some(&node));
    }
    // Devices may back the resource: before, no such Pod is tried.
    scheduler.devices_synced(&api_client::informer::Informer::detached());
    scheduler
}

fn requesting(name: &str, priority: i32, requests: Value, node: Value) -> Pod {
    let container = json!({"name": "c", "resources": {"requests": requests}});
    let spec = json!({"schedulerName": "default-scheduler", "priority": priority, "containers": [container], "nodeName": node});
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec})).expect("a Pod")
}

fn gpu(name: &str, cpu: &str) -> Pod {
    requesting(name, 5, json!({"example.com/gpu": "1", "cpu": cpu}), Value::Null)
}

/// The Pod, whose extenders are called, and its offer.
fn evaluated(scheduler: &mut Scheduler, pod: &Pod) -> (Arc<PodInfo>, Offer) {
    scheduler.pod_applied(pod);
    scheduler.schedule_one();
    let pod = Arc::clone(scheduler.queue.in_flight(pod.metadata.uid.as_deref().unwrap_or_default()).expect("in flight"));
    let running = scheduler.profiles.get_mut("default-scheduler").expect("a profile");
    let offer = cycle::feasible_nodes(&running.profile, &pod, scheduler.cache.snapshot(), &mut running.progress).expect("an offer");
    (pod, offer)
}

fn allow(nodes: &[&str]) -> Evaluated {
    Evaluated::Allowed(nodes.iter().map(|node| ((*node).to_owned(), 0)).collect())
}

fn answer(scheduler: &mut Scheduler, pod: Arc<PodInfo>, offer: Offer, evaluated: Evaluated) {
    scheduler.extenders_answered(pod, Instant::now(), Answer::Nodes(offer, evaluated));
}

/// The node of a Pod in the cache.
fn node_of(scheduler: &Scheduler, uid: &str) -> String {
    let nodes = &scheduler.cache.snapshot().nodes;
    nodes.iter().find(|node| node.pods.get(uid).is_some()).map_or_else(String::new, |node| node.name.clone())
}

#[tokio::test]
async fn a_pod_is_in_flight_until_its_extenders_answered() {
    let mut scheduler = scheduler();
    let (pod, offer) = evaluated(&mut scheduler, &gpu("p", "1"));
    assert_eq!((node_of(&scheduler, "p"), scheduler.queue.has_active(), scheduler.queue.next_flush()), (String::new(), false, None));
    scheduler.pod_applied(&requesting("other", 0, json!({"cpu": "1"}), Value::Null));
    scheduler.schedule_one();
    assert_ne!(node_of(&scheduler, "other"), "", "others go on");
    answer(&mut scheduler, pod, offer, allow(&["b"]));
    assert_eq!(node_of(&scheduler, "p"), "b");
}

#[tokio::test]
async fn a_node_that_filled_up_meanwhile_is_not_chosen() {
    let mut scheduler = scheduler();
    let (pod, offer) = evaluated(&mut scheduler, &gpu("p", "3"));
    scheduler.pod_applied(&requesting("other", 0, json!({"cpu": "3"}), json!("b")));
    answer(&mut scheduler, Arc::clone(&pod), offer, allow(&["b", "a"]));
    assert_eq!(node_of(&scheduler, "p"), "a", "the next best");

    let mut scheduler = self::scheduler();
    let (pod, offer) = evaluated(&mut scheduler, &gpu("p", "3"));
    scheduler.pod_applied(&requesting("other", 0, json!({"cpu": "3"}), json!("b")));
    answer(&mut scheduler, pod, offer, allow(&["b"]));
    assert!(node_of(&scheduler, "p").is_empty() && scheduler.queue.next_flush().is_some(), "it is tried again");
}

#[tokio::test]
async fn an_answer_for_a_pod_that_is_gone_or_has_changed_has_no_effect() {
    let mut scheduler = scheduler();
    let (pod, offer) = evaluated(&mut scheduler, &gpu("p", "1"));
    scheduler.pod_gone("p");
    answer(&mut scheduler, pod, offer, allow(&["b"]));
    assert!(node_of(&scheduler, "p").is_empty() && !scheduler.queue.contains("p"));

    let (pod, offer) = evaluated(&mut scheduler, &gpu("bound", "1"));
    scheduler.pod_applied(&requesting("bound", 5, json!({"cpu": "1"}), json!("a")));
    answer(&mut scheduler, pod, offer, allow(&["b"]));
    assert_eq!(node_of(&scheduler, "bound"), "a", "somebody else bound it");

    let (pod, offer) = evaluated(&mut scheduler, &gpu("changed", "1"));
    let mut changed = gpu("changed", "1");
    changed.spec.as_mut().expect("a spec").node_selector = Some([("kubernetes.io/hostname".to_owned(), "a".to_owned())].into());
    scheduler.pod_applied(&changed);
    answer(&mut scheduler, pod, offer, allow(&["b"]));
    assert!(node_of(&scheduler, "changed").is_empty() && scheduler.queue.next_flush().is_some(), "it is tried again");
}

#[tokio::test(start_paused = true)]
async fn no_change_is_lost_while_extenders_are_called() {
    for changes_meanwhile in [true, false] {
        let mut scheduler = scheduler();
        let (pod, offer) = evaluated(&mut scheduler, &gpu("p", "1"));
        let change = |scheduler: &mut Scheduler| scheduler.pod_applied(&requesting("other", 0, json!({"cpu": "1"}), json!("b")));
        if changes_meanwhile {
            change(&mut scheduler);
        }
        let rejected = ["a", "b"].map(|node| Rejected { node: node.to_owned(), reason: "no".into() });
        answer(&mut scheduler, Arc::clone(&pod), offer, Evaluated::NoneAllowed(rejected.to_vec()));
        scheduler.status_written(&pod, Next::Unschedulable(waiting_for([sched_framework::ClusterEvent::WildCard])));
        if !changes_meanwhile {
            assert_eq!(scheduler.queue.counts(), [0, 0, 1]);
            change(&mut scheduler);
        }
        assert_eq!(scheduler.queue.counts(), [0, 1, 0], "any change may help a Pod that extenders reject");
    }
}

#[tokio::test]
async fn too_many_calls_keep_only_those_pods_waiting_that_call_extenders() {
    let mut scheduler = scheduler();
    for number in 0..VISITS_MAX + 3 {
        scheduler.pod_applied(&gpu(&format!("gpu-{number}"), "1m"));
    }
    scheduler.pod_applied(&requesting("other", 0, json!({"cpu": "1m"}), Value::Null));
    while scheduler.queue.has_active() {
        scheduler.schedule_one();
    }
    let in_flight =
        |scheduler: &Scheduler| (0..VISITS_MAX + 3).filter(|number| scheduler.queue.in_flight(&format!("gpu-{number}")).is_some()).count();
    assert_eq!(in_flight(&scheduler), VISITS_MAX);
    assert_ne!(node_of(&scheduler, "other"), "", "it has the lowest priority, and was not kept waiting");
    assert_eq!(scheduler.queue.counts(), [3, 0, 0], "the others count as active");
    scheduler.unpark();
    assert!(!scheduler.queue.has_active());
    scheduler.pod_gone(&format!("gpu-{}", VISITS_MAX));
    assert_eq!(scheduler.queue.counts(), [2, 0, 0]);
    // Nobody listens at the extender's address: the calls fail at once.
    tokio::time::timeout(Duration::from_secs(30), ended(&mut scheduler.extension))
        .await
        .expect("in time")
        .expect("a call")
        .expect("no panic");
    scheduler.unpark();
    scheduler.schedule_one();
    assert_eq!((in_flight(&scheduler), scheduler.queue.counts()), (VISITS_MAX + 1, [1, 0, 0]));
}

#[tokio::test]
async fn extenders_have_a_say_in_a_preemption() {
    let mut scheduler = scheduler();
    for node in ["a", "b"] {
        scheduler.pod_applied(&requesting(&format!("on-{node}"), 0, json!({"cpu": "4"}), json!(node)));
    }
    scheduler.pod_applied(&gpu("p", "4"));
    scheduler.schedule_one();
    let pod = Arc::clone(scheduler.queue.in_flight("p").expect("in flight"));
    assert_eq!(scheduler.cache.snapshot().nominated.node_of("p"), None, "the extender is called first");
    let preemption = |node: &str| {
        let victims = scheduler.cache.snapshot().node(node).expect("a node").pods.iter().cloned().collect();
        Arc::new(Preemption { node: node.to_owned(), victims, violations: 0 })
    };
    let (left, again) = (vec![preemption("b")], vec![preemption("b")]);
    let answered = |scheduler: &mut Scheduler, result| {
        scheduler.extenders_answered(Arc::clone(&pod), Instant::now(), Answer::Victims(FitError::NoNodes, result));
    };
    answered(&mut scheduler, Err("failed".to_owned()));
    answered(&mut scheduler, Ok(Vec::new()));
    assert_eq!(scheduler.cache.snapshot().nominated.node_of("p"), None);
    answered(&mut scheduler, Ok(left));
    assert_eq!(scheduler.cache.snapshot().nominated.node_of("p"), Some("b"));
    scheduler.pod_gone("on-b");
    scheduler.cache.end_nomination("p");
    answered(&mut scheduler, Ok(again));
    assert_eq!(scheduler.cache.snapshot().nominated.node_of("p"), None, "it fits there without a preemption by now");
    assert!(scheduler.queue.next_flush().is_some());
}
