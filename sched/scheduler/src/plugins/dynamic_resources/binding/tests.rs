use std::collections::VecDeque;

use futures::FutureExt;
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use sched_framework::{FilterPlugin, ReservePlugin, Snapshot, Status};

use super::super::DynamicResources;
use super::super::fixtures::{DRIVER, allocated, devices_of, parsed, slice, wanted};
use super::super::tests::{cluster, post_filter, requesting_gpus, special, using};
use super::*;

/// What the server answers next: a status with an object, or no answer.
type Answers = Arc<Mutex<VecDeque<Option<(u16, Value)>>>>;
type Requests = Arc<Mutex<Vec<String>>>;

/// A client of a server with these answers, and the requests that it got.
fn client(answers: Vec<Option<(u16, Value)>>) -> (kube::Client, Requests) {
    let (answers, requests): (Answers, Requests) = (Arc::new(Mutex::new(answers.into())), Arc::default());
    let log = Arc::clone(&requests);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (answers, log) = (Arc::clone(&answers), Arc::clone(&log));
        async move {
            let (parts, body) = request.into_parts();
            let body: Value = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap_or_default();
            let path = parts.uri.path().rsplit("resourceclaims/").next().unwrap_or_default();
            let path = path.rsplit("namespaces/default/").next().unwrap_or_default().to_owned();
            log.lock().push(format!("{} {path} {}", parts.method, summary(&body)));
            let answer = answers.lock().pop_front().expect("an answer");
            let (status, object) = answer.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::ConnectionReset))?;
            let response = http::Response::builder().status(status).body(Body::from(object.to_string().into_bytes()));
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response?)
        }
    });
    (kube::Client::new(service, "default"), requests)
}

/// What a patch says, in a line.
fn summary(body: &Value) -> String {
    let version = body["metadata"]["resourceVersion"].as_str().unwrap_or("-");
    let finalizers = &body["metadata"]["finalizers"];
    let devices = body.pointer("/status/allocation/devices/results/0/device").and_then(Value::as_str);
    let pods: Vec<_> = body["status"]["reservedFor"].as_array().into_iter().flatten().filter_map(|one| one["name"].as_str()).collect();
    let mut parts = vec![format!("at {version}")];
    parts.extend((!finalizers.is_null()).then(|| finalizers.to_string()));
    parts.extend(devices.map(str::to_owned));
    parts.extend((!pods.is_empty()).then(|| format!("for {}", pods.join(" "))));
    let removed = body.pointer("/status/reservedFor/0").filter(|one| one["$patch"] == "delete");
    parts.extend(removed.map(|one| format!("uid {}, without {}", body["metadata"]["uid"], one["uid"])));
    let named = body.pointer("/status/extendedResourceClaimStatus");
    parts.extend(named.map(|status| format!("claim {}", status["resourceClaimName"].as_str().unwrap_or("-"))));
    parts.join(", ")
}

fn binding_of(client: kube::Client) -> DynamicResourcesBinding {
    DynamicResourcesBinding::new(&DynamicResourcesArgs::default(), &Handle::detached(client))
}

fn at(mut claim: Value, revision: u64) -> Value {
    claim["apiVersion"] = json!("resource.k8s.io/v1");
    claim["kind"] = json!("ResourceClaim");
    claim["metadata"]["resourceVersion"] = json!(revision.to_string());
    claim
}

fn with_finalizer(mut claim: Value) -> Value {
    claim["metadata"]["finalizers"] = json!([FINALIZER]);
    claim
}

fn status(code: u16, reason: &str) -> Option<(u16, Value)> {
    Some((code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code})))
}

/// A Pod for which the device `a` was reserved.
struct Reserved {
    all: Snapshot,
    state: CycleState,
    pod: Arc<PodInfo>,
}

impl Reserved {
    fn new(claims: &[Value]) -> Self {
        Self::on(&[devices_of("n1", &["a"])], claims)
    }

