//! Extended resources that devices back (KEP-5004): the claim that the scheduler creates for a Pod, and which of its requests are for which
//! container. On a node that has a resource itself, the claim does not ask for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ContainerExtendedResourceRequest;
use k8s_openapi::api::resource::v1::{DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sched_framework::{DeviceResources, DraManager, EXTENDED_RESOURCE_CLAIM, NodeInfo, PodInfo, is_device_resource};

/// The name of a claim that is not created yet. It is no valid one.
const NOT_CREATED: &str = "<extended-resources>";

/// The extended resources of a Pod that devices back.
pub(super) struct ExtendedResources {
    /// The class of each resource.
    pub classes: BTreeMap<String, String>,
    /// A claim of an earlier attempt: other devices may fit now.
    pub stale: Option<Arc<ResourceClaim>>,
    /// The claim without its requests.
    claim: ResourceClaim,
}

/// The claim for a node that lacks certain resources.
#[derive(Debug)]
pub(super) struct SpecialClaim {
    pub claim: Arc<ResourceClaim>,
    /// Which request is for which container and resource.
    pub mappings: Vec<ContainerExtendedResourceRequest>,
}

/// The claims of a cycle by the resources that nodes lack.
pub(super) type SpecialClaims = HashMap<BTreeSet<String>, Arc<SpecialClaim>>;

impl ExtendedResources {
    /// Those of the Pod; `None` if no class backs one of them.
    pub fn of_pod(pod: &PodInfo, dra: &DraManager) -> Option<Self> {
        let classes = dra.classes_of(&pod.device_resources);
        if classes.is_empty() {
            return None;
        }
        let stale = dra.special_claim(&pod.namespace, &pod.uid).cloned();
        Some(Self { classes, stale, claim: claim(pod) })
    }

    /// The claim for what the Pod needs of devices on the node, which may be nothing.
    ///
    /// # Errors
    /// When the node lacks a resource that no class backs.
    pub fn on_node(&self, pod: &PodInfo, node: &NodeInfo, claims: &mut SpecialClaims) -> Result<Option<Arc<SpecialClaim>>, &'static str> {
        let mut lacking = BTreeSet::new();
        for (resource, _) in pod.requests.scalar.iter().filter(|(resource, amount)| **amount > 0 && is_device_resource(resource)) {
            if self.classes.contains_key(resource) && node.allocatable.get(resource) == 0 {
                lacking.insert(resource.clone());
            } else if !node.allocatable.scalar.contains_key(resource) {
                return Err("cannot fit resource");
            }
        }
        if lacking.is_empty() {
            return Ok(None);
        }
        if let Some(claim) = claims.get(&lacking) {
            return Ok(Some(Arc::clone(claim)));
        }
        let classes: BTreeMap<&str, &str> = self
            .classes
            .iter()
            .filter(|(resource, _)| lacking.contains(*resource))
            .map(|(r, class)| (r.as_str(), class.as_str()))
            .collect();
        let (requests, mappings) = requests(&pod.device_resources, &classes);
        let mut claim = self.claim.clone();
        claim.spec = Some(ResourceClaimSpec { devices: Some(DeviceClaim { requests: Some(requests), ..DeviceClaim::default() }) });
        let special = Arc::new(SpecialClaim { claim: Arc::new(claim), mappings });
        claims.insert(lacking, Arc::clone(&special));
        Ok(Some(special))
    }
}

/// The claim, as it is created, but for its name and its UID: they stand for it until the server gives it others.
fn claim(pod: &PodInfo) -> ResourceClaim {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    ResourceClaim {
        metadata: ObjectMeta {
            namespace: Some(pod.namespace.clone()),
            name: Some(NOT_CREATED.to_owned()),
            uid: Some(api_model::meta::new_uid()),
            generate_name: Some(format!("{}-extended-resources-", pod.name)),
            owner_references: Some(vec![owner]),
            annotations: Some(BTreeMap::from([(EXTENDED_RESOURCE_CLAIM.to_owned(), "true".to_owned())])),
            ..ObjectMeta::default()
        },
        spec: None,
        status: None,
    }
}

/// The requests of the claim, and those for each container and resource. A container that ends before others start uses their devices, and
/// asks for more only if they are too few; such containers share what is asked for the one that needs most.
pub(super) fn requests(
    containers: &[DeviceResources],
    classes: &BTreeMap<&str, &str>,
) -> (Vec<DeviceRequest>, Vec<ContainerExtendedResourceRequest>) {
    let (mut requests, mut mappings) = (Vec::new(), Vec::new());
    for (resource, class) in classes {
        let of_resource = OfResource { resource, class };
        let mut long_lived: Vec<(usize, DeviceRequest)> = Vec::new();
        for container in containers.iter().filter(|container| !container.is_short_lived) {
            let (request, used) = of_resource.of_container(container, &[]);
            long_lived.extend(request.map(|request| (container.index, request)));
            mappings.extend(used);
        }
        let (mut largest, mut used_by_short_lived): (Option<DeviceRequest>, Vec<_>) = (None, Vec::new());
        let mut short_lived: BTreeSet<String> = BTreeSet::new();
        for container in containers.iter().filter(|container| container.is_short_lived) {
            let later: Vec<&DeviceRequest> =
                long_lived.iter().filter(|(index, _)| *index >= container.index).map(|(_, request)| request).collect();
            let (request, used) = of_resource.of_container(container, &later);
            used_by_short_lived.extend(used);
            if let Some(request) = request {
                short_lived.insert(request.name.clone());
                if largest.as_ref().is_none_or(|largest| count(largest) < count(&request)) {
                    largest = Some(request);
                }
            }
        }
        if let Some(largest) = &largest {
            let own = used_by_short_lived.iter_mut().filter(|mapping| short_lived.contains(&mapping.request_name));
            own.for_each(|mapping| mapping.request_name.clone_from(&largest.name));
        }
        mappings.extend(used_by_short_lived);
        requests.extend(largest);
        requests.extend(long_lived.into_iter().map(|(_, request)| request));
    }
    requests.sort_by(|a, b| a.name.cmp(&b.name));
    (requests, mappings)
}

