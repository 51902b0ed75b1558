//! Giving a Pod and its running instances other limits: their cgroups.
//!
//! As upstream, the Pod's cgroup grows before those of its instances and shrinks after them. So instances always have room below
//! their Pod, and the Pod is never without its limits, whenever the agent is killed.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use runtimes_contract::{Resources, RuntimeError};
use runtimes_host::cgroup::{Cgroups, Group};
use tokio::time::Instant;

use super::Effects;
use crate::container;
use crate::container::resources::{self, InstanceResources};
use crate::layout::PodName;
use crate::record::RunningInstance;
use crate::resize::{self, OfContainers};
use crate::worker::learn::{Report, ResizeError, Resized, ResizedInstance};

/// One running instance.
struct Target {
    name: String,
    attempt: u32,
    /// Its cgroup.
    path: String,
    has: InstanceResources,
    wants: InstanceResources,
    /// It is restarted for its new resources; until then it keeps its memory limit.
    restarts: bool,
}

impl Target {
    /// The wanted limits of its cgroup.
    fn limits(&self) -> Resources {
        let memory_limit_bytes = if self.restarts { &self.has } else { &self.wants }.of_cgroup().memory_limit_bytes;
        Resources { memory_limit_bytes, ..self.wants.of_cgroup() }
    }

    fn given(self) -> Option<ResizedInstance> {
        (!self.restarts).then_some(ResizedInstance { container: self.name, attempt: self.attempt, resources: self.wants })
    }
}

impl Effects {
    /// Sets the limits of the Pod, whose cgroup has `pod_level` as `spec.resources`, and of its running instances, but not the memory of
    /// those that are restarted for it. The Pod or an instance whose memory limit cannot shrink that far now keeps its limit, and does not
    /// block the others.
    pub(crate) async fn resize(self, running: Vec<(String, RunningInstance)>, pod_level: Option<Box<ResourceRequirements>>) {
        let pod_path = self.node.layout.pod_cgroup(resources::qos(&self.pod), &PodName::of(&self.pod).uid);
        let targets = self.targets(running, &pod_path);
        let resized = match self.node.cgroups.clone() {
            None => Resized {
                instances: targets.into_iter().filter_map(Target::given).collect(),
                pod_level: self.pod.spec.as_ref().and_then(|spec| spec.resources.clone()).map(Box::new),
                errors: Vec::new(),
            },
            Some(cgroups) => {
                let (pod, began, before) = (self.pod.clone(), Instant::now(), pod_level.clone());
                let set = move || limit(&cgroups, &pod_path, &pod, before, targets);
                let interrupted = |_| Resized { instances: Vec::new(), pod_level, errors: vec![ResizeError::Interrupted] };
                let resized = api_tasks::blocking("node-agent/resize", set).await.unwrap_or_else(interrupted);
                self.node.kubelet_metrics.resizes.carried_out(began.elapsed(), resized.errors.is_empty());
                resized
            }
        };
        self.report(Report::Resized(resized)).await;
    }

    fn targets(&self, running: Vec<(String, RunningInstance)>, pod_path: &str) -> Vec<Target> {
        let Some(spec) = &self.pod.spec else { return Vec::new() };
        let target = |(name, alive): (String, RunningInstance)| {
            // An ephemeral container has limits of the whole Pod.
            let (_, container) = container::find_any(&self.pod, &name)?;
            Some(Target {
                path: format!("{pod_path}/{}", alive.id),
                attempt: alive.attempt,
                restarts: resize::restarts(spec, &container, &alive.resources),
                has: alive.resources,
                wants: InstanceResources::of(spec, &container),
                name,
            })
        };
        running.into_iter().filter_map(target).collect()
    }
}

