use std::sync::Mutex;
use std::time::Duration;

use api_client::informer::ObjectKey;
use sched_framework::{BindingPlugin, Plugin, PostBindPlugin, PreBindPlugin, Refusal, ReservePlugin, Snapshot};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::bind::BindingResult;
use crate::run::tests::{failure, node, pod, scheduler};

type Log = Arc<Mutex<Vec<String>>>;

/// A plugin that logs its calls, and does what the test says.
#[derive(Default)]
struct Scripted {
    name: &'static str,
    has_part: bool,
    log: Log,
    refuses: Option<Refusal>,
    /// What PreBind waits for; without it, there is nothing to do.
    work: Mutex<Option<oneshot::Receiver<Result<(), Refusal>>>>,
    /// The same for what takes PreBind back.
    taking_back: Mutex<Option<oneshot::Receiver<()>>>,
}

impl Scripted {
    fn log(&self, what: &str) {
        self.log.lock().expect("whole").push(format!("{what} {}", self.name));
    }
}

impl Plugin for Scripted {
    fn name(&self) -> &'static str {
        self.name
    }
}

impl BindingPlugin for Scripted {
    fn has_part_in(&self, _: &PodInfo) -> bool {
        self.has_part
    }
}

impl ReservePlugin for Scripted {
    fn reserve(&self, state: &mut CycleState, _: &PodInfo, node: &str, _: &mut Snapshot) -> Result<(), Refusal> {
        self.log("reserve");
        state.write(self.name, node.to_owned());
        self.refuses.clone().map_or(Ok(()), Err)
    }

    fn unreserve(&self, state: &mut CycleState, _: &PodInfo, node: &str, _: &mut Snapshot) -> Vec<ClusterEvent> {
        let reserved = state.read::<String>(self.name).cloned();
        assert!(reserved.as_deref().is_none_or(|reserved| reserved == node));
        self.log(if reserved.is_some() { "unreserve" } else { "unreserve nothing of" });
        Vec::new()
    }
}

impl PreBindPlugin for Scripted {
    fn pre_bind(&self, state: &CycleState, _: &Arc<PodInfo>, node: &str) -> Option<PreBinding> {
        assert_eq!(state.read::<String>(self.name).map(String::as_str), Some(node));
        let work = self.work.lock().expect("whole").take()?;
        let (log, name) = (Arc::clone(&self.log), self.name);
        Some(Box::pin(async move {
            let result = work.await.expect("the test answers");
            log.lock().expect("whole").push(format!("pre-bind {name}"));
            result
        }))
    }

    fn make_room(&self, _: &CycleState, _: &Arc<PodInfo>) -> Option<PreBinding> {
        self.log("make room");
        None
    }

    fn take_back(&self, _: &CycleState, _: &Arc<PodInfo>) -> Option<PreBinding> {
        let work = self.taking_back.lock().expect("whole").take()?;
        self.log("take back");
        Some(Box::pin(async move { work.await.map_err(|_| Refusal::Error("broken".into())) }))
    }
}

impl PostBindPlugin for Scripted {
    fn post_bind(&self, _: &CycleState, _: &PodInfo, node: &str) {
        self.log(&format!("post-bind {node}"));
    }
}

fn plugin(name: &'static str, log: &Log) -> Scripted {
    Scripted { name, has_part: true, log: Arc::clone(log), ..Scripted::default() }
}

/// A scheduler whose default profile has the plugins, with one node and a Pod, and the results of its writes.
fn with_plugins(plugins: Vec<Scripted>) -> (Scheduler, mpsc::Receiver<Finished>) {
    let mut scheduler = scheduler();
    let (finished, results) = mpsc::channel(4);
    scheduler.finished = finished;
    let running = scheduler.profiles.get_mut("default-scheduler").expect("the profile");
    let binding = &mut running.profile.binding;
    for plugin in plugins.into_iter().map(Arc::new) {
        binding.reserves.push(plugin.clone());
        binding.pre_binds.push(plugin.clone());
        binding.post_binds.push(plugin);
    }
    scheduler.node_changed(&ObjectKey::new("", "n"), Some(&node()));
    scheduler.pod_applied(&pod(Value::Null));
    (scheduler, results)
}

