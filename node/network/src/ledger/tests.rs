//! Addresses and host ports, on a directory of their own.

use super::*;

fn range(text: &str) -> Ipv4Net {
    text.parse().expect("a range")
}

fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 244, 0, last)
}

fn port(host_ip: Option<u8>, host_port: u16) -> HostPort {
    HostPort { host_ip: host_ip.map(ip), protocol: Protocol::Tcp, host_port, container_port: 80 }
}

#[test]
fn assigns_addresses_in_order_and_again_as_late_as_possible() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut ledger = Ledger::open(dir.path()).expect("opened");
    let reserve = |ledger: &mut Ledger, uid: &str| ledger.reserve(uid, "h", &[], range("10.244.0.0/29")).map(|r| r.ip);
    assert_eq!(reserve(&mut ledger, "a").ok(), Some(ip(2)));
    assert_eq!(reserve(&mut ledger, "b").ok(), Some(ip(3)));
    assert_eq!(reserve(&mut ledger, "a").ok(), Some(ip(2)), "the same Pod keeps its address");
    ledger.release("a").expect("released");
    for (uid, last) in [("c", 4), ("d", 5), ("e", 6), ("f", 2)] {
        assert_eq!(reserve(&mut ledger, uid).ok(), Some(ip(last)), "{uid}");
    }
    let full = reserve(&mut ledger, "g").expect_err("full");
    assert_eq!(full.to_string(), "no free address in the node's Pod range 10.244.0.0/29");
    ledger.release("d").expect("released");
    assert_eq!(reserve(&mut ledger, "g").ok(), Some(ip(5)));
}

#[test]
fn a_new_process_knows_what_the_last_one_gave_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = Ledger::open(dir.path()).expect("opened").reserve("a", "web-0", &[port(None, 8080)], range("10.244.0.0/24"));
    let mut again = Ledger::open(dir.path()).expect("opened");
    assert_eq!(again.get("a"), first.ok().as_ref());
    again.release("a").expect("released");
    again.release("a").expect("released twice");
    let mut third = Ledger::open(dir.path()).expect("opened");
    assert!(third.records().is_empty());
    assert_eq!(third.reserve("b", "h", &[], range("10.244.0.0/24")).map(|r| r.ip).ok(), Some(ip(3)), "not the one just released");
}

#[test]
fn a_pod_fits_a_range_that_has_its_address_and_its_gateway() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut ledger = Ledger::open(dir.path()).expect("opened");
    let present = range("10.244.16.0/24");
    assert_eq!(ledger.misfits(present, range("10.244.0.0/24")), 0, "there is no Pod");
    ledger.record_range(present).expect("recorded");
    for uid in ["a", "b"] {
        ledger.reserve(uid, "h", &[], present).expect("reserved");
    }
    for (next, wanted) in [
        ("10.244.16.0/24", 0),
        ("10.244.16.0/22", 0),
        ("10.244.0.0/19", 2),
        ("10.244.17.0/24", 2),
        // Its broadcast address is a Pod's.
        ("10.244.16.0/30", 1),
    ] {
        assert_eq!(ledger.misfits(present, range(next)), wanted, "{next}");
    }
    assert_eq!(Ledger::open(dir.path()).expect("opened").range(), Some(present));
}

#[test]
fn a_cut_off_record_is_dropped() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["a.json", "b.json.new", "last-address.new"] {
        fs::write(dir.path().join(name), b"{\"ip\":").expect("written");
    }
    let ledger = Ledger::open(dir.path()).expect("opened");
    assert!(ledger.records().is_empty());
    assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 0);
}

#[test]
fn a_host_port_has_one_pod() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut ledger = Ledger::open(dir.path()).expect("opened");
    let cases = [
        ("all", vec![port(None, 80)], true),
        ("all again", vec![port(None, 80)], false),
        ("one of all", vec![port(Some(1), 80)], false),
        ("one", vec![port(Some(1), 81)], true),
        ("another", vec![port(Some(2), 81)], true),
        ("all of one", vec![port(None, 81)], false),
        ("other transport", vec![HostPort { protocol: Protocol::Udp, ..port(None, 80) }], true),
    ];
    for (uid, ports, fits) in cases {
        let got = ledger.reserve(uid, "h", &ports, range("10.244.0.0/24"));
        assert_eq!(got.is_ok(), fits, "{uid}");
    }
    let taken = ledger.reserve("x", "h", &[port(None, 80)], range("10.244.0.0/24")).expect_err("taken");
    assert_eq!(taken.to_string(), "host port 80/tcp is already taken by another Pod on this node");
}
