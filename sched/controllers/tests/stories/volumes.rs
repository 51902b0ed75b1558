//! Claims and volumes against a real API server: binding, protection, release, provisioning on the node that the scheduler
//! chose, ephemeral volumes, expansion.

use std::sync::Arc;
use std::time::Duration;

use api_client::fence::Fence;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use parking_lot::Mutex;
use sched_controllers::{Account, Config};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::{Cluster, from, until};

const OURS: &str = "skiff.internal/local-path";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The words of a node that refuses.
const USED: &str = "/var/lib/skiff/volumes/pvc-0a is used by a Pod of this node";

/// What nodes answer when the provisioner has them remove a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reply {
    Done,
    Refusal,
    /// None, until the reply is another one.
    Silence,
}

/// Stands for the servers of all nodes, in the way of the provisioner's requests.
struct FakeNodes {
    reply: watch::Sender<Reply>,
    /// The volumes whose directories were to be removed.
    removals: watch::Sender<Vec<String>>,
    /// The capacities that directories were to get.
    capacities: Mutex<Vec<String>>,
    /// The volume that somebody retains at the moment at which the provisioner reads it.
    rescued: Mutex<Option<String>>,
}

impl FakeNodes {
    fn new(reply: Reply) -> Arc<Self> {
        Arc::new(Self {
            reply: watch::Sender::new(reply),
            removals: watch::Sender::default(),
            capacities: Mutex::default(),
            rescued: Mutex::default(),
        })
    }

    fn answer_for(self: &Arc<Self>, config: &mut Config) {
        let (accounts, nodes) = (config.accounts.take().expect("accounts"), Arc::clone(self));
        config.accounts = Some(Arc::new(move |account: Account, fence: Option<&Fence>| match account {
            Account::Named("local-path-provisioner") => nodes.in_front_of(accounts(account, fence)),
            _ => accounts(account, fence),
        }));
    }

    fn in_front_of(self: &Arc<Self>, client: Client) -> Client {
        let nodes = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, nodes) = (client.clone(), Arc::clone(&nodes));
            async move {
                let path = request.uri().path().to_owned();
                if let Some((_, name)) = path.split_once("/proxy/localVolumes/") {
                    if request.method() == "DELETE" {
                        nodes.removals.send_modify(|removals| removals.push(name.to_owned()));
                    } else {
                        let body = request.into_body().collect().await.expect("a body").to_bytes();
                        let volume: PersistentVolume = serde_json::from_slice(&body).expect("a volume");
                        nodes.capacities.lock().extend(volume.spec.and_then(|spec| spec.capacity?.remove("storage")).map(|size| size.0));
                    }
                    return Ok(nodes.answer().await);
                }
                let rescued = nodes.rescued.lock().take_if(|name| request.method() == "GET" && path.ends_with(name.as_str()));
                if let Some(name) = rescued {
                    let retain = Patch::Merge(json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
                    Api::<PersistentVolume>::all(client.clone()).patch(&name, &PatchParams::default(), &retain).await.expect("retained");
                }
                client.send(request).await
            }
        });
        Client::new(service, "default")
    }

    async fn answer(&self) -> Response<Body> {
        let reply = *self.reply.subscribe().wait_for(|reply| *reply != Reply::Silence).await.expect("the nodes are there");
        let (status, words) = if reply == Reply::Done { (200, "") } else { (409, USED) };
        Response::builder().status(status).body(Body::from(words.as_bytes().to_vec())).expect("a response")
    }
}

fn volume(name: &str, more: &Value) -> PersistentVolume {
    let mut spec = json!({"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}});
    spec.as_object_mut().expect("a spec").extend(more.as_object().expect("fields").clone());
    from(json!({"metadata": {"name": name}, "spec": spec}))
}

fn claim(name: &str, more: &Value) -> PersistentVolumeClaim {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    spec.as_object_mut().expect("a spec").extend(more.as_object().expect("fields").clone());
    from(json!({"metadata": {"name": name}, "spec": spec}))
}

fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The capacity in the status of a claim.
fn capacity(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage")).map_or("", |size| &size.0)
}

fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn pod(name: &str, volume: &Value) -> Pod {
    let mut volume = volume.clone();
    volume["name"] = json!("data");
    from(json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}], "volumes": [volume]}}))
}