fn logged(log: &Log) -> String {
    std::mem::take(&mut *log.lock().expect("whole")).join(", ")
}

/// The Pods on nodes, the writes under way, the Pods in PreBind and the reservations.
fn counts(scheduler: &Scheduler) -> [usize; 4] {
    let reservations = &scheduler.reservations;
    [scheduler.cache.pod_count(), scheduler.writes.len(), reservations.pre_bindings.len(), reservations.by_uid.len()]
}

async fn handle_pre_binding(scheduler: &mut Scheduler, results: &mut mpsc::Receiver<Finished>) {
    let Some(Finished::PreBinding(pod, started, result)) = results.recv().await else { panic!("another result") };
    let Ended::PreBinding(Ok(())) = scheduler.reservations.ended().await else { panic!("a write or a panic") };
    scheduler.pre_binding_finished(pod, started, result);
}

fn the_pod() -> Arc<PodInfo> {
    Arc::new(PodInfo::new(&pod(Value::Null)))
}

#[tokio::test]
async fn a_pod_without_a_part_for_plugins_is_bound_at_once() {
    let log = Log::default();
    let (mut scheduler, _results) = with_plugins(vec![Scripted { has_part: false, ..plugin("A", &log) }]);
    scheduler.schedule_one();
    assert_eq!(counts(&scheduler), [1, 1, 0, 0]);
    scheduler.binding_finished(&the_pod(), BindingResult::Bound);
    assert_eq!(logged(&log), "");
}

#[tokio::test]
async fn plugins_reserve_in_order_and_learn_of_the_binding() {
    let log = Log::default();
    let (mut scheduler, _results) = with_plugins(vec![plugin("A", &log), plugin("B", &log)]);
    scheduler.schedule_one();
    assert_eq!((logged(&log), counts(&scheduler)), ("reserve A, reserve B".to_owned(), [1, 1, 0, 1]), "nothing to do before the binding");
    scheduler.binding_finished(&the_pod(), BindingResult::Bound);
    assert_eq!((logged(&log), counts(&scheduler)), ("post-bind n A, post-bind n B".to_owned(), [1, 1, 0, 0]));
}

#[tokio::test]
async fn a_plugin_that_refuses_a_pod_at_reserve_takes_all_back() {
    for refusal in [Refusal::Error("broken".into()), Refusal::Unschedulable("gone".into())] {
        let log = Log::default();
        let refusing = Scripted { refuses: Some(refusal.clone()), ..plugin("B", &log) };
        let (mut scheduler, mut results) = with_plugins(vec![plugin("A", &log), refusing, plugin("C", &log)]);
        scheduler.schedule_one();
        assert_eq!(logged(&log), "reserve A, reserve B, unreserve nothing of C, unreserve B, unreserve A", "{refusal:?}");
        assert_eq!(counts(&scheduler), [0, 1, 0, 0], "its status is written");
        let Some(Finished::Status(pod, next)) = results.recv().await else { panic!("another result") };
        scheduler.status_written(&pod, next);
        assert!(scheduler.queue.next_flush().is_some(), "it is tried again");
    }
}

#[tokio::test]
async fn a_binding_waits_for_pre_bind_and_other_pods_do_not() {
    let log = Log::default();
    let ((first, first_work), (second, second_work)) = (oneshot::channel(), oneshot::channel());
    let plugins =
        [("A", first_work), ("B", second_work)].map(|(name, work)| Scripted { work: Mutex::new(Some(work)), ..plugin(name, &log) });
    let (mut scheduler, mut results) = with_plugins(plugins.into());
    scheduler.schedule_one();
    assert_eq!((logged(&log), counts(&scheduler)), ("reserve A, reserve B".to_owned(), [1, 0, 1, 1]));
    let mut other = pod(Value::Null);
    (other.metadata.name, other.metadata.uid) = (Some("other".to_owned()), Some("other".to_owned()));
    scheduler.pod_applied(&other);
    scheduler.schedule_one();
    assert_eq!(counts(&scheduler), [2, 1, 1, 2], "its plugins have nothing to do");
    logged(&log);
    second.send(Ok(())).expect("waiting");
    first.send(Ok(())).expect("waiting");
    handle_pre_binding(&mut scheduler, &mut results).await;
    assert_eq!((logged(&log), counts(&scheduler)), ("pre-bind A, pre-bind B".to_owned(), [2, 2, 0, 2]), "it is bound now");
}

