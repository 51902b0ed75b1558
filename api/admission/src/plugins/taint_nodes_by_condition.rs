//! TaintNodesByCondition: adds the not-ready taint to a new Node.

use api_model::view::View;
use serde_json::{Value, json};

use crate::denied::Denied;
use crate::json;
use crate::plugin::Plugin;
use crate::request::{Operation, Request};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The plugin.
pub struct TaintNodesByCondition;

impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn admit(&self, request: &mut Request<'_>, _view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        if request.operation != Operation::Create || !request.is("", "nodes") {
            return Ok(());
        }
        let Some(node) = request.object.as_deref_mut() else { return Ok(()) };
        json::map_mut(node, "spec");
        let taints = node.get_mut("spec").and_then(|spec| json::list_mut(spec, "taints"));
        let same = |taint: &Value| json::text(taint, "key") == NOT_READY && json::text(taint, "effect") == "NoSchedule";
        if let Some(taints) = taints.filter(|taints| !taints.iter().any(same)) {
            taints.push(json!({ "key": NOT_READY, "effect": "NoSchedule" }));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ask, Objects};

    #[test]
    fn a_new_node_is_tainted_once() {
        let taint = json!({ "key": NOT_READY, "effect": "NoSchedule" });
        let other = json!({ "key": "mine", "effect": "NoExecute" });
        for (spec, wanted) in [
            (Value::Null, json!([taint])),
            (json!({}), json!([taint])),
            (json!({ "taints": [taint] }), json!([taint])),
            (json!({ "taints": [other] }), json!([other, taint])),
        ] {
            let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" }, "spec": spec });
            let outcome = Ask::create(node.clone()).admit(&TaintNodesByCondition, &Objects::default()).expect("admitted");
            assert_eq!(outcome.object["spec"]["taints"], wanted);
            let admitted = Ask::update(&node, node.clone()).admit(&TaintNodesByCondition, &Objects::default()).expect("admitted");
            assert_eq!(admitted.object, node);
        }
    }
}
