//! The flows of UDP host ports: the kernel sends the datagrams of a sender that keeps its port where its first datagram went,
//! also after the host port leads to another Pod, or to a Pod at all. Upstream's `portmap` plug-in deletes such flows too.

use std::net::Ipv4Addr;

use node_netfilter::Flow;

use crate::{HostPort, Protocol};

/// Deletes the flows of a Pod's UDP host ports: those that lead to `pod`, or, without one, all. Blocks. A failure is logged:
/// the rules are right all the same, and flows end by themselves when nothing is sent.
pub(crate) fn forget(ports: &[HostPort], pod: Option<Ipv4Addr>) {
    for flow in ports.iter().filter_map(|port| flow(port, pod)) {
        if let Err(error) = flow.forget() {
            tracing::warn!(%error, "stale udp flows of a host port not forgotten; is the package conntrack installed?");
        }
    }
}

fn flow(port: &HostPort, pod: Option<Ipv4Addr>) -> Option<Flow> {
    (port.protocol == Protocol::Udp).then_some(Flow {
        port: port.host_port,
        destination: port.host_ip,
        reply_source: pod,
        reply_port: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_udp_has_flows_to_forget() {
        let port = |protocol| HostPort { host_ip: None, protocol, host_port: 53, container_port: 5353 };
        let pod = Some(Ipv4Addr::new(10, 244, 0, 2));
        assert_eq!(flow(&port(Protocol::Tcp), pod), None);
        assert_eq!(flow(&port(Protocol::Udp), pod), Some(Flow { port: 53, reply_source: pod, ..Flow::default() }));
    }
}
