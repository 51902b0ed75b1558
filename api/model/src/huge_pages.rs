//! Huge pages as resources: the kernel reserves them by size, and each size is a resource such as `hugepages-2Mi`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity;

/// The first part of the resources' names.
pub const PREFIX: &str = "hugepages-";

/// Whether a resource is one of huge pages.
pub fn is_huge_page(resource: &str) -> bool {
    resource.starts_with(PREFIX)
}

/// The bytes of a page of the resource; `None` for other resources and for a size that is no positive number.
pub fn page_bytes(resource: &str) -> Option<u64> {
    let size = quantity::value(resource.strip_prefix(PREFIX)?).ok()?;
    u64::try_from(size).ok().filter(|size| *size > 0)
}

/// The name of the resource with pages of that size.
pub fn resource(page_bytes: u64) -> String {
    format!("{PREFIX}{}", quantity::bytes_text(i128::from(page_bytes)))
}

/// The bytes of huge pages in a list of resources, by the bytes of a page.
pub fn amounts(list: &BTreeMap<String, Quantity>) -> BTreeMap<u64, u64> {
    let amount = |(name, quantity): (&String, &Quantity)| {
        let bytes = u64::try_from(quantity::value(&quantity.0).ok()?).ok()?;
        Some((page_bytes(name)?, bytes))
    };
    list.iter().filter_map(amount).collect()
}

/// The bytes of huge pages that a Pod may have, by the bytes of a page: the limits of `spec.resources`, else those of all containers
/// together, plus the overhead. As upstream, init containers are added too: pages that they leave in a volume count for the Pod after
/// their end.
pub fn limits_of_pod(spec: &PodSpec) -> BTreeMap<u64, u64> {
    let mut sum = BTreeMap::new();
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    for limits in containers.filter_map(|container| container.resources.as_ref()?.limits.as_ref()) {
        add(&mut sum, amounts(limits));
    }
    sum.extend(spec.resources.iter().filter_map(|resources| resources.limits.as_ref()).flat_map(amounts));
    add(&mut sum, spec.overhead.as_ref().map(amounts).unwrap_or_default());
    sum
}

fn add(sum: &mut BTreeMap<u64, u64>, more: BTreeMap<u64, u64>) {
    for (page_bytes, bytes) in more {
        let present = sum.entry(page_bytes).or_default();
        *present = present.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_size_of_the_page() {
        for (bytes, name) in [(64 << 10, "hugepages-64Ki"), (2 << 20, "hugepages-2Mi"), (1 << 30, "hugepages-1Gi")] {
            assert_eq!((resource(bytes).as_str(), page_bytes(name)), (name, Some(bytes)));
        }
        assert_eq!(page_bytes("hugepages-2048Ki"), Some(2 << 20), "another text of the same size");
        for name in ["memory", "hugepages-", "hugepages-0", "hugepages--2Mi", "hugepages-big", "x/hugepages-2Mi"] {
            assert_eq!(page_bytes(name), None, "{name}");
        }
        assert_eq!([quantity::bytes_text(0), quantity::bytes_text(32 << 20)], ["0", "32Mi"]);
    }
}
