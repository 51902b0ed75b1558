//! One request from its head to its answer: authentication, fairness, authorization, the verb, and the record of the result.

use std::sync::Arc;
use std::time::Instant;

use api_fairness::Seat;
use api_model::meta;
use api_model::request::{Attributes, UserInfo};
use api_model::selector::FieldSelector;
use axum::body::Body;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, header};
use http_body::Body as _;

use crate::aggregation::forward::forward;
use crate::app::App;
use crate::audit::Peer;
use crate::call::Call;
use crate::fairness::Passed;
use crate::fence::Fence;
use crate::metrics::Observed;
use crate::registry::Served;
use crate::serve::socket::Socket;
use crate::verbs::{self, WritePath};
use crate::{
    audit, authenticate, authorize, components, external_metrics, impersonate, nonresource, resource_metrics, reviews, subresource,
};
use api_wire::accept;
use api_wire::deadline;
use api_wire::media::Encoding;
use api_wire::options::ListOptions;
use api_wire::path::is_connection;
use api_wire::path::{self, ResourcePath};
use api_wire::pretty;
use api_wire::query::{self, Query};
use api_wire::status::{ApiError, ApiResult};
use api_wire::warnings;

const AUDIT_ID: &str = "audit-id";

/// Answers a request.
pub(crate) async fn handle(app: Arc<App>, request: Request<Body>) -> Response<Body> {
    let (is_head, is_indented) = (request.method() == Method::HEAD, is_indented(&request));
    let mut answer = recorded(app, request).await;
    if is_indented {
        answer = pretty::indent(answer).await;
    }
    if is_head { without_body(answer) } else { answer }
}

/// Whether the answer is indented for people.
fn is_indented(request: &Request<Body>) -> bool {
    let query = request.uri().query().filter(|query| query.contains("pretty"));
    pretty::is_wanted(request.headers(), Query::parse(query).get("pretty"))
}

/// The answer to a HEAD: that to a GET without its body, but with its length.
fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    // An answer of another server came without a body, so its length is not known.
    if let Some(length) = body.size_hint().exact().filter(|length| *length > 0) {
        parts.headers.entry(header::CONTENT_LENGTH).or_insert(length.into());
    }
    Response::from_parts(parts, Body::empty())
}

/// Answers, and records the request in headers, metrics and the audit log.
async fn recorded(app: Arc<App>, request: Request<Body>) -> Response<Body> {
    let started = Instant::now();
    let (mut parts, body) = request.into_parts();
    let audit_id = parts.headers.get(AUDIT_ID).cloned().or_else(|| HeaderValue::from_str(&meta::new_uid()).ok());
    let trail = audit::start(app.audit.as_ref(), &mut parts, audit_id.as_ref());
    let mut passed = Passed::default();
    let errors = accept::of_errors(&parts.headers);
    // The largest part of a request. It is copied once here, and not with each future around it.
    let answering = Box::pin(answer(&app, parts, body, &mut passed));
    let (observed, answer) = audit::watched(trail.as_ref(), answering).await;
    let mut response = answer.unwrap_or_else(|error| error.into_response_in(errors));
    let headers = response.headers_mut();
    headers.extend(audit_id.map(|id| (http::HeaderName::from_static(AUDIT_ID), id)));
    passed.mark(headers);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    app.core.metrics.requests.observe(&observed, response.status(), started.elapsed());
    match trail {
        Some(trail) => trail.finish(response).await,
        None => response,
    }
}

async fn answer(app: &Arc<App>, parts: Parts, body: Body, passed: &mut Passed) -> (Observed, ApiResult<Response<Body>>) {
    let found = path::parse(parts.uri.path());
    let Some(found) = found else {
        let observed = Observed::path(&parts.method);
        return (observed, at_path(app, parts, body, passed).await);
    };
    let query = Query::parse(parts.uri.query());
    let verb = verb(&parts.method, &found, &query);
    let served = app.core.registry.find(&found.group, &found.version, &found.plural);
    let observed = Observed::resource(verb, served.as_ref(), &found);
    (observed, at_resource(app, parts, body, Wanted { verb, found, query, served }, passed).await)
}

/// A request for a path that is no resource.
async fn at_path(app: &Arc<App>, parts: Parts, body: Body, passed: &mut Passed) -> ApiResult<Response<Body>> {
    let verb = parts.method.as_str().to_ascii_lowercase();
    let attributes = Attributes { verb, path: parts.uri.path().to_owned(), ..Attributes::default() };
    let (user, _seat) = allowed(app, &parts, &attributes, passed).await?;
    let limit = deadline::of(&Query::parse(parts.uri.query()), app.core.config.request_timeout)?;
    match app.aggregation.remotes.at(parts.uri.path()) {
        Some(remote) => forward(&app.aggregation, &remote, &user, parts, body, false).await,
        None => tokio::time::timeout(limit, nonresource::answer(app, &parts)).await.unwrap_or_else(|_| Err(ApiError::took_too_long())),
    }
}

