//! The sysctls that Pods may set: upstream's safe ones, and those that the node's administrator allows. Pure; patterns and words are the
//! kubelet's.

use std::str::FromStr;

use api_model::sysctl::{Namespace, dotted};
use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// Sysctls that each Pod may set: each acts in the Pod's own namespaces alone, and harms nobody beside it.
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];
/// Longest name or pattern, in bytes.
const LEN_MAX: usize = 253;

/// `--allowed-unsafe-sysctls`: names, and prefixes with a `*` at their end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedSysctls {
    names: Vec<String>,
    prefixes: Vec<String>,
}

/// A pattern that cannot be allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SysctlPatternError {
    /// It is no pattern of names.
    #[error(
        "sysctl {0:?} must have at most {LEN_MAX} characters: parts of lower case letters, digits, '-' and '_' with '.' or '/' between \
         them, and perhaps a '*' at the end"
    )]
    Malformed(String),
    /// Pods would change the node's own.
    #[error("the sysctl {0:?} is not known to be namespaced: kernel.sem, kernel.shm*, kernel.msg*, fs.mqueue.* and net.* are")]
    NotNamespaced(String),
}

impl FromStr for AllowedSysctls {
    type Err = SysctlPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut allowed = Self::default();
        for pattern in text.split(',').map(str::trim).filter(|pattern| !pattern.is_empty()) {
            if !is_pattern(pattern) {
                return Err(SysctlPatternError::Malformed(pattern.to_owned()));
            }
            let name = dotted(pattern);
            let (list, name) = match name.strip_suffix('*') {
                Some(prefix) => (&mut allowed.prefixes, prefix),
                None => (&mut allowed.names, name.as_str()),
            };
            Namespace::of(name).ok_or_else(|| SysctlPatternError::NotNamespaced(pattern.to_owned()))?;
            list.push(name.to_owned());
        }
        Ok(allowed)
    }
}

impl AllowedSysctls {
    /// Why a Pod with these sysctls cannot run here.
    pub(crate) fn fault(&self, spec: &PodSpec) -> Option<String> {
        let on_node = |flag: Option<bool>| flag.unwrap_or(false);
        let wanted = spec.security_context.as_ref()?.sysctls.as_ref()?;
        wanted.iter().find_map(|sysctl| {
            let name = dotted(&sysctl.name);
            let Some(namespace) = Namespace::of(&name).filter(|_| self.allows(&name)) else {
                return Some(format!("{name:?} not allowlisted"));
            };
            let is_nodes = on_node(match namespace {
                Namespace::Network => spec.host_network,
                Namespace::Ipc => spec.host_ipc,
            });
            is_nodes.then(|| format!("{name:?} not allowed with host {} enabled", namespace.as_str()))
        })
    }

    fn allows(&self, name: &str) -> bool {
        SAFE.contains(&name) || self.names.iter().any(|own| own == name) || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// The sysctls of a Pod, by their names with dots.
pub(crate) fn of(pod: &Pod) -> Vec<(String, String)> {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let wanted = context.and_then(|context| context.sysctls.as_ref()).into_iter().flatten();
    wanted.map(|sysctl| (dotted(&sysctl.name), sysctl.value.clone())).collect()
}

fn is_pattern(pattern: &str) -> bool {
    let name = pattern.strip_suffix('*').unwrap_or(pattern);
    let is_part = |part: &str| {
        part.starts_with(|letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit())
            && part.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, '-' | '_'))
    };
    // A prefix may end with a separator.
    let parts = if name.len() < pattern.len() { name.strip_suffix(['.', '/']).unwrap_or(name) } else { name };
    pattern.len() <= LEN_MAX && (parts.is_empty() || parts.split(['.', '/']).all(is_part))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fault(allowed: &str, name: &str, host: &str) -> Option<String> {
        let mut spec = json!({"containers": [], "securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
        spec[host] = json!(true);
        let spec: PodSpec = serde_json::from_value(spec).expect("a spec");
        allowed.parse::<AllowedSysctls>().expect("patterns").fault(&spec)
    }

    #[test]
    fn a_pod_sets_the_safe_sysctls_and_those_that_the_node_allows() {
        let patterns = "kernel.msg*, net.core.somaxconn,net/ipv4/conf/eth0.1/*";
        for (name, host, wanted) in [
            ("net.ipv4.tcp_syncookies", "", None),
            ("net/ipv4/tcp_syncookies", "", None),
            ("kernel.msgmax", "", None),
            ("net.core.somaxconn", "", None),
            ("net/ipv4/conf/eth0.1/forwarding", "", None),
            ("net.ipv4.conf.eth0.1.forwarding", "", Some("\"net.ipv4.conf.eth0.1.forwarding\" not allowlisted")),
            ("net.core.somaxconn2", "", Some("\"net.core.somaxconn2\" not allowlisted")),
            ("kernel.sem", "", Some("\"kernel.sem\" not allowlisted")),
            ("kernel.panic", "", Some("\"kernel.panic\" not allowlisted")),
            ("kernel.msgmax", "hostNetwork", None),
            ("kernel.msgmax", "hostIPC", Some("\"kernel.msgmax\" not allowed with host IPC enabled")),
            ("net.core.somaxconn", "hostNetwork", Some("\"net.core.somaxconn\" not allowed with host Net enabled")),
        ] {
            assert_eq!(fault(patterns, name, host).as_deref(), wanted, "{name} {host}");
        }
        assert_eq!(fault("", "kernel.msgmax", "").as_deref(), Some("\"kernel.msgmax\" not allowlisted"));
    }

    #[test]
    fn patterns_are_of_sysctls_that_have_a_namespace() {
        for pattern in ["*", "kernel.*", "kernel.panic", "vm.swappiness", "fs.mq*", "kernel.ms*"] {
            assert_eq!(pattern.parse::<AllowedSysctls>(), Err(SysctlPatternError::NotNamespaced(pattern.to_owned())), "{pattern}");
        }
        let long = format!("net.{}", "a".repeat(LEN_MAX));
        for pattern in ["net..core", "net.*.x", "net.Core", ".net", "net.", "net/../x", &long] {
            assert_eq!(pattern.parse::<AllowedSysctls>(), Err(SysctlPatternError::Malformed(pattern.to_owned())), "{pattern}");
        }
        for pattern in ["", "net.*", "net/*", "fs.mqueue.*", "kernel.shm*", "kernel.sem", "kernel.msgmax"] {
            assert!(pattern.parse::<AllowedSysctls>().is_ok(), "{pattern}");
        }
    }
}
