//! How long a Pod waits for its volumes before it is bound.

use std::time::Duration;

use api_model::field::{FieldError, Path};
use serde::Deserialize;

use super::Arguments;

/// Upstream's `VolumeBindingArgs`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct VolumeBindingArgs {
    bind_timeout_seconds: i64,
    /// The score by the capacity of volumes, which is off in upstream.
    shape: Option<Vec<serde_yaml::Value>>,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        Self { bind_timeout_seconds: 600, shape: None }
    }
}

impl VolumeBindingArgs {
    /// The longest wait for the volumes of a Pod.
    pub(crate) fn bind_timeout(&self) -> Duration {
        // A time after more than a century cannot be computed.
        Duration::from_secs(u32::try_from(self.bind_timeout_seconds.max(0)).unwrap_or(u32::MAX).into())
    }
}

impl Arguments for VolumeBindingArgs {
    fn complete(&mut self, path: &Path, errors: &mut Vec<FieldError>) {
        let seconds = self.bind_timeout_seconds;
        if seconds < 0 {
            let detail = "invalid BindTimeoutSeconds, should not be a negative value";
            errors.push(FieldError::invalid(&path.child("bindTimeoutSeconds"), seconds, detail));
        }
        if self.shape.is_some() {
            let detail = "unexpected field `shape`, feature StorageCapacityScoring is not enabled";
            errors.push(FieldError::invalid(&path.child("shape"), "", detail));
        }
    }
}
