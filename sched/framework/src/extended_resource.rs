//! Extended resources that devices may back (KEP-5004): a DeviceClass has the name of a resource, and Pods that request the resource get
//! devices of the class on nodes that do not have the resource themselves.

use std::collections::BTreeMap;

use api_model::quantity;
use k8s_openapi::api::core::v1::PodSpec;

use crate::{is_extended_resource, is_sidecar};

/// The prefix of the resource that each DeviceClass has beside the one that it names.
pub const DEVICE_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// Whether a DeviceClass may back the resource: upstream's `IsDRAExtendedResourceName`.
pub fn is_device_resource(name: &str) -> bool {
    is_extended_resource(name) || name.starts_with(DEVICE_CLASS_PREFIX)
}

/// What a container requests of resources that devices may back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceResources {
    /// The name of the container.
    pub container: String,
    /// The index of the container among the init containers and the containers after them.
    pub index: usize,
    /// Whether the container ends before the containers start: an init container that is no sidecar.
    pub is_short_lived: bool,
    /// By the name of the resource: its index among the sorted names of all resources that the container requests, and the amount.
    pub requests: BTreeMap<String, (usize, i64)>,
}

impl DeviceResources {
    /// The containers that request such resources.
    pub fn of_pod(spec: &PodSpec) -> Vec<Self> {
        let init = spec.init_containers.iter().flatten();
        let init = init.map(|container| (container, !is_sidecar(container)));
        let all = init.chain(spec.containers.iter().map(|container| (container, false)));
        let of_container = |(index, (container, is_short_lived)): (usize, (&k8s_openapi::api::core::v1::Container, bool))| {
            let requests = container.resources.as_ref()?.requests.as_ref()?;
            let of_devices = requests.iter().enumerate().filter(|(_, (name, _))| is_device_resource(name));
            let requests: BTreeMap<_, _> = of_devices
                .filter_map(|(number, (name, amount))| Some((name.clone(), (number, whole(&amount.0)?))))
                .filter(|(_, (_, amount))| *amount > 0)
                .collect();
            (!requests.is_empty()).then(|| Self { container: container.name.clone(), index, is_short_lived, requests })
        };
        all.enumerate().filter_map(of_container).collect()
    }
}

/// The quantity, if it is a whole number.
fn whole(text: &str) -> Option<i64> {
    let milli = quantity::milli(text).ok()?;
    i64::try_from(milli / 1000).ok().filter(|_| milli % 1000 == 0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{self, json};

    use super::*;

    #[test]
    fn the_containers_that_request_devices() {
        let container = |name: &str, requests: serde_json::Value| json!({"name": name, "resources": {"requests": requests}});
        let mut sidecar = container("sidecar", json!({"example.com/gpu": "2"}));
        sidecar["restartPolicy"] = json!("Always");
        let spec: PodSpec = serde_json::from_value(json!({
            "initContainers": [container("init", json!({"example.com/gpu": "1"})), sidecar],
            "containers": [
                container("none", json!({"cpu": "1", "hugepages-2Mi": "2Mi", "requests.example.com/gpu": "1", "x.kubernetes.io/y": "1"})),
                container("odd", json!({"example.com/zero": "0", "deviceclass.resource.kubernetes.io/half": "500m"})),
                container("both", json!({"cpu": "1", "deviceclass.resource.kubernetes.io/nic": "1", "example.com/gpu": "1k"})),
            ],
        }))
        .expect("a spec");
        let all = DeviceResources::of_pod(&spec);
        let text = |one: &DeviceResources| format!("{} {} {} {:?}", one.container, one.index, one.is_short_lived, one.requests);
        assert_eq!(
            all.iter().map(text).collect::<Vec<_>>(),
            [
                r#"init 0 true {"example.com/gpu": (0, 1)}"#,
                r#"sidecar 1 false {"example.com/gpu": (0, 2)}"#,
                r#"both 4 false {"deviceclass.resource.kubernetes.io/nic": (1, 1), "example.com/gpu": (2, 1000)}"#,
            ]
        );
    }
}
