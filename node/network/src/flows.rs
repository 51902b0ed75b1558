//! UDP has no end of connection: a sender that keeps its port is led where its first datagram went, also
//! after the Pod behind a host port is another one, or is one at all. Such flows are forgotten here, so
//! that the next datagram meets the present rules; upstream's `portmap` plug-in does the same.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use crate::{HostPort, Protocol};

/// Forgets the flows of a Pod's UDP host ports: those led to `pod`, or, without one, all. Blocks. What fails
/// is logged: rules are right all the same, and flows end by themselves when nothing is sent.
pub(crate) fn forget(ports: &[HostPort], pod: Option<Ipv4Addr>) {
    for arguments in ports.iter().filter_map(|port| arguments(port, pod)) {
        let ended = Command::new("conntrack").args(&arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        // That no flow matches is its exit code too.
        if let Err(error) = ended {
            tracing::warn!(%error, "stale udp flows of a host port not forgotten; is the package conntrack installed?");
        }
    }
}

fn arguments(port: &HostPort, pod: Option<Ipv4Addr>) -> Option<Vec<String>> {
    if port.protocol != Protocol::Udp {
        return None;
    }
    let mut words = vec!["-D".to_owned(), "-p".to_owned(), "udp".to_owned(), "--orig-port-dst".to_owned(), port.host_port.to_string()];
    for (name, address) in [("--orig-dst", port.host_ip), ("--reply-src", pod)] {
        words.extend(address.into_iter().flat_map(|address| [name.to_owned(), address.to_string()]));
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_named_as_narrowly_as_they_can_be() {
        let port = |protocol, host_ip| HostPort { host_ip, protocol, host_port: 53, container_port: 5353 };
        let (host, pod) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(10, 244, 0, 2));
        let line = |port: &HostPort, pod| arguments(port, pod).map(|words| words.join(" "));
        assert_eq!(line(&port(Protocol::Tcp, None), None), None);
        assert_eq!(line(&port(Protocol::Udp, None), None).as_deref(), Some("-D -p udp --orig-port-dst 53"));
        assert_eq!(
            line(&port(Protocol::Udp, Some(host)), Some(pod)).as_deref(),
            Some("-D -p udp --orig-port-dst 53 --orig-dst 192.0.2.1 --reply-src 10.244.0.2")
        );
    }
}
