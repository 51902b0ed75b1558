//! What follows the end of an instance: by the container's restart rules, its own restart policy and that of its Pod, in this
//! order (KEP-5307, KEP-5532). Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, Pod, PodSpec};

use super::{ContainerRecord, ExitedInstance, InstanceState, PodRecord, Waiting};
use crate::container::{self, Role};

/// The reason of a container that was ended, or is about to start, because all containers of its Pod start again.
pub(crate) const RESTARTING_ALL: &str = "RestartingAllContainers";
const RESTARTING_ALL_MESSAGE: &str = "The container is removed because RestartAllContainers in place";
/// The action of a rule.
const RESTART_ALL: &str = "RestartAllContainers";
/// The exit code of an instance that was ended for it, whatever its own was.
const RESTARTING_ALL_CODE: i32 = 137;

/// What follows an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterExit {
    /// The container stays ended.
    Nothing,
    /// Its next instance.
    Restart,
    /// The Pod begins again with its init containers.
    RestartAll,
}

/// What follows an exit with a code, for a container that ended by itself.
pub(crate) fn after_exit(spec: &PodSpec, role: Role, container: &Container, code: i32) -> AfterExit {
    if role == Role::Ephemeral {
        return AfterExit::Nothing;
    }
    let own = container.restart_policy.as_deref();
    let rule = own.and_then(|_| container.restart_policy_rules.iter().flatten().find(|rule| applies(rule, code)));
    let by_rule = rule.map(|rule| rule.action.as_str());
    if by_rule == Some(RESTART_ALL) {
        return AfterExit::RestartAll;
    }
    let policy = own.or(spec.restart_policy.as_deref()).unwrap_or("Always");
    let restarts = match role {
        Role::Sidecar => true,
        // As upstream: one that has succeeded is never followed by another instance.
        Role::Init => code != 0 && (by_rule == Some("Restart") || policy != "Never"),
        Role::Main | Role::Ephemeral => by_rule == Some("Restart") || policy == "Always" || (policy == "OnFailure" && code != 0),
    };
    if restarts { AfterExit::Restart } else { AfterExit::Nothing }
}

fn applies(rule: &ContainerRestartRule, code: i32) -> bool {
    rule.exit_codes.as_ref().is_some_and(|codes| {
        let listed = codes.values.iter().flatten().any(|value| *value == code);
        match codes.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    })
}

/// Whether an instance that fails a probe is followed by another, whatever its exit code is. Rules do not count: it still runs.
pub(crate) fn restarts_after_probe(spec: &PodSpec, container: &Container) -> bool {
    container.restart_policy.as_deref().or(spec.restart_policy.as_deref()) != Some("Never")
}

/// Whether an ended instance is followed by another.
pub(crate) fn restarts(spec: &PodSpec, role: Role, container: &Container, ended: &ExitedInstance) -> bool {
    if ended.replaced {
        return role != Role::Ephemeral;
    }
    after_exit(spec, role, container, ended.exit_code) != AfterExit::Nothing
}

/// Whether a container of the Pod has a rule that restarts all of them.
pub(crate) fn may_restart_all(spec: &PodSpec) -> bool {
    container::all(spec).any(|(_, container)| container.restart_policy_rules.iter().flatten().any(|rule| rule.action == RESTART_ALL))
}

/// Whether a container is of a Pod that restarts it, for readers of the status.
pub(crate) fn will_restart(pod: &Pod, container: &Container, record: &ContainerRecord) -> bool {
    let spec = pod.spec.as_ref();
    spec.is_some_and(|spec| record.ended().is_some_and(|ended| restarts(spec, record.role, container, ended)))
}

impl Waiting {
    /// A container whose Pod begins again.
    pub(crate) fn restarting_all(until: Timestamp) -> Self {
        let (reason, message) = (RESTARTING_ALL.to_owned(), RESTARTING_ALL_MESSAGE.to_owned());
        Self { reason, message, until, backs_off_at: None }
    }
}

impl PodRecord {
    /// Whether a container has ended by a rule that restarts all containers, and they have not all ended yet. The exit code of an
    /// instance that the node ended for another one does not count.
    pub(crate) fn restarts_all(&self, spec: &PodSpec) -> bool {
        container::all(spec).any(|(role, container)| {
            let record = self.container(&container.name).filter(|record| !record.reset);
            let ended = record.and_then(ContainerRecord::ended).filter(|ended| !ended.replaced);
            ended.is_some_and(|ended| after_exit(spec, role, container, ended.exit_code) == AfterExit::RestartAll)
        })
    }