    /// The same on devices of these slices.
    fn on(slices: &[Value], claims: &[Value]) -> Self {
        Self::with(using("p", &["c"]), slices, claims)
    }

    /// The same for this Pod.
    fn of(pod: PodInfo, claims: &[Value]) -> Self {
        Self::with(pod, &[devices_of("n1", &["a"])], claims)
    }

    fn with(pod: PodInfo, slices: &[Value], claims: &[Value]) -> Self {
        let mut all = cluster(slices, claims);
        let (plugin, mut state, pod) = (DynamicResources::default(), CycleState::default(), Arc::new(pod));
        assert_eq!(plugin.pre_filter(&mut state, &pod, &all), Status::Success);
        assert_eq!(plugin.filter(&state, &pod, &all.nodes[0]), Status::Success);
        plugin.reserve(&mut state, &pod, "n1", &mut all).expect("reserved");
        Self { all, state, pod }
    }

    async fn pre_bind(&self, client: kube::Client) -> Result<(), Refusal> {
        binding_of(client).pre_bind(&self.state, &self.pod, "n1").expect("work").await
    }

    /// Takes the reservation back. Returns whether the device is in use all the same.
    fn unreserve(&mut self) -> bool {
        DynamicResources::default().unreserve(&mut self.state, &self.pod, "n1", &mut self.all);
        self.is_in_use()
    }

    fn is_in_use(&self) -> bool {
        let device = sched_framework::DeviceId { driver: DRIVER.to_owned(), pool: "n1".to_owned(), device: "a".to_owned() };
        self.all.dra.is_allocated(&device)
    }

    fn informed(&mut self, claim: &Value) {
        Arc::make_mut(&mut self.all.dra).set_claim("default/c", Some(parsed(claim)));
    }
}

#[tokio::test]
async fn an_allocation_is_written_before_the_pod_is_bound() {
    let mut reserved = Reserved::new(&[wanted("c")]);
    let stored = at(with_finalizer(allocated("c", "n1", "a", &["p"])), 3);
    let (client, requests) = client(vec![Some((200, at(with_finalizer(wanted("c")), 2))), Some((200, stored.clone()))]);
    assert_eq!(reserved.pre_bind(client).await, Ok(()));
    let finalizer = format!("PATCH c at 1, [\"{FINALIZER}\"]");
    assert_eq!(*requests.lock(), [finalizer.as_str(), "PATCH c/status at 2, a, for p"]);
    assert!(reserved.unreserve(), "the claim has it in the store");
    reserved.informed(&stored);
    assert!(reserved.is_in_use());
    reserved.informed(&at(wanted("c"), 4));
    assert!(!reserved.is_in_use());
}

