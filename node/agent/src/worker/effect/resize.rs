//! Giving running instances other limits: their cgroups, and that of their Pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use runtimes_contract::{Resources, RuntimeError};
use runtimes_host::cgroup::{Cgroups, Group};
use tokio::time::Instant;

use super::Effects;
use crate::container::{self, resources};
use crate::layout::PodName;
use crate::record::RunningInstance;
use crate::resize;
use crate::worker::learn::{Report, ResizeError, Resized};

/// One running instance.
struct Target {
    name: String,
    attempt: u32,
    /// Its cgroup.
    path: String,
    has: ResourceRequirements,
    wants: ResourceRequirements,
    /// It is restarted for its new resources; until then it keeps its memory limit.
    restarts: bool,
}

impl Target {
    /// The wanted limits of its cgroup.
    fn limits(&self, pod: &Pod) -> Resources {
        let memory = if self.restarts { &self.has } else { &self.wants };
        let memory_limit_bytes = resources::of_requirements(pod, Some(memory)).memory_limit_bytes;
        Resources { memory_limit_bytes, ..resources::of_requirements(pod, Some(&self.wants)) }
    }

    fn given(self) -> Option<Resized> {
        (!self.restarts).then_some(Resized { container: self.name, attempt: self.attempt, resources: self.wants })
    }
}

impl Effects {
    /// Sets the limits of running instances, but not the memory of those that are restarted for it. An instance whose memory
    /// limit cannot shrink that far now keeps its limit, and does not block the others.
    pub(crate) async fn resize(self, running: Vec<(String, RunningInstance)>) {
        let pod_path = self.node.layout.pod_cgroup(resources::qos(&self.pod), &PodName::of(&self.pod).uid);
        let target = |(name, alive): (String, RunningInstance)| {
            let (_, container) = container::find(&self.pod, &name)?;
            Some(Target {
                path: format!("{pod_path}/{}", alive.id),
                attempt: alive.attempt,
                restarts: resize::restarts(container, &alive.resources),
                has: alive.resources,
                wants: container.resources.clone().unwrap_or_default(),
                name,
            })
        };
        let targets: Vec<Target> = running.into_iter().filter_map(target).collect();
        let (given, errors) = match self.node.cgroups.clone() {
            None => (targets.into_iter().filter_map(Target::given).collect(), Vec::new()),
            Some(cgroups) => {
                let (pod, began) = (self.pod.clone(), Instant::now());
                let set = api_tasks::blocking("node-agent/resize", move || limit(&cgroups, &pod_path, &pod, targets)).await;
                let (given, errors) = set.unwrap_or_else(|_| (Vec::new(), vec![ResizeError::Interrupted]));
                self.node.kubelet_metrics.resizes.carried_out(began.elapsed(), errors.is_empty());
                (given, errors)
            }
        };
        self.report(Report::Resized(given, errors)).await;
    }
}

/// Sets the cgroups; returns the resources of the instances, and why not all of them have the wanted ones.
fn limit(cgroups: &Cgroups, pod_path: &str, pod: &Arc<Pod>, targets: Vec<Target>) -> (Vec<Resized>, Vec<ResizeError>) {
    let mut faults = Vec::new();
    let mut groups = Vec::new();
    let mut allocation = resize::Allocation::new();
    for mut target in targets {
        let group = cgroups.group(&target.path).map_err(ResizeError::from);
        // An instance that has just ended has none.
        let group = group.map(|group| Some(group).filter(Group::exists));
        let room = group.and_then(|group| group.map(|group| room(&group, pod, &target).map(|fault| (group, fault))).transpose());
        match room {
            Ok(Some((group, fault))) => {
                if let Some(fault) = fault {
                    target.wants = resources::with_memory_of(&target.wants, &target.has);
                    faults.push(fault);
                }
                allocation.insert(target.name.clone(), Box::new(target.wants.clone()));
                groups.push((group, target));
            }
            Ok(None) => {}
            Err(error) => faults.push(error),
        }
    }
    let given = set(cgroups, pod_path, &resize::with_allocation(pod, &allocation), groups, &mut faults);
    (given, faults)
}

