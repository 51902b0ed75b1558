//! The loop behind APIServices: registers what is answered for here, asks the others whether they answer
//! and what they serve, and writes what it found into their conditions.
//!
//! It looks again when something that it depends on changes, when a request was not answered, and from
//! time to time.

use std::sync::Arc;
use std::time::Duration;

use api_model::kind::GroupResource;
use api_model::request::UserInfo;
use axum::body::Body;
use futures::StreamExt as _;
use http::{Request, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::forward::{connect, identity};
use super::{Documents, GROUP, PLURAL, Remote, available, discovery, local};
use crate::app::{App, Call};
use crate::definitions::condition::{self, Condition};
use crate::status::ApiResult;
use crate::verbs::modify::modify;
use crate::verbs::recording::Recording;

/// How often everybody is asked, and those who did not answer: upstream's resync, and a pause in which
/// nothing is lost.
const ASK_EVERY: Duration = Duration::from_secs(30);
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// What changes sooner after a look waits for this long.
const PAUSE: Duration = Duration::from_millis(200);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Servers asked at once.
const AT_ONCE: usize = 16;
/// Who asks: upstream's names.
const CHECKER: &str = "system:kube-aggregator";
const READER: &str = "system:aggregator";

/// What a look depends on.
const DEPENDS_ON: [(&str, &str); 4] =
    [(GROUP, PLURAL), ("", "services"), ("discovery.k8s.io", "endpointslices"), ("apiextensions.k8s.io", "customresourcedefinitions")];

/// Keeps on until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    let resources = DEPENDS_ON.map(|(group, plural)| app.cache.resource(&GroupResource::new(group, plural)));
    let mut applied = app.cache.follow();
    loop {
        let revisions = || resources.each_ref().map(|resource| resource.revision());
        let seen = revisions();
        let all_well = look(&app).await;
        let until = Instant::now() + if all_well { ASK_EVERY } else { ASK_AGAIN_AFTER };
        loop {
            tokio::select! {
                () = app.shutdown.cancelled() => return,
                () = tokio::time::sleep_until(until) => break,
                () = app.aggregation.doubt.notified() => break,
                changed = applied.changed() => match changed {
                    Err(_) => return,
                    Ok(()) if revisions() != seen => break,
                    Ok(()) => {}
                }
            }
        }
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// One look at everything; false where something is to be tried again soon.
async fn look(app: &Arc<App>) -> bool {
    let registered = local::register(app).await;
    let remotes = app.aggregation.remotes();
    app.aggregation.forget_others(&remotes);
    let looks = futures::stream::iter(remotes.iter().cloned()).map(|remote| async move {
        let found = found(app, &remote).await;
        match write(app, &remote, &found).await {
            Ok(()) => found.status,
            // Gone meanwhile, and that is a change.
            Err(error) if error.code() == StatusCode::NOT_FOUND => true,
            Err(error) => {
                tracing::warn!(apiservice = remote.name, ?error, "a condition was not written");
                false
            }
        }
    });
    looks.buffer_unordered(AT_ONCE).fold(registered, |well, one| std::future::ready(well & one)).await
}

/// The condition that a server is in. What it says of itself is kept.
async fn found(app: &Arc<App>, remote: &Remote) -> Condition {
    if let Some(obstacle) = available::obstacle(remote, &*app.cache) {
        return obstacle;
    }
    let path = format!("/apis/{}", remote.group_version());
    let url = format!("https://{}:{}{path}", remote.host(), remote.port);
    let resources = match get(app, remote, &path, CHECKER).await {
        Ok((status, body)) if status.is_success() => body,
        Ok((status, _)) => return available::failed_discovery(&url, &format!("bad status from {url}: {}", status.as_u16())),
        Err(why) => return available::failed_discovery(&url, &format!("Get {url:?}: {why}")),
    };
    // Who answers is there, whatever it says; discovery shows what can be understood of it.
    if discovery::is_resource_list(&resources) {
        let index = get(app, remote, "/openapi/v3", READER).await;
        let openapi = index.ok().filter(|(status, _)| status.is_success()).map(|(_, index)| discovery::openapi_of(&index, remote));
        app.aggregation.keep(remote, Documents { resources, openapi: openapi.unwrap_or_default() });
    }
    available::passed()
}

/// A document of a server; null where it is no JSON.
async fn get(app: &Arc<App>, remote: &Remote, path: &str, user: &str) -> Result<(StatusCode, Value), String> {
    let asking = async {
        let mut sender = connect(app, remote).await?;
        let request = Request::get(path).header(header::HOST, remote.host()).header(header::ACCEPT, "application/json");
        let mut request = request.body(Body::empty()).map_err(|error| error.to_string())?;
        let user = UserInfo::new(user, &["system:masters"]);
        request.headers_mut().extend(identity(&user).map_err(|error| error.message().to_owned())?);
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = crate::wire::body::read(Body::new(answer.into_body())).await.map_err(|error| error.message().to_owned())?;
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    };
    let answered = tokio::time::timeout(ANSWER_TIMEOUT, asking).await;
    answered.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
}

/// Writes the condition where it is another than the one that stands there.
async fn write(app: &Arc<App>, remote: &Remote, found: &Condition) -> ApiResult<()> {
    let Some(served) = app.registry.find(GROUP, "v1", PLURAL) else { return Ok(()) };
    let now = Timestamp::now();
    let is_new = |object: &Value| {
        let mut status = object.get("status").filter(|status| status.is_object()).cloned().unwrap_or_else(|| json!({}));
        condition::set(&mut status, found, now).then_some(status)
    };
    let Some(object) = served.resource.get("", &remote.name) else { return Ok(()) };
    if is_new(&object.value()).is_none() {
        return Ok(());
    }
    let mut call = Call::internal(app, &served, "", UserInfo::new("system:apiserver", &["system:masters"]));
    (call.name, call.subresource) = (remote.name.clone(), "status".to_owned());
    let recording = Recording::By("kube-apiserver".to_owned());
    modify(&mut call, false, &recording, |_, old| {
        let mut new = old.clone();
        if let Some(status) = is_new(old) {
            crate::json::set(&mut new, &["status"], status);
        }
        Ok(new)
    })
    .await?;
    tracing::info!(apiservice = remote.name, reason = found.reason, "the availability of an aggregated server changed");
    Ok(())
}
