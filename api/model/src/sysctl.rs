//! Names of sysctls, and the namespaces in which they act.

/// The namespace of a sysctl. The text is upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// System V IPC and POSIX message queues.
    Ipc,
    /// The network.
    Network,
}

impl Namespace {
    /// The namespace of a sysctl, or of all that begin with a prefix; the name has dots between its parts. `None` for the machine's own.
    pub fn of(name: &str) -> Option<Self> {
        let is_ipc = name == "kernel.sem" || ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|prefix| name.starts_with(prefix));
        if is_ipc { Some(Self::Ipc) } else { name.starts_with("net.").then_some(Self::Network) }
    }

    /// Its name in upstream's messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ipc => "IPC",
            Self::Network => "Net",
        }
    }
}

/// A name with dots between its parts. A name whose first separator is a slash has slashes between its parts, and dots in them.
pub fn dotted(name: &str) -> String {
    let swapped = |letter| match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let separator = name.chars().find(|letter| matches!(letter, '.' | '/'));
    if separator == Some('/') { name.chars().map(swapped).collect() } else { name.to_owned() }
}

/// The kernel's file of a sysctl, below `/proc/sys`; the name has dots between its parts, and slashes in them. `None` for a name that
/// would lead elsewhere.
pub fn file(name: &str) -> Option<String> {
    let parts: Vec<String> = name.split('.').map(|part| part.replace('/', ".")).collect();
    let is_part = |part: &String| !part.is_empty() && part != "." && part != "..";
    parts.iter().all(is_part).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_dots_between_their_parts() {
        for (name, wanted) in [
            ("net.ipv4.tcp_rmem", "net.ipv4.tcp_rmem"),
            ("net/ipv4/tcp_rmem", "net.ipv4.tcp_rmem"),
            ("net/ipv4/conf/eth0.1/forwarding", "net.ipv4.conf.eth0/1.forwarding"),
            ("net.ipv4.conf.eth0/1.forwarding", "net.ipv4.conf.eth0/1.forwarding"),
            ("plain", "plain"),
        ] {
            assert_eq!(dotted(name), wanted, "{name}");
        }
    }

    #[test]
    fn no_name_leads_out_of_the_sysctls() {
        assert_eq!(file("net.ipv4.conf.eth0/1.forwarding").as_deref(), Some("net/ipv4/conf/eth0.1/forwarding"));
        for name in ["net.//.//.kernel.panic", "net../.x", "net..core", ".net", ""] {
            assert_eq!(file(name), None, "{name}");
        }
    }

    #[test]
    fn few_sysctls_are_not_the_machines_own() {
        for (name, wanted) in [
            ("kernel.sem", Some(Namespace::Ipc)),
            ("kernel.shmmax", Some(Namespace::Ipc)),
            ("fs.mqueue.msg_max", Some(Namespace::Ipc)),
            ("net.core.somaxconn", Some(Namespace::Network)),
            ("kernel.panic", None),
            ("vm.swappiness", None),
            ("network.x", None),
        ] {
            assert_eq!(Namespace::of(name), wanted, "{name}");
        }
    }
}
