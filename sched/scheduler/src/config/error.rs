//! Why a configuration is rejected.

use api_model::field::{FieldError, Path, aggregate};
use thiserror::Error;

use super::{API_VERSION, KIND};

/// Why a configuration was rejected.
#[derive(Debug, Error)]
pub enum ConfigurationError {
    /// The text cannot be parsed, or has unknown or duplicate fields.
    #[error("the scheduler's configuration cannot be read")]
    Unreadable(#[from] serde_yaml::Error),
    /// The object is no KubeSchedulerConfiguration of this version.
    #[error("the scheduler's configuration must be of kind {KIND} in version {API_VERSION}, not {kind:?} in {api_version:?}")]
    Kind {
        /// Its kind.
        kind: String,
        /// Its version.
        api_version: String,
    },
    /// The arguments of a plugin cannot be decoded.
    #[error("decoding .{path}: decoding args for plugin {plugin}")]
    Arguments {
        /// The element of `pluginConfig`.
        path: Path,
        /// The plugin.
        plugin: String,
        /// Why.
        source: serde_yaml::Error,
    },
    /// The arguments of a plugin are of another kind.
    #[error(
        "decoding .{path}: args for plugin {plugin} were not of kind {plugin}Args in version {API_VERSION}, got {kind:?} in {api_version:?}"
    )]
    ArgumentsKind {
        /// The element of `pluginConfig`.
        path: Path,
        /// The plugin.
        plugin: String,
        /// The version of the arguments.
        api_version: String,
        /// Their kind.
        kind: String,
    },
    /// Fields are wrong.
    #[error("the scheduler's configuration is invalid: {}", aggregate(.0))]
    Invalid(Vec<FieldError>),
}
