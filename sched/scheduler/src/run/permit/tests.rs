use std::sync::Mutex;

use k8s_openapi::api::core::v1::{Node, Pod};
use sched_framework::{
    CycleState, ExternalPlugin, ExternalPluginSpec, FilterPlugin, NodeInfo, Pending, Permit, PermitCandidate, PermitPlugin, Plugin,
    ScorePlugin, Status,
};
use serde_json::json;
use tokio::sync::mpsc;

use super::*;
use crate::bind::Writer;
use crate::config::KubeSchedulerConfiguration;
use crate::default_spread::DefaultSpread;
use crate::plugins::Handle;
use crate::run::tests::waiting_for;

/// A plugin that does what the test says.
#[derive(Default)]
struct Scripted {
    generation: Mutex<u64>,
    failure: Mutex<Option<String>>,
    rejects: Mutex<bool>,
    permit: Mutex<Option<Permit>>,
}

impl Plugin for Scripted {
    fn name(&self) -> &'static str {
        "Scripted"
    }
}

impl FilterPlugin for Scripted {
    fn filter(&self, _: &CycleState, _: &PodInfo, _: &NodeInfo) -> Status {
        Status::unless(!*self.rejects.lock().expect("whole"), "scripted")
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[ClusterEvent::ExternalPluginUpdate]
    }
}

impl ScorePlugin for Scripted {
    fn score(&self, _: &CycleState, _: &PodInfo, _: &NodeInfo) -> Option<i64> {
        None
    }
}

impl PermitPlugin for Scripted {
    fn permit(&self, candidates: &[PermitCandidate<'_>]) -> Vec<Permit> {
        vec![self.permit.lock().expect("whole").clone().unwrap_or(Permit::Allow); candidates.len()]
    }
}

impl ExternalPlugin for Scripted {
    fn begin_cycle(&self) -> u64 {
        *self.generation.lock().expect("whole")
    }

    fn failure(&self) -> Option<String> {
        self.failure.lock().expect("whole").clone()
    }
}

struct One(Arc<Scripted>, bool);

impl ExternalPluginSet for One {
    fn plugins(&self) -> Vec<Arc<dyn ExternalPlugin>> {
        vec![self.0.clone()]
    }

    fn update(&self, _: Vec<ExternalPluginSpec>) {}

    fn run(&self) -> Pending<'_> {
        Box::pin(std::future::pending())
    }

    fn is_ready(&self) -> bool {
        self.1
    }

    fn changed(&self) -> Pending<'_> {
        Box::pin(std::future::pending())
    }
}

/// A scheduler whose profile has the plugin, with one node and a Pod.
fn scheduler() -> (Scheduler, Arc<Scripted>) {
    with_set(true)
}

fn with_set(is_ready: bool) -> (Scheduler, Arc<Scripted>) {
    let args = json!({"apiVersion": "scheduler.skiff/v1alpha1", "kind": "WasmPluginArgs", "image": "a"});
    let profile =
        json!({"plugins": {"multiPoint": {"enabled": [{"name": "Scripted"}]}}, "pluginConfig": [{"name": "Scripted", "args": args}]});
    let file = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile]});
    let configuration = KubeSchedulerConfiguration::parse(&file.to_string()).expect("valid");
    let silent = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
    let writer = Writer { client: kube::Client::try_from(silent).expect("a client"), recorders: Arc::default() };
    let plugin = Arc::new(Scripted::default());
    let externals: Arc<dyn ExternalPluginSet> = Arc::new(One(plugin.clone(), is_ready));
    let handle = Handle::detached(writer.client.clone());
    let mut scheduler = Scheduler::new(&configuration, Some(externals), DefaultSpread::default(), writer, mpsc::channel(1).0, &handle);
    let status = json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}});
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}, "status": status})).expect("a Node");
    scheduler.cache.update_node(&node);
    let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
    let spec = json!({"schedulerName": "default-scheduler", "containers": [container]});
    let pod: Pod =
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": spec})).expect("a Pod");
    scheduler.pod_applied(&pod);
    (scheduler, plugin)
}

