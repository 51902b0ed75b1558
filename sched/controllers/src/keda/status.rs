//! The status of ScaledObjects and ScaledJobs, and their conditions.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

/// The object is correct, and its triggers work.
pub const READY: &str = "Ready";
/// At least one trigger is active.
pub const ACTIVE: &str = "Active";
/// At least one trigger failed so often that the fallback counts.
pub const FALLBACK: &str = "Fallback";
/// An annotation pauses the scaling.
pub const PAUSED: &str = "Paused";
/// Why [`READY`] is false: triggers fail, and none is active.
pub const TRIGGER_ERROR: &str = "TriggerError";
/// Why [`READY`] is unknown: triggers fail, and others are active.
pub const PARTIAL_TRIGGER_ERROR: &str = "PartialTriggerError";
/// The condition `ScalingActive` of the autoscaler.
pub const HPA_ACTIVE: &str = "HPAActive";

/// The values of a condition's status.
pub const TRUE: &str = "True";
/// See [`TRUE`].
pub const FALSE: &str = "False";
/// See [`TRUE`].
pub const UNKNOWN: &str = "Unknown";

/// `Condition`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(default)]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status.
    pub status: String,
    /// Reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The conditions of an object.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(transparent)]
pub struct Conditions(Vec<Condition>);

/// Whether a trigger was active when it was last looked at.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Activity {
    /// Whether it was.
    pub is_active: bool,
}

/// How often a metric failed in a row.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Health {
    /// How often.
    pub number_of_failures: Option<i32>,
    /// `Happy` or `Failing`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
}

/// `GroupVersionKindResource`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(default)]
pub struct TargetKind {
    /// Group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Plural.
    pub resource: String,
}

impl TargetKind {
    /// `apps/v1.Deployment`.
    pub fn text(&self) -> String {
        format!("{}/{}.{}", self.group, self.version, self.kind)
    }

    /// `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// `ScaledObjectStatus`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ScaledObjectStatus {
    /// `apps/v1.Deployment`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scale_target_kind: String,
    /// The same in parts.
    #[serde(rename = "scaleTargetGVKR", skip_serializing_if = "Option::is_none")]
    pub scale_target_gvkr: Option<TargetKind>,
    /// The replicas before the first scaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_replica_count: Option<i32>,
    /// When a trigger was last active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_active_time: Option<Time>,
    /// The metrics of the triggers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub external_metric_names: Vec<String>,
    /// The resources of the triggers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_metric_names: Vec<String>,
    /// Conditions.
    pub conditions: Conditions,
    /// Failures by metric.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub health: BTreeMap<String, Health>,
    /// Activity by metric.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub triggers_activity: BTreeMap<String, Activity>,
    /// The replicas of the annotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_replica_count: Option<i32>,
    /// The name of the autoscaler.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hpa_name: String,
    /// The triggers' types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triggers_types: Option<String>,
    /// The names of the triggers' authentications.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentications_types: Option<String>,
}

/// `ScaledJobStatus`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ScaledJobStatus {
    /// When a trigger was last active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_active_time: Option<Time>,
    /// Conditions.
    pub conditions: Conditions,
    /// The triggers' types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triggers_types: Option<String>,
    /// The names of the triggers' authentications.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentications_types: Option<String>,
    /// The metrics of the triggers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub external_metric_names: Vec<String>,
    /// Activity by metric.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub triggers_activity: BTreeMap<String, Activity>,
}

impl Conditions {
    /// Adds the conditions that every object has, as upstream initializes them.
    pub fn initialize(&mut self) {
        let all = [READY, ACTIVE, FALLBACK, PAUSED];
        if all.iter().all(|type_| self.get(type_).is_some()) {
            return;
        }
        for type_ in all.into_iter().filter(|type_| self.get(type_).is_none()).collect::<Vec<_>>() {
            self.set(type_, if type_ == PAUSED { FALSE } else { UNKNOWN }, "", "");
        }
    }

    /// A condition.
    pub fn get(&self, type_: &str) -> Option<&Condition> {
        self.0.iter().find(|condition| condition.type_ == type_)
    }

    /// Whether a condition has that status.
    pub fn is(&self, type_: &str, status: &str) -> bool {
        self.get(type_).is_some_and(|condition| condition.status == status)
    }

    /// Whether triggers failed at the last look.
    pub fn has_trigger_error(&self) -> bool {
        self.get(READY).is_some_and(|ready| matches!(ready.reason.as_str(), TRIGGER_ERROR | PARTIAL_TRIGGER_ERROR))
    }

    /// Sets a condition.
    pub fn set(&mut self, type_: &str, status: &str, reason: &str, message: impl Into<String>) {
        let [type_, status, reason] = [type_, status, reason].map(str::to_owned);
        let condition = Condition { type_, status, reason, message: message.into() };
        match self.0.iter_mut().find(|one| one.type_ == condition.type_) {
            Some(one) => *one = condition,
            None => self.0.push(condition),
        }
    }
}