/// The user that the request is from, or impersonates, after the request waited for its turn and was authorized.
async fn allowed(app: &App, parts: &Parts, attributes: &Attributes, passed: &mut Passed) -> ApiResult<(Arc<UserInfo>, Option<Seat>)> {
    let (core, trail) = (&app.core, audit::trail(parts));
    let authenticated = authenticate::user(&core.authenticator, &core.cache, parts);
    if let Some(trail) = trail {
        trail.begin(authenticated.as_deref().ok(), attributes, parts).await;
    }
    let authenticated = authenticated?;
    let user = impersonate::acting((&core.authorizer, &core.cache), &authenticated, attributes, &parts.headers)?;
    if let Some(trail) = trail.filter(|_| !Arc::ptr_eq(&authenticated, &user)) {
        trail.impersonated(&user);
    }
    let seat = app.gate.enter(&user, attributes, passed).await?;
    let decision = authorize::decide((&core.authorizer, &core.cache), &user, attributes);
    if let Some(trail) = trail {
        trail.decided(if decision.is_allowed() { "allow" } else { "forbid" }, decision.reason());
    }
    authorize::enforce(&user, attributes, &decision)?;
    Ok((user, seat))
}

struct Wanted {
    verb: &'static str,
    found: ResourcePath,
    query: Query,
    served: Option<Arc<Served>>,
}

async fn at_resource(app: &Arc<App>, mut parts: Parts, body: Body, wanted: Wanted, passed: &mut Passed) -> ApiResult<Response<Body>> {
    // The seat is held until the answer is made or, for a watch, has begun.
    let (user, _seat) = allowed(app, &parts, &attributes(&wanted), passed).await?;
    let fence = parts.extensions.remove::<Arc<Fence>>();
    if let Some(fence) = fence.as_ref().filter(|_| !is_read(wanted.verb)) {
        // The store has the last word. Before that, webhooks and other servers would get the request.
        fence.guard()?;
    }
    let is_long_running = wanted.verb == "watch" || is_connection(&wanted.found.subresource);
    let limit = match is_long_running {
        true => app.core.config.request_timeout,
        false => deadline::of(&wanted.query, app.core.config.request_timeout)?,
    };
    if wanted.served.as_ref().is_none_or(|served| served.kind.is_delegable())
        && let Some(remote) = app.aggregation.remotes.find(&wanted.found.group, &wanted.found.version)
    {
        return forward(&app.aggregation, &remote, &user, parts, body, wanted.verb == "watch").await;
    }
    if external_metrics::is_metric(&app.core, &wanted.found) {
        return external_metrics::answer(&app.core, &wanted.found, wanted.verb, &wanted.query);
    }
    let trail = audit::trail(&parts).cloned();
    if trail.as_ref().is_some_and(|trail| trail.keeps_answer()) {
        parts.headers.remove(header::ACCEPT_ENCODING);
    }
    let Wanted { verb, found, query, served } = wanted;
    if !is_connection(&found.subresource) {
        query::check(parts.uri.query())?;
    }
    let served = served.ok_or_else(ApiError::no_such_resource)?;
    check_path(&found, served.kind.namespaced, verb)?;
    let is_watch = verb == "watch" && found.subresource.is_empty();
    let socket = match is_watch || found.subresource == "log" {
        true => Socket::wanted(&mut parts, is_watch).await,
        false => None,
    };
    let call = Call {
        core: Arc::clone(&app.core),
        warnings: served.deprecation().into_iter().collect(),
        served,
        namespace: found.namespace,
        name: found.name,
        subresource: found.subresource,
        rest: found.rest,
        query,
        headers: std::mem::take(&mut parts.headers),
        user,
        fence,
        remote: parts.extensions.get::<Peer>().map(|Peer(ip)| *ip),
        trail: trail.clone(),
    };
    let answer = if is_connection(&call.subresource) {
        subresource::connect(&app.connector, call, parts, body).await?
    } else {
        tokio::time::timeout(limit, perform(&app.writes, call, verb, body)).await.unwrap_or_else(|_| Err(ApiError::took_too_long()))?
    };
    Ok(match socket {
        Some(socket) => socket.carry(answer, trail.as_ref()),
        None => answer,
    })
}

async fn perform(writes: &WritePath, mut call: Call, verb: &str, body: Body) -> ApiResult<Response<Body>> {
    let bytes = api_wire::body::read(body).await?;
    if let Some(trail) = &call.trail {
        trail.request(&call.headers, &bytes);
    }
    if !takes_the_past(verb, &call.query) {
        call.core.catch_up().await?;
    }
    let answered = match call.subresource.as_str() {
        "" => main_resource(writes, &mut call, verb, &bytes).await,
        _ => subresource::answer(writes, &mut call, verb, &bytes).await,
    };
    let errors = if call.served.custom.is_some() { Encoding::Json } else { accept::of_errors(&call.headers) };
    let mut response = answered.unwrap_or_else(|error| error.into_response_in(errors));
    for warning in warnings::headers(&call.warnings) {
        response.headers_mut().append(header::WARNING, warning);
    }
    Ok(response)
}