#[tokio::test]
async fn an_allocated_claim_is_reserved_for_another_pod() {
    let reserved = Reserved::new(&[allocated("c", "n1", "a", &["q"])]);
    let (client, requests) = client(vec![Some((200, at(allocated("c", "n1", "a", &["q", "p"]), 2)))]);
    assert_eq!(reserved.pre_bind(client).await, Ok(()));
    assert_eq!(*requests.lock(), ["PATCH c/status at 1, for q p"]);
    let reserved = Reserved::new(&[allocated("c", "n1", "a", &["p"])]);
    let (client, _) = self::client(Vec::new());
    assert!(binding_of(client).pre_bind(&reserved.state, &reserved.pod, "n1").is_none(), "an earlier attempt did it");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_tried_again_with_the_present_claim() {
    let mut reserved = Reserved::new(&[with_finalizer(wanted("c"))]);
    let (client, requests) = client(vec![
        status(409, "Conflict"),
        Some((200, at(with_finalizer(wanted("c")), 5))),
        Some((200, at(with_finalizer(allocated("c", "n1", "a", &["p"])), 6))),
    ]);
    assert_eq!(reserved.pre_bind(client).await, Ok(()));
    assert_eq!(*requests.lock(), ["PATCH c/status at 1, a, for p", "GET c at -", "PATCH c/status at 5, a, for p"]);
    reserved.informed(&at(wanted("c"), 5));
    assert!(reserved.unreserve(), "the informer does not have the write yet");

    let mut reserved = Reserved::new(&[with_finalizer(wanted("c"))]);
    let (client, _) = self::client(vec![status(409, "Conflict"), Some((200, at(allocated("c", "n2", "b", &["q"]), 5)))]);
    let error = reserved.pre_bind(client).await;
    assert_eq!(error, Err(Refusal::Error("claim default/c got allocated elsewhere in the meantime".into())));
    assert!(!reserved.unreserve());

    let mut reserved = Reserved::new(&[with_finalizer(wanted("c"))]);
    let conflicts = (0..ATTEMPTS_MAX).flat_map(|_| [status(409, "Conflict"), Some((200, at(with_finalizer(wanted("c")), 5)))]);
    let (client, requests) = self::client(conflicts.collect());
    let Err(Refusal::Error(error)) = reserved.pre_bind(client).await else { panic!("no error") };
    assert!(error.starts_with("add allocation and reservation to claim default/c: "), "{error}");
    assert_eq!(requests.lock().len(), 9, "five attempts");
    assert!(!reserved.unreserve());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_deleted_is_an_error() {
    let deleted = Err(Refusal::Error("claim default/c got deleted in the meantime".into()));
    for answers in [vec![status(404, "NotFound")], vec![status(409, "Conflict"), status(404, "NotFound")]] {
        let mut reserved = Reserved::new(&[wanted("c")]);
        let (client, _) = client(answers);
        assert_eq!(reserved.pre_bind(client).await, deleted);
        assert!(!reserved.unreserve());
    }
    let mut reserved = Reserved::new(&[wanted("c")]);
    let mut other = wanted("c");
    other["metadata"]["uid"] = json!("other");
    let (client, _) = client(vec![status(409, "Conflict"), Some((200, at(other, 7)))]);
    assert_eq!(reserved.pre_bind(client).await, deleted, "another claim has the name");
    assert!(!reserved.unreserve());
}

/// No answer, and one of a server that does not know more.
#[tokio::test(start_paused = true)]
async fn the_store_decides_when_the_answer_is_lost() {
    for lost in [None, status(504, "Timeout")] {
        for (stored, is_bound) in [(allocated("c", "n1", "a", &["p"]), true), (wanted("c"), false)] {
            let mut reserved = Reserved::new(&[with_finalizer(wanted("c"))]);
            // More questions without an answer than a conflict is tried again.
            let mut answers = vec![lost.clone()];
            answers.extend((0..7).map(|_| status(503, "ServiceUnavailable")));
            answers.push(Some((200, at(with_finalizer(stored), 8))));
            let (client, requests) = client(answers);
            assert_eq!(reserved.pre_bind(client).await.is_ok(), is_bound);
            assert_eq!(requests.lock().len(), 9);
            assert_eq!(reserved.unreserve(), is_bound);
        }
    }
}

/// The server may write an amount in another way. Another share of the device has another id.
#[tokio::test(start_paused = true)]
async fn a_share_is_recognized_by_its_id() {
    for is_same in [true, false] {
        let device = super::super::fixtures::shared_device("a", 10);
        let mut reserved = Reserved::on(&[slice("n1", json!({"nodeName": "n1"}), json!([device]))], &[with_finalizer(wanted("c"))]);
        let allocation = &reserved.state.read::<PodClaims>(DYNAMIC_RESOURCES).expect("claims").reserved[0].allocation;
        let mut stored = allocated("c", "n1", "a", &["p"]);
        stored["status"]["allocation"] = json!(allocation);
        let share = &mut stored["status"]["allocation"]["devices"]["results"][0];
        assert_eq!(share["consumedCapacity"], json!({"memory": "1"}));
        share["consumedCapacity"] = json!({"memory": "1000m"});
        if !is_same {
            share["shareID"] = json!("other");
        }
        let (client, _) = client(vec![None, Some((200, at(with_finalizer(stored), 8)))]);
        assert_eq!(reserved.pre_bind(client).await.is_ok(), is_same);
        assert_eq!(reserved.unreserve(), is_same);
    }
}

#[tokio::test(start_paused = true)]
async fn devices_stay_in_use_while_it_is_not_clear_whether_they_are_allocated() {
    let mut reserved = Reserved::new(&[with_finalizer(wanted("c"))]);
    // Longer than the Pod waits for its claims.
    let mut answers: Vec<_> = (0..12).map(|_| None).collect();
    answers.push(Some((200, at(with_finalizer(wanted("c")), 8))));
    let (client, requests) = client(answers);
    let plugin = binding_of(client);
    let writes = plugin.writes.clone();
    let error = plugin.pre_bind(&reserved.state, &reserved.pod, "n1").expect("work").await;
    assert_eq!(error, Err(Refusal::Error("timed out waiting for the claims to be written".into())));
    assert!(reserved.unreserve(), "the write may have succeeded");
    writes.ended().await;
    assert_eq!(requests.lock().len(), 13);
    assert!(Arc::make_mut(&mut reserved.all.dra).end_all_pending() && !reserved.is_in_use());
}

#[tokio::test]
async fn a_write_begins_when_it_is_awaited_and_goes_on_when_nobody_waits_for_it() {
    let mut reserved = Reserved::new(&[with_finalizer(wanted("c"))]);
    let (client, requests) = client(vec![Some((200, at(with_finalizer(allocated("c", "n1", "a", &["p"])), 2)))]);
    let plugin = binding_of(client);
    let writes = plugin.writes.clone();
    drop(plugin.pre_bind(&reserved.state, &reserved.pod, "n1").expect("work"));
    assert_eq!(writes.len(), 0, "the Pod was refused before PreBind");
    let mut work = plugin.pre_bind(&reserved.state, &reserved.pod, "n1").expect("work");
    assert!((&mut work).now_or_never().is_none());
    drop(work);
    assert!(reserved.unreserve(), "the write may succeed");
    assert_eq!(writes.len(), 1);
    writes.shutdown().await;
    assert_eq!(requests.lock().len(), 1, "the end of the scheduler waits for it");
    reserved.informed(&at(allocated("c", "n1", "a", &["p"]), 2));
    assert!(reserved.is_in_use());
}

#[tokio::test]
async fn a_pod_that_is_refused_before_its_writes_leaves_its_devices() {
    let mut reserved = Reserved::new(&[wanted("c")]);
    let (client, _) = client(Vec::new());
    drop(binding_of(client).pre_bind(&reserved.state, &reserved.pod, "n1").expect("work"));
    assert!(!reserved.unreserve());
}

fn pod_at(node: Value) -> Option<(u16, Value)> {
    let metadata = json!({"name": "p", "namespace": "default", "uid": "p"});
    Some((200, json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [], "nodeName": node}})))
}