fn set(cgroups: &Cgroups, pod_path: &str, pod: &Pod, groups: Vec<(Group, Target)>, faults: &mut Vec<ResizeError>) -> Vec<Resized> {
    let of_pod = resources::of_pod(pod);
    let mut given = Vec::new();
    let mut failed = |set: Result<(), RuntimeError>| set.map_err(|error| faults.push(error.into())).is_ok();
    let group_of_pod = match cgroups.group(pod_path) {
        Ok(group) => group,
        Err(error) => {
            failed(Err(error));
            return given;
        }
    };
    // The Pod's own bounds are out of the way meanwhile: cgroup v1 has no child above its parent.
    let open = Resources { memory_limit_bytes: None, cpu_quota_us: None, cpu_period_us: None, ..of_pod.clone() };
    if failed(group_of_pod.set(&open)) {
        for (group, target) in groups {
            if failed(group.set(&target.limits(pod))) {
                given.extend(target.given());
            }
        }
    }
    // The Pod gets limits again, whatever the result was.
    failed(group_of_pod.set(&of_pod));
    given
}

/// Why the instance cannot have the wanted memory limit, if it cannot: with a limit below the memory in use, the kernel would
/// kill the container.
fn room(group: &Group, pod: &Pod, target: &Target) -> Result<Option<ResizeError>, ResizeError> {
    let Some(limit) = target.limits(pod).memory_limit_bytes.filter(|_| !target.restarts) else { return Ok(None) };
    let used = group.stats()?.working_set_bytes;
    Ok((limit < used).then(|| ResizeError::BelowUsage { container: target.name.clone(), limit, used }))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    use serde_json::json;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_container_that_cannot_shrink_holds_up_no_other() {
        let cgroups = Cgroups::detect().expect("cgroups");
        let pod_path = format!("skiff-test-resize-{}", std::process::id());
        let limits = |mib: u64| Resources { memory_limit_bytes: Some(mib * MIB), ..Resources::default() };
        let group = |name: &str| cgroups.group(&format!("{pod_path}/{name}")).expect("a path");
        let pod_group = cgroups.group(&pod_path).expect("a path");
        pod_group.create(&limits(160)).expect("made");
        ["large", "small"].iter().for_each(|name| group(name).create(&limits(80)).expect("made"));
        let script = "read go; x=$(head -c 33554432 /dev/zero | tr '\\0' x); echo ok; read end";
        let mut command = Command::new("sh");
        let mut holder = command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        group("large").add(holder.id().cast_signed()).expect("joins");
        let mut input = holder.stdin.take().expect("a pipe");
        input.write_all(b"go\n").expect("said");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().expect("a pipe")).read_line(&mut line).expect("answers");
        assert_eq!(line, "ok\n");

        let of = |mib: u64, cpu: &str| -> ResourceRequirements {
            serde_json::from_value(json!({"limits": {"memory": format!("{mib}Mi"), "cpu": cpu}})).expect("resources")
        };
        let container = |name: &str, mib: u64| json!({"name": name, "resources": of(mib, "500m")});
        let pod = json!({"spec": {"containers": [container("large", 8), container("small", 100)]}});
        let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).expect("a pod"));
        let targets = || {
            let target = |name: &str, mib: u64| Target {
                name: name.to_owned(),
                attempt: 0,
                path: format!("{pod_path}/{name}"),
                has: of(80, "100m"),
                wants: of(mib, "500m"),
                restarts: false,
            };
            vec![target("large", 8), target("small", 100)]
        };
        let (given, errors) = limit(&cgroups, &pod_path, &pod, targets());
        let fault = errors.first().expect("one cannot shrink").to_string();
        assert_eq!(errors.len(), 1);
        assert!(fault.starts_with("attempting to set container \"large\" memory limit (8388608) below current usage ("), "{fault}");
        let given: Vec<_> = given.into_iter().map(|one| (one.container, one.resources)).collect();
        assert_eq!(given, [("large".to_owned(), of(80, "500m")), ("small".to_owned(), of(100, "500m"))]);
        let limit_of = |path: &str| {
            let files = ["memory", "unified", ""].map(|root| format!("/sys/fs/cgroup/{root}/{pod_path}{path}/memory."));
            let files = files.iter().flat_map(|file| ["limit_in_bytes", "max"].map(|name| format!("{file}{name}")));
            let text = files.into_iter().find_map(|file| std::fs::read_to_string(file).ok()).expect("a limit");
            text.trim().parse::<u64>().expect("a number") / MIB
        };
        let now = || ["/large", "/small", ""].map(limit_of);
        assert_eq!(now(), [80, 100, 180]);

        drop(input);
        holder.wait().expect("ends");
        let (_, errors) = limit(&cgroups, &pod_path, &pod, targets());
        assert_eq!((errors.len(), now()), (0, [8, 100, 108]));
        pod_group.remove_tree().expect("removed");
    }
}
