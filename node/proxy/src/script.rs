//! Rule sets as nft scripts: the whole table, or only what changed between two sets. Each script is
//! one transaction: packets see the rules before it or after it, never between.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::Config;
use crate::rules::{Collection, MASQUERADE_MARK, RuleSet};

/// A script that replaces the whole table.
pub(crate) fn whole(config: &Config, rules: &RuleSet) -> String {
    let table = config.table();
    let mut text = removal(&table);
    let _ = writeln!(text, "table ip {table} {{");
    text.push_str(&fixed(config));
    text.push_str("}\n");
    text.push_str(&change(config, &RuleSet::default(), rules));
    text
}

/// A script that removes the table, if it exists.
pub(crate) fn removal(table: &str) -> String {
    format!("add table ip {table}\ndelete table ip {table}\n")
}

/// The part that does not depend on any Service.
fn fixed(config: &Config) -> String {
    let mut text = String::new();
    let (address, node) = ("type ipv4_addr . inet_proto . inet_service : verdict;", "type inet_proto . inet_service : verdict;");
    for (kind, collection, of) in [
        ("set", Collection::ClusterIps, "type ipv4_addr;"),
        ("set", Collection::Hairpin, "type ipv4_addr . ipv4_addr;"),
        ("map", Collection::Services, address),
        ("map", Collection::NodePorts, node),
        ("map", Collection::External, address),
        ("map", Collection::Refused, address),
        ("map", Collection::RefusedNodePorts, node),
    ] {
        let _ = writeln!(text, "  {kind} {} {{ {of} }}", collection.as_str());
    }
    // As in upstream's nftables mode, node ports are not on localhost, and not on the cluster DNS address either.
    let node_port = format!("fib daddr type local ip daddr != {{ 127.0.0.0/8, {} }} meta l4proto . th dport vmap", config.service_cidr);
    let address = "ip daddr . meta l4proto . th dport vmap";
    let mut chain = |name: &str, lines: &[&str]| {
        let _ = writeln!(text, "  chain {name} {{\n    {}\n  }}", lines.join("\n    "));
    };
    chain("dispatch", &[&format!("{address} @services"), &format!("{node_port} @node-ports")]);
    chain("refuse", &["meta l4proto tcp reject with tcp reset", "reject with icmp port-unreachable"]);
    let mut refusal = vec![format!("{address} @refused"), format!("{node_port} @refused-node-ports")];
    // Assigned addresses on other ports, then addresses that no Service has.
    refusal.push("ip daddr @cluster-ips goto refuse".to_owned());
    let exclude = config.exclude.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let others = if exclude.is_empty() { String::new() } else { format!(" ip daddr != {{ {exclude} }}") };
    refusal.push(format!("ip daddr {}{others} reject with icmp host-unreachable", config.service_cidr));
    chain("refusal", &refusal.iter().map(String::as_str).collect::<Vec<_>>());
    for hook in ["prerouting", "output"] {
        chain(&format!("nat-{hook}"), &[&format!("type nat hook {hook} priority -100; policy accept;"), "jump dispatch"]);
        // Host ports are between the two, at -99: addresses that users chose come after assigned ones.
        let head = format!("type nat hook {hook} priority -98; policy accept;");
        chain(&format!("nat-{hook}-external"), &[&head, &format!("{address} @external")]);
    }
    let mark = format!("{MASQUERADE_MARK:#x}");
    chain(
        "nat-postrouting",
        &[
            "type nat hook postrouting priority srcnat; policy accept;",
            &format!("meta mark & {mark} == {mark} meta mark set meta mark ^ {mark} masquerade fully-random"),
            "ct status dnat ip saddr . ip daddr @hairpin masquerade fully-random",
        ],
    );
    // Later than the translation (-100), so that only packets without translation match.
    for hook in ["input", "forward", "output"] {
        let head = format!("type filter hook {hook} priority -10; policy accept;");
        // The activator is for connections to Services alone.
        let guard = config.activator.filter(|_| hook == "input").map(|activator| {
            format!("ip daddr {} tcp dport {} ct status & dnat == 0 reject with tcp reset", activator.ip(), activator.port())
        });
        let lines: Vec<&str> = [Some(head.as_str()), guard.as_deref(), Some("ct state new jump refusal")].into_iter().flatten().collect();
        chain(&format!("filter-{hook}"), &lines);
    }
    text
}

/// A script that changes the table from one rule set to another.
pub(crate) fn change(config: &Config, old: &RuleSet, new: &RuleSet) -> String {
    let table = config.table();
    let mut text = String::new();
    let mut line = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    let chains_gone: Vec<_> = old.chains.keys().filter(|name| !new.chains.contains_key(*name)).collect();
    let changed: Vec<_> = new.chains.iter().filter(|(name, rules)| old.chains.get(*name) != Some(rules)).collect();
    // Objects to which others refer come first. A set's name contains all of its definition.
    for (name, definition) in new.sets.iter().filter(|(name, _)| !old.sets.contains_key(*name)) {
        line(format!("add set ip {table} {name} {{ {definition} }}"));
    }
    for name in new.counters.keys().filter(|name| !old.counters.contains_key(*name)) {
        line(format!("add counter ip {table} {name}"));
    }
    for (name, _) in &changed {
        line(format!("add chain ip {table} {name}"));
    }
    let gone = old.elements.iter().filter(|(key, verdict)| new.elements.get(*key) != Some(verdict));
    for (collection, elements) in grouped(gone) {
        line(format!("delete element ip {table} {} {{ {} }}", collection.as_str(), elements.join(", ")));
    }
    let filled = changed.iter().map(|(name, _)| *name).filter(|name| old.chains.contains_key(*name));
    for name in filled.chain(chains_gone.iter().copied()) {
        line(format!("flush chain ip {table} {name}"));
    }
    for (name, rules) in &changed {
        for rule in *rules {
            line(format!("add rule ip {table} {name} {rule}"));
        }
    }
    let added = new.elements.iter().filter(|(key, verdict)| old.elements.get(*key) != Some(verdict));
    for (collection, elements) in grouped(added) {
        line(format!("add element ip {table} {} {{ {} }}", collection.as_str(), elements.join(", ")));
    }
    for name in chains_gone {
        line(format!("delete chain ip {table} {name}"));
    }
    for name in old.sets.keys().filter(|name| !new.sets.contains_key(*name)) {
        line(format!("delete set ip {table} {name}"));
    }
    for name in old.counters.keys().filter(|name| !new.counters.contains_key(*name)) {
        line(format!("delete counter ip {table} {name}"));
    }
    text
}

fn grouped<'a>(elements: impl Iterator<Item = (&'a (Collection, String), &'a String)>) -> BTreeMap<Collection, Vec<String>> {
    let mut grouped: BTreeMap<Collection, Vec<String>> = BTreeMap::new();
    for ((collection, key), verdict) in elements {
        let element = if verdict.is_empty() { key.clone() } else { format!("{key} : {verdict}") };
        grouped.entry(*collection).or_default().push(element);
    }
    grouped
}

#[cfg(test)]
mod tests;