#[tokio::test]
async fn a_pod_that_is_not_bound_is_removed_from_its_claims() {
    let shared = || allocated("c", "n1", "a", &["q"]);
    let with_p = || Some((200, at(allocated("c", "n1", "a", &["q", "p"]), 2)));
    for (node, is_removed) in [(Value::Null, true), (json!("n1"), false)] {
        let mut reserved = Reserved::new(&[shared()]);
        let (client, requests) = client(vec![with_p(), pod_at(node), Some((200, at(shared(), 3)))]);
        let plugin = binding_of(client);
        assert!(plugin.take_back(&reserved.state, &reserved.pod).is_none(), "nothing was written");
        assert_eq!(plugin.pre_bind(&reserved.state, &reserved.pod, "n1").expect("work").await, Ok(()));
        assert!(reserved.unreserve(), "the other Pod has the device");
        assert_eq!(plugin.take_back(&reserved.state, &reserved.pod).expect("work").await, Ok(()));
        let get = "GET pods/p at -".to_owned();
        let removal = r#"PATCH c/status at -, uid "uid-c", without "p""#.to_owned();
        let expected: Vec<String> =
            ["PATCH c/status at 1, for q p".to_owned(), get].into_iter().chain(is_removed.then_some(removal)).collect();
        assert_eq!(*requests.lock(), expected, "somebody bound it: {}", !is_removed);
    }
    // A scheduler that ended before has reserved it.
    let reserved = Reserved::new(&[allocated("c", "n1", "a", &["p"])]);
    let (client, requests) = client(vec![pod_at(Value::Null), status(404, "NotFound")]);
    let plugin = binding_of(client);
    assert_eq!(plugin.take_back(&reserved.state, &reserved.pod).expect("work").await, Ok(()), "the claim is gone");
    assert_eq!(requests.lock().len(), 2);
}

