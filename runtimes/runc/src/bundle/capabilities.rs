//! The capabilities of a container.

use runtimes_contract::Security;

/// The default capabilities, as in Docker and containerd.
const DEFAULT: [&str; 14] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// All capabilities of Linux 5.9 and later.
const ALL: [&str; 41] = [
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

/// The container's capabilities with `CAP_`, sorted. `ALL` in a list is applied first, so that `drop: [ALL], add: [NET_RAW]`
/// leaves one and `add: [ALL], drop: [MKNOD]` all but one.
pub fn names(security: &Security) -> Vec<String> {
    let names = |list: &[String]| list.iter().map(|name| plain(name)).collect::<Vec<_>>();
    let (add, drop) = (names(&security.capabilities_add), names(&security.capabilities_drop));
    let has_all = |list: &[String]| list.iter().any(|name| name == "ALL");
    let base: &[&str] = if security.privileged || has_all(&add) {
        &ALL
    } else if has_all(&drop) {
        &[]
    } else {
        &DEFAULT
    };
    let mut have: Vec<String> = base.iter().map(|&name| name.to_owned()).filter(|name| !drop.contains(name)).collect();
    have.extend(add.into_iter().filter(|name| name != "ALL"));
    have.sort();
    have.dedup();
    have.into_iter().map(|name| format!("CAP_{name}")).collect()
}

fn plain(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    name.strip_prefix("CAP_").map(str::to_owned).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_or_names(add: &[&str], drop: &[&str], privileged: bool) -> String {
        let owned = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
        let have = names(&Security { capabilities_add: owned(add), capabilities_drop: owned(drop), privileged, ..Security::default() });
        if have.len() < 4 { have.join(" ") } else { have.len().to_string() }
    }

    #[test]
    fn added_and_dropped() {
        let cases: &[(&[&str], &[&str], bool, &str)] = &[
            (&[], &[], false, "14"),
            (&["NET_ADMIN"], &[], false, "15"),
            (&["cap_chown"], &[], false, "14"),
            (&[], &["MKNOD", "NET_RAW"], false, "12"),
            (&[], &["ALL"], false, ""),
            (&["NET_BIND_SERVICE"], &["ALL"], false, "CAP_NET_BIND_SERVICE"),
            (&["ALL"], &[], false, "41"),
            (&["ALL"], &["SYS_ADMIN"], false, "40"),
            (&[], &[], true, "41"),
        ];
        for (add, drop, privileged, wanted) in cases {
            assert_eq!(count_or_names(add, drop, *privileged), *wanted, "add {add:?} drop {drop:?}");
        }
    }
}
