//! A node affinity that every Pod of the profile has.

use api_model::field::{FieldError, Path};
use api_model::format;
use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm};
use serde::Deserialize;

use super::Arguments;
use crate::config::strict::Strict;

/// Upstream's `NodeAffinityArgs`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct NodeAffinityArgs {
    added_affinity: Option<Strict<NodeAffinity>>,
}

impl NodeAffinityArgs {
    /// The affinity that is added to that of each Pod.
    pub(crate) fn added_affinity(&self) -> Option<&NodeAffinity> {
        self.added_affinity.as_ref().map(|Strict(affinity)| affinity)
    }
}

impl Arguments for NodeAffinityArgs {
    fn complete(&mut self, path: &Path, errors: &mut Vec<FieldError>) {
        let Some(affinity) = self.added_affinity() else { return };
        let path = path.child("addedAffinity");
        let required = affinity.required_during_scheduling_ignored_during_execution.iter();
        let terms = path.child("requiredDuringSchedulingIgnoredDuringExecution").child("nodeSelectorTerms");
        for (index, term) in required.flat_map(|selector| &selector.node_selector_terms).enumerate() {
            check_term(term, &terms.index(index), errors);
        }
        let terms = path.child("preferredDuringSchedulingIgnoredDuringExecution");
        let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten().enumerate();
        for (index, term) in preferred.filter(|(_, term)| term.weight != 0) {
            check_term(&term.preference, &terms.index(index), errors);
        }
    }
}

/// Upstream's `newNodeSelectorTerm`.
fn check_term(term: &NodeSelectorTerm, path: &Path, errors: &mut Vec<FieldError>) {
    for (index, expression) in term.match_expressions.iter().flatten().enumerate() {
        check_expression(expression, &path.child("matchExpressions").index(index), errors);
    }
    for (index, field) in term.match_fields.iter().flatten().enumerate() {
        let (path, values) = (path.child("matchFields").index(index), field.values.as_deref().unwrap_or_default());
        match field.operator.as_str() {
            "In" | "NotIn" if values.len() == 1 => {}
            "In" | "NotIn" => errors.push(FieldError::invalid(&path.child("values"), values, "must have one element")),
            other => errors.push(FieldError::not_supported(&path.child("operator"), other, &["In", "NotIn"])),
        }
    }
}

/// Upstream's `labels.NewRequirement`.
fn check_expression(expression: &NodeSelectorRequirement, path: &Path, errors: &mut Vec<FieldError>) {
    let (path_values, values) = (path.child("values"), expression.values.as_deref().unwrap_or_default());
    let mut invalid = |detail: &str| errors.push(FieldError::invalid(&path_values, values, detail));
    match expression.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => invalid("for 'in', 'notin' operators, values set can't be empty"),
        "Exists" | "DoesNotExist" if !values.is_empty() => invalid("values set must be empty for exists and does not exist"),
        "Gt" | "Lt" if values.len() != 1 => invalid("for 'Gt', 'Lt' operators, exactly one value is required"),
        "Gt" | "Lt" => {
            for (index, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err()) {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(FieldError::invalid(&path_values.index(index), value.as_str(), detail));
            }
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            let supported = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
            return errors.push(FieldError::not_supported(&path.child("operator"), other, &supported));
        }
    }
    let wrong = format::qualified_name(&expression.key);
    if !wrong.is_empty() {
        errors.push(FieldError::invalid(&path.child("key"), expression.key.as_str(), wrong.join("; ")));
    }
    for (index, value) in values.iter().enumerate() {
        let wrong = format::label_value(value);
        if !wrong.is_empty() {
            errors.push(FieldError::invalid(&path_values.index(index), value.as_str(), wrong.join("; ")));
        }
    }
}
