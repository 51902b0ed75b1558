//! The topology spread constraints of Pods that have none of their own.

use api_model::field::{FieldError, Path};
use api_model::format;
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use serde::Deserialize;

use super::Arguments;
use crate::config::strict::Strict;

/// Upstream's `PodTopologySpreadArgs`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct PodTopologySpreadArgs {
    default_constraints: Vec<Strict<TopologySpreadConstraint>>,
    defaulting_type: String,
}

/// Where the default constraints come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum DefaultConstraints {
    /// Upstream's own: Pods of a workload spread over hosts and zones.
    #[default]
    System,
    /// These. They have no selectors: those are the workload's.
    List(Vec<TopologySpreadConstraint>),
}

impl Default for PodTopologySpreadArgs {
    fn default() -> Self {
        Self { default_constraints: Vec::new(), defaulting_type: "System".to_owned() }
    }
}

impl PodTopologySpreadArgs {
    /// The default constraints.
    pub(crate) fn default_constraints(&self) -> DefaultConstraints {
        match self.defaulting_type.as_str() {
            "List" => DefaultConstraints::List(self.default_constraints.iter().map(|Strict(constraint)| constraint.clone()).collect()),
            _ => DefaultConstraints::System,
        }
    }
}

impl Arguments for PodTopologySpreadArgs {
    fn complete(&mut self, path: &Path, errors: &mut Vec<FieldError>) {
        if self.defaulting_type.is_empty() {
            "System".clone_into(&mut self.defaulting_type);
        }
        let type_path = path.child("defaultingType");
        match self.defaulting_type.as_str() {
            "System" if !self.default_constraints.is_empty() => {
                errors.push(FieldError::invalid(&type_path, "System", "when .defaultConstraints are not empty"));
            }
            "System" | "List" => {}
            other => errors.push(FieldError::not_supported(&type_path, other, &["System", "List"])),
        }
        let path = path.child("defaultConstraints");
        for (index, Strict(constraint)) in self.default_constraints.iter().enumerate() {
            check_constraint(constraint, &path.index(index), errors);
            let is_the_same = |Strict(other): &Strict<TopologySpreadConstraint>| {
                (&other.topology_key, &other.when_unsatisfiable) == (&constraint.topology_key, &constraint.when_unsatisfiable)
            };
            if self.default_constraints.iter().take(index).any(is_the_same) {
                let pair = format!("{{{}, {}}}", constraint.topology_key, constraint.when_unsatisfiable);
                errors.push(FieldError::duplicate(&path.index(index), pair));
            }
        }
    }
}

fn check_constraint(constraint: &TopologySpreadConstraint, path: &Path, errors: &mut Vec<FieldError>) {
    if constraint.max_skew <= 0 {
        errors.push(FieldError::invalid(&path.child("maxSkew"), constraint.max_skew, "not in valid range (0, inf)"));
    }
    let (key, key_path) = (constraint.topology_key.as_str(), path.child("topologyKey"));
    if key.is_empty() {
        errors.push(FieldError::required(&key_path, "can not be empty"));
    } else {
        errors.extend(format::qualified_name(key).into_iter().map(|message| FieldError::invalid(&key_path, key, message)));
    }
    let action_path = path.child("whenUnsatisfiable");
    match constraint.when_unsatisfiable.as_str() {
        "" => errors.push(FieldError::required(&action_path, "can not be empty")),
        "DoNotSchedule" | "ScheduleAnyway" => {}
        other => errors.push(FieldError::not_supported(&action_path, other, &["DoNotSchedule", "ScheduleAnyway"])),
    }
    if constraint.label_selector.is_some() {
        let detail = "constraint must not define a selector, as they deduced for each pod";
        errors.push(FieldError::forbidden(&path.child("labelSelector"), detail));
    }
}