fn popped(scheduler: &Scheduler) -> Arc<PodInfo> {
    Arc::clone(scheduler.queue.pod("u").expect("in the queue"))
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_is_assumed_and_not_bound_until_the_plugin_allows_it() {
    let (mut scheduler, plugin) = scheduler();
    *plugin.permit.lock().expect("whole") = Some(Permit::Wait(Duration::from_secs(60)));
    scheduler.schedule_one();
    assert_eq!((scheduler.cache.pod_count(), scheduler.writes.len()), (1, 0));
    assert_eq!(scheduler.next_permit(), Some(Instant::now() + Duration::from_secs(1)));
    *plugin.permit.lock().expect("whole") = Some(Permit::Allow);
    scheduler.permit_all();
    assert_eq!(scheduler.writes.len(), 0, "it is not called before its time");
    tokio::time::advance(Duration::from_secs(1)).await;
    scheduler.permit_all();
    assert_eq!((scheduler.cache.pod_count(), scheduler.writes.len(), scheduler.next_permit()), (1, 1, None));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_refused_leaves_its_node() {
    for answer in [Permit::Deny("no".into()), Permit::Error("broken".into()), Permit::Wait(Duration::ZERO)] {
        let (mut scheduler, plugin) = scheduler();
        *plugin.permit.lock().expect("whole") = Some(answer.clone());
        scheduler.schedule_one();
        assert_eq!((scheduler.cache.pod_count(), scheduler.writes.len()), (0, 1), "{answer:?}: its status is written");
        scheduler.status_written(&popped(&scheduler), Next::Backoff);
        assert!(scheduler.queue.next_flush().is_some(), "{answer:?}: it is tried again");
    }
}

/// Nobody answers where the API server would be: a deletion fails.
#[tokio::test]
async fn a_victim_that_waits_at_permit_goes_back_to_the_queue_and_is_not_deleted() {
    let (mut scheduler, plugin) = scheduler();
    let (finished, mut results) = mpsc::channel(2);
    scheduler.finished = finished;
    *plugin.permit.lock().expect("whole") = Some(Permit::Wait(Duration::from_secs(60)));
    scheduler.schedule_one();
    assert_eq!((scheduler.cache.pod_count(), scheduler.writes.len()), (1, 0), "it waits");
    let container = json!({"name": "c", "resources": {"requests": {"cpu": "4"}}});
    let spec = json!({"schedulerName": "default-scheduler", "priority": 9, "containers": [container]});
    let urgent = json!({"metadata": {"name": "urgent", "namespace": "default", "uid": "urgent"}, "spec": spec});
    scheduler.pod_applied(&serde_json::from_value(urgent).expect("a Pod"));
    scheduler.schedule_one();
    assert_eq!((scheduler.cache.pod_count(), scheduler.next_permit()), (0, None), "its node is free");
    assert_eq!(scheduler.cache.snapshot().nominated.node_of("urgent"), Some("n"));
    let mut is_tried_again = false;
    for _ in 0..2 {
        match results.recv().await.expect("a result") {
            Finished::Status(pod, Next::Backoff) => is_tried_again = pod.uid == "u",
            Finished::Preemption(pod, result) => assert_eq!((pod.uid.as_str(), result.is_complete), ("urgent", true), "nothing is deleted"),
            _ => panic!("another result"),
        }
    }
    assert!(is_tried_again && scheduler.queue.in_flight("u").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_while_it_waits_is_never_bound() {
    let (mut scheduler, plugin) = scheduler();
    *plugin.permit.lock().expect("whole") = Some(Permit::Wait(Duration::from_secs(60)));
    scheduler.schedule_one();
    scheduler.pod_gone("u");
    assert_eq!((scheduler.cache.pod_count(), scheduler.next_permit()), (0, None));
    *plugin.permit.lock().expect("whole") = Some(Permit::Allow);
    tokio::time::advance(Duration::from_secs(5)).await;
    scheduler.permit_all();
    assert_eq!(scheduler.writes.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_somebody_else_binds_while_it_waits_stays_on_its_node() {
    let (mut scheduler, plugin) = scheduler();
    *plugin.permit.lock().expect("whole") = Some(Permit::Wait(Duration::from_secs(60)));
    scheduler.schedule_one();
    let spec = json!({"schedulerName": "default-scheduler", "nodeName": "n", "containers": [{"name": "c"}]});
    let bound = json!({"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": spec});
    scheduler.pod_applied(&serde_json::from_value(bound).expect("a Pod"));
    *plugin.permit.lock().expect("whole") = Some(Permit::Deny("no".into()));
    tokio::time::advance(Duration::from_secs(5)).await;
    scheduler.permit_all();
    assert_eq!((scheduler.cache.pod_count(), scheduler.writes.len()), (1, 0), "it counts, and nothing is written");
}

#[tokio::test(start_paused = true)]
async fn a_cycle_with_a_plugin_that_failed_has_no_result() {
    let (mut scheduler, plugin) = scheduler();
    *plugin.failure.lock().expect("whole") = Some("broken".to_owned());
    scheduler.schedule_one();
    assert_eq!((scheduler.cache.pod_count(), scheduler.writes.len()), (0, 1), "its status is written");
    scheduler.status_written(&popped(&scheduler), Next::Backoff);
    *plugin.failure.lock().expect("whole") = None;
    tokio::time::advance(Duration::from_secs(10)).await;
    scheduler.schedule_one();
    assert_eq!(scheduler.cache.pod_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_version_of_a_plugin_is_called_for_nodes_that_did_not_change() {
    let (mut scheduler, plugin) = scheduler();
    *plugin.rejects.lock().expect("whole") = true;
    scheduler.schedule_one();
    assert_eq!(scheduler.cache.pod_count(), 0);
    let events = waiting_for([ClusterEvent::ExternalPluginUpdate]);
    scheduler.status_written(&popped(&scheduler), Next::Unschedulable(events));
    *plugin.rejects.lock().expect("whole") = false;
    tokio::time::advance(Duration::from_secs(10)).await;
    scheduler.externals_changed();
    scheduler.schedule_one();
    assert_eq!(scheduler.cache.pod_count(), 0, "without another generation, results stay");
    scheduler.status_written(&popped(&scheduler), Next::Backoff);
    *plugin.generation.lock().expect("whole") += 1;
    tokio::time::advance(Duration::from_secs(10)).await;
    scheduler.schedule_one();
    assert_eq!(scheduler.cache.pod_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_cycle_waits_for_plugins_that_load_but_not_for_ever() {
    let (scheduler, _) = with_set(false);
    assert!(!scheduler.has_externals());
    changed(scheduler.externals.as_deref(), Some(scheduler.externals_by)).await;
    assert!(scheduler.has_externals(), "the time is over");
    assert!(with_set(true).0.has_externals());
}
