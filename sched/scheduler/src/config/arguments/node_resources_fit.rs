//! Which resources a node must have, and how much of them is used on the best node.

use api_model::field::{FieldError, Path};
use api_model::format;
use serde::Deserialize;

use super::Arguments;
use super::resource_spec::{ResourceSpec, check_weights, complete_resources, default_resources};

/// The names of the strategies, in the order of upstream's message.
const STRATEGIES: [&str; 3] = ["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];

/// Upstream's `NodeResourcesFitArgs`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct NodeResourcesFitArgs {
    /// Extended resources that a node need not have.
    pub ignored_resources: Vec<String>,
    /// The domains of such resources.
    pub ignored_resource_groups: Vec<String>,
    scoring_strategy: ScoringStrategy,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScoringStrategy {
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    resources: Vec<ResourceSpec>,
    requested_to_capacity_ratio: Option<RequestedToCapacityRatio>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RequestedToCapacityRatio {
    shape: Vec<UtilizationShapePoint>,
}

/// The score from 0 to 10 of a node that is used to so many per cent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
pub(crate) struct UtilizationShapePoint {
    pub utilization: i32,
    pub score: i32,
}

/// Which use of a node is the best.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScoringStrategyType {
    /// The lowest one.
    LeastAllocated,
    /// The highest one.
    MostAllocated,
    /// As the points say, with straight lines between them. There is one point at least, and their utilization increases.
    RequestedToCapacityRatio(Vec<UtilizationShapePoint>),
}

impl Default for ScoringStrategy {
    fn default() -> Self {
        Self { r#type: "LeastAllocated".to_owned(), resources: default_resources(), requested_to_capacity_ratio: None }
    }
}

impl NodeResourcesFitArgs {
    /// The resources that the score depends on.
    pub(crate) fn resources(&self) -> &[ResourceSpec] {
        &self.scoring_strategy.resources
    }

    /// How a share becomes a score.
    pub(crate) fn strategy(&self) -> ScoringStrategyType {
        let ScoringStrategy { r#type, requested_to_capacity_ratio, .. } = &self.scoring_strategy;
        match (r#type.as_str(), requested_to_capacity_ratio) {
            ("MostAllocated", _) => ScoringStrategyType::MostAllocated,
            ("RequestedToCapacityRatio", Some(ratio)) => ScoringStrategyType::RequestedToCapacityRatio(ratio.shape.clone()),
            _ => ScoringStrategyType::LeastAllocated,
        }
    }
}

impl Arguments for NodeResourcesFitArgs {
    fn complete(&mut self, path: &Path, errors: &mut Vec<FieldError>) {
        for (index, name) in self.ignored_resources.iter().enumerate() {
            check_name(name, &path.child("ignoredResources").index(index), errors);
        }
        for (index, group) in self.ignored_resource_groups.iter().enumerate() {
            let path = path.child("ignoredResourceGroups").index(index);
            if group.contains('/') {
                errors.push(FieldError::invalid(&path, group.as_str(), "resource group name can't contain '/'"));
            }
            check_name(group, &path, errors);
        }
        complete_resources(&mut self.scoring_strategy.resources);
        self.scoring_strategy.check(&path.child("scoringStrategy"), errors);
    }
}

fn check_name(name: &str, path: &Path, errors: &mut Vec<FieldError>) {
    errors.extend(format::qualified_name(name).into_iter().map(|message| FieldError::invalid(path, name, message)));
}

impl ScoringStrategy {
    fn check(&self, path: &Path, errors: &mut Vec<FieldError>) {
        if !STRATEGIES.contains(&self.r#type.as_str()) {
            errors.push(FieldError::not_supported(&path.child("type"), self.r#type.as_str(), &STRATEGIES));
        }
        check_weights(&self.resources, &path.child("resources"), errors);
        let path = path.child("requestedToCapacityRatio");
        match (self.r#type.as_str(), &self.requested_to_capacity_ratio) {
            ("RequestedToCapacityRatio", None) => {
                errors.push(FieldError::required(&path, "must be specified when type is RequestedToCapacityRatio"));
            }
            ("RequestedToCapacityRatio", Some(ratio)) => check_shape(&ratio.shape, &path.child("shape"), errors),
            (_, None) => {}
            (_, Some(_)) => errors.push(FieldError::forbidden(&path, "must be nil when type is not RequestedToCapacityRatio")),
        }
    }
}

fn check_shape(shape: &[UtilizationShapePoint], path: &Path, errors: &mut Vec<FieldError>) {
    if shape.is_empty() {
        return errors.push(FieldError::required(path, "at least one point must be specified"));
    }
    let mut pairs = shape.iter().zip(shape.iter().skip(1)).enumerate();
    if let Some((index, (_, next))) = pairs.find(|(_, (before, next))| before.utilization >= next.utilization) {
        let path = path.index(index + 1).child("utilization");
        errors.push(FieldError::invalid(&path, next.utilization, "values must be sorted in increasing order"));
    }
    for (index, UtilizationShapePoint { utilization, score }) in shape.iter().enumerate() {
        for (field, value, max) in [("utilization", *utilization, 100), ("score", *score, 10)] {
            if !(0..=max).contains(&value) {
                errors.push(FieldError::invalid(&path.index(index).child(field), value, format!("not in valid range [0, {max}]")));
            }
        }
    }
}
