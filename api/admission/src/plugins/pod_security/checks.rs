//! The checks of the Pod Security Standards. Each is a function from a Pod's spec to a violation, with upstream's
//! message. The baseline checks come first. Each group is in the order of upstream's ids.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::Level;
use crate::json;
use crate::pods;

/// Capabilities that a container may add at the baseline level.
const BASELINE_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const SAFE_SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];
const SAFE_SELINUX_TYPES: &[&str] = &["", "container_engine_t", "container_init_t", "container_kvm_t", "container_t"];
const RESTRICTED_VOLUMES: &[&str] =
    &["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"];
const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// One violation of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The name of the violated rule.
    pub reason: &'static str,
    /// Which containers or fields violate it, and which values are allowed.
    pub detail: String,
}

/// All violations of a Pod, displayed as `reason (detail), reason (detail)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// Whether there are no violations.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The reasons alone.
    pub fn reasons(&self) -> String {
        self.0.iter().map(|v| v.reason).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, violation) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{} ({})", violation.reason, violation.detail)?;
        }
        Ok(())
    }
}

/// The violations of a level by a Pod.
pub fn broken(level: Level, metadata: Option<&Value>, spec: &Value) -> Violations {
    let windows = json::text_at(spec, "/os/name") == "windows";
    let restricted = level == Level::Restricted;
    let found = match level {
        Level::Privileged => Vec::new(),
        Level::Baseline | Level::Restricted => vec![
            app_armor(metadata, spec),
            capabilities(spec).filter(|_| !restricted || windows),
            host_namespaces(spec),
            host_path(spec).filter(|_| !restricted),
            host_ports(spec),
            probe_hosts(spec),
            privileged(spec),
            proc_mount(spec),
            selinux(spec),
            seccomp(spec).filter(|_| !restricted || windows),
            sysctls(spec),
            windows_host_process(spec),
        ],
    };
    let mut violations: Vec<Violation> = found.into_iter().flatten().collect();
    if restricted {
        let linux_only = [privilege_escalation, capabilities_restricted, seccomp_restricted];
        let [escalation, capabilities, seccomp] = linux_only.map(|check| if windows { None } else { check(spec) });
        let found = [escalation, capabilities, restricted_volumes(spec), run_as_non_root(spec), run_as_user(spec), seccomp];
        violations.extend(found.into_iter().flatten());
    }
    Violations(violations)
}

fn violation(reason: &'static str, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation { reason, detail: detail.into() })
}

/// The security context of a container or a Pod.
fn context(of: &Value) -> &Value {
    of.get("securityContext").unwrap_or(&Value::Null)
}

fn name(container: &Value) -> &str {
    json::text(container, "name")
}

fn names_where(spec: &Value, bad: impl Fn(&Value) -> bool) -> Vec<&str> {
    pods::containers(spec).filter(|c| bad(c)).map(name).collect()
}

fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(", ")
}

/// `container "a"`, `containers "a", "b"`.
fn containers(names: &[&str]) -> String {
    let word = if names.len() == 1 { "container" } else { "containers" };
    format!("{word} {}", quoted(names.iter().copied()))
}

fn app_armor(metadata: Option<&Value>, spec: &Value) -> Option<Violation> {
    let annotations = metadata.and_then(|m| json::map(m, "annotations"));
    let mut bad: Vec<String> = annotations
        .into_iter()
        .flatten()
        .filter(|(key, value)| key.starts_with(APPARMOR_ANNOTATION) && !good_profile(value.as_str().unwrap_or_default()))
        .map(|(key, value)| format!("{key}=\"{}\"", value.as_str().unwrap_or_default()))
        .collect();
    bad.sort();
    let unconfined = |of: &Value| json::text_at(context(of), "/appArmorProfile/type") == "Unconfined";
    let mut setters = Vec::new();
    if unconfined(spec) {
        setters.push("pod".to_owned());
    }
    let names = names_where(spec, unconfined);
    if !names.is_empty() {
        setters.push(containers(&names));
    }
    if !setters.is_empty() {
        bad.insert(0, format!("{} must not set securityContext.appArmorProfile.type to \"Unconfined\"", setters.join(" and ")));
    }
    let reason = if bad.len() == 1 { "forbidden AppArmor profile" } else { "forbidden AppArmor profiles" };
    if bad.is_empty() { None } else { violation(reason, bad.join(", ")) }
}

