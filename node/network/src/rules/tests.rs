//! The scripts as nft gets them.

use std::net::IpAddr;
use std::path::PathBuf;

use super::*;
use crate::Protocol;

pub(crate) fn config() -> Config {
    Config {
        prefix: "sk1".to_owned(),
        state_dir: PathBuf::from("/nowhere"),
        node_ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        cluster_cidr: "10.244.0.0/16".parse().expect("a range"),
        service_cidr: "10.96.0.0/12".parse().expect("a range"),
        dns_ip: Ipv4Addr::new(10, 96, 0, 10),
        reserved_ports: vec![10250],
    }
}

fn port(host_ip: Option<Ipv4Addr>, protocol: Protocol, host_port: u16) -> HostPort {
    HostPort { host_ip, protocol, host_port, container_port: 80 }
}

#[test]
fn a_node_without_host_ports() {
    let inputs = Inputs { pod_cidr: "10.244.1.0/24".parse().expect("a range"), ..Inputs::default() };
    insta::assert_snapshot!(script(&config(), &inputs));
}

#[test]
fn host_ports_and_other_nodes() {
    let pod = Ipv4Addr::new(10, 244, 1, 7);
    let inputs = Inputs {
        pod_cidr: "10.244.1.0/24".parse().expect("a range"),
        nodes: vec![Ipv4Addr::new(192, 0, 2, 2)],
        host_ports: vec![
            (port(None, Protocol::Tcp, 8080), pod),
            (port(None, Protocol::Udp, 53), pod),
            (port(Some(Ipv4Addr::LOCALHOST), Protocol::Tcp, 9000), Ipv4Addr::new(10, 244, 1, 8)),
        ],
    };
    insta::assert_snapshot!(script(&config(), &inputs));
}