    /// All containers have ended and begin again. As upstream, their statuses forget how they ended by themselves. A container
    /// that is in back-off stays there.
    pub(crate) fn reset(&mut self, now: Timestamp) {
        for record in self.containers.values_mut().filter(|record| record.role != Role::Ephemeral) {
            let InstanceState::Ended(ended) = &mut record.run else { continue };
            *ended = ExitedInstance {
                exit_code: RESTARTING_ALL_CODE,
                signal: None,
                reason: RESTARTING_ALL.to_owned(),
                message: RESTARTING_ALL_MESSAGE.to_owned(),
                replaced: true,
                ..ended.clone()
            };
            record.reset = true;
            if record.waiting.as_ref().is_none_or(|waiting| waiting.until <= now) {
                record.waiting = Some(Waiting::restarting_all(now));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(policy: &str, container: &Value) -> PodSpec {
        let mut whole = json!({"name": "c"});
        whole.as_object_mut().expect("an object").extend(container.as_object().expect("an object").clone());
        serde_json::from_value(json!({"restartPolicy": policy, "containers": [whole]})).expect("a spec")
    }

    /// What follows exits with 0, 1 and 42: `-` nothing, `r` a restart, `A` a restart of all.
    fn row(policy: &str, role: Role, container: &Value) -> String {
        let spec = spec(policy, container);
        [0, 1, 42]
            .map(|code| match after_exit(&spec, role, &spec.containers[0], code) {
                AfterExit::Nothing => "-",
                AfterExit::Restart => "r",
                AfterExit::RestartAll => "A",
            })
            .concat()
    }

    #[test]
    fn a_rule_goes_before_the_containers_policy_and_that_before_the_pods() {
        let rule =
            |action: &str, operator: &str, values: &[i32]| json!({"action": action, "exitCodes": {"operator": operator, "values": values}});
        let with = |policy: &str, rules: Value| json!({"restartPolicy": policy, "restartPolicyRules": rules});
        let plain = json!({});
        for (of_pod, container, main, init) in [
            ("Always", plain.clone(), "rrr", "-rr"),
            ("OnFailure", plain.clone(), "-rr", "-rr"),
            ("Never", plain, "---", "---"),
            ("Never", json!({"restartPolicy": "OnFailure"}), "-rr", "-rr"),
            ("Always", json!({"restartPolicy": "Never"}), "---", "---"),
            ("OnFailure", json!({"restartPolicy": "Always"}), "rrr", "-rr"),
            ("Never", with("Never", json!([rule("Restart", "In", &[42])])), "--r", "--r"),
            ("Never", with("Never", json!([rule("Restart", "NotIn", &[1])])), "r-r", "--r"),
            ("Never", with("Never", json!([rule("RestartAllContainers", "In", &[0, 42])])), "A-A", "A-A"),
            ("Never", with("Never", json!([rule("Restart", "In", &[42]), rule("RestartAllContainers", "NotIn", &[])])), "AAr", "AAr"),
            ("Always", with("Never", json!([rule("Restart", "In", &[])])), "---", "---"),
            ("Never", json!({"restartPolicyRules": [rule("Restart", "In", &[42])]}), "---", "---"),
        ] {
            let rows = (row(of_pod, Role::Main, &container), row(of_pod, Role::Init, &container));
            assert_eq!((rows.0.as_str(), rows.1.as_str()), (main, init), "{of_pod} {container}");
            assert_eq!(row(of_pod, Role::Ephemeral, &container), "---");
        }
        let sidecar = with("Always", json!([rule("RestartAllContainers", "In", &[1])]));
        assert_eq!(row("Never", Role::Sidecar, &sidecar), "rAr");
    }

    #[test]
    fn a_failed_probe_asks_the_policies_alone() {
        let rules = json!([{"action": "Restart", "exitCodes": {"operator": "NotIn", "values": []}}]);
        for (of_pod, container, wanted) in [
            ("OnFailure", json!({}), true),
            ("Never", json!({}), false),
            ("Never", json!({"restartPolicy": "OnFailure"}), true),
            ("Always", json!({"restartPolicy": "Never", "restartPolicyRules": rules}), false),
        ] {
            let spec = spec(of_pod, &container);
            assert_eq!(restarts_after_probe(&spec, &spec.containers[0]), wanted, "{of_pod} {container}");
        }
    }
}
