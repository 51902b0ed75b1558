//! The resources with which an instance of a container starts, as a label of the container keeps them. Pure.

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use serde::{Deserialize, Serialize};

use super::InstanceResources;

/// The resources with which an instance starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StartResources {
    /// Those of its container.
    pub(crate) own: ResourceRequirements,
    /// Those of the Pod as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod_level: Option<Box<ResourceRequirements>>,
}

impl StartResources {
    /// An instance of a container as this Pod has it.
    pub(crate) fn of(spec: &PodSpec, container: &Container) -> Self {
        Self { own: container.resources.clone().unwrap_or_default(), pod_level: spec.resources.clone().map(Box::new) }
    }

    /// The label's value.
    pub(crate) fn to_label(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From the label's value. `None` for a container of an earlier version, which has no such label.
    pub(crate) fn from_label(value: &str) -> Option<Self> {
        serde_json::from_str(value).ok()
    }

    /// The resources of the instance when it has started.
    pub(crate) fn into_instance(self) -> InstanceResources {
        InstanceResources::new(self.own, self.pod_level.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_label_keeps_the_resources_of_a_start() {
        let pod_of = |own: Value, whole: Value| -> PodSpec {
            serde_json::from_value(json!({"resources": whole, "containers": [{"name": "c", "resources": own}]})).expect("a spec")
        };
        let limits = json!({"limits": {"cpu": "1", "memory": "64Mi"}});
        for (own, whole) in [(Value::Null, Value::Null), (limits.clone(), Value::Null), (Value::Null, limits)] {
            let spec = pod_of(own, whole);
            let container = spec.containers.first().expect("a container");
            let start = StartResources::of(&spec, container);
            assert_eq!(StartResources::from_label(&start.to_label()), Some(start.clone()));
            assert_eq!(start.into_instance(), InstanceResources::of(&spec, container));
        }
        assert_eq!(StartResources::from_label(""), None, "an earlier version");
    }
}
