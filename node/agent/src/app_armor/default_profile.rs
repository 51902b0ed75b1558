//! The profile of containers that request `RuntimeDefault` or nothing. It is for processes that may be root: the capabilities and
//! namespaces of a container bound what they can do, and this profile denies what these leave open, as the default profiles of
//! containerd and Docker do: mounts, and writes to files of the kernel. Pure.

/// The profile's name.
pub(super) const NAME: &str = "skiff-default";

/// The file with the features of the kernel that the profile is written for, as the parser names it below [`PARSER_DIR`].
pub(super) const ABI: &str = "abi/3.0";
/// The parser's own directory.
pub(super) const PARSER_DIR: &str = "/etc/apparmor.d";

/// What containers may do, as long as no later rule denies it: an AppArmor profile allows only what it names.
const ALLOWED: &str = "
  file,
  network,
  capability,
  umount,
";

/// Denials go before all other rules. The wildcard `**` is any number of characters, `*` any number without a slash.
const DENIED: &str = "
  deny mount,

  # In /proc, only the processes' own directories and the limits of System V shared memory may be written.
  deny /proc/* w,
  deny /proc/[^0-9s]*/** w,
  deny /proc/s[^y]*/** w,
  deny /proc/sy[^s]*/** w,
  deny /proc/sys?*/** w,
  deny /proc/sys/[^k]** w,
  deny /proc/sys/k[^e]** w,
  deny /proc/sys/kernel/[^s]** w,
  deny /proc/sys/kernel/s[^h]** w,
  deny /proc/sys/kernel/sh[^m]** w,
  deny /proc/sysrq-trigger rwklx,
  deny /proc/kcore rwklx,

  # In /sys, only cgroups may be written.
  deny /sys/[^f]*/** wklx,
  deny /sys/f[^s]*/** wklx,
  deny /sys/fs/[^c]*/** wklx,
  deny /sys/fs/c[^g]*/** wklx,
  deny /sys/fs/cg[^r]*/** wklx,
  deny /sys/firmware/** rwklx,
  deny /sys/devices/virtual/powercap/** rwklx,
  deny /sys/kernel/security/** rwklx,
";

/// The programs that end containers, where a distribution confines them by profiles of these names.
const RUNTIMES: [&str; 2] = ["runc", "crun"];

/// The profile in the language of `apparmor_parser`. `has_abi`: whether the machine has the file [`ABI`]; without it the parser chooses
/// the features. `own_label` is what the kernel calls the profile of this process, which signals containers.
pub(super) fn text(has_abi: bool, own_label: Option<&str>) -> String {
    let abi = if has_abi { format!("abi <{ABI}>,\n") } else { String::new() };
    let senders = ["unconfined"].into_iter().chain(RUNTIMES).chain(own_label.and_then(profile));
    let signals: String = senders.map(|peer| format!("  signal (receive) peer={peer},\n")).collect();
    format!(
        "{abi}profile {NAME} flags=(attach_disconnected,mediate_deleted) {{{ALLOWED}{DENIED}
  # The node ends containers. Containers signal and trace each other, as far as they see each other.
{signals}  signal (send, receive) peer={NAME},
  ptrace (readby, tracedby),
  ptrace (read, trace) peer={NAME},
}}
"
    )
}

/// The profile in a label, unless it is none, or has a name that would have to be quoted.
fn profile(label: &str) -> Option<&str> {
    let name = label.trim().split(" (").next()?;
    let is_plain = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-/".contains(letter));
    Some(name).filter(|name| is_plain && *name != "unconfined" && !RUNTIMES.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_has_the_rules_of_the_machine() {
        let plain = text(false, None);
        assert!(plain.starts_with("profile skiff-default flags=(attach_disconnected,mediate_deleted) {\n  file,\n"), "{plain}");
        assert!(plain.ends_with("  ptrace (read, trace) peer=skiff-default,\n}\n"), "{plain}");
        assert_eq!(plain.matches(['{', '}']).count(), 2, "{plain}");
        let rules = plain.lines().filter(|line| line.starts_with("  ") && !line.trim_start().starts_with('#'));
        assert!(rules.clone().all(|rule| rule.ends_with(',')), "{plain}");
        let added = text(true, Some("outer (enforce)\n"));
        assert!(added.starts_with("abi <abi/3.0>,\nprofile "), "{added}");
        let new: Vec<&str> = added.lines().skip(1).filter(|line| !plain.contains(line)).collect();
        assert_eq!(new, ["  signal (receive) peer=outer,"]);
    }

    #[test]
    fn the_profile_of_this_process_is_named_once_and_in_full() {
        for (label, wanted) in [
            ("unconfined\n", None),
            ("unconfined (enforce)", None),
            ("runc (unconfined)", None),
            ("/usr/bin/skiff (enforce)\n", Some("/usr/bin/skiff")),
            ("docker-default (enforce)\n", Some("docker-default")),
            ("one//&two (enforce)", None),
            ("my skiff (complain)", None),
            ("\n", None),
        ] {
            assert_eq!(profile(label), wanted, "{label}");
        }
    }
}
