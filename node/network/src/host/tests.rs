//! Which ranges are free, and which routes change.

use std::path::PathBuf;

use super::*;

fn range(text: &str) -> Ipv4Net {
    text.parse().expect("a range")
}

fn config() -> Config {
    Config {
        prefix: "sk1".to_owned(),
        state_dir: PathBuf::from("/nowhere"),
        node_ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        cluster_cidr: range("10.244.0.0/16"),
        service_cidr: range("10.96.0.0/12"),
        dns_ip: Ipv4Addr::new(10, 96, 0, 10),
        reserved_ports: vec![10250],
    }
}

fn link(index: u32, name: &str) -> Link {
    Link { index, name: name.to_owned(), mtu: 1_400, controller: None, is_operational: true }
}

fn present(addresses: &[(u32, [u8; 4])], routes: &[(&str, u8, u32, Option<u32>)]) -> Present {
    Present {
        links: vec![link(1, "lo"), link(2, "eth0"), link(3, "sk1-br"), link(4, "sk1-dns"), link(5, "sk2-dns")],
        addresses: addresses.iter().map(|(index, ip)| Address { index: *index, ip: Ipv4Addr::from(*ip), prefix_len: 24 }).collect(),
        routes: routes
            .iter()
            .map(|(to, protocol, metric, oif)| Route { destination: range(to), protocol: *protocol, metric: *metric, oif: *oif, via: None })
            .collect(),
    }
}

#[test]
fn ranges_that_others_have_are_rejected_by_name() {
    let own = metric("sk1");
    let other = metric("sk2");
    type Case<'a> = (&'a [(u32, [u8; 4])], &'a [(&'a str, u8, u32, Option<u32>)], &'a str);
    let cases: &[Case<'_>] = &[
        (&[(2, [192, 0, 2, 1])], &[("0.0.0.0/0", 3, 0, Some(2)), ("192.0.2.0/24", 2, 0, Some(2))], ""),
        // What an earlier run of the same cluster left.
        (&[(3, [10, 244, 0, 1]), (4, [10, 96, 0, 10])], &[("10.244.0.0/24", 2, 0, Some(3)), ("10.244.0.0/16", 83, own, None)], ""),
        // The LAN is wider than the range: it only loses.
        (&[(2, [10, 1, 2, 3])], &[("10.0.0.0/8", 2, 0, Some(2))], ""),
        (
            &[(5, [10, 96, 0, 10])],
            &[],
            "10.96.0.0/12 is already used on this machine by interface sk2-dns (10.96.0.10); choose another with --service-cluster-ip-range",
        ),
        (
            &[(5, [10, 96, 0, 10])],
            &[("10.244.0.0/16", 83, other, None)],
            "10.244.0.0/16 is already used on this machine by the route to 10.244.0.0/16; choose another with --cluster-cidr. \
             10.96.0.0/12 is already used on this machine by interface sk2-dns (10.96.0.10); choose another with --service-cluster-ip-range",
        ),
        (
            &[(2, [10, 244, 3, 1])],
            &[],
            "10.244.0.0/16 is already used on this machine by interface eth0 (10.244.3.1); choose another with --cluster-cidr",
        ),
        (
            &[],
            &[("10.244.0.0/16", 83, other, None)],
            "10.244.0.0/16 is already used on this machine by the route to 10.244.0.0/16; choose another with --cluster-cidr",
        ),
        (
            &[],
            &[("10.244.0.0/15", 83, other, Some(5))],
            "10.244.0.0/16 is already used on this machine by the route to 10.244.0.0/15 through sk2-dns; choose another with --cluster-cidr",
        ),
        (
            &[],
            &[("10.100.0.0/24", 4, 0, Some(2))],
            "10.96.0.0/12 is already used on this machine by the route to 10.100.0.0/24 through eth0; choose another with --service-cluster-ip-range",
        ),
    ];
    for (addresses, routes, expected) in cases {
        let got = check_free(&config(), &present(addresses, routes)).err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(&got, expected);
    }
}

#[test]
fn only_routes_that_differ_change() {
    let peer = |cidr: &str, last: u8| Peer { pod_cidr: range(cidr), via: Ipv4Addr::new(192, 0, 2, last) };
    let route = |to: &str, last: Option<u8>, metric: u32| Route {
        destination: range(to),
        protocol: ROUTE_PROTOCOL,
        metric,
        oif: Some(2),
        via: last.map(|last| Ipv4Addr::new(192, 0, 2, last)),
    };
    let own = metric("sk1");
    let present = [
        route("10.244.1.0/24", Some(2), own),
        route("10.244.2.0/24", Some(3), own),
        route("10.244.3.0/24", Some(4), own),
        route("10.244.0.0/16", None, own),
        route("10.245.3.0/24", Some(4), metric("sk2")),
    ];
    let peers = [
        peer("10.244.1.0/24", 2),
        peer("10.244.2.0/24", 9),
        peer("10.244.4.0/24", 5),
        peer("10.244.0.0/24", 7),
        peer("10.244.0.128/25", 7),
        peer("10.244.0.0/16", 7),
        peer("172.16.0.0/24", 7),
    ];
    let (gone, new) = plan_routes(&config(), Some(range("10.244.0.0/24")), &present, &peers);
    assert_eq!(gone, [range("10.244.3.0/24")]);
    assert_eq!(new, [peer("10.244.2.0/24", 9), peer("10.244.4.0/24", 5)]);
}

#[test]
fn names_differ_from_those_of_other_clusters() {
    assert_eq!(veth("sk1", Ipv4Addr::new(10, 244, 0, 18)), "sk1vf40012");
    for (name, owned) in [
        ("sk1-br", true),
        ("sk1-dns", true),
        ("sk1vf40012", true),
        ("sk12-br", false),
        ("sk1vpn0", false),
        ("sk12vf40012", false),
        ("eth0", false),
    ] {
        assert_eq!(owns("sk1", name), owned, "{name}");
    }
    assert_ne!(metric("sk1"), metric("sk2"));
}
