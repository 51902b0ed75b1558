//! The loop behind APIServices: it creates the APIServices of this server's own kinds, checks whether the aggregated
//! servers are available and what they serve, and writes the result into their conditions.
//!
//! It checks a server again when a dependency of the check changes, when a client's request got no answer, and from
//! time to time (`due.rs`). Changes that come close together cause one check.

use std::sync::Arc;
use std::time::Duration;

use api_model::kind::GroupResource;
use futures::StreamExt as _;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::ask::{Answer, Question, ask};
use super::due::{ASK_AGAIN_AFTER, ASK_EVERY, Looks, ProbeInput};
use super::{Aggregation, Documents, GROUP, PLURAL, Remote, available, discovery, local, openapi};
use crate::call::Call;
use crate::condition::{self, Condition};
use crate::loopback::{Loopback, user};
use crate::verbs::WritePath;
use crate::verbs::modify::modify;
use crate::verbs::recording::Recording;
use api_cache::Resource;
use api_wire::body::BODY_BYTES_MAX;
use api_wire::status::ApiResult;

/// Pause after a pass: it combines changes that come close together.
const PAUSE: Duration = Duration::from_millis(200);
/// Number of servers that are checked at the same time.
const AT_ONCE: usize = 16;
/// The user of the checks: upstream's name.
const CHECKER: &str = "system:kube-aggregator";

/// The local APIServices depend on these resources.
const OF_REGISTERED: [(&str, &str); 2] = [(GROUP, PLURAL), ("apiextensions.k8s.io", "customresourcedefinitions")];
/// Whether a server can be reached depends on these resources, beside its APIService.
const OF_SERVERS: [(&str, &str); 2] = [("", "services"), ("discovery.k8s.io", "endpointslices")];

/// The task that maintains the APIServices.
pub(crate) struct Keeper {
    pub(crate) aggregation: Arc<Aggregation>,
    pub(crate) writes: Arc<WritePath>,
    pub(crate) loopback: Loopback,
}

