//! The node's rules as a pure function of its settings and Pods: one table `<prefix>-net`, always written as a whole in one
//! transaction. It has the masquerading of packets that leave the cluster, host ports, and the rejection of Service addresses
//! without a Service. Services themselves are in the proxy's table; where both tables see a packet, the proxy's is first.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::{Config, HostPort};

/// The input of the rules beyond the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inputs {
    /// The node's own Pod range.
    pub(crate) pod_cidr: Ipv4Net,
    /// Addresses of the other nodes: Pods speak to them under their own address.
    pub(crate) nodes: Vec<Ipv4Addr>,
    /// Host ports with the Pod behind each.
    pub(crate) host_ports: Vec<(HostPort, Ipv4Addr)>,
}

/// The script that replaces the table.
pub(crate) fn script(config: &Config, inputs: &Inputs) -> String {
    let table = config.table();
    let mut text = format!("add table ip {table}\ndelete table ip {table}\ntable ip {table} {{\n");
    text.push_str(&host_ports(config, &inputs.host_ports));
    text.push_str(&masquerade(config, inputs));
    text.push_str(&refuse(config));
    text.push_str("}\n");
    text
}

/// The script that removes the table, if it exists.
pub(crate) fn removal(table: &str) -> String {
    format!("add table ip {table}\ndelete table ip {table}\n")
}

fn masquerade(config: &Config, inputs: &Inputs) -> String {
    let (pods, cluster, bridges) = (inputs.pod_cidr, config.cluster_cidr, config.bridges());
    let mut text = "  chain postrouting {\n    type nat hook postrouting priority srcnat; policy accept;\n".to_owned();
    // A Pod that reaches itself through a host port would answer past the translation.
    let mut own: Vec<Ipv4Addr> = inputs.host_ports.iter().map(|(_, pod)| *pod).collect();
    own.sort_unstable();
    own.dedup();
    if !own.is_empty() {
        let pairs = join(own.iter().map(|pod| format!("{pod} . {pod}")));
        let _ = writeln!(text, "    ct status dnat ip saddr . ip daddr {{ {pairs} }} masquerade");
    }
    // The node to itself by localhost, through a host port.
    let _ = writeln!(text, "    oifname \"{bridges}\" ip saddr 127.0.0.0/8 masquerade");
    if !inputs.nodes.is_empty() {
        let nodes = join(inputs.nodes.iter().map(ToString::to_string));
        let _ = writeln!(text, "    ip saddr {pods} ip daddr {{ {nodes} }} return");
    }
    let _ = writeln!(text, "    ip saddr {pods} ip daddr != {{ {cluster}, 224.0.0.0/4 }} masquerade\n  }}");
    text
}

fn host_ports(config: &Config, ports: &[(HostPort, Ipv4Addr)]) -> String {
    if ports.is_empty() {
        return String::new();
    }
    let mut ports: Vec<_> = ports.iter().collect();
    ports.sort_unstable();
    let mut rules = String::new();
    let mut rule = |key: &str, elements: Vec<String>| {
        if !elements.is_empty() {
            let _ = writeln!(rules, "    dnat ip to {key} map {{ {} }}", join(elements.into_iter()));
        }
    };
    // The more specific ones first.
    let element = |(port, pod): &&(HostPort, Ipv4Addr), with: bool| {
        let ip = port.host_ip.map(|ip| format!("{ip} . ")).unwrap_or_default();
        (with == port.host_ip.is_some()).then(|| format!("{ip}{} . {} : {pod} . {}", port.protocol, port.host_port, port.container_port))
    };
    rule("ip daddr . meta l4proto . th dport", ports.iter().filter_map(|p| element(p, true)).collect());
    rule("meta l4proto . th dport", ports.iter().filter_map(|p| element(p, false)).collect());
    let mut text = format!("  chain host-ports {{\n{rules}  }}\n");
    // Cluster DNS and the bridges are local addresses too, but not for host ports. The proxy's table comes first (-100), its
    // addresses from outside of the cluster after this one (-98).
    let (pods, services) = (config.cluster_cidr, config.service_cidr);
    for hook in ["prerouting", "output"] {
        let _ = writeln!(
            text,
            "  chain {hook} {{\n    type nat hook {hook} priority -99; policy accept;\n    \
             fib daddr type local ip daddr != {{ {pods}, {services} }} jump host-ports\n  }}"
        );
    }
    text
}

fn refuse(config: &Config) -> String {
    let (services, dns, bridges) = (config.service_cidr, config.dns_ip, config.bridges());
    let unassigned = format!("ip daddr {services} ip daddr != {dns} reject with icmp host-unreachable");
    // `route_localnet` is on for the bridges; packets of Pods to the node's localhost are dropped.
    let mut text = format!(
        "  chain localhost {{\n    type filter hook prerouting priority raw; policy accept;\n    \
         iifname \"{bridges}\" ip daddr 127.0.0.0/8 drop\n  }}\n"
    );
    // Names are for the node and its Pods, not for other senders that have a route to the address.
    let _ = writeln!(
        text,
        "  chain input {{\n    type filter hook input priority filter; policy accept;\n    \
         ip daddr {dns} iifname != \"lo\" iifname != \"{bridges}\" reject with icmp host-unreachable\n  }}"
    );
    let _ = writeln!(text, "  chain forward {{\n    type filter hook forward priority filter; policy accept;\n    {unassigned}\n  }}");
    // Pods are one hop from each other on the link and never use it; see the sandbox.
    let _ = writeln!(
        text,
        "  chain local {{\n    type filter hook output priority filter; policy accept;\n    {unassigned}\n    \
         oifname \"{bridges}\" icmp type redirect drop\n  }}"
    );
    text
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
pub(crate) mod tests;
