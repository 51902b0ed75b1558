//! The OCI runtime spec of a container, as containerd would write it: the same mounts, capabilities, masked paths and seccomp
//! profile. Pure; [`Facts`] has what it needs of the machine.

mod capabilities;
mod mounts;
mod seccomp;

use std::collections::BTreeMap;

pub use mounts::RECURSIVE_READ_ONLY;
use oci_spec::runtime::{Process, Spec};
use runtimes_contract::{ContainerSpec, Content, ExecSpec, Processes, RuntimeError, Seccomp, Security, USER_NAMESPACE_IDS};
use runtimes_host::cgroup::{Mode, cpu_weight};
use runtimes_host::process::ProcessRef;
use runtimes_shim::record::TARGET_ANNOTATION;
use serde_json::{Value, json};

/// The directories that are searched for executables when the image sets no PATH.
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Kernel files that containers must not see.
const MASKED_PATHS: [&str; 11] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
/// Kernel files that containers must not change.
const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The input of the spec beside the container.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The cgroup controllers; `None` is v2.
    pub cgroups: Option<Mode>,
    /// Whether memory plus swap can be limited.
    pub limits_swap: bool,
    /// The node's devices, as OCI device objects; for privileged containers.
    pub devices: Vec<Value>,
    /// The devices of the spec, in its order, as OCI device objects.
    pub own_devices: Vec<Value>,
    /// The first process of the container whose PID namespace the container joins.
    pub target: Option<ProcessRef>,
}

impl Facts {
    fn v2(&self) -> bool {
        matches!(self.cgroups, None | Some(Mode::V2))
    }
}

/// The spec of a container. [`RuntimeError::BadContent`] for content that is no root file system,
/// [`RuntimeError::Unsupported`] for capabilities that do not exist.
pub fn bundle(spec: &ContainerSpec, facts: &Facts) -> Result<Spec, RuntimeError> {
    let Content::Linux { rootfs } = &spec.content else {
        return Err(RuntimeError::BadContent("runtime handler runc runs Linux images, but the image holds a WebAssembly module".into()));
    };
    if let (Processes::OfContainer(id), None) = (&spec.processes, &facts.target) {
        return Err(RuntimeError::Unsupported(format!("invalid target container: no process of container \"{id}\" runs")));
    }
    let privileged = spec.security.privileged;
    if spec.security.unmasked_proc && spec.sandbox.user.is_none() {
        return Err(RuntimeError::Unsupported("procMount Unmasked needs a user namespace (hostUsers: false)".into()));
    }
    let hides_nothing = privileged || spec.security.unmasked_proc;
    let whole = json!({
        "ociVersion": "1.0.2",
        "process": process(spec),
        "root": { "path": rootfs, "readonly": spec.security.read_only_root },
        "mounts": mounts::mounts(spec),
        "annotations": annotations(spec, facts),
        "linux": {
            "cgroupsPath": format!("/{}", spec.cgroup),
            "rootfsPropagation": mounts::root_propagation(spec),
            "namespaces": namespaces(spec, facts),
            "uidMappings": id_mappings(spec),
            "gidMappings": id_mappings(spec),
            "resources": resources(spec, facts),
            "devices": devices(facts, privileged),
            "maskedPaths": if hides_nothing { json!([]) } else { json!(MASKED_PATHS) },
            "readonlyPaths": if hides_nothing { json!([]) } else { json!(READONLY_PATHS) },
            "seccomp": filter(&spec.security),
        },
    });
    typed(whole)
}

/// Those of the spec, and the shim's own; null for none.
fn annotations(spec: &ContainerSpec, facts: &Facts) -> Value {
    let mut all = spec.annotations.clone();
    // Nobody else says which process is the target.
    all.remove(TARGET_ANNOTATION);
    all.extend(facts.target.as_ref().map(|target| (TARGET_ANNOTATION.to_owned(), target.encode())));
    if all.is_empty() { Value::Null } else { json!(all) }
}

/// The seccomp filter; null for none.
fn filter(security: &Security) -> Value {
    match &security.seccomp {
        _ if security.privileged => Value::Null,
        Seccomp::Unconfined => Value::Null,
        Seccomp::RuntimeDefault => seccomp::profile(&capabilities::names(security)),
        Seccomp::Profile(profile) => profile.clone(),
    }
}

/// The process of an exec: the container's, with other arguments.
pub fn exec_process(spec: &ContainerSpec, exec: &ExecSpec) -> Result<Process, RuntimeError> {
    let mut further = spec.clone();
    further.args.clone_from(&exec.args);
    further.tty = exec.tty;
    typed(process(&further))
}

/// Typed, so that a spec that runc would not understand fails here.
fn typed<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, RuntimeError> {
    serde_json::from_value(value).map_err(|error| RuntimeError::Unsupported(format!("not a valid OCI spec: {error}")))
}