/// Whether the client accepts an older state: any resource version says so, "0" most of all. All other reads, and all changes, are
/// about the present state.
fn takes_the_past(verb: &str, query: &Query) -> bool {
    is_read(verb) && query.filled("resourceVersion").is_some()
}

fn is_read(verb: &str) -> bool {
    matches!(verb, "get" | "list" | "watch")
}

async fn main_resource(writes: &WritePath, call: &mut Call, verb: &str, bytes: &[u8]) -> ApiResult<Response<Body>> {
    if !call.served.kind.allows(verb) {
        return Err(ApiError::method_not_allowed());
    }
    match verb {
        "get" if components::is_report(&call.served) => components::get(call).await,
        "list" if components::is_report(&call.served) => components::list(call).await,
        "get" if resource_metrics::is_metrics(&call.served) => resource_metrics::get(call).await,
        "list" if resource_metrics::is_metrics(&call.served) => resource_metrics::list(call).await,
        "get" => verbs::get::get(call).await,
        "list" => verbs::list::list(call).await,
        "watch" => {
            let options = ListOptions::parse(&call.query)?;
            verbs::watch::watch(call, &options).await
        }
        "create" if call.served.is_terminating() => Err(ApiError::terminating(verb)),
        "create" if reviews::is_review(&call.served) => reviews::create(writes, call, bytes).await,
        "create" => verbs::create::create(writes, call, bytes).await,
        "update" => verbs::update::update(writes, call, bytes).await,
        "patch" => verbs::patch::patch(writes, call, bytes).await,
        "delete" => verbs::delete::delete(&writes.admission, call, bytes).await,
        "deletecollection" => verbs::delete_collection::delete_collection(&writes.admission, call, bytes).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// The API verb of a request; for methods without one, a verb that no kind allows.
fn verb(method: &Method, found: &ResourcePath, query: &Query) -> &'static str {
    let one = !found.name.is_empty();
    match *method {
        Method::GET | Method::HEAD if found.watch => "watch",
        Method::GET | Method::HEAD if one => "get",
        Method::GET | Method::HEAD if query.flag("watch") => "watch",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if one => "delete",
        Method::DELETE => "deletecollection",
        _ => "",
    }
}

fn attributes(wanted: &Wanted) -> Attributes {
    let Wanted { verb, found, query, .. } = wanted;
    let is_selection = matches!(*verb, "list" | "watch" | "deletecollection");
    let field_selector = query.filled("fieldSelector").filter(|_| is_selection).and_then(|text| FieldSelector::parse(text).ok());
    // A selection of one name is a request for that name, as upstream.
    let selected = field_selector.as_ref().and_then(|fields| fields.exact("metadata.name"));
    Attributes {
        verb: (*verb).to_owned(),
        group: found.group.clone(),
        version: found.version.clone(),
        resource: found.plural.clone(),
        subresource: found.subresource.clone(),
        namespace: found.namespace.clone(),
        name: selected.unwrap_or(&found.name).to_owned(),
        path: String::new(),
        field_selector,
    }
}

/// Rejects paths that do not fit the scope of the kind: only lists and watches may span all namespaces.
fn check_path(found: &ResourcePath, namespaced: bool, verb: &str) -> ApiResult<()> {
    let has_namespace = !found.namespace.is_empty();
    let is_namespace = found.plural == "namespaces" && found.group.is_empty();
    // The deprecated prefix `/watch` is for watches alone.
    if found.watch && !found.subresource.is_empty() {
        return Err(ApiError::no_such_resource());
    }
    if found.watch && verb != "watch" {
        return Err(ApiError::method_not_allowed());
    }
    if let Some(why) = found.name_fault() {
        return Err(ApiError::bad_request(format!("Name parameter invalid: {:?}: {why}", found.name)));
    }
    match (namespaced, has_namespace) {
        (true, false) if !found.name.is_empty() => Err(ApiError::no_such_resource()),
        (true, false) if !matches!(verb, "list" | "watch") => Err(ApiError::method_not_allowed()),
        (false, true) if !is_namespace => Err(ApiError::no_such_resource()),
        _ if found.name.is_empty() && matches!(verb, "update" | "patch") => Err(ApiError::method_not_allowed()),
        _ if !found.name.is_empty() && found.subresource.is_empty() && verb == "create" => Err(ApiError::method_not_allowed()),
        _ => Ok(()),
    }
}