fn good_profile(profile: &str) -> bool {
    profile.is_empty() || profile == "runtime/default" || profile.starts_with("localhost/")
}

fn added(container: &Value) -> impl Iterator<Item = &str> {
    context(container).pointer("/capabilities/add").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn capabilities(spec: &Value) -> Option<Violation> {
    let bad = |c: &Value| added(c).any(|a| !BASELINE_CAPABILITIES.contains(&a));
    let names = names_where(spec, bad);
    let which: BTreeSet<&str> = pods::containers(spec).flat_map(added).filter(|a| !BASELINE_CAPABILITIES.contains(a)).collect();
    if names.is_empty() {
        return None;
    }
    violation(
        "non-default capabilities",
        format!("{} must not include {} in securityContext.capabilities.add", containers(&names), quoted(which)),
    )
}

fn host_namespaces(spec: &Value) -> Option<Violation> {
    let set: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| spec.get(*field).and_then(Value::as_bool) == Some(true))
        .map(|field| format!("{field}=true"))
        .collect();
    if set.is_empty() { None } else { violation("host namespaces", set.join(", ")) }
}

fn volumes_where(spec: &Value, bad: impl Fn(&Value) -> bool) -> Vec<&str> {
    json::list(spec, "volumes").iter().filter(|v| bad(v)).map(|v| json::text(v, "name")).collect()
}

fn volumes(names: &[&str]) -> String {
    let word = if names.len() == 1 { "volume" } else { "volumes" };
    format!("{word} {}", quoted(names.iter().copied()))
}

fn host_path(spec: &Value) -> Option<Violation> {
    let names = volumes_where(spec, |v| json::has(v, "hostPath"));
    if names.is_empty() { None } else { violation("hostPath volumes", volumes(&names)) }
}

fn host_ports(spec: &Value) -> Option<Violation> {
    fn ports(container: &Value) -> impl Iterator<Item = i64> {
        json::list(container, "ports").iter().filter_map(|p| p.get("hostPort")?.as_i64()).filter(|p| *p != 0)
    }
    let names = names_where(spec, |c| ports(c).next().is_some());
    let used: BTreeSet<i64> = pods::containers(spec).flat_map(ports).collect();
    if names.is_empty() {
        return None;
    }
    let verb = if names.len() == 1 { "uses" } else { "use" };
    let noun = if used.len() == 1 { "hostPort" } else { "hostPorts" };
    let list: Vec<String> = used.iter().map(i64::to_string).collect();
    violation("hostPort", format!("{} {verb} {noun} {}", containers(&names), list.join(", ")))
}

/// With a probe or hook to a host other than the Pod, the node would connect to addresses that the Pod cannot reach.
fn probe_hosts(spec: &Value) -> Option<Violation> {
    fn hosts(container: &Value) -> impl Iterator<Item = &str> {
        let handlers = ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];
        let handlers = handlers.into_iter().filter_map(|at| container.pointer(at));
        handlers
            .flat_map(|handler| ["/httpGet/host", "/tcpSocket/host"].map(|at| json::text_at(handler, at)))
            .filter(|host| !host.is_empty())
    }
    let names: BTreeSet<&str> = names_where(spec, |c| hosts(c).next().is_some()).into_iter().collect();
    let hosts_named: BTreeSet<&str> = pods::containers(spec).flat_map(hosts).collect();
    if names.is_empty() {
        return None;
    }
    let verb = if names.len() == 1 { "uses" } else { "use" };
    let noun = if hosts_named.len() == 1 { "probe or lifecycle host" } else { "probe or lifecycle hosts" };
    let names: Vec<&str> = names.into_iter().collect();
    violation("probe or lifecycle host", format!("{} {verb} {noun} {}", containers(&names), quoted(hosts_named)))
}

fn flag(of: &Value, field: &str) -> Option<bool> {
    context(of).get(field).and_then(Value::as_bool)
}

