//! The files of `/etc` that the node writes for a Pod: `hosts`, `hostname`, `resolv.conf`. Texts are pure; [`write`] writes
//! them to the directory that containers mount.

use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{HostAlias, Pod, PodSpec};
use runtimes_contract::Mount;

use super::resolv::{Cluster, Resolv};
use crate::layout::{Layout, PodName};

/// First line of the hosts file, upstream's; tools look for it.
const HEADER: &str = "# Kubernetes-managed hosts file.\n";
const HEADER_HOST_NETWORK: &str = "# Kubernetes-managed hosts file (host network).\n";
/// The longest host name that the kernel accepts, minus one, as upstream.
const HOSTNAME_LEN_MAX: usize = 63;
/// The longest that the kernel accepts.
const FQDN_LEN_MAX: usize = 64;

/// The name of a file on the node and its path in containers.
const FILES: [(&str, &str); 3] = [("hosts", "/etc/hosts"), ("hostname", "/etc/hostname"), ("resolv.conf", "/etc/resolv.conf")];

/// A Pod's hostname: `spec.hostname`, else its name, truncated where it is too long; and its domain, when it has a `subdomain`.
/// `hostnameOverride` goes before all of them, and has no domain.
pub(crate) fn host_name(pod: &Pod, cluster_domain: &str) -> (String, Option<String>) {
    let spec = pod.spec.as_ref();
    if let Some(name) = spec.and_then(|spec| spec.hostname_override.as_ref()).filter(|name| !name.is_empty()) {
        return (name.clone(), None);
    }
    let named = spec.and_then(|spec| spec.hostname.as_deref()).filter(|name| !name.is_empty());
    let name = named.or(pod.metadata.name.as_deref()).unwrap_or_default();
    let cut: String = name.chars().take(HOSTNAME_LEN_MAX).collect();
    let name = cut.trim_end_matches(['-', '.']).to_owned();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let subdomain = spec.and_then(|spec| spec.subdomain.as_deref()).filter(|subdomain| !subdomain.is_empty());
    (name, subdomain.map(|subdomain| format!("{subdomain}.{namespace}.svc.{cluster_domain}")))
}

/// The name of a Pod is too long for the kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long \
     ({FQDN_LEN_MAX} characters is the max, {} characters requested)",
    .fqdn.len()
)]
pub(crate) struct FqdnTooLong {
    fqdn: String,
}

/// The hostname that the kernel and `/etc/hostname` have for a Pod in a network of its own: with `setHostnameAsFQDN` its whole
/// name, if it has a domain.
pub(crate) fn kernel_host_name(pod: &Pod, cluster_domain: &str) -> Result<String, FqdnTooLong> {
    let (name, domain) = host_name(pod, cluster_domain);
    let as_fqdn = pod.spec.as_ref().and_then(|spec| spec.set_hostname_as_fqdn) == Some(true);
    let Some(domain) = domain.filter(|_| as_fqdn) else { return Ok(name) };
    let fqdn = format!("{name}.{domain}");
    if fqdn.len() > FQDN_LEN_MAX { Err(FqdnTooLong { fqdn }) } else { Ok(fqdn) }
}

/// The text of `/etc/hosts`.
fn hosts(ip: IpAddr, name: &str, domain: Option<&str>, aliases: &[HostAlias]) -> String {
    let mut text = HEADER.to_owned();
    for line in [
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "fe00::0\tip6-localnet",
        "fe00::0\tip6-mcastprefix",
        "fe00::1\tip6-allnodes",
        "fe00::2\tip6-allrouters",
    ] {
        text.push_str(line);
        text.push('\n');
    }
    match domain {
        Some(domain) => text.push_str(&format!("{ip}\t{name}.{domain}\t{name}\n")),
        None => text.push_str(&format!("{ip}\t{name}\n")),
    }
    text.push_str(&alias_lines(aliases));
    text
}

fn alias_lines(aliases: &[HostAlias]) -> String {
    if aliases.is_empty() {
        return String::new();
    }
    let mut text = "\n# Entries added by HostAliases.\n".to_owned();
    for alias in aliases {
        text.push_str(&format!("{}\t{}\n", alias.ip, alias.hostnames.iter().flatten().cloned().collect::<Vec<_>>().join("\t")));
    }
    text
}

/// What the files of all Pods of a node are made from.
pub(crate) struct NodeFiles<'a> {
    pub(crate) node_name: &'a str,
    /// The node's own resolver file.
    pub(crate) resolv_conf: &'a Path,
    pub(crate) cluster: Cluster<'a>,
}

/// Writes the Pod's files. Blocks.
pub(crate) fn write(pod: &Pod, ip: IpAddr, from: &NodeFiles<'_>, layout: &Layout) -> Result<(), (PathBuf, io::Error)> {
    let Some(spec) = pod.spec.as_ref() else { return Ok(()) };
    let names = PodName::of(pod);
    let (name, domain) = host_name(pod, from.cluster.domain);
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| (path.to_owned(), error));
    let aliases = spec.host_aliases.as_deref().unwrap_or_default();
    let host_network = spec.host_network.unwrap_or(false);
    let hosts = if host_network {
        format!("{HEADER_HOST_NETWORK}{}{}", read(Path::new("/etc/hosts"))?, alias_lines(aliases))
    } else {
        hosts(ip, &name, domain.as_deref(), aliases)
    };
    let host_resolv = match read(from.resolv_conf) {
        Err((_, error)) if error.kind() == io::ErrorKind::NotFound => String::new(),
        other => other?,
    };
    let resolv = Resolv::for_pod(spec, &names.namespace, &from.cluster, &Resolv::parse(&host_resolv)).text();
    let host = match kernel_host_name(pod, from.cluster.domain) {
        _ if host_network => from.node_name.to_owned(),
        Ok(host) => host,
        // The Pod gets no sandbox with such a name, and so no file.
        Err(_) => name,
    };
    for (file, text) in [("hosts", hosts), ("hostname", format!("{host}\n")), ("resolv.conf", resolv)] {
        put(&layout.pod_file(&names.uid, file), &text)?;
    }
    Ok(())
}

