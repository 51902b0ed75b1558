//! What users write in the kinds of `keda.sh/v1alpha1`: the spec with upstream's defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api_model::message::Message;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior;
use serde::Deserialize;
use serde_json::Value;

use super::loops::Begun;
use crate::note::{Note, normal};

const POLLING_INTERVAL: i32 = 30;
const REPLICAS_MAX: i32 = 100;
const JOBS_MAX: i64 = 100;

/// `ScaledObjectSpec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScaledObjectSpec {
    /// The workload.
    pub scale_target_ref: ScaleTarget,
    /// Seconds between two looks at the triggers.
    pub polling_interval: Option<i32>,
    /// Seconds after the creation in which the workload is not scaled to zero.
    pub initial_cooldown_period: Option<i32>,
    /// Seconds after the last activity in which the workload is not scaled to zero.
    pub cooldown_period: Option<i32>,
    /// The replicas without activity, below the minimum.
    pub idle_replica_count: Option<i32>,
    /// The least replicas.
    pub min_replica_count: Option<i32>,
    /// The most replicas.
    pub max_replica_count: Option<i32>,
    /// More settings.
    pub advanced: Option<Advanced>,
    /// What scales the workload.
    pub triggers: Vec<TriggerSpec>,
    /// What counts while triggers fail.
    pub fallback: Option<Fallback>,
}

/// `ScaleTarget`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScaleTarget {
    /// Name.
    pub name: String,
    /// Group and version; `apps/v1` if empty.
    pub api_version: String,
    /// Kind; Deployment if empty.
    pub kind: String,
}

/// `AdvancedConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Advanced {
    /// Settings of the HorizontalPodAutoscaler.
    pub horizontal_pod_autoscaler_config: Option<AutoscalerConfig>,
    /// Whether the workload gets back its replicas when the ScaledObject is deleted.
    pub restore_to_original_replica_count: bool,
    /// A formula over the metrics, which this version does not compute.
    pub scaling_modifiers: BTreeMap<String, Value>,
}

/// `HorizontalPodAutoscalerConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoscalerConfig {
    /// How fast it scales.
    pub behavior: Option<HorizontalPodAutoscalerBehavior>,
    /// Its name; `keda-hpa-NAME` if empty.
    pub name: String,
}

/// `Fallback`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Fallback {
    /// More failures in a row than this number start the fallback.
    pub failure_threshold: i32,
    /// The replicas.
    pub replicas: i32,
    /// How the present replicas count; `static` if empty.
    pub behavior: String,
}

/// `ScaleTriggers`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TriggerSpec {
    /// The type, for example `cron`.
    #[serde(rename = "type")]
    pub type_: String,
    /// A name that is unique among the triggers.
    pub name: String,
    /// Whether the autoscaler gets the value of the last look.
    pub use_cached_metrics: bool,
    /// Settings of the type.
    pub metadata: BTreeMap<String, String>,
    /// Where the credentials are.
    pub authentication_ref: Option<AuthenticationRef>,
    /// `AverageValue`, `Value` or `Utilization`.
    pub metric_type: String,
}

/// `AuthenticationRef`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase", default)]
pub struct AuthenticationRef {
    /// Name.
    pub name: String,
    /// TriggerAuthentication, also if empty, or ClusterTriggerAuthentication.
    pub kind: String,
}

/// `ScaledJobSpec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScaledJobSpec {
    /// The spec of the Jobs, which the server checks when one is created.
    pub job_target_ref: Option<Value>,
    /// Seconds between two looks at the triggers.
    pub polling_interval: Option<i32>,
    /// Completed Jobs that stay.
    pub successful_jobs_history_limit: Option<i32>,
    /// Failed Jobs that stay.
    pub failed_jobs_history_limit: Option<i32>,
    /// The older name of the rollout's strategy.
    pub rollout_strategy: String,
    /// What happens to Jobs of an earlier spec.
    pub rollout: Rollout,
    /// The least running Jobs.
    pub min_replica_count: Option<i32>,
    /// The most running Jobs.
    pub max_replica_count: Option<i32>,
    /// How many Jobs a queue wants.
    pub scaling_strategy: ScalingStrategy,
    /// What creates Jobs.
    pub triggers: Vec<TriggerSpec>,
}

/// `Rollout`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rollout {
    /// `immediate`, also if empty, or `gradual`.
    pub strategy: String,
    /// `background`, also if empty, or `foreground`.
    pub propagation_policy: String,
}

