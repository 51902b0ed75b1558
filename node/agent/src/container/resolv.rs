//! `/etc/resolv.conf` by `dnsPolicy`. Pure: the node's own file is passed as text.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{PodDNSConfig, PodSpec};

/// Upstream's limits.
const NAMESERVERS_MAX: usize = 3;
const SEARCH_MAX: usize = 32;
const SEARCH_LEN_MAX: usize = 2_048;

/// The content of a resolver file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolv {
    pub(crate) nameservers: Vec<String>,
    pub(crate) searches: Vec<String>,
    pub(crate) options: Vec<String>,
}

/// The settings of the cluster's DNS.
pub(crate) struct Cluster<'a> {
    pub(crate) nameservers: &'a [IpAddr],
    pub(crate) domain: &'a str,
}

impl Resolv {
    /// Reads a resolver file; the last `search` and `options` lines count.
    pub(crate) fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let rest = |words: std::str::SplitWhitespace<'_>| words.map(str::to_owned).collect::<Vec<_>>();
            match words.next() {
                Some("nameserver") => found.nameservers.extend(words.next().map(str::to_owned)),
                Some("search") => found.searches = rest(words).into_iter().map(|name| trim_dot(&name)).collect(),
                Some("options") => found.options = rest(words),
                _ => {}
            }
        }
        found
    }

    /// The resolver file of a Pod.
    pub(crate) fn for_pod(spec: &PodSpec, namespace: &str, cluster: &Cluster<'_>, host: &Self) -> Self {
        let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
        let host_network = spec.host_network.unwrap_or(false);
        let mut resolv = match policy {
            "None" => Self::default(),
            "ClusterFirstWithHostNet" => Self::cluster_first(namespace, cluster, host),
            "ClusterFirst" if !host_network => Self::cluster_first(namespace, cluster, host),
            _ => host.clone(),
        };
        if let Some(config) = &spec.dns_config {
            resolv.append(config);
        }
        resolv.nameservers.truncate(NAMESERVERS_MAX);
        resolv.bound_searches();
        resolv
    }

    fn cluster_first(namespace: &str, cluster: &Cluster<'_>, host: &Self) -> Self {
        if cluster.nameservers.is_empty() {
            return host.clone();
        }
        let domain = trim_dot(cluster.domain);
        let mut searches = vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain];
        for search in &host.searches {
            push_new(&mut searches, search.clone());
        }
        Self { nameservers: cluster.nameservers.iter().map(IpAddr::to_string).collect(), searches, options: vec!["ndots:5".to_owned()] }
    }

    fn append(&mut self, config: &PodDNSConfig) {
        for nameserver in config.nameservers.iter().flatten() {
            push_new(&mut self.nameservers, nameserver.clone());
        }
        for search in config.searches.iter().flatten() {
            push_new(&mut self.searches, trim_dot(search));
        }
        for option in config.options.iter().flatten() {
            let Some(name) = option.name.as_deref() else { continue };
            self.options.retain(|option| option.split(':').next() != Some(name));
            self.options.push(option.value.as_ref().map_or_else(|| name.to_owned(), |value| format!("{name}:{value}")));
        }
    }

    fn bound_searches(&mut self) {
        self.searches.truncate(SEARCH_MAX);
        while self.searches.join(" ").len() > SEARCH_LEN_MAX {
            self.searches.pop();
        }
    }

    /// The file's text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        if !self.searches.is_empty() {
            text.push_str(&format!("search {}\n", self.searches.join(" ")));
        }
        for nameserver in &self.nameservers {
            text.push_str(&format!("nameserver {nameserver}\n"));
        }
        if !self.options.is_empty() {
            text.push_str(&format!("options {}\n", self.options.join(" ")));
        }
        text
    }
}

fn push_new(list: &mut Vec<String>, value: String) {
    if !list.contains(&value) {
        list.push(value);
    }
}

/// `.` alone stays.
fn trim_dot(name: &str) -> String {
    if name == "." { name.to_owned() } else { name.trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn text(spec: Value) -> String {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let spec: PodSpec = serde_json::from_value(spec).expect("a spec");
        let host = Resolv::parse("# made by hand\nnameserver 192.0.2.53\nsearch lan example.com.\noptions timeout:1 edns0\n");
        let cluster = Cluster { nameservers: &["10.96.0.10".parse().expect("an address")], domain: "cluster.local" };
        Resolv::for_pod(&spec, "ns", &cluster, &host).text()
    }

    #[test]
    fn each_policy_has_its_file() {
        let cluster =
            "search ns.svc.cluster.local svc.cluster.local cluster.local lan example.com\nnameserver 10.96.0.10\noptions ndots:5\n";
        let host = "search lan example.com\nnameserver 192.0.2.53\noptions timeout:1 edns0\n";
        for (spec, wanted) in [
            (json!({}), cluster),
            (json!({"dnsPolicy": "ClusterFirst"}), cluster),
            (json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true}), host),
            (json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}), cluster),
            (json!({"dnsPolicy": "Default"}), host),
            (json!({"dnsPolicy": "None"}), ""),
        ] {
            assert_eq!(text(spec.clone()), wanted, "{spec}");
        }
    }

    #[test]
    fn dns_config_is_added() {
        let config = json!({"nameservers": ["1.2.3.4"], "searches": ["a.b.", "lan"], "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]});
        assert_eq!(text(json!({"dnsPolicy": "None", "dnsConfig": config})), "search a.b lan\nnameserver 1.2.3.4\noptions ndots:2 edns0\n");
        assert_eq!(
            text(json!({"dnsConfig": config})),
            "search ns.svc.cluster.local svc.cluster.local cluster.local lan example.com a.b\nnameserver 10.96.0.10\nnameserver 1.2.3.4\noptions ndots:2 edns0\n"
        );
    }
}
