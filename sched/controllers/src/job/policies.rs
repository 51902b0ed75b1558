//! A Job's policies: what the failure of a Pod means, and which indexes suffice for success.

use k8s_openapi::api::batch::v1::{Job, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

use super::indexes::Indexes;
use super::member;
use crate::meta;

/// What the failure of a Pod means.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The Job has failed, for this reason.
    pub fails_job: Option<String>,
    /// The index of the Pod has failed.
    pub fails_index: bool,
    /// The failure counts towards the limits.
    pub counts: bool,
}

/// The first rule that a failed Pod matches decides; without one, the failure counts.
pub fn of_failure(job: &Job, pod: &Pod) -> Verdict {
    let policy = job.spec.as_ref().and_then(|spec| spec.pod_failure_policy.as_ref());
    let pod_name = || format!("{}/{}", meta::namespace(&pod.metadata), meta::name(&pod.metadata));
    for (number, rule) in policy.map(|policy| policy.rules.as_slice()).unwrap_or_default().iter().enumerate() {
        let matched = match (&rule.on_exit_codes, &rule.on_pod_conditions) {
            (Some(codes), _) => failed_container(pod, codes)
                .map(|(container, code)| format!("Container {} for pod {} failed with exit code {code}", container.name, pod_name())),
            (None, Some(patterns)) => {
                matching_condition(pod, patterns).map(|condition| format!("Pod {} has condition {}", pod_name(), condition.type_))
            }
            (None, None) => None,
        };
        let Some(matched) = matched else { continue };
        let counts = Verdict { counts: true, ..Verdict::default() };
        match rule.action.as_str() {
            "FailJob" => return Verdict { fails_job: Some(format!("{matched} matching FailJob rule at index {number}")), ..counts },
            "FailIndex" => return Verdict { fails_index: true, ..counts },
            "Ignore" => return Verdict::default(),
            "Count" => return counts,
            // Upstream, too, passes over an action that it does not have.
            _ => {}
        }
    }
    Verdict { counts: true, ..Verdict::default() }
}

fn failed_container<'a>(pod: &'a Pod, wanted: &PodFailurePolicyOnExitCodesRequirement) -> Option<(&'a ContainerStatus, i32)> {
    let failed = member::containers(pod).filter_map(|container| {
        let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
        (code != 0).then_some((container, code))
    });
    let mut named = failed.filter(|(container, _)| wanted.container_name.as_ref().is_none_or(|name| *name == container.name));
    named.find(|(_, code)| match wanted.operator.as_str() {
        "In" => wanted.values.contains(code),
        "NotIn" => !wanted.values.contains(code),
        _ => false,
    })
}

fn matching_condition<'a>(pod: &'a Pod, patterns: &[PodFailurePolicyOnPodConditionsPattern]) -> Option<&'a PodCondition> {
    let matches = |condition: &PodCondition, pattern: &PodFailurePolicyOnPodConditionsPattern| {
        condition.type_ == pattern.type_ && condition.status == pattern.status.as_deref().unwrap_or("True")
    };
    let conditions = pod.status.as_ref()?.conditions.as_deref().unwrap_or_default();
    conditions.iter().find(|condition| patterns.iter().any(|pattern| matches(condition, pattern)))
}

/// Why the succeeded indexes are enough by the success policy; `None` if they are not.
pub fn success(job: &Job, succeeded: &Indexes) -> Option<String> {
    let spec = job.spec.as_ref()?;
    let (policy, completions) = (spec.success_policy.as_ref()?, spec.completions.unwrap_or(0));
    let met = policy.rules.iter().position(|rule| match (&rule.succeeded_indexes, rule.succeeded_count) {
        (Some(text), count) => {
            let wanted = Indexes::parse(text, completions);
            wanted.total() > 0 && wanted.common(succeeded) >= count.unwrap_or(wanted.total())
        }
        (None, Some(count)) => succeeded.total() > 0 && succeeded.total() >= count,
        (None, None) => false,
    })?;
    Some(format!("Matched rules at index {met}"))
}
