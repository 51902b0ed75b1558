//! PodTopologyLabels: copies the topology labels of the node to a Pod that is bound to it, so that the Pod's containers
//! can read them.

use std::collections::BTreeMap;

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::view::View;
use serde_json::Value;

use crate::denied::Denied;
use crate::json;
use crate::plugin::Plugin;
use crate::pods;
use crate::request::{Operation, Request};

const COPIED: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// The plugin.
pub struct PodTopologyLabels;

impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn admit(&self, request: &mut Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        if request.operation != Operation::Create {
            return Ok(());
        }
        // The labels of a Binding are added to the Pod.
        let is_binding = request.is_sub("", "pods", "binding");
        if !is_binding && !request.is("", "pods") {
            return Ok(());
        }
        let Some(object) = request.object.as_deref_mut() else { return Ok(()) };
        let node = match is_binding {
            true if json::text_at(object, "/target/kind") == "Node" => json::text_at(object, "/target/name"),
            true => "",
            false => json::text(pods::spec(object), "nodeName"),
        };
        let labels = labels_of(node, view);
        if labels.is_empty() {
            return Ok(());
        }
        let mut all = meta::labels(object).cloned().unwrap_or_default();
        all.extend(labels.into_iter().map(|(key, value)| (key, Value::from(value))));
        meta::set(object, "labels", all);
        Ok(())
    }
}

/// The topology labels of a node; empty if the node does not exist.
fn labels_of(node: &str, view: &dyn View) -> BTreeMap<String, String> {
    if node.is_empty() {
        return BTreeMap::new();
    }
    let mut labels = view.labels(&GroupResource::new("", "nodes"), None, node).unwrap_or_default();
    labels.retain(|label, _| COPIED.contains(&label.as_str()));
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ask, Objects};
    use serde_json::json;

    #[test]
    fn a_pod_learns_where_its_node_is() {
        let view = Objects::new([json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {
            "topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "kubernetes.io/hostname": "n"}}})]);
        let pod = |node: &str| {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default",
                "labels": {"app": "a", "topology.kubernetes.io/zone": "mine"}}, "spec": {"nodeName": node}});
            Ask::create(pod).admit(&PodTopologyLabels, &view).expect("admitted").object["metadata"]["labels"].clone()
        };
        assert_eq!(pod("n"), json!({"app": "a", "topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}));
        for node in ["", "unknown"] {
            assert_eq!(pod(node), json!({"app": "a", "topology.kubernetes.io/zone": "mine"}), "{node}");
        }
    }
}