/// The file is written in place and only when it differs: containers mount the file itself, and may have changed its content.
fn put(path: &Path, text: &str) -> Result<(), (PathBuf, io::Error)> {
    let failed = |error| (path.to_owned(), error);
    if holds(path, text).unwrap_or(false) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    std::fs::write(path, text).map_err(failed)
}

fn holds(path: &Path, text: &str) -> io::Result<bool> {
    let mut present = Vec::new();
    let len_max = u64::try_from(text.len()).map_or(u64::MAX, |len| len.saturating_add(1));
    std::fs::File::open(path)?.take(len_max).read_to_end(&mut present)?;
    Ok(present == text.as_bytes())
}

/// The mounts of these files, without those for which the container has a mount of its own.
pub(crate) fn mounts(uid: &str, layout: &Layout, own: &[Mount]) -> Vec<Mount> {
    let taken = |target: &str| own.iter().any(|mount| mount.target == Path::new(target));
    FILES.iter().filter(|(_, target)| !taken(target)).map(|(file, target)| Mount::new(layout.pod_file(uid, file), *target, false)).collect()
}

/// Whether a Pod is in the node's own network.
pub(crate) fn on_host_network(spec: Option<&PodSpec>) -> bool {
    spec.and_then(|spec| spec.host_network).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hosts_file_reads_like_upstreams() {
        let aliases = [serde_json::from_value(json!({"ip": "1.2.3.4", "hostnames": ["a.local", "b.local"]})).expect("an alias")];
        let text = hosts("10.244.0.5".parse().expect("an address"), "web-0", Some("web.ns.svc.cluster.local"), &aliases);
        insta::assert_snapshot!(text, @r"
        # Kubernetes-managed hosts file.
        127.0.0.1	localhost
        ::1	localhost ip6-localhost ip6-loopback
        fe00::0	ip6-localnet
        fe00::0	ip6-mcastprefix
        fe00::1	ip6-allnodes
        fe00::2	ip6-allrouters
        10.244.0.5	web-0.web.ns.svc.cluster.local	web-0

        # Entries added by HostAliases.
        1.2.3.4	a.local	b.local
        ");
    }

    #[test]
    fn what_a_container_made_of_its_hosts_file_is_not_read_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("hosts");
        put(&path, "one\n").expect("written");
        // More than any machine has memory, and nothing on the disk.
        std::fs::File::options().write(true).open(&path).expect("opens").set_len(1 << 43).expect("grows");
        put(&path, "two\n").expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("reads"), "two\n");
    }

    #[test]
    fn host_names_fit() {
        let pod = |spec: serde_json::Value, name: &str| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec})).expect("a pod")
        };
        let long = format!("{}-x", "a".repeat(62));
        assert_eq!(host_name(&pod(json!({"containers": []}), &long), "c.l"), ("a".repeat(62), None));
        let named = pod(json!({"containers": [], "hostname": "h", "subdomain": "s"}), "web");
        assert_eq!(host_name(&named, "c.l"), ("h".to_owned(), Some("s.ns.svc.c.l".to_owned())));
        let overridden = pod(json!({"containers": [], "hostname": "h", "subdomain": "s", "hostnameOverride": "o.example"}), "web");
        assert_eq!(host_name(&overridden, "c.l"), ("o.example".to_owned(), None));
    }

    #[test]
    fn the_kernel_has_the_whole_name_of_a_pod_that_wants_it() {
        let of = |spec: serde_json::Value, domain: &str| {
            let mut spec = spec;
            spec["containers"] = json!([]);
            let pod = serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "ns"}, "spec": spec})).expect("a pod");
            kernel_host_name(&pod, domain).map_err(|error| error.to_string())
        };
        let domain = "cluster.local";
        assert_eq!(of(json!({"subdomain": "s"}), domain), Ok("web".to_owned()));
        assert_eq!(of(json!({"subdomain": "s", "setHostnameAsFQDN": true}), domain), Ok("web.s.ns.svc.cluster.local".to_owned()));
        assert_eq!(of(json!({"setHostnameAsFQDN": true}), domain), Ok("web".to_owned()), "it has no domain");
        let fits = "s".repeat(64 - "web..ns.svc.cluster.local".len());
        let with = |subdomain: &str| of(json!({"subdomain": subdomain, "setHostnameAsFQDN": true}), domain);
        assert_eq!(with(&fits), Ok(format!("web.{fits}.ns.svc.cluster.local")));
        let fqdn = format!("web.{fits}s.ns.svc.cluster.local");
        let words = "failed to construct FQDN from pod hostname and cluster domain";
        assert_eq!(
            with(&format!("{fits}s")),
            Err(format!("{words}, FQDN {fqdn} is too long (64 characters is the max, 65 characters requested)"))
        );
    }
}