/// The scheduler's choice of a node for a claim.
fn select(node: &str) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"annotations": {SELECTED_NODE: node}}}))
}

fn selected(claim: &PersistentVolumeClaim) -> Option<&String> {
    claim.metadata.annotations.as_ref()?.get(SELECTED_NODE)
}

async fn until_event(cluster: &Cluster, reason: &str, message: &str) {
    until(reason, cluster.api::<Event>(), |events| {
        events
            .values()
            .any(|event| event.reason.as_deref() == Some(reason) && event.message.as_deref().is_some_and(|text| text.contains(message)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_bound_protected_and_its_volume_released() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.node("n1").await;
    let (claims, volumes, pods) = (cluster.api::<PersistentVolumeClaim>(), cluster.all::<PersistentVolume>(), cluster.api::<Pod>());
    // A claim comes first and waits for a volume.
    claims.create(&PostParams::default(), &claim("c", &json!({}))).await.expect("a claim");
    until_event(&cluster, "FailedBinding", "no persistent volumes available").await;
    volumes.create(&PostParams::default(), &volume("large", &json!({"capacity": {"storage": "9Gi"}}))).await.expect("a volume");
    let bound = until("bound", claims.clone(), |all| claim_phase(&all["c"]) == "Bound").await.remove("c").expect("it");
    let spec = bound.spec.clone().expect("a spec");
    assert_eq!(spec.volume_name.as_deref(), Some("large"));
    let annotations = bound.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get("pv.kubernetes.io/bind-completed").map(String::as_str), Some("yes"));
    assert_eq!(annotations.get("pv.kubernetes.io/bound-by-controller").map(String::as_str), Some("yes"));
    let status = bound.status.expect("a status");
    assert_eq!(status.capacity.and_then(|capacity| capacity.get("storage").map(|size| size.0.clone())).as_deref(), Some("9Gi"));
    let large = until("bound too", volumes.clone(), |all| phase(&all["large"]) == "Bound").await.remove("large").expect("it");
    assert_eq!(large.spec.and_then(|spec| spec.claim_ref).and_then(|reference| reference.uid), bound.metadata.uid);

    // A Pod with a node uses it, so it stays; so does its volume.
    let mut user = pod("p", &json!({"persistentVolumeClaim": {"claimName": "c"}}));
    user.spec.as_mut().expect("a spec").node_name = Some("n1".to_owned());
    user.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    pods.create(&PostParams::default(), &user).await.expect("a Pod");
    claims.delete("c", &DeleteParams::default()).await.expect("a deletion");
    volumes.delete("large", &DeleteParams::default()).await.expect("a deletion");
    // Each of the two controllers has looked at its object when a later one of the same kind is gone.
    claims.create(&PostParams::default(), &claim("later", &json!({"storageClassName": ""}))).await.expect("a claim");
    claims.delete("later", &DeleteParams::default()).await.expect("a deletion");
    until("the later claim is gone", claims.clone(), |all| !all.contains_key("later")).await;
    volumes.create(&PostParams::default(), &volume("later", &json!({"storageClassName": "nobodys"}))).await.expect("a volume");
    until("protected", volumes.clone(), |all| phase(&all["later"]) == "Available").await;
    volumes.delete("later", &DeleteParams::default()).await.expect("a deletion");
    until("the later volume is gone", volumes.clone(), |all| !all.contains_key("later")).await;
    assert_eq!(claim_phase(&claims.get("c").await.expect("it is used")), "Bound");
    volumes.get("large").await.expect("it is bound");
    pods.patch("p", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}}))).await.expect("let go");
    pods.delete("p", &DeleteParams::default().grace_period(0)).await.expect("a deletion");
    until("the claim is gone", claims.clone(), |all| all.is_empty()).await;
    until("so is its volume", volumes.clone(), |all| all.is_empty()).await;

    // Of two claims that name one volume, one gets it. Its volume is retained.
    volumes.create(&PostParams::default(), &volume("one", &json!({}))).await.expect("a volume");
    for name in ["a", "b"] {
        claims.create(&PostParams::default(), &claim(name, &json!({"volumeName": "one"}))).await.expect("a claim");
    }
    let both = until("one is bound", claims.clone(), |all| all.values().any(|claim| claim_phase(claim) == "Bound")).await;
    until_event(&cluster, "FailedBinding", "volume \"one\" already bound to a different claim.").await;
    let winner = both.iter().find(|(_, claim)| claim_phase(claim) == "Bound").map(|(name, _)| name.clone()).expect("a bound one");
    let loser = if winner == "a" { "b" } else { "a" };
    assert_eq!(claim_phase(&claims.get(loser).await.expect("it waits")), "Pending");
    claims.delete(&winner, &DeleteParams::default()).await.expect("a deletion");
    until("released", volumes.clone(), |all| phase(&all["one"]) == "Released").await;
    volumes.delete("one", &DeleteParams::default()).await.expect("a deletion");
    until("gone", volumes, |all| all.is_empty()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_controller_left_is_completed_and_a_lost_volume_is_reported() {
    let cluster = Cluster::start(|_| {}).await;
    let (claims, volumes) = (cluster.api::<PersistentVolumeClaim>(), cluster.all::<PersistentVolume>());
    let made = claims.create(&PostParams::default(), &claim("c", &json!({"storageClassName": "x"}))).await.expect("a claim");
    until_event(&cluster, "ProvisioningFailed", "storageclass.storage.k8s.io \"x\" not found").await;
    // The first of the four writes of a binding.
    let reference =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": made.metadata.uid});
    let half = volume("half", &json!({"storageClassName": "x", "claimRef": reference}));
    volumes.create(&PostParams::default(), &half).await.expect("a volume");
    let bound = until("bound", claims.clone(), |all| claim_phase(&all["c"]) == "Bound").await.remove("c").expect("it");
    assert_eq!(bound.spec.and_then(|spec| spec.volume_name).as_deref(), Some("half"));
    let half = until("bound too", volumes.clone(), |all| phase(&all["half"]) == "Bound").await.remove("half").expect("it");
    assert_eq!(half.spec.and_then(|spec| spec.claim_ref).and_then(|reference| reference.uid), bound.metadata.uid);

    // Without its protection it would be gone at once.
    until("protected", volumes.clone(), |all| all["half"].metadata.finalizers.is_some()).await;
    volumes.delete("half", &DeleteParams::default()).await.expect("a deletion");
    volumes.patch("half", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}}))).await.expect("forced");
    until("lost", claims.clone(), |all| claim_phase(&all["c"]) == "Lost").await;
    until_event(&cluster, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_made_on_the_chosen_node_and_goes_with_its_claim() {
    let fake = FakeNodes::new(Reply::Refusal);
    let cluster = Cluster::start(|config| fake.answer_for(config)).await;
    let (claims, volumes) = (cluster.api::<PersistentVolumeClaim>(), cluster.all::<PersistentVolume>());
    let (classes, nodes) = (cluster.all::<StorageClass>(), cluster.all::<Node>());
    provisioned(&cluster, "n1").await;
    // The claim comes before there is a class: it gets the default class later.
    claims.create(&PostParams::default(), &claim("c", &json!({}))).await.expect("a claim");
    until_event(&cluster, "FailedBinding", "no storage class is set").await;
    let class = json!({
        "metadata": {"name": "local", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": OURS, "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
    });
    classes.create(&PostParams::default(), &from(class)).await.expect("a class");
    until_event(&cluster, "WaitForFirstConsumer", "waiting for first consumer to be created before binding").await;
    let user = pod(
        "p",
        &json!({"ephemeral": {"volumeClaimTemplate": {"spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}),
    );
    cluster.api::<Pod>().create(&PostParams::default(), &user).await.expect("a Pod");
    until("the claim of the ephemeral volume", claims.clone(), |all| all.contains_key("p-data")).await;
    until_event(&cluster, "WaitForPodScheduled", "waiting for pod p to be scheduled").await;

    // A claim for which no volume can be made: the scheduler is not to wait for one.
    let shared = json!({"accessModes": ["ReadWriteMany"], "storageClassName": "local"});
    claims.create(&PostParams::default(), &claim("shared", &shared)).await.expect("a claim");
    claims.patch("shared", &PatchParams::default(), &select("n1")).await.expect("a choice");
    until_event(&cluster, "ProvisioningFailed", "NodePath only supports ReadWriteOnce and ReadWriteOncePod (1.22+) access modes").await;
    until("taken back", claims.clone(), |all| selected(&all["shared"]).is_none()).await;

    // A node that does not exist is no choice: the scheduler chooses again.
    claims.patch("c", &PatchParams::default(), &select("gone")).await.expect("a choice");
    until_event(&cluster, "ProvisioningFailed", "node \"gone\" not found").await;
    until("taken back", claims.clone(), |all| selected(&all["c"]).is_none()).await;
    claims.patch("c", &PatchParams::default(), &select("n1")).await.expect("a choice");
    let bound = until("bound", claims.clone(), |all| claim_phase(&all["c"]) == "Bound").await.remove("c").expect("it");
    let name = format!("pvc-{}", bound.metadata.uid.expect("a UID"));
    let made = volumes.get(&name).await.expect("its volume").spec.expect("a spec");
    assert_eq!(made.local.map(|local| local.path), Some(format!("/var/lib/skiff/volumes/{name}")));
    until_event(&cluster, "ProvisioningSucceeded", &format!("Successfully provisioned volume {name}")).await;

    // The claim's status follows when the node enforces the new capacity.
    let larger = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}}));
    claims.patch("c", &PatchParams::default(), &larger).await.expect("a larger request");
    let refused = format!("resize volume \"{name}\" by resizer \"{OURS}\" failed: {USED}");
    until_event(&cluster, "VolumeResizeFailed", &refused).await;
    assert_eq!(capacity(&claims.get("c").await.expect("the claim")), "1Gi");
    fake.reply.send_replace(Reply::Done);
    until("grown", claims.clone(), |all| capacity(&all["c"]) == "3Gi").await;
    let capacities = fake.capacities.lock().clone();
    assert!(capacities.len() > 1 && capacities.iter().all(|capacity| capacity == "3Gi"), "the node has the new capacity: {capacities:?}");
    until_event(&cluster, "VolumeResizeSuccessful", "Resize volume succeeded").await;
    fake.reply.send_replace(Reply::Refusal);

    // The node refuses: the volume waits for its directory to go, and the claim does not wait.
    claims.delete("c", &DeleteParams::default()).await.expect("a deletion");
    until("released", volumes.clone(), |all| phase(&all[&name]) == "Released").await;
    until_event(&cluster, "VolumeFailedDelete", USED).await;
    // With the node its directories went.
    nodes.delete("n1", &DeleteParams::default()).await.expect("a deletion");
    until("gone", volumes, |all| !all.contains_key(&name)).await;
    cluster.stop().await;
}

/// A node with a directory for volumes.
async fn provisioned(cluster: &Cluster, node: &str) {
    cluster.node(node).await;
    let directory = json!({"metadata": {"annotations": {OURS: "/var/lib/skiff/volumes"}}});
    cluster.all::<Node>().patch(node, &PatchParams::default(), &Patch::Merge(directory)).await.expect("a directory");
}

/// A volume of the provisioner whose claim is gone.
fn left_over(name: &str, node: &str) -> PersistentVolume {
    let metadata = json!({"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": OURS, "skiff.internal/local-path-node": node}});
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
    let spec = json!({"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
        "local": {"path": format!("/var/lib/skiff/volumes/{name}")}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "persistentVolumeReclaimPolicy": "Delete", "claimRef": {"namespace": "default", "name": "gone", "uid": "0a"}});
    from(json!({"metadata": metadata, "spec": spec}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_does_not_answer_keeps_no_claim_waiting() {
    let fake = FakeNodes::new(Reply::Silence);
    let cluster = Cluster::start(|config| fake.answer_for(config)).await;
    let (claims, volumes) = (cluster.api::<PersistentVolumeClaim>(), cluster.all::<PersistentVolume>());
    let class = json!({"metadata": {"name": "local"}, "provisioner": OURS, "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.all::<StorageClass>().create(&PostParams::default(), &from(class)).await.expect("a class");
    provisioned(&cluster, "n1").await;
    for number in 10..22 {
        volumes.create(&PostParams::default(), &left_over(&format!("pvc-{number}"), "n1")).await.expect("a volume");
    }
    let mut removals = fake.removals.subscribe();
    let within = tokio::time::timeout(Duration::from_secs(30), removals.wait_for(|removals| removals.len() == 4)).await;
    within.expect("in time").expect("the node's share of the workers");
    claims.create(&PostParams::default(), &claim("c", &json!({"storageClassName": "local"}))).await.expect("a claim");
    claims.patch("c", &PatchParams::default(), &select("n1")).await.expect("a choice");
    until("bound", claims.clone(), |all| claim_phase(&all["c"]) == "Bound").await;
    // Nor the volumes of other nodes.
    provisioned(&cluster, "n2").await;
    volumes.create(&PostParams::default(), &left_over("pvc-30", "n2")).await.expect("a volume");
    let within = tokio::time::timeout(Duration::from_secs(30), removals.wait_for(|removals| removals.contains(&"pvc-30".to_owned()))).await;
    assert_eq!(within.expect("in time").expect("the volume of the other node").len(), 5);
    fake.reply.send_replace(Reply::Done);
    until("all are removed", volumes, |all| !all.values().any(|volume| phase(volume) == "Released")).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retained_volume_and_one_of_an_absent_node_stay() {
    let fake = FakeNodes::new(Reply::Done);
    let cluster = Cluster::start(|config| fake.answer_for(config)).await;
    let (volumes, nodes) = (cluster.all::<PersistentVolume>(), cluster.all::<Node>());
    provisioned(&cluster, "n1").await;
    // The cache of the provisioner does not show yet what somebody did.
    *fake.rescued.lock() = Some("pvc-10".to_owned());
    volumes.create(&PostParams::default(), &left_over("pvc-10", "n1")).await.expect("a volume");
    let finalizers = |volume: &PersistentVolume| volume.metadata.finalizers.clone().unwrap_or_default();
    until("it was looked at", volumes.clone(), |all| {
        let policy = all["pvc-10"].spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.clone());
        policy.as_deref() == Some("Retain") && finalizers(&all["pvc-10"]) == ["kubernetes.io/pv-protection"]
    })
    .await;

    let ready = |status: &str| {
        let condition = json!({"type": "Ready", "status": status, "reason": "Fake"});
        Patch::Strategic(json!({"status": {"conditions": [condition]}}))
    };
    nodes.patch_status("n1", &PatchParams::default(), &ready("False")).await.expect("a status");
    volumes.create(&PostParams::default(), &left_over("pvc-20", "n1")).await.expect("a volume");
    until_event(&cluster, "VolumeFailedDelete", "node \"n1\" is not ready").await;
    assert_eq!(*fake.removals.borrow(), Vec::<String>::new());
    nodes.patch_status("n1", &PatchParams::default(), &ready("True")).await.expect("a status");
    until("gone", volumes.clone(), |all| !all.contains_key("pvc-20")).await;
    assert_eq!(*fake.removals.borrow(), ["pvc-20"]);
    assert_eq!(phase(&volumes.get("pvc-10").await.expect("it is kept")), "Released");
    cluster.stop().await;
}
