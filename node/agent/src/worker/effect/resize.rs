//! Giving a Pod and its running instances other limits: their cgroups.
//!
//! As upstream, the Pod's cgroup grows before those of its instances and shrinks after them. So instances always have room below
//! their Pod, and the Pod is never without its limits, whenever the agent is killed.
//!
//! After a kill in the middle of a resize, the record may have less than the cgroups. So no memory limit is set below the memory in use,
//! whatever the record has; and on cgroup v1 the Pod may be without a CPU quota while those of its containers are set.

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
    let is_pod_full = fault.is_some();
    let mut errors: Vec<ResizeError> = fault.into_iter().collect();
    let mut groups = Vec::new();
    let (mut has, mut wants) = (OfContainers::new(), OfContainers::new());
    for mut target in targets {
        if is_pod_full {
            target.wants = target.wants.with_inherited_memory_of(&target.has);
        }
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
    let begun = set_limits(group_of_pod, &resources::widest(before, after)).map(|_| ());
    // A container may have a higher CPU quota than the record of an agent that was killed: cgroup v1 rejects a lower one of its Pod.
    let begun = begun.or_else(|error| if group_of_pod.exists() { group_of_pod.create(&without_cpu_quota()) } else { Err(error) });
    if let Err(error) = begun {
        errors.push(error.into());
        return (Vec::new(), false);
    }
    let mut given = Vec::new();
    for (group, target) in groups {
        match set_limits(&group, &target.limits()) {
            Ok(None) => given.extend(target.given()),
            Ok(Some(_)) => {}
            Err(error) => errors.push(error.into()),
        }
    }
    let fault = match (set_limits(group_of_pod, after), after.memory_limit_bytes) {
        // A resize that has errors is tried again in any case.
        (Ok(Some(used)), Some(limit)) if errors.is_empty() => Some(ResizeError::PodBelowUsage { limit, used }),
        (Ok(_), _) => None,
        (Err(error), _) => Some(error.into()),
    };
    let is_set = fault.is_none();
    errors.extend(fault);
    (given, is_set)
}

/// Sets the limits of a group, but no memory limit below the memory in use, with which the kernel would kill a process: the group keeps the
/// memory limit that it has, and the memory in use is returned.
fn set_limits(group: &Group, limits: &Resources) -> Result<Option<u64>, RuntimeError> {
    let used = match limits.memory_limit_bytes {
        Some(limit) => Some(group.stats()?.working_set_bytes).filter(|used| limit < *used),
        None => None,
    };
    if used.is_none() {
        group.set(limits)?;
    } else {
        // `create` leaves the limits that are not given.
        let quota = without_cpu_quota();
        group.create(&Resources {
            cpu_shares: limits.cpu_shares,
            cpu_quota_us: limits.cpu_quota_us.or(quota.cpu_quota_us),
            cpu_period_us: limits.cpu_period_us,
            ..quota
        })?;
    }
    Ok(used)
}

