//! ComponentStatuses: a report, made when asked for, of how the parts of a cluster are. Upstream asks the
//! scheduler and the controllers on the server's own machine; here they may run anywhere and are asked
//! by their own health checks, so that the report is of the one part that this server knows: its store.

use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::app::{App, Call};
use crate::health;
use crate::registry::Served;
use crate::status::ApiResult;
use crate::verbs::list::filter;
use crate::wire::accept::Answer;
use crate::wire::options::ListOptions;
use crate::wire::present::Presentation;

/// What upstream calls the first member of the store.
const STORE: &str = "etcd-0";

/// Whether a kind is this report.
pub(crate) fn is_report(served: &Served) -> bool {
    served.is("", "componentstatuses")
}

/// `GET` of one part.
pub(crate) async fn get(call: &Call) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::Object)?;
    if call.name != STORE {
        return Err(call.not_found());
    }
    Ok(presentation.unstored(StatusCode::OK, store(&call.app).await))
}

/// `GET` of all.
pub(crate) async fn list(call: &Call) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::List)?;
    let options = ListOptions::parse(&call.query)?;
    let wanted = filter(call, &options)?;
    let store = store(&call.app).await;
    let items = Some(store).into_iter().filter(|part| wanted.labels.matches(part) && wanted.fields.matches(part));
    let metadata = json!({"resourceVersion": call.app.cache.applied().to_string()});
    Ok(presentation.value(StatusCode::OK, &presentation.list_of(items, metadata)))
}

async fn store(app: &App) -> Value {
    let condition = match health::is_store_well(app).await {
        true => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        false => json!({"type": "Healthy", "status": "False", "message": "the store does not answer"}),
    };
    json!({"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": STORE, "creationTimestamp": null}, "conditions": [condition]})
}
