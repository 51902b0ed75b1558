//! What a Pod may send: frames to the node only, from the Pod's own hardware address and IP address. Otherwise a Pod with raw
//! sockets (the capability NET_RAW is a default one) could send as its neighbour, answer ARP or DHCP for others, or bypass the
//! node's rules. Name, hardware address and IP address of a Pod's interface are computed from one another, so the rules are
//! written once for every Pod that fits into the node's range, and an interface that is not among them sends nothing.
//!
//! The other half is in the bridge's ports and the neighbour tables (see [`crate::netlink::message::port`]):
//! nothing is learnt from frames and nothing is flooded.

use std::fmt::Write as _;

use ipnet::Ipv4Net;

use crate::netlink::message::hardware_address;
use crate::{Config, NetworkError, host, ledger};

/// The widest range whose Pods are listed.
const PREFIX_LEN_MIN: u8 = 16;

/// The script that replaces the table of family `bridge`.
pub(crate) fn script(config: &Config, pod_cidr: Ipv4Net) -> Result<String, NetworkError> {
    let (table, prefix) = (config.table(), &config.prefix);
    let gateway = ledger::gateway(pod_cidr)
        .filter(|_| pod_cidr.prefix_len() >= PREFIX_LEN_MIN)
        .ok_or_else(|| NetworkError::Invalid(format!("Pod range {pod_cidr} is empty or wider than /{PREFIX_LEN_MIN}")))?;
    let mut text = removal(&table);
    let node = mac(gateway);
    let _ = writeln!(text, "table bridge {table} {{\n  set pods {{\n    type ifname . ether_addr . ipv4_addr;\n    elements = {{");
    for ip in ledger::usable(pod_cidr) {
        let _ = writeln!(text, "      \"{}\" . {} . {ip},", host::veth(prefix, ip), mac(ip));
    }
    let _ = writeln!(text, "    }}\n  }}");
    // Before bridged packets pass the IP rules (0), on machines where they do.
    let _ = writeln!(
        text,
        "  chain prerouting {{\n    type filter hook prerouting priority -300; policy accept;\n    iifname \"{prefix}v*\" goto pod\n  }}"
    );
    // Frames of the bridge's own protocols do not pass here.
    let _ = writeln!(
        text,
        "  chain input {{\n    type filter hook input priority -300; policy accept;\n    \
         iifname \"{prefix}v*\" meta protocol != {{ ip, arp }} drop\n  }}"
    );
    let _ = writeln!(
        text,
        "  chain pod {{\n    meta protocol ip ether daddr {node} iifname . ether saddr . ip saddr @pods accept\n    \
         meta protocol arp ether daddr {{ {node}, ff:ff:ff:ff:ff:ff }} arp htype 1 arp ptype ip arp operation {{ request, reply }} \
         iifname . ether saddr . arp saddr ip @pods iifname . arp saddr ether . arp saddr ip @pods accept\n    drop\n  }}\n}}"
    );
    Ok(text)
}

/// The script that removes the table, if it exists.
pub(crate) fn removal(table: &str) -> String {
    format!("add table bridge {table}\ndelete table bridge {table}\n")
}

fn mac(ip: std::net::Ipv4Addr) -> String {
    hardware_address(ip).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_sends_to_the_node_under_its_own_addresses() {
        let range = |text: &str| text.parse().expect("a range");
        insta::assert_snapshot!(script(&crate::rules::tests::config(), range("10.244.1.0/29")).expect("a script"));
        let refused = script(&crate::rules::tests::config(), range("10.240.0.0/12")).expect_err("too wide");
        assert_eq!(refused.to_string(), "Pod range 10.240.0.0/12 is empty or wider than /16");
    }
}
