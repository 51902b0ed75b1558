//! DefaultTolerationSeconds: adds tolerations that keep a Pod for five minutes on a node that is not ready or
//! unreachable, unless the Pod has its own tolerations for these taints.

use api_model::view::View;
use serde_json::{Value, json};

use crate::denied::Denied;
use crate::json;
use crate::plugin::Plugin;
use crate::request::{Operation, Request};

const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
const SECONDS: i64 = 300;

/// The plugin.
pub struct DefaultTolerationSeconds;

impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn admit(&self, request: &mut Request<'_>, _view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        if !request.is("", "pods") || !matches!(request.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        let Some(spec) = request.object.as_deref_mut().and_then(|pod| pod.get_mut("spec")) else { return Ok(()) };
        let missing: Vec<&str> = TAINTS.into_iter().filter(|taint| !tolerates(spec, taint)).collect();
        if let (false, Some(tolerations)) = (missing.is_empty(), json::list_mut(spec, "tolerations")) {
            tolerations.extend(
                missing
                    .iter()
                    .map(|taint| json!({ "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS })),
            );
        }
        Ok(())
    }
}

fn tolerates(spec: &Value, taint: &str) -> bool {
    json::list(spec, "tolerations").iter().any(|toleration| {
        let (key, effect) = (json::text(toleration, "key"), json::text(toleration, "effect"));
        (key.is_empty() || key == taint) && (effect.is_empty() || effect == "NoExecute")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ask, Objects};

    #[test]
    fn what_a_pod_does_not_say_is_added() {
        let [not_ready, unreachable] =
            TAINTS.map(|key| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }));
        let own = json!({ "key": TAINTS[0], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 7 });
        let all = json!({ "operator": "Exists" });
        let schedule = json!({ "key": TAINTS[1], "operator": "Exists", "effect": "NoSchedule" });
        for (spec, wanted) in [
            (json!({}), json!([not_ready, unreachable])),
            (json!({ "tolerations": [own] }), json!([own, unreachable])),
            (json!({ "tolerations": [all] }), json!([all])),
            (json!({ "tolerations": [schedule] }), json!([schedule, not_ready, unreachable])),
        ] {
            let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "ns" }, "spec": spec });
            let outcome = Ask::create(pod).admit(&DefaultTolerationSeconds, &Objects::default()).expect("admitted");
            assert_eq!(outcome.object["spec"]["tolerations"], wanted);
        }
    }
}