/// The write may put the Pod into the claim from which it is to be removed.
#[tokio::test]
async fn a_pod_is_removed_from_its_claims_after_the_writes_that_were_under_way() {
    let mut reserved = Reserved::new(&[with_finalizer(wanted("c"))]);
    let stored = at(with_finalizer(allocated("c", "n1", "a", &["p"])), 2);
    let (client, requests) = client(vec![Some((200, stored.clone())), pod_at(Value::Null), Some((200, stored))]);
    let plugin = binding_of(client);
    let mut work = plugin.pre_bind(&reserved.state, &reserved.pod, "n1").expect("work");
    assert!((&mut work).now_or_never().is_none());
    drop(work);
    reserved.unreserve();
    assert_eq!(plugin.take_back(&reserved.state, &reserved.pod).expect("work").await, Ok(()));
    let methods: Vec<String> = requests.lock().iter().map(|request| request.chars().take(10).collect()).collect();
    assert_eq!(methods, ["PATCH c/st", "GET pods/p", "PATCH c/st"]);
}

#[tokio::test]
async fn an_idle_allocation_is_removed_for_a_pod_that_cannot_use_it() {
    let all = cluster(&[devices_of("n1", &["a"])], &[allocated("c", "n3", "a", &["p"])]);
    let (plugin, mut state, pod) = (DynamicResources::default(), CycleState::default(), Arc::new(using("p", &["c"])));
    assert_eq!(plugin.pre_filter(&mut state, &pod, &all), Status::Success);
    let (client, requests) = client(vec![Some((200, at(wanted("c"), 2)))]);
    let binding = binding_of(client);
    assert_ne!(plugin.filter(&state, &pod, &all.nodes[0]), Status::Success);
    assert!(binding.make_room(&state, &pod).is_none(), "PostFilter decides, if the profile has it");
    post_filter(&plugin, &mut state, &pod, &all);
    // What a preemption tries after that has no say.
    plugin.filter(&state, &pod, &all.nodes[1]);
    binding.make_room(&state, &pod).expect("work").await.expect("written");
    assert_eq!(*requests.lock(), ["PATCH c/status at 1"]);
}

/// In the search of nodes the claim was where it is needed; the trials of a preemption found that it is not on another node.
#[tokio::test]
async fn what_a_preemption_tries_deallocates_nothing() {
    let all = cluster(&[devices_of("n1", &["a"])], &[allocated("c", "n1", "a", &["p"])]);
    let (plugin, mut state, pod) = (DynamicResources::default(), CycleState::default(), Arc::new(using("p", &["c"])));
    assert_eq!(plugin.pre_filter(&mut state, &pod, &all), Status::Success);
    assert_eq!(plugin.filter(&state, &pod, &all.nodes[0]), Status::Success);
    assert_eq!(post_filter(&plugin, &mut state, &pod, &all), "still not schedulable");
    assert_ne!(plugin.filter(&state, &pod, &all.nodes[1]), Status::Success);
    let silent = kube::Client::new(
        tower::service_fn(|_: http::Request<Body>| std::future::pending::<Result<http::Response<Body>, std::io::Error>>()),
        "default",
    );
    assert!(binding_of(silent).make_room(&state, &pod).is_none());
}

