//! A resource that a score depends on.

use api_model::field::{FieldError, Path};
use serde::Deserialize;

/// A resource with the weight of its share: upstream's `ResourceSpec`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResourceSpec {
    pub name: String,
    #[serde(default)]
    pub weight: i64,
}

/// CPU and memory alike.
pub(super) fn default_resources() -> Vec<ResourceSpec> {
    ["cpu", "memory"].map(|name| ResourceSpec { name: name.to_owned(), weight: 1 }).into()
}

/// The default weight is 1, also in place of 0; without resources, CPU and memory count.
pub(super) fn complete_resources(resources: &mut Vec<ResourceSpec>) {
    if resources.is_empty() {
        *resources = default_resources();
    }
    resources.iter_mut().filter(|resource| resource.weight == 0).for_each(|resource| resource.weight = 1);
}

/// Weights go from 1 to 100.
pub(super) fn check_weights(resources: &[ResourceSpec], path: &Path, errors: &mut Vec<FieldError>) {
    for (index, ResourceSpec { name, weight }) in resources.iter().enumerate().filter(|(_, r)| !(1..=100).contains(&r.weight)) {
        let detail = format!("resource weight of {name} not in valid range (0, 100]");
        errors.push(FieldError::invalid(&path.index(index).child("weight"), *weight, detail));
    }
}