fn process(spec: &ContainerSpec) -> Value {
    let capabilities = capabilities::names(&spec.security);
    json!({
        "terminal": spec.tty,
        "user": {
            "uid": spec.user.uid.unwrap_or(0),
            "gid": spec.user.gid.unwrap_or(0),
            "additionalGids": spec.user.all_groups(),
        },
        "args": spec.args,
        "env": environment(spec),
        "cwd": spec.working_dir,
        // No inheritable or ambient capabilities: an executable gains capabilities by its own file only.
        "capabilities": { "bounding": capabilities, "effective": capabilities, "permitted": capabilities },
        "apparmorProfile": spec.security.app_armor,
        "noNewPrivileges": spec.security.no_new_privileges,
        "oomScoreAdj": spec.oom_score_adj,
    })
}

/// The container's environment, and the variables of every container.
fn environment(spec: &ContainerSpec) -> Vec<String> {
    let mut all = spec.env.clone();
    let mut default = |name: &str, value: &str| {
        if !all.iter().any(|(present, _)| present == name) {
            all.push((name.into(), value.into()));
        }
    };
    default("PATH", PATH_DEFAULT);
    if !spec.sandbox.hostname.is_empty() {
        default("HOSTNAME", &spec.sandbox.hostname);
    }
    if spec.tty {
        default("TERM", "xterm");
    }
    all.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn namespaces(spec: &ContainerSpec, facts: &Facts) -> Vec<Value> {
    let processes = match (&spec.processes, &facts.target) {
        (Processes::OfNode, _) => None,
        (_, Some(target)) => Some(json!({ "type": "pid", "path": format!("/proc/{}/ns/pid", target.pid) })),
        (_, None) => Some(json!({ "type": "pid" })),
    };
    let mut all: Vec<Value> = processes.into_iter().chain([json!({ "type": "mount" })]).collect();
    let sandbox = &spec.sandbox;
    let user = sandbox.user.as_ref().map(|user| user.path.clone());
    let shared = [("user", &user), ("network", &sandbox.network), ("ipc", &sandbox.ipc), ("uts", &sandbox.uts)];
    // A namespace that is not named is the node's own.
    all.extend(shared.into_iter().filter_map(|(kind, path)| path.as_ref().map(|path| json!({ "type": kind, "path": path }))));
    if facts.v2() {
        all.push(json!({ "type": "cgroup" }));
    }
    all
}

/// The device nodes of the container. Its own ones take the place of the node's at the same path.
fn devices(facts: &Facts, privileged: bool) -> Vec<Value> {
    let is_own = |device: &&Value| facts.own_devices.iter().any(|own| own["path"] == device["path"]);
    let of_node = facts.devices.iter().filter(|device| privileged && !is_own(device));
    of_node.chain(&facts.own_devices).cloned().collect()
}

/// What the container may do with devices. runc adds the devices that every container has (null, zero, random, tty, …) by itself.
fn device_rules(spec: &ContainerSpec, facts: &Facts) -> Vec<Value> {
    let privileged = spec.security.privileged;
    let own = spec.devices.iter().zip(&facts.own_devices).filter(|_| !privileged);
    let own = own.map(|(device, node)| {
        json!({ "allow": true, "type": node["type"], "major": node["major"], "minor": node["minor"], "access": device.access })
    });
    std::iter::once(json!({ "allow": privileged, "access": "rwm" })).chain(own).collect()
}

/// Of a user namespace that is joined too: runc then knows which of the node's ids is root inside.
fn id_mappings(spec: &ContainerSpec) -> Option<Value> {
    let user = spec.sandbox.user.as_ref()?;
    Some(json!([{ "containerID": 0, "hostID": user.first_id, "size": USER_NAMESPACE_IDS }]))
}

/// Absent values are null here, and the typed spec leaves them out.
fn resources(spec: &ContainerSpec, facts: &Facts) -> Value {
    let wanted = &spec.resources;
    // Memory plus swap is no more than memory: no swap.
    let swap = wanted.memory_limit_bytes.filter(|_| facts.limits_swap);
    let memory = wanted.memory_limit_bytes.map(|limit| json!({ "limit": limit, "swap": swap }));
    // runc's own conversion of shares differs between its versions; the Pod's group uses this one.
    let weight = wanted.cpu_shares.map(|shares| ("cpu.weight", cpu_weight(shares).to_string()));
    // A container whose memory ran out dies as a whole, as upstream has it.
    let unified: BTreeMap<_, _> = weight.into_iter().chain([("memory.oom.group", "1".to_owned())]).collect();
    json!({
        "devices": device_rules(spec, facts),
        "memory": memory,
        "cpu": {
            "shares": wanted.cpu_shares, "quota": wanted.cpu_quota_us, "period": wanted.cpu_period_us, "cpus": wanted.cpuset_cpus,
        },
        "pids": wanted.pids_max.map(|limit| json!({ "limit": limit })),
        "unified": facts.v2().then_some(unified),
    })
}

#[cfg(test)]
mod tests;
