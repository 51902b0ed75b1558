//! Quantities as values of samples, and the labels `resource` and `unit` of amounts of resources. CPU is in cores,
//! memory and storage in bytes. A text that is no quantity has no value.

use std::collections::BTreeMap;

use api_model::format::qualified_name;
use api_model::huge_pages::is_huge_page;
use api_model::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use api_model::quantity;

use crate::series::Series;

/// Amounts of resources by their names.
pub(crate) type Resources = BTreeMap<String, Quantity>;

/// The greatest number of whole units whose thousandths fit 64 bits. Greater amounts are rounded to whole units.
const WHOLE_UNITS_MAX: i64 = i64::MAX / 1000;

/// The amount to the thousandth.
pub(crate) fn amount(quantity: &Quantity) -> Option<f64> {
    let units = quantity::value(&quantity.0).ok()?;
    if units > WHOLE_UNITS_MAX {
        return Some(units as f64);
    }
    Some(quantity::milli(&quantity.0).ok()? as f64 / 1000.0)
}

/// The amount in whole units, rounded up.
pub(crate) fn whole(quantity: &Quantity) -> Option<f64> {
    Some(quantity::value(&quantity.0).ok()? as f64)
}

/// One sample for each resource, with its name as it is and the label `label`.
pub(crate) fn samples(resources: &Option<Resources>, labels: &[(&str, &str)], series: &mut Series<'_>) {
    for (name, quantity) in resources.iter().flatten() {
        if let Some(value) = amount(quantity) {
            let mut all = vec![("resource", name.as_str())];
            all.extend_from_slice(labels);
            series.sample(&all, value);
        }
    }
}

/// The unit of a resource that containers and nodes have; `None` for names that have no samples.
pub(crate) fn unit(name: &str) -> Option<&'static str> {
    match name {
        "cpu" => Some("core"),
        "memory" | "storage" | "ephemeral-storage" => Some("byte"),
        name if is_huge_page(name) || name.starts_with("attachable-volumes-") => Some("byte"),
        name if is_extended(name) => Some("integer"),
        _ => None,
    }
}

/// Whether a resource is an extended one: it has a domain other than Kubernetes' own, and can be in a quota.
fn is_extended(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && qualified_name(&format!("requests.{name}")).is_empty()
}

/// The name of a resource as it is in labels: an underscore for each character that a label's name cannot have.
pub(crate) fn sanitized(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_have_units() {
        for (name, expected) in [
            ("cpu", Some("core")),
            ("memory", Some("byte")),
            ("ephemeral-storage", Some("byte")),
            ("hugepages-2Mi", Some("byte")),
            ("attachable-volumes-csi", Some("byte")),
            ("nvidia.com/gpu", Some("integer")),
            ("pods", None),
            ("kubernetes.io/thing", None),
            ("requests.nvidia.com/gpu", None),
            ("example.com/not allowed", None),
        ] {
            assert_eq!(unit(name), expected, "{name}");
        }
        assert_eq!(sanitized("nvidia.com/gpu-é"), "nvidia_com_gpu__");
    }

    #[test]
    fn amounts_are_exact_to_the_thousandth() {
        for (text, exact, rounded) in [
            ("250m", Some(0.25), Some(1.0)),
            ("64Mi", Some(67_108_864.0), Some(67_108_864.0)),
            ("1E", Some(1e18), Some(1e18)),
            ("much", None, None),
        ] {
            let quantity = Quantity(text.to_owned());
            assert_eq!((amount(&quantity), whole(&quantity)), (exact, rounded), "{text}");
        }
    }
}