/// A slice of a device that must be attached to its node.
fn attachable() -> Value {
    let device = json!({"name": "a", "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"], "bindsToNode": true});
    slice("n1", json!({"nodeName": "n1"}), json!([device]))
}

/// The claim with its attachable device, allocated now and reserved for the Pod, in the state that the driver reports.
fn attaching(reserved: &Reserved, revision: u64, conditions: Value) -> Value {
    let allocation = &reserved.state.read::<PodClaims>(DYNAMIC_RESOURCES).expect("claims").reserved[0].allocation;
    let mut claim = at(with_finalizer(allocated("c", "n1", "a", &["p"])), revision);
    claim["status"]["allocation"] = json!(allocation);
    claim["status"]["allocation"]["allocationTimestamp"] = json!(api_model::meta::time(api_clock::now()));
    claim["status"]["devices"] = json!([{"driver": DRIVER, "pool": "n1", "device": "a", "conditions": conditions}]);
    claim
}

fn condition(type_: &str, status: &str) -> Value {
    let since = "2026-01-01T00:00:00Z";
    json!({"type": type_, "status": status, "reason": "Because", "message": "it is \"so\"", "lastTransitionTime": since})
}

/// PreBind of a Pod with an attachable device, up to the wait for it.
struct Waiting {
    reserved: Reserved,
    handle: Handle,
    work: PreBinding,
}

impl Waiting {
    async fn new() -> Self {
        let reserved = Reserved::on(&[attachable()], &[with_finalizer(wanted("c"))]);
        let written = attaching(&reserved, 2, json!([]));
        let (client, requests) = client(vec![Some((200, written))]);
        let handle = Handle::detached(client);
        handle.resource_claims.put((*parsed(&at(with_finalizer(wanted("c")), 1))).clone());
        let binding = DynamicResourcesBinding::new(&DynamicResourcesArgs::default(), &handle);
        let mut waiting = Self { work: binding.pre_bind(&reserved.state, &reserved.pod, "n1").expect("work"), reserved, handle };
        while requests.lock().is_empty() || waiting.handle.writes.len() > 0 {
            assert!(waiting.poll().await.is_none(), "the informer does not have the allocation");
        }
        waiting
    }

    /// What the work ended with, if it has.
    async fn poll(&mut self) -> Option<Result<(), Refusal>> {
        // The write goes on in a task of its own.
        tokio::task::yield_now().await;
        (&mut self.work).now_or_never()
    }

    /// The informer reads the claim.
    async fn informed(&mut self, claim: &Value) -> Option<Result<(), Refusal>> {
        self.handle.resource_claims.put((*parsed(claim)).clone());
        self.handle.changes.send_modify(|number| *number += 1);
        self.poll().await
    }
}

#[tokio::test]
async fn a_pod_is_bound_when_its_devices_are_prepared() {
    let mut waiting = Waiting::new().await;
    let claim = attaching(&waiting.reserved, 2, json!([]));
    let results = &claim["status"]["allocation"]["devices"]["results"][0];
    assert_eq!((&results["bindingConditions"], &results["bindingFailureConditions"]), (&json!(["attached"]), &json!(["broken"])));
    assert_eq!(waiting.informed(&claim).await, None);
    let in_work = attaching(&waiting.reserved, 3, json!([condition("attached", "False"), condition("broken", "False")]));
    assert_eq!(waiting.informed(&in_work).await, None);
    let attached = attaching(&waiting.reserved, 4, json!([condition("attached", "True")]));
    assert_eq!(waiting.informed(&attached).await, Some(Ok(())));

    let failed = |message: &str| Some(Err(Refusal::Error(message.to_owned().into())));
    let mut waiting = Waiting::new().await;
    let broken = attaching(&waiting.reserved, 4, json!([condition("attached", "True"), condition("broken", "True")]));
    let message = r#"device binding failed: claim=c, reason=Because, message="it is \"so\"""#;
    assert_eq!(waiting.informed(&broken).await, failed(message));

    for gone in [at(with_finalizer(wanted("c")), 5), at(with_finalizer(allocated("c", "n1", "a", &["q"])), 5)] {
        let mut waiting = Waiting::new().await;
        assert_eq!(waiting.informed(&gone).await, failed("claim default/c got deallocated elsewhere in the meantime"));
    }
    let mut other = at(wanted("c"), 5);
    other["metadata"]["uid"] = json!("other");
    let mut waiting = Waiting::new().await;
    assert_eq!(waiting.informed(&other).await, failed("claim default/c got deleted in the meantime"));
    let Waiting { handle, work, .. } = Waiting::new().await;
    drop(handle);
    assert_eq!(work.await, Err(Refusal::Error("the scheduler ended".into())));
}