/// No CPU quota, as [`Group::create`] takes it.
fn without_cpu_quota() -> Resources {
    Resources { cpu_quota_us: Some(-1), ..Resources::default() }
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
    use std::process::{Child, ChildStdin, Command, Stdio};

    use serde_json::json;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Reads a limit of a cgroup, of version 1 or 2.
    fn limit_of(path: &str, controller: &str, files: [&str; 2]) -> String {
        let dirs = [controller, "unified", ""].map(|root| format!("/sys/fs/cgroup/{root}/{path}"));
        let files = dirs.iter().flat_map(|dir| files.map(|file| format!("{dir}/{file}")));
        let text = files.into_iter().find_map(|file| std::fs::read_to_string(file).ok()).expect("a limit");
        text.split_whitespace().next().expect("a number").to_owned()
    }

    fn whole(mib: u64, cpu: &str) -> ResourceRequirements {
        serde_json::from_value(json!({"limits": {"memory": format!("{mib}Mi"), "cpu": cpu}})).expect("resources")
    }

    /// A process of a group that uses some memory until it is ended.
    struct Filler {
        process: Child,
        input: ChildStdin,
    }

    impl Filler {
        fn begin(group: &Group, mib: u64) -> Self {
            let script = format!("read go; x=$(head -c {} /dev/zero | tr '\\0' x); echo ok; read end", mib * MIB);
            let mut process =
                Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
            group.add(process.id().cast_signed()).expect("joins");
            let mut input = process.stdin.take().expect("a pipe");
            input.write_all(b"go\n").expect("written");
            let mut line = String::new();
            BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("answers");
            assert_eq!(line, "ok\n");
            Self { process, input }
        }

        fn end(mut self) {
            drop(self.input);
            self.process.wait().expect("ends");
        }
    }

    /// The cgroups of a Pod with resources as a whole: the container `open` has none of its own, `own` has its limits.
    struct WholePod {
        cgroups: Cgroups,
        path: String,
    }

    impl WholePod {
        fn new(name: &str, resources: &ResourceRequirements) -> Self {
            let path = format!("skiff-test-resize-{name}-{}", std::process::id());
            let this = Self { cgroups: Cgroups::detect().expect("cgroups"), path };
            let pod = Self::pod(resources);
            this.group("").create(&resources::of_pod(&pod)).expect("made");
            for container in &pod.spec.as_ref().expect("a spec").containers {
                this.group(&format!("/{}", container.name)).create(&resources::of_container(&pod, container)).expect("made");
            }
            this
        }

        fn pod(resources: &ResourceRequirements) -> Arc<Pod> {
            let containers = json!([{"name": "open"}, {"name": "own", "resources": whole(16, "100m")}]);
            Arc::new(serde_json::from_value(json!({"spec": {"resources": resources, "containers": containers}})).expect("a pod"))
        }

        fn group(&self, below: &str) -> Group {
            self.cgroups.group(&format!("{}{below}", self.path)).expect("a path")
        }

        /// Resizes the Pod, whose instances have what containers of a Pod with the resources `has` have.
        fn resize(&self, before: &ResourceRequirements, has: &ResourceRequirements, after: &ResourceRequirements) -> Resized {
            let (pod_of_instances, pod) = (Self::pod(has), Self::pod(after));
            let (previous, spec) = (pod_of_instances.spec.as_ref().expect("a spec"), pod.spec.as_ref().expect("a spec"));
            let targets = spec.containers.iter().map(|container| Target {
                name: container.name.clone(),
                attempt: 0,
                path: format!("{}/{}", self.path, container.name),
                has: InstanceResources::of(previous, container),
                wants: InstanceResources::of(spec, container),
                restarts: false,
            });
            limit(&self.cgroups, &self.path, &pod, Some(Box::new(before.clone())), targets.collect())
        }

        fn memory(&self, below: &str) -> u64 {
            let text = limit_of(&format!("{}{below}", self.path), "memory", ["memory.limit_in_bytes", "memory.max"]);
            text.parse::<u64>().expect("bytes") / MIB
        }

        /// Memory in MiB and CPU quota of the Pod, `open` and `own`.
        fn now(&self) -> [(u64, String); 3] {
            let cpu = |below: &str| limit_of(&format!("{}{below}", self.path), "cpu", ["cpu.cfs_quota_us", "cpu.max"]);
            ["", "/open", "/own"].map(|below| (self.memory(below), cpu(below)))
        }
    }

    /// What [`WholePod::now`] returns for a Pod with these limits.
    fn all(mib: u64, quota: &str) -> [(u64, String); 3] {
        [(mib, quota.to_owned()), (mib, quota.to_owned()), (16, "10000".to_owned())]
    }

    #[test]
    fn a_container_that_cannot_shrink_holds_up_no_other() {
        let cgroups = Cgroups::detect().expect("cgroups");
        let pod_path = format!("skiff-test-resize-{}", std::process::id());
        let limits = |mib: u64| Resources { memory_limit_bytes: Some(mib * MIB), ..Resources::default() };
        let group = |name: &str| cgroups.group(&format!("{pod_path}/{name}")).expect("a path");
        let pod_group = cgroups.group(&pod_path).expect("a path");
        pod_group.create(&limits(160)).expect("made");
        ["large", "small"].iter().for_each(|name| group(name).create(&limits(80)).expect("made"));
        let filler = Filler::begin(&group("large"), 32);

        let container = |name: &str, mib: u64| json!({"name": name, "resources": whole(mib, "500m")});
        let pod = json!({"spec": {"containers": [container("large", 8), container("small", 100)]}});
        let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).expect("a pod"));
        let targets = || {
            let target = |name: &str, mib: u64| Target {
                name: name.to_owned(),
                attempt: 0,
                path: format!("{pod_path}/{name}"),
                has: InstanceResources::new(whole(80, "100m"), None),
                wants: InstanceResources::new(whole(mib, "500m"), None),
                restarts: false,
            };
            vec![target("large", 8), target("small", 100)]
        };
        let Resized { instances, errors, .. } = limit(&cgroups, &pod_path, &pod, None, targets());
        let fault = errors.first().expect("one cannot shrink").to_string();
        assert_eq!(errors.len(), 1);
        assert!(fault.starts_with("attempting to set container \"large\" memory limit (8388608) below current usage ("), "{fault}");
        let given: Vec<_> = instances.into_iter().map(|one| (one.container, one.resources.own)).collect();
        assert_eq!(given, [("large".to_owned(), whole(80, "500m")), ("small".to_owned(), whole(100, "500m"))]);
        let limit_of = |path: &str| {
            let text = limit_of(&format!("{pod_path}{path}"), "memory", ["memory.limit_in_bytes", "memory.max"]);
            text.parse::<u64>().expect("a number") / MIB
        };
        let now = || ["/large", "/small", ""].map(limit_of);
        assert_eq!(now(), [80, 100, 180]);

        filler.end();
        let Resized { errors, .. } = limit(&cgroups, &pod_path, &pod, None, targets());
        assert_eq!((errors.len(), now()), (0, [8, 100, 108]));
        pod_group.remove_tree().expect("removed");
    }

    #[test]
    fn a_whole_pod_grows_and_shrinks_with_the_containers_that_have_no_limits() {
        let pod = WholePod::new("pod", &whole(64, "200m"));
        let resize = |before: &ResourceRequirements, after: &ResourceRequirements| pod.resize(before, before, after);
        assert_eq!(pod.now(), all(64, "20000"));
        let grown = resize(&whole(64, "200m"), &whole(128, "400m"));
        assert_eq!((grown.errors.len(), grown.pod_level.as_deref(), pod.now()), (0, Some(&whole(128, "400m")), all(128, "40000")));
        // The same again, as after a kill of the agent between two steps.
        let again = resize(&whole(64, "200m"), &whole(128, "400m"));
        assert_eq!((again.errors.len(), pod.now()), (0, all(128, "40000")));
        // Another wish after such a kill: the cgroups have more than the record.
        let other = resize(&whole(64, "200m"), &whole(48, "150m"));
        assert_eq!((other.errors.len(), other.pod_level.as_deref(), pod.now()), (0, Some(&whole(48, "150m")), all(48, "15000")));
        resize(&whole(48, "150m"), &whole(128, "400m"));
        let shrunk = resize(&whole(128, "400m"), &whole(32, "100m"));
        assert_eq!((shrunk.errors.len(), shrunk.pod_level.as_deref(), pod.now()), (0, Some(&whole(32, "100m")), all(32, "10000")));

        resize(&whole(32, "100m"), &whole(128, "400m"));
        let filler = Filler::begin(&pod.group("/open"), 16);
        let full = resize(&whole(128, "400m"), &whole(8, "200m"));
        let errors: Vec<String> = full.errors.iter().map(ToString::to_string).collect();
        assert!(
            errors.len() == 1 && errors[0].starts_with("attempting to set pod memory limit (8388608) below current usage ("),
            "{errors:?}"
        );
        assert_eq!((full.pod_level.as_deref(), pod.now()), (Some(&whole(128, "200m")), all(128, "20000")), "the CPU is set meanwhile");
        let from_less = resize(&whole(8, "200m"), &whole(8, "300m"));
        assert_eq!((from_less.errors.len(), pod.now()), (2, all(128, "30000")), "no limit is set below the memory in use");
        filler.end();
        let settled = resize(&whole(128, "300m"), &whole(8, "200m"));
        assert_eq!((settled.errors.len(), pod.memory(""), pod.memory("/open")), (0, 8, 8));
        pod.group("").remove_tree().expect("removed");
    }

    #[test]
    fn a_container_of_a_pod_that_cannot_shrink_keeps_the_limit_with_which_it_was_restarted() {
        let (before, wish) = (whole(128, "400m"), whole(8, "400m"));
        let pod = WholePod::new("restarted", &before);
        let of_wish = InstanceResources::new(ResourceRequirements::default(), Some(&wish));
        pod.group("/open").set(&of_wish.of_cgroup()).expect("set");
        let sibling = pod.group("/sibling");
        sibling.create(&Resources { memory_limit_bytes: Some(64 * MIB), ..Resources::default() }).expect("made");
        let filler = Filler::begin(&sibling, 16);
        let full = pod.resize(&before, &wish, &wish);
        assert!(matches!(full.errors.as_slice(), [ResizeError::PodBelowUsage { limit: 8_388_608, .. }]), "{:?}", full.errors);
        let given = full.instances.into_iter().find(|one| one.container == "open").map(|one| one.resources);
        assert_eq!((given, pod.memory(""), pod.memory("/open")), (Some(of_wish), 128, 8));
        filler.end();
        pod.group("").remove_tree().expect("removed");
    }
}