#[tokio::test]
async fn an_error_of_pre_bind_ends_the_attempt() {
    let log = Log::default();
    let (answer, work) = oneshot::channel();
    let (mut scheduler, mut results) =
        with_plugins(vec![plugin("A", &log), Scripted { work: Mutex::new(Some(work)), ..plugin("B", &log) }]);
    scheduler.schedule_one();
    answer.send(Err(Refusal::Error("no volume".into()))).expect("waiting");
    let Some(Finished::PreBinding(pod, started, result)) = results.recv().await else { panic!("another result") };
    let message = result.clone().expect_err("refused").to_string();
    assert_eq!(message, "running PreBind plugin \"B\": no volume");
    scheduler.pre_binding_finished(pod, started, result);
    assert_eq!(logged(&log), "reserve A, reserve B, pre-bind B, unreserve B, unreserve A");
    assert_eq!((counts(&scheduler)[0], counts(&scheduler)[3]), (0, 0));
    let Some(Finished::Status(pod, next)) = results.recv().await else { panic!("another result") };
    scheduler.status_written(&pod, next);
    assert!(scheduler.queue.next_flush().is_some(), "it is tried again");
}

/// Deleted, or bound by somebody else.
#[tokio::test]
async fn a_pod_that_leaves_the_queue_during_pre_bind_is_never_bound() {
    for is_deleted in [true, false] {
        let log = Log::default();
        let (answer, work) = oneshot::channel();
        let (mut scheduler, mut results) = with_plugins(vec![Scripted { work: Mutex::new(Some(work)), ..plugin("A", &log) }]);
        scheduler.schedule_one();
        // The work ended, and the loop has not read that yet.
        answer.send(Ok(())).expect("waiting");
        let Some(Finished::PreBinding(gone, started, result)) = results.recv().await else { panic!("another result") };
        match is_deleted {
            true => scheduler.pod_gone("u"),
            false => scheduler.pod_applied(&pod(serde_json::json!("n"))),
        }
        scheduler.pre_binding_finished(gone, started, result);
        assert_eq!(logged(&log), "reserve A, pre-bind A, unreserve A", "deleted: {is_deleted}");
        assert_eq!(counts(&scheduler), [usize::from(!is_deleted), 0, counts(&scheduler)[2], 0]);
    }
}

#[tokio::test]
async fn the_work_of_pre_bind_ends_with_its_pod_and_with_the_scheduler() {
    let log = Log::default();
    let (mut answer, work) = oneshot::channel();
    let (mut scheduler, _results) = with_plugins(vec![Scripted { work: Mutex::new(Some(work)), ..plugin("A", &log) }]);
    scheduler.schedule_one();
    scheduler.pod_gone("u");
    tokio::time::timeout(Duration::from_secs(10), answer.closed()).await.expect("the work is dropped");
    let (mut answer, work) = oneshot::channel();
    let (mut scheduler, _results) = with_plugins(vec![Scripted { work: Mutex::new(Some(work)), ..plugin("A", &log) }]);
    scheduler.schedule_one();
    tokio::time::timeout(Duration::from_secs(10), scheduler.reservations.shutdown()).await.expect("it does not wait for the work");
    tokio::time::timeout(Duration::from_secs(10), answer.closed()).await.expect("the work is dropped");
}

#[tokio::test]
async fn a_binding_that_failed_takes_reservations_back_unless_only_its_answer_was_lost() {
    for (is_bound, wanted) in [(false, "reserve A, unreserve A"), (true, "reserve A, post-bind n A")] {
        let log = Log::default();
        let (mut scheduler, _results) = with_plugins(vec![plugin("A", &log)]);
        scheduler.schedule_one();
        if is_bound {
            scheduler.pod_applied(&pod(serde_json::json!("n")));
        }
        scheduler.binding_finished(&the_pod(), failure());
        assert_eq!((logged(&log), counts(&scheduler)[3]), (wanted.to_owned(), 0));
    }
    let log = Log::default();
    let (mut scheduler, _results) = with_plugins(vec![plugin("A", &log)]);
    scheduler.schedule_one();
    scheduler.binding_finished(&the_pod(), BindingResult::PodGone);
    assert_eq!(logged(&log), "reserve A, unreserve A");
}