#[tokio::test(start_paused = true)]
async fn devices_that_are_not_prepared_in_time_are_given_up() {
    let mut waiting = Waiting::new().await;
    let (claim, since) = (attaching(&waiting.reserved, 2, json!([])), tokio::time::Instant::now());
    assert_eq!(waiting.informed(&claim).await, None);
    let error = (&mut waiting.work).await;
    assert_eq!(error, Err(Refusal::Error("device binding timeout".into())));
    assert!(since.elapsed().as_secs().abs_diff(600) <= 1, "{:?}", since.elapsed());
    // Another Pod began the wait long ago.
    let mut waiting = Waiting::new().await;
    let mut late = claim.clone();
    late["status"]["allocation"]["allocationTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(waiting.informed(&late).await, Some(Err(Refusal::Error("device binding timeout: claim=c".into()))));
}

/// The scheduler before this one has allocated the claim and waited.
#[tokio::test]
async fn the_wait_goes_on_after_a_restart_of_the_scheduler() {
    let before = Reserved::on(&[attachable()], &[with_finalizer(wanted("c"))]);
    let claim = attaching(&before, 2, json!([condition("attached", "False")]));
    let reserved = Reserved::on(&[attachable()], std::slice::from_ref(&claim));
    let (client, requests) = client(Vec::new());
    let handle = Handle::detached(client);
    handle.resource_claims.put((*parsed(&claim)).clone());
    let binding = DynamicResourcesBinding::new(&DynamicResourcesArgs::default(), &handle);
    let work = binding.pre_bind(&reserved.state, &reserved.pod, "n1").expect("work");
    let mut waiting = Waiting { reserved, handle, work };
    assert_eq!(waiting.poll().await, None, "the write of nothing begins");
    while waiting.handle.writes.len() > 0 {
        assert_eq!(waiting.poll().await, None);
    }
    assert_eq!(waiting.poll().await, None);
    assert_eq!(waiting.informed(&attaching(&before, 3, json!([condition("attached", "True")]))).await, Some(Ok(())));
    assert!(requests.lock().is_empty(), "nothing was left to write");
}

/// The answers to the creation, the finalizer and the status of a claim for extended resources.
fn created() -> Vec<Option<(u16, Value)>> {
    let allocated = with_finalizer(allocated("p-x", "n1", "a", &["p"]));
    vec![Some((201, at(wanted("p-x"), 2))), Some((200, at(with_finalizer(wanted("p-x")), 3))), Some((200, at(allocated, 4)))]
}

fn a_pod() -> Option<(u16, Value)> {
    Some((200, json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "p"}})))
}

const CREATES: [&str; 3] =
    ["POST resourceclaims at -", "PATCH p-x at 2, [\"resource.kubernetes.io/delete-protection\"]", "PATCH p-x/status at 3, a, for p"];

