//! ComponentStatuses: a report, made for each request, on the health of the cluster's parts: the store, the controllers and the
//! scheduler. Upstream asks the latter two on the server's own machine. Here they run in the server's process, or the server does
//! not know them. A part that fails ends the process, so a part of a process that answers is healthy.

use api_model::meta;
use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::call::Call;
use crate::core::Core;
use crate::health;
use crate::present::Presentation;
use crate::registry::{Internal, Served};
use crate::verbs::list::filter;
use api_wire::accept::Answer;
use api_wire::options::ListOptions;
use api_wire::status::ApiResult;

/// Upstream's name of the first member of the store.
const STORE: &str = "etcd-0";
/// Upstream's names of the parts beside the server.
const PARTS: [&str; 2] = ["controller-manager", "scheduler"];

/// Whether a kind is ComponentStatus.
pub(crate) fn is_report(served: &Served) -> bool {
    served.is("", "componentstatuses")
}

/// `GET` of one part.
pub(crate) async fn get(call: &Call) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::Object)?;
    let all = all(&call.core).await;
    let found = all.into_iter().find(|part| meta::name(part) == call.name);
    Ok(presentation.unstored(StatusCode::OK, &Internal::new(found.ok_or_else(|| call.not_found())?)))
}

/// `GET` of all.
pub(crate) async fn list(call: &Call) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::List)?;
    let options = ListOptions::parse(&call.query)?;
    let wanted = filter(call, &options)?;
    let items = all(&call.core).await.into_iter().filter(|part| wanted.labels.matches(part) && wanted.fields.matches(part));
    let metadata = json!({"resourceVersion": call.core.cache.applied().to_string()});
    Ok(presentation.value(StatusCode::OK, &presentation.list_of(items, metadata)))
}

async fn all(core: &Core) -> Vec<Value> {
    let part = |name: &str, fault: Option<String>| {
        let (status, message) = fault.map_or(("True", "ok".to_owned()), |fault| ("False", fault));
        let condition = json!({"type": "Healthy", "status": status, "message": message});
        json!({"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": name}, "conditions": [condition]})
    };
    let beside = |name: &str| {
        let is_there = core.config.components.iter().any(|known| known == name);
        part(name, (!is_there).then(|| format!("the {name} does not run in the process of this API server")))
    };
    let store = (!health::is_store_well(core).await).then(|| "the store does not answer".to_owned());
    let [manager, scheduler] = PARTS.map(beside);
    vec![manager, part(STORE, store), scheduler]
}