/// `ScalingStrategy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalingStrategy {
    /// `default`, also if empty, `custom`, `accurate` or `eager`.
    pub strategy: String,
    /// Of `custom`: less than the queue's length by this number.
    pub custom_scaling_queue_length_deduction: Option<i32>,
    /// Of `custom`: the share of running Jobs that counts.
    pub custom_scaling_running_job_percentage: String,
    /// A Job is pending until one of its Pods has all these conditions.
    pub pending_pod_conditions: Vec<String>,
    /// `max`, also if empty, `min`, `avg` or `sum`.
    pub multiple_scalers_calculation: String,
}

fn polling(interval: Option<i32>) -> Duration {
    Duration::from_secs(u64::try_from(interval.unwrap_or(POLLING_INTERVAL).max(1)).unwrap_or_default())
}

impl ScaledObjectSpec {
    /// The time between two looks at the triggers.
    pub fn polling(&self) -> Duration {
        polling(self.polling_interval)
    }

    /// The least replicas; zero without a number.
    pub fn min(&self) -> i32 {
        self.min_replica_count.unwrap_or_default()
    }

    /// The least replicas of the autoscaler, which are at least one.
    pub fn autoscaler_min(&self) -> i32 {
        self.min().max(1)
    }

    /// The most replicas.
    pub fn max(&self) -> i32 {
        self.max_replica_count.unwrap_or(REPLICAS_MAX)
    }

    /// Whether a formula is to combine the metrics.
    pub fn has_modifiers(&self) -> bool {
        self.advanced.as_ref().is_some_and(|advanced| !advanced.scaling_modifiers.is_empty())
    }

    /// The settings of the autoscaler.
    pub fn autoscaler(&self) -> Option<&AutoscalerConfig> {
        self.advanced.as_ref()?.horizontal_pod_autoscaler_config.as_ref()
    }
}

impl ScaledJobSpec {
    /// The time between two looks at the triggers.
    pub fn polling(&self) -> Duration {
        polling(self.polling_interval)
    }

    /// The least running Jobs: never more than the most.
    pub fn min(&self) -> i64 {
        let min = i64::from(self.min_replica_count.unwrap_or_default());
        self.max_replica_count.map_or(min, |max| min.min(i64::from(max)))
    }

    /// The most Jobs beside the least ones, as upstream counts.
    pub fn max(&self) -> i64 {
        let Some(max) = self.max_replica_count.map(i64::from) else { return JOBS_MAX };
        let is_beyond = self.min_replica_count.is_some_and(|min| i64::from(min) > max);
        if is_beyond { max } else { max - self.min() }
    }
}

impl AuthenticationRef {
    /// Whether the reference is to a ClusterTriggerAuthentication.
    pub fn is_cluster(&self) -> bool {
        self.kind == "ClusterTriggerAuthentication"
    }
}

/// Upstream's check of all triggers together.
pub fn check_triggers(triggers: &[TriggerSpec]) -> Result<(), Message> {
    if triggers.is_empty() {
        return Err("no triggers defined in the ScaledObject/ScaledJob".into());
    }
    let mut names = BTreeSet::new();
    for trigger in triggers {
        let type_ = &trigger.type_;
        if trigger.use_cached_metrics && matches!(type_.as_str(), "cpu" | "memory" | "cron") {
            return Err(format!("property \"useCachedMetrics\" is not supported for {type_:?} scaler").into());
        }
        if !trigger.name.is_empty() && !names.insert(&trigger.name) {
            let name = &trigger.name;
            return Err(
                format!("triggerName {name:?} is defined multiple times in the ScaledObject/ScaledJob, but it must be unique").into()
            );
        }
    }
    Ok(())
}

/// The events with which a loop begins.
pub fn begun(begun: Begun, triggers: &[TriggerSpec]) -> Vec<Note> {
    let started = matches!(begun, Begun::New).then(|| normal("KEDAScalersStarted", "Started scalers watch"));
    let built = triggers.iter().filter(|_| matches!(begun, Begun::New | Begun::Changed));
    started.into_iter().chain(built.map(|trigger| normal("KEDAScalersStarted", format!("Scaler {} is built", trigger.type_)))).collect()
}

/// The types of the triggers and the names of their authentications, each once, as the status lists them.
pub fn types(triggers: &[TriggerSpec]) -> (String, String) {
    let distinct = |names: Vec<&str>| {
        let mut once: Vec<&str> = Vec::new();
        names.into_iter().for_each(|name| {
            if !once.contains(&name) {
                once.push(name);
            }
        });
        once.join(",")
    };
    let references = triggers.iter().filter_map(|trigger| trigger.authentication_ref.as_ref());
    (distinct(triggers.iter().map(|trigger| trigger.type_.as_str()).collect()), distinct(references.map(|one| one.name.as_str()).collect()))
}