fn privileged(spec: &Value) -> Option<Violation> {
    let names = names_where(spec, |c| flag(c, "privileged") == Some(true));
    if names.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", containers(&names)))
}

fn proc_mount(spec: &Value) -> Option<Violation> {
    fn kind(container: &Value) -> &str {
        json::text(context(container), "procMount")
    }
    // In a user namespace, an unmasked /proc shows nothing but the Pod's own processes.
    if spec.get("hostUsers").and_then(Value::as_bool) == Some(false) {
        return None;
    }
    let names = names_where(spec, |c| !matches!(kind(c), "" | "Default"));
    let set: BTreeSet<&str> = pods::containers(spec).map(kind).filter(|k| !matches!(*k, "" | "Default")).collect();
    if names.is_empty() {
        return None;
    }
    violation("procMount", format!("{} must not set securityContext.procMount to {}", containers(&names), quoted(set)))
}

fn selinux(spec: &Value) -> Option<Violation> {
    fn options(of: &Value) -> &Value {
        context(of).get("seLinuxOptions").unwrap_or(&Value::Null)
    }
    let bad_type = |of: &Value| !SAFE_SELINUX_TYPES.contains(&json::text(options(of), "type"));
    let set = |of: &Value, field: &str| !json::text(options(of), field).is_empty();
    let bad = |of: &Value| bad_type(of) || set(of, "user") || set(of, "role");
    let names = names_where(spec, bad);
    let mut setters = Vec::new();
    if bad(spec) {
        setters.push("pod".to_owned());
    }
    if !names.is_empty() {
        setters.push(containers(&names));
    }
    if setters.is_empty() {
        return None;
    }
    let all: Vec<&Value> = std::iter::once(spec).chain(pods::containers(spec)).collect();
    let types: BTreeSet<&str> = all.iter().filter(|of| bad_type(of)).map(|of| json::text(options(of), "type")).collect();
    let mut problems = Vec::new();
    if !types.is_empty() {
        let word = if types.len() == 1 { "type" } else { "types" };
        problems.push(format!("{word} {}", quoted(types)));
    }
    for (field, text) in [("user", "user may not be set"), ("role", "role may not be set")] {
        if all.iter().any(|of| set(of, field)) {
            problems.push(text.to_owned());
        }
    }
    violation("seLinuxOptions", format!("{} set forbidden securityContext.seLinuxOptions: {}", setters.join(" and "), problems.join("; ")))
}

fn seccomp_type(of: &Value) -> &str {
    json::text_at(context(of), "/seccompProfile/type")
}

fn bad_seccomp(of: &Value) -> bool {
    !matches!(seccomp_type(of), "" | "RuntimeDefault" | "Localhost")
}

/// The names of the setters of a forbidden profile.
fn forbidden_seccomp(spec: &Value) -> Option<String> {
    let names = names_where(spec, bad_seccomp);
    let mut setters = Vec::new();
    if bad_seccomp(spec) {
        setters.push("pod".to_owned());
    }
    if !names.is_empty() {
        setters.push(containers(&names));
    }
    if setters.is_empty() {
        return None;
    }
    let values: BTreeSet<&str> =
        std::iter::once(spec).chain(pods::containers(spec)).filter(|of| bad_seccomp(of)).map(seccomp_type).collect();
    Some(format!("{} must not set securityContext.seccompProfile.type to {}", setters.join(" and "), quoted(values)))
}

fn seccomp(spec: &Value) -> Option<Violation> {
    forbidden_seccomp(spec).and_then(|detail| violation("seccompProfile", detail))
}