fn count(request: &DeviceRequest) -> i64 {
    request.exactly.as_ref().and_then(|exactly| exactly.count).unwrap_or_default()
}

/// A resource, and the class that backs it.
struct OfResource<'a> {
    resource: &'a str,
    class: &'a str,
}

impl OfResource<'_> {
    /// What a container needs that may use the devices of other requests: a further request, if these are too few, and the requests that
    /// are for the container.
    fn of_container(
        &self,
        container: &DeviceResources,
        usable: &[&DeviceRequest],
    ) -> (Option<DeviceRequest>, Vec<ContainerExtendedResourceRequest>) {
        let Some((number, wanted)) = container.requests.get(self.resource) else { return (None, Vec::new()) };
        let mapping = |request: &str| ContainerExtendedResourceRequest {
            container_name: container.container.clone(),
            resource_name: self.resource.to_owned(),
            request_name: request.to_owned(),
        };
        let (mut devices, mut mappings) = (0_i64, Vec::new());
        for request in usable {
            devices = devices.saturating_add(count(request));
            mappings.push(mapping(&request.name));
            if devices >= *wanted {
                return (None, mappings);
            }
        }
        let name = format!("container-{}-request-{number}", container.index);
        mappings.push(mapping(&name));
        let exactly = ExactDeviceRequest {
            device_class_name: self.class.to_owned(),
            allocation_mode: Some("ExactCount".to_owned()),
            count: Some(wanted - devices),
            ..ExactDeviceRequest::default()
        };
        (Some(DeviceRequest { name, exactly: Some(exactly), first_available: None }), mappings)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSpec;
    use serde_json::{Value, json};

    use super::*;

    fn container(name: &str, requests: Value) -> Value {
        json!({"name": name, "resources": {"requests": requests}})
    }

    fn sidecar(name: &str, requests: Value) -> Value {
        let mut container = container(name, requests);
        container["restartPolicy"] = json!("Always");
        container
    }

    /// The requests with their classes and counts, and the containers with the requests that are for them.
    fn text(init: Value, containers: Value) -> (String, String) {
        let spec: PodSpec = serde_json::from_value(json!({"initContainers": init, "containers": containers})).expect("a spec");
        let classes = BTreeMap::from([("example.com/gpu", "gpu"), ("example.com/nic", "nic")]);
        let (requests, mappings) = requests(&DeviceResources::of_pod(&spec), &classes);
        let request = |request: &DeviceRequest| {
            let exactly = request.exactly.as_ref().expect("exactly");
            format!("{}: {} {}", request.name, exactly.count.unwrap_or_default(), exactly.device_class_name)
        };
        let mapping = |mapping: &ContainerExtendedResourceRequest| {
            format!("{} {}: {}", mapping.container_name, mapping.resource_name.trim_start_matches("example.com/"), mapping.request_name)
        };
        let joined = |texts: Vec<String>| texts.join(", ");
        (joined(requests.iter().map(request).collect()), joined(mappings.iter().map(mapping).collect()))
    }

    #[test]
    fn containers_share_devices_with_those_that_end_before() {
        let gpus = |number: i64| json!({"example.com/gpu": number.to_string()});
        let cases = [
            (json!([]), json!([container("a", gpus(2))]), "container-0-request-0: 2 gpu", "a gpu: container-0-request-0"),
            (json!([]), json!([container("a", json!({"example.com/fpga": "1"}))]), "", ""),
            (
                json!([]),
                json!([container("a", json!({"cpu": "1", "example.com/gpu": "1", "example.com/nic": "3"})), container("b", gpus(1))]),
                "container-0-request-1: 1 gpu, container-0-request-2: 3 nic, container-1-request-0: 1 gpu",
                "a gpu: container-0-request-1, b gpu: container-1-request-0, a nic: container-0-request-2",
            ),
            (
                json!([container("i", gpus(1))]),
                json!([container("a", gpus(2)), container("b", gpus(1))]),
                "container-1-request-0: 2 gpu, container-2-request-0: 1 gpu",
                "a gpu: container-1-request-0, b gpu: container-2-request-0, i gpu: container-1-request-0",
            ),
            (
                json!([container("i", gpus(2)), container("j", gpus(4)), container("k", gpus(4))]),
                json!([container("a", gpus(1))]),
                "container-1-request-0: 3 gpu, container-3-request-0: 1 gpu",
                "a gpu: container-3-request-0, i gpu: container-3-request-0, i gpu: container-1-request-0, j gpu: \
                 container-3-request-0, j gpu: container-1-request-0, k gpu: container-3-request-0, k gpu: container-1-request-0",
            ),
            // A sidecar that started before goes on: its devices are not free.
            (
                json!([sidecar("s", gpus(1)), container("i", gpus(1)), sidecar("t", gpus(1))]),
                json!([]),
                "container-0-request-0: 1 gpu, container-2-request-0: 1 gpu",
                "s gpu: container-0-request-0, t gpu: container-2-request-0, i gpu: container-2-request-0",
            ),
        ];
        for (init, containers, requests, mappings) in cases {
            assert_eq!(text(init, containers), (requests.to_owned(), mappings.to_owned()));
        }
    }
}