/// Runs until the server stops.
pub(crate) async fn run(keeper: Keeper) {
    let (aggregation, core) = (&*keeper.aggregation, &*keeper.aggregation.core);
    let follow = |names: [(&str, &str); 2]| names.map(|(group, plural)| core.cache.resource(&GroupResource::new(group, plural)));
    let (of_registered, of_servers) = (follow(OF_REGISTERED), follow(OF_SERVERS));
    let mut applied = core.cache.follow();
    let (mut registered, mut looks) = (Registered::default(), Looks::default());
    loop {
        let revisions = || (revisions_of(&of_registered), revisions_of(&of_servers));
        let seen = revisions();
        registered.renew(&keeper, seen.0).await;
        look(&keeper, &mut looks).await;
        let until = registered.again_at.into_iter().chain(looks.next()).min();
        let until = until.unwrap_or_else(|| Instant::now() + ASK_EVERY);
        loop {
            tokio::select! {
                () = core.shutdown.cancelled() => return,
                () = tokio::time::sleep_until(until) => break,
                () = aggregation.doubt.notified() => break,
                changed = applied.changed() => match changed {
                    Err(_) => return,
                    Ok(()) if revisions() != seen => break,
                    Ok(()) => {}
                }
            }
        }
        tokio::select! {
            () = core.shutdown.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

fn revisions_of(resources: &[Arc<Resource>; 2]) -> [u64; 2] {
    resources.each_ref().map(|resource| resource.revision())
}

/// The APIServices of this server's own kinds.
#[derive(Default)]
struct Registered {
    /// The inputs of the last registration: revisions, and the number of the table of kinds.
    of: Option<([u64; 2], u64)>,
    again_at: Option<Instant>,
}

impl Registered {
    /// Registers again if an input has changed, and from time to time.
    async fn renew(&mut self, keeper: &Keeper, revisions: [u64; 2]) {
        let of = (revisions, keeper.aggregation.core.registry.table().number);
        if self.of == Some(of) && self.again_at.is_some_and(|again_at| Instant::now() < again_at) {
            return;
        }
        let is_done = local::register(&keeper.loopback, &keeper.writes).await;
        self.of = Some(of);
        self.again_at = Some(Instant::now() + if is_done { ASK_EVERY } else { ASK_AGAIN_AFTER });
    }
}

/// Checks the servers for which a check is due.
async fn look(keeper: &Keeper, looks: &mut Looks) {
    let aggregation = &*keeper.aggregation;
    let remotes = aggregation.remotes.all();
    aggregation.forget_others(&remotes);
    looks.retain(|name| remotes.iter().any(|remote| remote.name == name));
    let doubts = std::mem::take(&mut *aggregation.doubts.lock());
    let now = Instant::now();
    doubts.iter().for_each(|name| looks.doubt(name, now));
    let inputs = remotes.iter().map(|remote| (Arc::clone(remote), ProbeInput::of(remote, &*aggregation.core.cache)));
    let due: Vec<_> = inputs.filter(|(remote, input)| looks.is_due(&remote.name, input, now)).collect();
    let looking = futures::stream::iter(due).map(|(remote, input)| async move {
        let is_well = is_well(keeper, &remote, &input).await;
        (remote, input, is_well)
    });
    let mut looking = looking.buffer_unordered(AT_ONCE);
    while let Some((remote, input, is_well)) = looking.next().await {
        looks.looked(&remote.name, input, is_well, Instant::now());
    }
}

/// Checks a server and writes the result. Returns false if the check must be repeated soon.
async fn is_well(keeper: &Keeper, remote: &Remote, input: &ProbeInput) -> bool {
    let aggregation = &*keeper.aggregation;
    let (found, resources) = match &input.obstacle {
        Some(obstacle) => (obstacle.clone(), None),
        None => found(aggregation, remote).await,
    };
    let known = aggregation.documents_of(remote).as_deref().cloned().unwrap_or_default();
    let documents = resources.map(|resources| Documents { uid: remote.uid.clone(), resources: Arc::new(resources), ..known });
    if let Some(documents) = &documents {
        aggregation.keep(remote, documents.clone());
    }
    let is_well = has_written(keeper, remote, &found).await;
    // The OpenAPI documents come last: a server that is slow with them becomes available before that.
    if let Some(Documents { uid, resources, openapi, openapi_v2 }) = documents {
        let (openapi, openapi_v2) = tokio::join!(openapi::v3(aggregation, remote, openapi), openapi::v2(aggregation, remote, openapi_v2));
        aggregation.keep(remote, Documents { uid, resources, openapi, openapi_v2 });
    }
    is_well
}

/// Writes the condition. Returns false if the write failed or the server is not available.
async fn has_written(keeper: &Keeper, remote: &Remote, found: &Condition) -> bool {
    match write(keeper, remote, found).await {
        Ok(()) => found.status,
        // The APIService was deleted meanwhile, and that change causes another pass.
        Err(error) if error.code() == StatusCode::NOT_FOUND => true,
        Err(error) => {
            tracing::warn!(apiservice = remote.name, error = error.message(), "a condition was not written");
            false
        }
    }
}

/// Asks a server that can be reached for its discovery; returns the condition, and the discovery document.
async fn found(aggregation: &Aggregation, remote: &Remote) -> (Condition, Option<Value>) {
    let path = format!("/apis/{}", remote.group_version());
    let url = format!("https://{}:{}{path}", remote.host(), remote.port);
    let question = Question { path: &path, user: CHECKER, etag: None, answer_bytes_max: BODY_BYTES_MAX };
    let resources: Value = match ask(aggregation, remote, question).await {
        // Null if the body is no JSON.
        Ok(Answer { status, body, .. }) if status.is_success() => serde_json::from_slice(&body).unwrap_or_default(),
        Ok(answer) => {
            let why = format!("bad status from {url}: {}", answer.status.as_u16());
            return (available::failed_discovery(&url, &why), None);
        }
        Err(why) => return (available::failed_discovery(&url, &format!("Get {url:?}: {why}")), None),
    };
    // A server that answers is available, whatever it answers. Discovery uses only a valid list of resources.
    let resources = Some(resources).filter(discovery::is_resource_list);
    (available::passed(), resources)
}

/// Writes the condition if it differs from the stored one.
async fn write(keeper: &Keeper, remote: &Remote, found: &Condition) -> ApiResult<()> {
    let core = &keeper.aggregation.core;
    let Some(served) = core.registry.find(GROUP, "v1", PLURAL) else { return Ok(()) };
    let now = api_clock::now();
    let is_new = |object: &Value| {
        let mut status = object.get("status").filter(|status| status.is_object()).cloned().unwrap_or_else(|| json!({}));
        condition::set(&mut status, found, now).then_some(status)
    };
    let Some(object) = served.resource.get("", &remote.name) else { return Ok(()) };
    if is_new(&object.value()).is_none() {
        return Ok(());
    }
    let mut call = Call::internal(core, &served, "", user());
    (call.name, call.subresource) = (remote.name.clone(), "status".to_owned());
    let recording = Recording::By("kube-apiserver".to_owned());
    modify(&keeper.writes, &mut call, false, &recording, |_, old| {
        let mut new = old.clone();
        if let Some(status) = is_new(old) {
            api_wire::json::set(&mut new, &["status"], status);
        }
        Ok(new)
    })
    .await?;
    tracing::info!(apiservice = remote.name, reason = found.reason, "the availability of an aggregated server changed");
    Ok(())
}