/// Sets the cgroups; returns the resources of the Pod and of the instances, and why not all of them have the wanted ones. `before` is
/// what the Pod's cgroup has as `spec.resources`.
fn limit(cgroups: &Cgroups, pod_path: &str, pod: &Arc<Pod>, before: Option<Box<ResourceRequirements>>, targets: Vec<Target>) -> Resized {
    let unchanged = |pod_level, error| Resized { instances: Vec::new(), pod_level, errors: vec![error] };
    let group_of_pod = match cgroups.group(pod_path) {
        Ok(group) => group,
        Err(error) => return unchanged(before, error.into()),
    };
    let fault = match room_of_pod(&group_of_pod, pod, before.as_deref()) {
        Ok(fault) => fault,
        Err(error) => return unchanged(before, error),
    };
    let wanted = pod.spec.as_ref().and_then(|spec| spec.resources.clone());
    let pod_level = match (wanted, &fault) {
        (Some(wanted), Some(_)) => Some(resources::with_memory_of(&wanted, &before.as_deref().cloned().unwrap_or_default())),
        (wanted, _) => wanted,
    };
    let mut errors = Vec::from_iter(fault);
    let mut groups = Vec::new();
    let (mut has, mut wants) = (OfContainers::new(), OfContainers::new());
    for mut target in targets {
        target.wants = InstanceResources::new(target.wants.own, pod_level.as_ref());
        match room(cgroups, &target) {
            Ok(Some((group, fault))) => {
                if let Some(fault) = fault {
                    target.wants = target.wants.with_memory_of(&target.has);
                    errors.push(fault);
                }
                has.insert(target.name.clone(), Box::new(target.has.own.clone()));
                wants.insert(target.name.clone(), Box::new(target.wants.own.clone()));
                groups.push((group, target));
            }
            // It has just ended.
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
    }
    let limits_before = resources::of_pod(&resize::with_resources(pod, &has, before.as_deref()));
    let limits_after = resources::of_pod(&resize::with_resources(pod, &wants, pod_level.as_ref()));
    let (instances, is_set) = set(&group_of_pod, (&limits_before, &limits_after), groups, &mut errors);
    Resized { instances, pod_level: if is_set { pod_level.map(Box::new) } else { before }, errors }
}

/// Sets the limits of the Pod, which had others before, and of its instances. Returns what the instances have, and whether the Pod has its
/// new limits.
fn set(
    group_of_pod: &Group,
    (before, after): (&Resources, &Resources),
    groups: Vec<(Group, Target)>,
    errors: &mut Vec<ResizeError>,
) -> (Vec<ResizedInstance>, bool) {
    let mut is_set = |set: Result<(), RuntimeError>| set.map_err(|error| errors.push(error.into())).is_ok();
    if !is_set(group_of_pod.set(&resources::widest(before, after))) {
        return (Vec::new(), false);
    }
    let mut given = Vec::new();
    for (group, target) in groups {
        if is_set(group.set(&target.limits())) {
            given.extend(target.given());
        }
    }
    let shrunk = is_set(group_of_pod.set(after));
    (given, shrunk)
}

/// Why the Pod cannot have its wanted memory limit, if it cannot.
fn room_of_pod(group: &Group, pod: &Pod, before: Option<&ResourceRequirements>) -> Result<Option<ResizeError>, ResizeError> {
    let changes = resize::differs_as_a_whole(pod, before);
    let Some(limit) = resources::of_pod(pod).memory_limit_bytes.filter(|_| changes) else { return Ok(None) };
    let used = group.stats()?.working_set_bytes;
    Ok((limit < used).then_some(ResizeError::PodBelowUsage { limit, used }))
}

/// The cgroup of an instance, if it still has one, and why it cannot have its wanted memory limit, if it cannot: with a limit below the
/// memory in use, the kernel would kill the container.
fn room(cgroups: &Cgroups, target: &Target) -> Result<Option<(Group, Option<ResizeError>)>, ResizeError> {
    let group = cgroups.group(&target.path)?;
    if !group.exists() {
        return Ok(None);
    }
    let Some(limit) = target.limits().memory_limit_bytes.filter(|_| !target.restarts) else { return Ok(Some((group, None))) };
    let used = group.stats()?.working_set_bytes;
    let fault = (limit < used).then(|| ResizeError::BelowUsage { container: target.name.clone(), limit, used });
    Ok(Some((group, fault)))
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
                has: InstanceResources::new(of(80, "100m"), None),
                wants: InstanceResources::new(of(mib, "500m"), None),
                restarts: false,
            };
            vec![target("large", 8), target("small", 100)]
        };
        let Resized { instances, errors, .. } = limit(&cgroups, &pod_path, &pod, None, targets());
        let fault = errors.first().expect("one cannot shrink").to_string();
        assert_eq!(errors.len(), 1);
        assert!(fault.starts_with("attempting to set container \"large\" memory limit (8388608) below current usage ("), "{fault}");
        let given: Vec<_> = instances.into_iter().map(|one| (one.container, one.resources.own)).collect();
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
        let Resized { errors, .. } = limit(&cgroups, &pod_path, &pod, None, targets());
        assert_eq!((errors.len(), now()), (0, [8, 100, 108]));
        pod_group.remove_tree().expect("removed");
    }

    /// Reads a limit of a cgroup, of version 1 or 2.
    fn limit_of(path: &str, controller: &str, files: [&str; 2]) -> String {
        let dirs = [controller, "unified", ""].map(|root| format!("/sys/fs/cgroup/{root}/{path}"));
        let files = dirs.iter().flat_map(|dir| files.map(|file| format!("{dir}/{file}")));
        let text = files.into_iter().find_map(|file| std::fs::read_to_string(file).ok()).expect("a limit");
        text.split_whitespace().next().expect("a number").to_owned()
    }

    #[test]
    fn a_whole_pod_grows_and_shrinks_with_the_containers_that_have_no_limits() {
        let cgroups = Cgroups::detect().expect("cgroups");
        let pod_path = format!("skiff-test-resize-pod-{}", std::process::id());
        let whole = |mib: u64, cpu: &str| -> ResourceRequirements {
            serde_json::from_value(json!({"limits": {"memory": format!("{mib}Mi"), "cpu": cpu}})).expect("resources")
        };
        let own: ResourceRequirements = serde_json::from_value(json!({"limits": {"memory": "16Mi", "cpu": "100m"}})).expect("resources");
        let pod_of = |whole: &ResourceRequirements| -> Arc<Pod> {
            let containers = json!([{"name": "open"}, {"name": "own", "resources": own}]);
            Arc::new(serde_json::from_value(json!({"spec": {"resources": whole, "containers": containers}})).expect("a pod"))
        };
        let group = |name: &str| cgroups.group(&format!("{pod_path}/{name}")).expect("a path");
        let group_of_pod = cgroups.group(&pod_path).expect("a path");
        group_of_pod.create(&resources::of_pod(&pod_of(&whole(64, "200m")))).expect("made");
        for container in &pod_of(&whole(64, "200m")).spec.as_ref().expect("a spec").containers {
            group(&container.name).create(&resources::of_container(&pod_of(&whole(64, "200m")), container)).expect("made");
        }
        let resize = |before: &ResourceRequirements, after: &ResourceRequirements| {
            let (spec_before, pod) = (pod_of(before), pod_of(after));
            let targets = pod.spec.as_ref().expect("a spec").containers.iter().map(|container| Target {
                name: container.name.clone(),
                attempt: 0,
                path: format!("{pod_path}/{}", container.name),
                has: InstanceResources::of(spec_before.spec.as_ref().expect("a spec"), container),
                wants: InstanceResources::of(pod.spec.as_ref().expect("a spec"), container),
                restarts: false,
            });
            limit(&cgroups, &pod_path, &pod, Some(Box::new(before.clone())), targets.collect())
        };
        let memory = |path: &str| limit_of(path, "memory", ["memory.limit_in_bytes", "memory.max"]).parse::<u64>().expect("bytes") / MIB;
        let cpu = |path: &str| limit_of(path, "cpu", ["cpu.cfs_quota_us", "cpu.max"]);
        let now = || ["", "/open", "/own"].map(|name| format!("{pod_path}{name}")).map(|path| (memory(&path), cpu(&path)));
        let all = |mib: u64, quota: &str| [(mib, quota.to_owned()), (mib, quota.to_owned()), (16, "10000".to_owned())];
        assert_eq!(now(), all(64, "20000"));
        let grown = resize(&whole(64, "200m"), &whole(128, "400m"));
        assert_eq!((grown.errors.len(), grown.pod_level.as_deref(), now()), (0, Some(&whole(128, "400m")), all(128, "40000")));
        // The same again, as after a kill of the agent between two steps.
        let again = resize(&whole(64, "200m"), &whole(128, "400m"));
        assert_eq!((again.errors.len(), now()), (0, all(128, "40000")));
        let shrunk = resize(&whole(128, "400m"), &whole(32, "100m"));
        assert_eq!((shrunk.errors.len(), shrunk.pod_level.as_deref(), now()), (0, Some(&whole(32, "100m")), all(32, "10000")));

        let script = "read go; x=$(head -c 16777216 /dev/zero | tr '\\0' x); echo ok; read end";
        let mut holder = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        resize(&whole(32, "100m"), &whole(128, "400m"));
        group("open").add(holder.id().cast_signed()).expect("joins");
        let mut input = holder.stdin.take().expect("a pipe");
        input.write_all(b"go\n").expect("written");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().expect("a pipe")).read_line(&mut line).expect("answers");
        let full = resize(&whole(128, "400m"), &whole(8, "200m"));
        let errors: Vec<String> = full.errors.iter().map(ToString::to_string).collect();
        assert!(
            errors.len() == 1 && errors[0].starts_with("attempting to set pod memory limit (8388608) below current usage ("),
            "{errors:?}"
        );
        assert_eq!((full.pod_level.as_deref(), now()), (Some(&whole(128, "200m")), all(128, "20000")), "the CPU is set meanwhile");
        drop(input);
        holder.wait().expect("ends");
        let settled = resize(&whole(128, "200m"), &whole(8, "200m"));
        assert_eq!((settled.errors.len(), memory(&pod_path), memory(&format!("{pod_path}/open"))), (0, 8, 8));
        group_of_pod.remove_tree().expect("removed");
    }
}