fn sysctls(spec: &Value) -> Option<Violation> {
    let set = context(spec).get("sysctls").and_then(Value::as_array).into_iter().flatten().map(|s| json::text(s, "name"));
    let bad: Vec<&str> = set.filter(|name| !SAFE_SYSCTLS.contains(name)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

fn windows_host_process(spec: &Value) -> Option<Violation> {
    let set = |of: &Value| context(of).pointer("/windowsOptions/hostProcess").and_then(Value::as_bool) == Some(true);
    let names = names_where(spec, set);
    let mut setters = Vec::new();
    if set(spec) {
        setters.push("pod".to_owned());
    }
    if !names.is_empty() {
        setters.push(containers(&names));
    }
    if setters.is_empty() {
        return None;
    }
    violation("hostProcess", format!("{} must not set securityContext.windowsOptions.hostProcess=true", setters.join(" and ")))
}

fn privilege_escalation(spec: &Value) -> Option<Violation> {
    let names = names_where(spec, |c| flag(c, "allowPrivilegeEscalation") != Some(false));
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&names));
    violation("allowPrivilegeEscalation != false", detail)
}

fn capabilities_restricted(spec: &Value) -> Option<Violation> {
    let drops_all =
        |c: &Value| context(c).pointer("/capabilities/drop").and_then(Value::as_array).is_some_and(|d| d.iter().any(|v| v == "ALL"));
    let missing = names_where(spec, |c| !drops_all(c));
    let adding = names_where(spec, |c| added(c).any(|a| a != "NET_BIND_SERVICE"));
    let which: BTreeSet<&str> = pods::containers(spec).flat_map(added).filter(|a| *a != "NET_BIND_SERVICE").collect();
    let mut details = Vec::new();
    if !missing.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&missing)));
    }
    if !adding.is_empty() {
        details.push(format!("{} must not include {} in securityContext.capabilities.add", containers(&adding), quoted(which)));
    }
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

fn restricted_volumes(spec: &Value) -> Option<Violation> {
    fn kind(volume: &Value) -> Option<&str> {
        let fields = volume.as_object()?.iter().filter(|(key, value)| *key != "name" && !value.is_null());
        fields.map(|(key, _)| key.as_str()).find(|key| !RESTRICTED_VOLUMES.contains(key))
    }
    let names = volumes_where(spec, |v| kind(v).is_some());
    let kinds: BTreeSet<&str> = json::list(spec, "volumes").iter().filter_map(kind).collect();
    if names.is_empty() {
        return None;
    }
    let verb = if names.len() == 1 { "uses" } else { "use" };
    let noun = if kinds.len() == 1 { "restricted volume type" } else { "restricted volume types" };
    violation("restricted volume types", format!("{} {verb} {noun} {}", volumes(&names), quoted(kinds)))
}

fn run_as_non_root(spec: &Value) -> Option<Violation> {
    let pod = flag(spec, "runAsNonRoot");
    let wrong = names_where(spec, |c| flag(c, "runAsNonRoot") == Some(false));
    let silent = names_where(spec, |c| flag(c, "runAsNonRoot").is_none());
    let mut wrong_setters = Vec::new();
    if pod == Some(false) {
        wrong_setters.push("pod".to_owned());
    }
    if !wrong.is_empty() {
        wrong_setters.push(containers(&wrong));
    }
    let reason = "runAsNonRoot != true";
    if !wrong_setters.is_empty() {
        return violation(reason, format!("{} must not set securityContext.runAsNonRoot=false", wrong_setters.join(" and ")));
    }
    // The value of the Pod holds for containers without a value.
    if pod == Some(true) || silent.is_empty() {
        return None;
    }
    violation(reason, format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&silent)))
}

fn run_as_user(spec: &Value) -> Option<Violation> {
    let root = |of: &Value| context(of).get("runAsUser").and_then(Value::as_i64) == Some(0);
    let names = names_where(spec, root);
    let mut setters = Vec::new();
    if root(spec) {
        setters.push("pod".to_owned());
    }
    if !names.is_empty() {
        setters.push(containers(&names));
    }
    if setters.is_empty() { None } else { violation("runAsUser=0", format!("{} must not set runAsUser=0", setters.join(" and "))) }
}

fn seccomp_restricted(spec: &Value) -> Option<Violation> {
    if let Some(detail) = forbidden_seccomp(spec) {
        return violation("seccompProfile", detail);
    }
    let silent = names_where(spec, |c| seccomp_type(c).is_empty());
    if !seccomp_type(spec).is_empty() || silent.is_empty() {
        return None;
    }
    let detail =
        format!("pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"", containers(&silent));
    violation("seccompProfile", detail)
}
