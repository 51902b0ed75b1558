//! The options of a connection as the object that admission checks and may change: `PodExecOptions` and similar kinds.

use api_admission::webhook::Gvk;
use serde_json::{Map, Value};

use crate::admission::Admission;
use crate::attributes::Step;
use crate::call::Call;
use api_wire::json;
use api_wire::query::Query;
use api_wire::status::ApiResult;

/// Flags of `exec` and `attach`.
const FLAGS: [&str; 4] = ["stdin", "stdout", "stderr", "tty"];

/// Runs admission for a connection. Then the call has the options that admission returned.
pub(super) async fn through_admission(admission: &Admission, call: &mut Call, step: Step<'_>) -> ApiResult<()> {
    let requested = of(call);
    let mut options = requested.clone();
    admission.mutate(call, step, Some(&mut options)).await?;
    if options != requested {
        ask_for(call, &options);
    }
    admission.validate(call, step, Some(&mut options)).await
}

/// Writes the options into the call: the reverse of [`of`].
fn ask_for(call: &mut Call, options: &Value) {
    let text = |field: &str| json::text(options, &[field]).to_owned();
    let pair = |name: &str, value: String| (name.to_owned(), value);
    let each = |field: &str| options.get(field).and_then(Value::as_array).into_iter().flatten();
    let mut pairs = Vec::new();
    match call.subresource.as_str() {
        "portforward" => pairs.extend(each("ports").map(|port| pair("ports", port.to_string()))),
        "proxy" => {
            let path = text("path");
            call.rest = if path.is_empty() || path.starts_with('/') { path } else { format!("/{path}") };
            return;
        }
        _ => {
            let is_set = |flag: &&&str| options.get(**flag).and_then(Value::as_bool).unwrap_or_default();
            pairs.extend(FLAGS.iter().filter(is_set).map(|flag| pair(flag, "true".to_owned())));
            pairs.push(pair("container", text("container")));
            pairs.extend(each("command").filter_map(Value::as_str).map(|argument| pair("command", argument.to_owned())));
        }
    }
    call.query = Query::of(pairs);
}

/// The options in the call's query.
fn of(call: &Call) -> Value {
    let mut options = Map::new();
    let mut set = |field: &str, value: Value| options.insert(field.to_owned(), value);
    set("kind", Gvk::of_body(&call.served.kind, &call.subresource).kind.into());
    set("apiVersion", "v1".into());
    match call.subresource.as_str() {
        "portforward" => {
            let ports = call.query.all("ports").flat_map(|ports| ports.split(','));
            set("ports", ports.filter_map(|port| port.parse::<u16>().ok()).map(Value::from).collect());
        }
        "proxy" => {
            set("path", call.rest.as_str().into());
        }
        sub => {
            for flag in FLAGS.into_iter().filter(|flag| call.query.flag(flag)) {
                set(flag, true.into());
            }
            if let Some(container) = call.query.filled("container") {
                set("container", container.into());
            }
            if sub == "exec" {
                set("command", call.query.all("command").map(Value::from).collect());
            }
        }
    }
    Value::Object(options)
}
