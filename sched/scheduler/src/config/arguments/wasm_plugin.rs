//! A plugin that is a WebAssembly component: its image and its limits. The kind is Skiff's own; upstream has no such plugins.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use api_model::field::{FieldError, Path};
use api_model::{go, quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use sched_framework::{ExternalPluginSpec, ExternalPoints, FailurePolicy, ImagePullPolicy};
use serde::Deserialize;
use serde_yaml::{Mapping, Value};

use crate::config::ConfigurationError;

/// The kind of the arguments, which declares the plugin, and its version.
pub(crate) const KIND: &str = "WasmPluginArgs";
const API_VERSION: &str = "scheduler.skiff/v1alpha1";

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
/// The memory that a plugin may have at most: it is that of the control plane.
const MEMORY_BYTES_MAX: i64 = 1 << 30;
/// The longest time of a cycle: other Pods wait for it.
const TIMEOUT_MAX: Duration = Duration::from_secs(2);

/// The arguments as they are written.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WasmPluginArgs {
    image: String,
    image_pull_policy: Option<String>,
    registry_config_file: Option<PathBuf>,
    failure_policy: String,
    fuel: i64,
    memory: Quantity,
    timeout: String,
    refresh_interval: String,
    args: BTreeMap<String, serde_json::Value>,
}

impl Default for WasmPluginArgs {
    fn default() -> Self {
        Self {
            image: String::new(),
            image_pull_policy: None,
            registry_config_file: None,
            failure_policy: "Fail".to_owned(),
            fuel: 10_000_000,
            memory: Quantity("64Mi".to_owned()),
            timeout: "1s".to_owned(),
            refresh_interval: "30s".to_owned(),
            args: BTreeMap::new(),
        }
    }
}

/// Whether these arguments declare a plugin.
pub(crate) fn declares(args: &Mapping) -> bool {
    args.get("kind").and_then(Value::as_str) == Some(KIND)
}

/// Decodes and checks the arguments of the plugin of that name. `path` is that of the element of `pluginConfig`.
///
/// # Errors
/// When the arguments have unknown fields or values of another type.
pub(crate) fn decode(
    name: &'static str,
    args: &Mapping,
    required: ExternalPoints,
    path: &Path,
    errors: &mut Vec<FieldError>,
) -> Result<ExternalPluginSpec, ConfigurationError> {
    let mut fields = args.clone();
    fields.shift_remove("kind");
    let path_of_args = path.child("args");
    let api_version = fields.shift_remove("apiVersion").and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default();
    if api_version != API_VERSION {
        errors.push(FieldError::not_supported(&path_of_args.child("apiVersion"), api_version.as_str(), &[API_VERSION]));
    }
    let decoded = serde_yaml::from_value(Value::Mapping(fields));
    let arguments: WasmPluginArgs =
        decoded.map_err(|source| ConfigurationError::Arguments { path: path.clone(), plugin: name.to_owned(), source })?;
    Ok(arguments.checked(name, required, &path_of_args, errors))
}

impl WasmPluginArgs {
    fn checked(&self, name: &'static str, required: ExternalPoints, path: &Path, errors: &mut Vec<FieldError>) -> ExternalPluginSpec {
        if self.image.is_empty() {
            errors.push(FieldError::required(&path.child("image"), ""));
        }
        if self.fuel <= 0 {
            errors.push(FieldError::invalid(&path.child("fuel"), self.fuel, "must be greater than 0"));
        }
        let memory = quantity::value(&self.memory.0).unwrap_or_default();
        if !(1..=MEMORY_BYTES_MAX).contains(&memory) {
            errors.push(FieldError::invalid(&path.child("memory"), self.memory.0.as_str(), "must be greater than 0 and at most 1Gi"));
        }
        let mut time = |field: &str, text: &str| {
            let nanoseconds = go::parse_duration(text).inspect_err(|error| {
                errors.push(FieldError::invalid(&path.child(field), text, error.to_string()));
            });
            nanoseconds.map_or(Duration::MAX, |nanoseconds| Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or_default()))
        };
        let (timeout, refresh_interval) = (time("timeout", &self.timeout), time("refreshInterval", &self.refresh_interval));
        if (timeout.is_zero() || timeout > TIMEOUT_MAX) && timeout != Duration::MAX {
            let detail = "must be greater than 0 and at most 2s";
            errors.push(FieldError::invalid(&path.child("timeout"), self.timeout.as_str(), detail));
        }
        let second = Duration::from_secs(1);
        if refresh_interval < second && !matches!(self.refresh_interval.as_str(), "0" | "0s") {
            let detail = "must be 0, or at least 1s";
            errors.push(FieldError::invalid(&path.child("refreshInterval"), self.refresh_interval.as_str(), detail));
        }
        let pull_policy = self.pull_policy(path, errors);
        if self.registry_config_file.is_some() && pull_policy == ImagePullPolicy::Never {
            errors.push(FieldError::forbidden(&path.child("registryConfigFile"), "an image with imagePullPolicy Never is not fetched"));
        }
        if self.registry_config_file.as_ref().is_some_and(|file| file.as_os_str().is_empty()) {
            errors.push(FieldError::invalid(&path.child("registryConfigFile"), "", "must be the path of a file"));
        }
        ExternalPluginSpec {
            name,
            image: self.image.clone(),
            pull_policy,
            registry_config_file: self.registry_config_file.clone(),
            failure_policy: self.failure_policy(path, errors),
            fuel: u64::try_from(self.fuel).unwrap_or_default(),
            memory_bytes: usize::try_from(memory).unwrap_or_default(),
            timeout,
            refresh_interval,
            args: serde_json::Value::from_iter(self.args.clone()).to_string(),
            required,
        }
    }

    /// The default is that of a container.
    fn pull_policy(&self, path: &Path, errors: &mut Vec<FieldError>) -> ImagePullPolicy {
        let last = self.image.rsplit('/').next().unwrap_or_default();
        let is_latest = !self.image.contains('@') && last.split_once(':').is_none_or(|(_, tag)| tag == "latest");
        match self.image_pull_policy.as_deref() {
            None if is_latest => ImagePullPolicy::Always,
            None | Some("IfNotPresent") => ImagePullPolicy::IfNotPresent,
            Some("Always") => ImagePullPolicy::Always,
            Some("Never") => ImagePullPolicy::Never,
            Some(other) => {
                errors.push(FieldError::not_supported(&path.child("imagePullPolicy"), other, &PULL_POLICIES));
                ImagePullPolicy::Never
            }
        }
    }

    fn failure_policy(&self, path: &Path, errors: &mut Vec<FieldError>) -> FailurePolicy {
        match self.failure_policy.as_str() {
            "Fail" => FailurePolicy::Fail,
            "Ignore" => FailurePolicy::Ignore,
            other => {
                errors.push(FieldError::not_supported(&path.child("failurePolicy"), other, &FAILURE_POLICIES));
                FailurePolicy::Fail
            }
        }
    }
}
