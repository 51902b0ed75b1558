//! How many nodes a preemption tries.

use api_model::field::{FieldError, Path};
use serde::Deserialize;

use super::Arguments;

/// Upstream's `DefaultPreemptionArgs`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct DefaultPreemptionArgs {
    min_candidate_nodes_percentage: i32,
    min_candidate_nodes_absolute: i32,
}

impl Default for DefaultPreemptionArgs {
    fn default() -> Self {
        Self { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

impl DefaultPreemptionArgs {
    /// The number of candidates among so many nodes at which the search ends.
    pub(crate) fn candidates(&self, nodes: usize) -> usize {
        let count = |field: i32| usize::try_from(field).unwrap_or_default();
        (nodes * count(self.min_candidate_nodes_percentage) / 100).max(count(self.min_candidate_nodes_absolute))
    }
}

impl Arguments for DefaultPreemptionArgs {
    fn complete(&mut self, path: &Path, errors: &mut Vec<FieldError>) {
        let (percentage, absolute) = (self.min_candidate_nodes_percentage, self.min_candidate_nodes_absolute);
        let paths = [path.child("minCandidateNodesPercentage"), path.child("minCandidateNodesAbsolute")];
        let [percentage_path, absolute_path] = &paths;
        if !(0..=100).contains(&percentage) {
            errors.push(FieldError::invalid(percentage_path, percentage, "not in valid range [0, 100]"));
        }
        if absolute < 0 {
            errors.push(FieldError::invalid(absolute_path, absolute, "not in valid range [0, inf)"));
        }
        if percentage == 0 && absolute == 0 {
            let detail = |other: &str| format!("cannot be zero at the same time as {other}");
            errors.push(FieldError::invalid(percentage_path, 0, detail("minCandidateNodesAbsolute")));
            errors.push(FieldError::invalid(absolute_path, 0, detail("minCandidateNodesPercentage")));
        }
    }
}