/// Nobody answers where the API server would be: a deletion fails.
#[tokio::test]
async fn a_victim_in_pre_bind_goes_back_to_the_queue_and_is_not_deleted() {
    let log = Log::default();
    let (mut answer, work) = oneshot::channel();
    let (mut scheduler, mut results) = with_plugins(vec![Scripted { work: Mutex::new(Some(work)), ..plugin("A", &log) }]);
    let spec = |priority: i32, cpu: &str| {
        let container = serde_json::json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        serde_json::json!({"schedulerName": "default-scheduler", "priority": priority, "containers": [container]})
    };
    let with_spec = |name: &str, spec: Value| -> k8s_openapi::api::core::v1::Pod {
        let pod = serde_json::json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec});
        serde_json::from_value(pod).expect("a Pod")
    };
    scheduler.pod_gone("u");
    scheduler.pod_applied(&with_spec("victim", spec(0, "1")));
    scheduler.schedule_one();
    assert_eq!((logged(&log), counts(&scheduler)), ("reserve A".to_owned(), [1, 0, 1, 1]));
    scheduler.pod_applied(&with_spec("urgent", spec(9, "4")));
    scheduler.schedule_one();
    assert_eq!((logged(&log), scheduler.cache.pod_count()), ("unreserve A".to_owned(), 0), "its node is free");
    tokio::time::timeout(Duration::from_secs(10), answer.closed()).await.expect("the work is dropped");
    for _ in 0..2 {
        match results.recv().await.expect("a result") {
            Finished::Status(pod, next) => {
                assert_eq!(pod.uid, "victim");
                scheduler.status_written(&pod, next);
            }
            Finished::Preemption(_, result) => assert!(result.is_complete, "nothing is deleted"),
            _ => panic!("another result"),
        }
    }
    assert!(scheduler.queue.next_flush().is_some(), "it is tried again");
}

#[tokio::test]
async fn a_pod_is_tried_again_when_plugins_have_taken_their_writes_back() {
    for is_broken in [false, true] {
        let log = Log::default();
        let ((answer, work), (taken_back, taking_back)) = (oneshot::channel(), oneshot::channel());
        let plugin = Scripted { work: Mutex::new(Some(work)), taking_back: Mutex::new(Some(taking_back)), ..plugin("A", &log) };
        let (mut scheduler, mut results) = with_plugins(vec![plugin]);
        scheduler.schedule_one();
        answer.send(Err(Refusal::Error("no volume".into()))).expect("waiting");
        handle_pre_binding(&mut scheduler, &mut results).await;
        assert_eq!((logged(&log), counts(&scheduler)), ("reserve A, pre-bind A, unreserve A, take back A".to_owned(), [0, 0, 1, 0]));
        // A plugin that fails to take something back does not keep the Pod from being tried again.
        if is_broken {
            drop(taken_back)
        } else {
            taken_back.send(()).expect("waiting")
        }
        let Some(Finished::TakenBack(pod, reason, message)) = results.recv().await else { panic!("another result") };
        assert_eq!((pod.name.as_str(), message.as_str()), ("p", "running PreBind plugin \"A\": no volume"));
        scheduler.write_status(pod, reason, message, Some(""), Next::Backoff);
        let Some(Finished::Status(pod, next)) = results.recv().await else { panic!("another result") };
        scheduler.status_written(&pod, next);
        assert!(scheduler.queue.next_flush().is_some(), "it is tried again");
    }
    let log = Log::default();
    let ((_answer, work), (taken_back, taking_back)) = (oneshot::channel(), oneshot::channel());
    let plugin = Scripted { work: Mutex::new(Some(work)), taking_back: Mutex::new(Some(taking_back)), ..plugin("A", &log) };
    let (mut scheduler, _results) = with_plugins(vec![plugin]);
    scheduler.schedule_one();
    scheduler.pod_gone("u");
    assert_eq!(logged(&log), "reserve A, unreserve A, take back A");
    taken_back.send(()).expect("the work goes on without its Pod");
    for _ in 0..2 {
        assert!(matches!(scheduler.reservations.ended().await, Ended::PreBinding(_)), "PreBind, and what takes it back");
    }
}

