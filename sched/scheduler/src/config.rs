//! The configuration of the scheduler: upstream's `KubeSchedulerConfiguration` of `kubescheduler.config.k8s.io/v1`. Text comes in;
//! profiles with their plugins, weights and arguments go out. What upstream's file can say and this scheduler does not do is an error:
//! nothing is ignored.

mod arguments;
mod declared;
mod default_plugins;
mod document;
mod error;
mod extender;
mod extension_point;
mod leader_election;
mod merge;
mod profile;
mod strict;
mod unsupported;

use std::time::Duration;

use api_model::field::{FieldError, Path};
use sched_framework::ExternalPluginSpec;

use document::Document;
use leader_election::LeaderElection;

pub(crate) use arguments::{
    DefaultConstraints, DefaultPreemptionArgs, DynamicResourcesArgs, InterPodAffinityArgs, NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs, NodeResourcesFitArgs, PluginArguments, ResourceSpec, ScoringStrategyType, UtilizationShapePoint,
    VolumeBindingArgs,
};
pub use error::ConfigurationError;
pub(crate) use extender::{Extender, TlsConfig};
pub(crate) use profile::{EnabledPlugins, KubeSchedulerProfile};

#[cfg(test)]
pub(crate) use default_plugins::DEFAULT_PLUGINS;
#[cfg(test)]
pub(crate) use extension_point::ExtensionPoint;

const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
const KIND: &str = "KubeSchedulerConfiguration";

/// The configuration of a scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct KubeSchedulerConfiguration {
    /// The profiles, each with another name.
    pub(crate) profiles: Vec<KubeSchedulerProfile>,
    /// How long Pods wait after failed attempts.
    pub(crate) backoff: PodBackoff,
    /// The extenders in the order of their calls.
    pub(crate) extenders: Vec<Extender>,
    /// When this scheduler leads.
    pub(crate) leader_election: LeaderElection,
}

/// The back-off after failed attempts: it begins with `initial` and doubles with each attempt, up to `max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PodBackoff {
    pub initial: Duration,
    pub max: Duration,
}

impl Default for PodBackoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), max: Duration::from_secs(10) }
    }
}

impl Default for KubeSchedulerConfiguration {
    /// One profile for the Pods of `default-scheduler`.
    fn default() -> Self {
        Self {
            profiles: vec![KubeSchedulerProfile::default()],
            backoff: PodBackoff::default(),
            extenders: Vec::new(),
            leader_election: LeaderElection::default(),
        }
    }
}

impl KubeSchedulerConfiguration {
    /// Whether a profile declares plugins that are not part of the program.
    pub fn has_external_plugins(&self) -> bool {
        self.profiles.iter().any(|profile| !profile.arguments.external.is_empty())
    }

    /// These plugins, in the order of the profiles.
    pub(crate) fn external_plugins(&self) -> Vec<ExternalPluginSpec> {
        self.profiles.iter().flat_map(|profile| profile.arguments.external.clone()).collect()
    }

    /// These plugins as a new configuration declares them, in the order of this one. `None` when the new configuration differs in more
    /// than their arguments.
    pub(crate) fn changed_plugins(&self, new: &Self) -> Option<Vec<ExternalPluginSpec>> {
        let mut same = new.clone();
        for (profile, old) in same.profiles.iter_mut().zip(&self.profiles) {
            profile.arguments.external.clone_from(&old.arguments.external);
        }
        let in_profile = |(profile, new): (&KubeSchedulerProfile, &KubeSchedulerProfile)| {
            let declared = |old: &ExternalPluginSpec| new.arguments.external.iter().find(|spec| spec.name == old.name).cloned();
            profile.arguments.external.iter().map(declared).collect::<Option<Vec<_>>>()
        };
        let specs: Option<Vec<_>> = self.profiles.iter().zip(&new.profiles).map(in_profile).collect();
        specs.filter(|_| same == *self).map(|specs| specs.concat())
    }

    /// Parses a configuration. The files that `tlsConfig` of an extender names are read to check them.
    ///
    /// # Errors
    /// When the object is no KubeSchedulerConfiguration of version v1, when it has unknown or duplicate fields or invalid values, or
    /// when it configures what Skiff does not do.
    pub fn parse(text: &str) -> Result<Self, ConfigurationError> {
        let document: Document = serde_yaml::from_str(text)?;
        if document.kind != KIND || document.api_version != API_VERSION {
            return Err(ConfigurationError::Kind { kind: document.kind, api_version: document.api_version });
        }
        let mut errors = unsupported::errors(&document);
        let leader_election = LeaderElection::new(&document.leader_election, &mut errors);
        let backoff = pod_backoff(&document, &mut errors);
        let mut profiles = profile::profiles(&document, &mut errors)?;
        let extenders = extender::extenders(&document.extenders, &mut errors);
        extender::ignore_resources(&document.extenders, &mut profiles);
        if errors.is_empty() {
            Ok(Self { profiles, backoff, extenders, leader_election })
        } else {
            Err(ConfigurationError::Invalid(errors))
        }
    }
}

fn pod_backoff(document: &Document, errors: &mut Vec<FieldError>) -> PodBackoff {
    let default = PodBackoff::default();
    let seconds = |given: Option<i64>, default: Duration| match given {
        // A time after more than a century cannot be computed.
        Some(seconds) => Duration::from_secs(u32::try_from(seconds.max(0)).unwrap_or(u32::MAX).into()),
        None => default,
    };
    let backoff = PodBackoff {
        initial: seconds(document.pod_initial_backoff_seconds, default.initial),
        max: seconds(document.pod_max_backoff_seconds, default.max),
    };
    if backoff.initial.is_zero() {
        let value = document.pod_initial_backoff_seconds.unwrap_or_default();
        errors.push(FieldError::invalid(&Path::new("podInitialBackoffSeconds"), value, "must be greater than 0"));
    }
    if backoff.max < backoff.initial {
        let detail = "must be greater than or equal to PodInitialBackoffSeconds";
        errors.push(FieldError::invalid(&Path::new("podMaxBackoffSeconds"), backoff.max.as_secs(), detail));
    }
    backoff
}

#[cfg(test)]
mod tests;
