//! Checks that the machine has what a node's network needs. It makes the interfaces and loads the rules in a network namespace
//! that ends with its thread. An error names the missing kernel feature or tool, and what to install.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;
use node_netfilter::{NetfilterError, apply};

use crate::netlink::Socket;
use crate::netlink::message;
use crate::rules::{self, Inputs};
use crate::{Config, HostPort, NetworkError, Protocol, guard};

/// Moves the calling thread into a new network namespace: the thread must end afterwards.
pub(crate) fn check(config: &Config) -> Result<(), NetworkError> {
    let missing = |text: &str| NetworkError::Missing(text.to_owned());
    if !geteuid().is_root() {
        return Err(missing("a node needs root: start it with sudo, or run the API server alone with \"skiff server\""));
    }
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS).map_err(|errno| {
        missing(&format!(
            "the kernel refuses new network, IPC and UTS namespaces ({errno}): it needs CONFIG_NET_NS, CONFIG_IPC_NS, CONFIG_UTS_NS"
        ))
    })?;
    let own = std::fs::File::open("/proc/thread-self/ns/net").map_err(NetworkError::io("opening the namespace of a thread"))?;
    let mut socket = Socket::open()?;
    let bridge = message::add_bridge("bridge", config.dns_ip, 1_500);
    socket.apply(vec![bridge]).map_err(|error| missing(&format!("{}: load the kernel module bridge (CONFIG_BRIDGE)", cause(&error))))?;
    let veth = message::add_veth("veth", "peer", std::os::fd::AsFd::as_fd(&own), Ipv4Addr::LOCALHOST, 1_500);
    socket.apply(vec![veth]).map_err(|error| missing(&format!("{}: load the kernel module veth (CONFIG_VETH)", cause(&error))))?;
    let port = HostPort { host_ip: None, protocol: Protocol::Tcp, host_port: 1, container_port: 1 };
    let inputs =
        Inputs { pod_cidr: config.cluster_cidr, nodes: vec![config.dns_ip], host_ports: vec![(port, config.cluster_cidr.network())] };
    let refused = |error, modules: &str| match error {
        NetfilterError::Rules(said) => missing(&format!(
            "the kernel or nft does not take the node's rules ({said}): {modules}, and install the package nftables (1.0 or later)"
        )),
        other => other.into(),
    };
    apply(&rules::script(config, &inputs)).map_err(|error| {
        refused(error, "load the kernel modules nf_tables, nft_chain_nat, nft_ct, nft_fib, nft_masq, nft_nat and nft_reject")
    })?;
    let guard = guard::script(config, Ipv4Net::new_assert(config.cluster_cidr.network(), 30))?;
    apply(&guard).map_err(|error| refused(error, "the kernel needs CONFIG_NF_TABLES_BRIDGE"))
}

fn cause(error: &NetworkError) -> String {
    match error {
        NetworkError::Kernel { doing, source } => format!("{doing} failed ({source})"),
        other => other.to_string(),
    }
}
