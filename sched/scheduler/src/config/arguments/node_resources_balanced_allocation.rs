//! The resources whose shares are balanced.

use api_model::field::{FieldError, Path};
use serde::Deserialize;

use super::Arguments;
use super::resource_spec::{ResourceSpec, complete_resources, default_resources};

/// Upstream's `NodeResourcesBalancedAllocationArgs`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct NodeResourcesBalancedAllocationArgs {
    /// The resources; all weights are 1.
    pub resources: Vec<ResourceSpec>,
}

impl Default for NodeResourcesBalancedAllocationArgs {
    fn default() -> Self {
        Self { resources: default_resources() }
    }
}

impl Arguments for NodeResourcesBalancedAllocationArgs {
    fn complete(&mut self, path: &Path, errors: &mut Vec<FieldError>) {
        complete_resources(&mut self.resources);
        for (index, resource) in self.resources.iter().enumerate() {
            let path = path.child("resources").index(index);
            if self.resources.iter().take(index).any(|other| other.name == resource.name) {
                errors.push(FieldError::duplicate(&path.child("name"), resource.name.as_str()));
            }
            if resource.weight != 1 {
                errors.push(FieldError::invalid(&path.child("weight"), resource.weight, "must be 1"));
            }
        }
    }
}