#[tokio::test]
async fn no_namespace_takes_all_places_of_pre_bind() {
    let writes = Writes::default();
    let mut all = Reservations::new(writes.clone());
    let add = |all: &mut Reservations, n: usize, namespace: &str| {
        let pod = Arc::new(PodInfo { namespace: namespace.to_owned(), uid: format!("{namespace}-{n}"), ..PodInfo::default() });
        let pre_binding = Some(all.pre_bindings.spawn(std::future::pending()));
        all.by_uid.insert(
            pod.uid.clone(),
            Reservation { pod, node: "n".to_owned(), state: CycleState::default(), pre_binding, is_nominated: false },
        );
    };
    (1..PRE_BINDINGS_PER_NAMESPACE_MAX).for_each(|n| add(&mut all, n, "greedy"));
    assert_eq!((all.is_full("greedy"), all.is_full("other")), (None, None));
    add(&mut all, 0, "greedy");
    assert_eq!((all.is_full("greedy"), all.is_full("other")), (Some("too many Pods of the namespace are in PreBind"), None));
    for namespace in ["a", "b", "c"] {
        (0..PRE_BINDINGS_PER_NAMESPACE_MAX).for_each(|n| add(&mut all, n, namespace));
    }
    assert_eq!(all.is_full("other"), Some("too many Pods are in PreBind"));
    all = Reservations::new(writes.clone());
    (0..PRE_BINDINGS_MAX).for_each(|_| writes.spawn(std::future::pending()));
    assert_eq!(all.is_full("other"), Some("too many Pods are in PreBind"), "nobody waits for the writes, and they are under way");
}

/// Nobody answers where the API server would be: the volume is not written.
#[tokio::test]
async fn a_volume_that_is_not_bound_after_all_is_one_that_other_pods_waited_for() {
    use crate::plugins::volume_fixtures::{claim, store, volume};
    let mut scheduler = scheduler();
    let (finished, mut results) = mpsc::channel(4);
    scheduler.finished = finished;
    scheduler.node_changed(&ObjectKey::new("", "n"), Some(&node()));
    let class = serde_json::json!({"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer"});
    let class = serde_json::from_value(class).expect("a class");
    scheduler.cache.volumes_mut().classes.insert("local".to_owned(), Arc::new(class));
    let of_class = serde_json::json!({"spec": {"storageClassName": "local"}});
    let claims = ["first", "second"].map(|name| claim(name, of_class.clone()));
    store(scheduler.cache.snapshot_mut(), claims.into(), vec![volume("disk", of_class)]);
    for name in ["first", "second"] {
        let volumes = serde_json::json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}]);
        let spec = serde_json::json!({"schedulerName": "default-scheduler", "containers": [{"name": "c"}], "volumes": volumes});
        let pod = serde_json::json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec});
        scheduler.pod_applied(&serde_json::from_value(pod).expect("a Pod"));
        scheduler.schedule_one();
    }
    let mut refused = None;
    for _ in 0..2 {
        match results.recv().await.expect("a result") {
            Finished::Status(pod, next) => scheduler.status_written(&pod, next),
            Finished::PreBinding(pod, started, result) => refused = Some((pod, started, result)),
            _ => panic!("another result"),
        }
    }
    assert_eq!(scheduler.queue.counts(), [0, 0, 1], "the second Pod has no volume");
    let (pod, started, result) = refused.expect("PreBind of the first Pod");
    assert!(result.is_err() && pod.name == "first");
    scheduler.pre_binding_finished(pod, started, result);
    assert_eq!(scheduler.queue.counts()[2], 0, "it may have the volume of the first one");
}

#[tokio::test]
async fn room_is_made_by_a_preemption_or_by_plugins() {
    let log = Log::default();
    let (mut scheduler, _results) = with_plugins(vec![plugin("A", &log)]);
    let best = Arc::new(sched_framework::Preemption { node: "n".to_owned(), victims: Vec::new(), violations: 0 });
    scheduler.make_room(&the_pod(), &Nomination::Preempts { best, others: Vec::new() });
    assert_eq!(logged(&log), "");
    scheduler.make_room(&the_pod(), &Nomination::Stays);
    assert_eq!(logged(&log), "make room A");
}