#[tokio::test]
async fn a_claim_for_extended_resources_is_created_and_named_in_the_pod() {
    let mut reserved = Reserved::of(requesting_gpus("p", 1, &[]), &[]);
    let (client, requests) = client(created().into_iter().chain([a_pod()]).collect());
    assert_eq!(reserved.pre_bind(client).await, Ok(()));
    let pod = ["PATCH pods/p/status at -, claim p-x"];
    assert_eq!(*requests.lock(), [CREATES.as_slice(), &pod].concat());
    assert!(reserved.unreserve(), "the claim has it in the store");
    Arc::make_mut(&mut reserved.all.dra).set_claim("default/p-x", Some(parsed(&at(allocated("p-x", "n1", "a", &["p"]), 4))));
    assert!(reserved.is_in_use());
    Arc::make_mut(&mut reserved.all.dra).set_claim("default/p-x", None);
    assert!(!reserved.is_in_use());
}

#[tokio::test]
async fn a_claim_that_cannot_be_created_has_no_devices() {
    for answer in [status(403, "Forbidden"), None] {
        let mut reserved = Reserved::of(requesting_gpus("p", 1, &[]), &[]);
        let (client, requests) = client(vec![answer]);
        let error = reserved.pre_bind(client).await.expect_err("no claim");
        assert!(
            matches!(&error, Refusal::Error(reason) if reason.starts_with("create claim for extended resources default/p: ")),
            "{error:?}"
        );
        assert_eq!(requests.lock().len(), 1);
        assert!(!reserved.unreserve());
        let binding = binding_of(self::client(vec![a_pod()]).0);
        binding.take_back(&reserved.state, &reserved.pod).expect("work").await.expect("nothing to delete");
    }
}

#[tokio::test]
async fn the_claim_of_a_pod_that_is_not_bound_is_deleted() {
    let mut reserved = Reserved::of(requesting_gpus("p", 1, &[]), &[]);
    let (client, _) = client(created().into_iter().chain([status(500, "InternalError")]).collect());
    let error = reserved.pre_bind(client).await.expect_err("the Pod does not name the claim");
    assert!(
        matches!(&error, Refusal::Error(reason) if reason.starts_with("update pod default/p ExtendedResourceClaimStatus: ")),
        "{error:?}"
    );
    assert!(reserved.unreserve(), "the claim has it in the store");
    let stored = at(with_finalizer(allocated("p-x", "n1", "a", &["p"])), 4);
    let deleted = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
    let answers = vec![
        a_pod(),
        Some((200, stored.clone())),
        status(409, "Conflict"),
        Some((200, stored.clone())),
        Some((200, stored)),
        Some((200, deleted)),
        a_pod(),
    ];
    let (client, requests) = self::client(answers);
    let binding = binding_of(client);
    binding.take_back(&reserved.state, &reserved.pod).expect("work").await.expect("deleted");
    let (get, unprotect) = ("GET p-x at -", "PATCH p-x at 4, []");
    let ends = ["DELETE p-x at -", "PATCH pods/p/status at -, claim -"];
    assert_eq!(*requests.lock(), [["GET pods/p at -", get, unprotect, get, unprotect].as_slice(), &ends].concat());
    assert!(Arc::make_mut(&mut reserved.all.dra).end_all_pending(), "the informer never had the claim");
    assert!(!reserved.is_in_use());
}

#[tokio::test]
async fn the_claim_of_an_earlier_attempt_is_deleted() {
    let all = cluster(&[devices_of("n1", &["a"])], &[special("p-x", "p")]);
    let (plugin, mut state, pod) = (DynamicResources::default(), CycleState::default(), Arc::new(requesting_gpus("p", 1, &[])));
    assert_eq!(plugin.pre_filter(&mut state, &pod, &all), Status::Success);
    assert_eq!(post_filter(&plugin, &mut state, &pod, &all), "deletion of ResourceClaim started");
    let deleted = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
    let (client, requests) = client(vec![Some((200, at(special("p-x", "p"), 1))), Some((200, deleted))]);
    binding_of(client).make_room(&state, &pod).expect("work").await.expect("deleted");
    assert_eq!(*requests.lock(), ["GET p-x at -", "DELETE p-x at -"]);
}
