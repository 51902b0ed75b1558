//! What a connection is asked for, as the object that admission looks at: `PodExecOptions` and its like.

use api_admission::webhook::Gvk;
use serde_json::{Map, Value};

use crate::app::Call;

/// Flags of `exec` and `attach`.
const FLAGS: [&str; 4] = ["stdin", "stdout", "stderr", "tty"];

/// From the call's query.
pub(super) fn of(call: &Call) -> Value {
    let mut options = Map::new();
    let mut set = |field: &str, value: Value| options.insert(field.to_owned(), value);
    set("kind", Gvk::of(&call.served.kind, &call.subresource).kind.into());
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
