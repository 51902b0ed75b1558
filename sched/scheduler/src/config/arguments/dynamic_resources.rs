//! How long a Pod waits for its devices to be prepared before it is bound.

use std::time::Duration;

use api_model::field::{FieldError, Path};
use api_model::go::parse_duration;
use serde::Deserialize;

use super::Arguments;

/// Upstream's `DynamicResourcesArgs`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct DynamicResourcesArgs {
    binding_timeout: Option<String>,
    /// The time for a node; a search of Skiff has a number of steps.
    filter_timeout: Option<serde_yaml::Value>,
    /// The longest time from the allocation of a claim until its devices can be used.
    #[serde(skip)]
    pub binding_within: Duration,
}

impl Default for DynamicResourcesArgs {
    fn default() -> Self {
        Self { binding_timeout: None, filter_timeout: None, binding_within: Duration::from_secs(600) }
    }
}

impl Arguments for DynamicResourcesArgs {
    fn complete(&mut self, path: &Path, errors: &mut Vec<FieldError>) {
        if self.filter_timeout.is_some() {
            let detail = "a search for devices ends after a number of steps, not after a time";
            errors.push(FieldError::forbidden(&path.child("filterTimeout"), detail));
        }
        let Some(text) = self.binding_timeout.as_deref() else { return };
        let mut invalid = |detail: String| errors.push(FieldError::invalid(&path.child("bindingTimeout"), text, detail));
        match parse_duration(text).map(u64::try_from) {
            Ok(Ok(nanoseconds)) if nanoseconds >= 1_000_000_000 => self.binding_within = Duration::from_nanos(nanoseconds),
            Ok(_) => invalid("must be at least 1 second".to_owned()),
            Err(error) => invalid(error.to_string()),
        }
    }
}
