//! Questions of every sort and their answers.

use std::fmt::Write as _;
use std::str::FromStr as _;

use hickory_proto::rr::RData;
use serde_json::json;

use super::*;
use crate::fixtures::{add, service, slice, zone};

/// An answer in text form; the SOA's serial is the time, so only its owner is shown.
fn written(zone: &Zone, name: &str, kind: RecordType) -> String {
    let record = |record: &Record| match &record.data {
        RData::SOA(soa) => format!("{} SOA minimum {}", record.name, soa.minimum),
        data => format!("{} {} {} {}", record.name, record.ttl, record.record_type(), data),
    };
    let mut text = format!("{name} {kind}");
    match zone.answer(&Name::from_str(name).expect("a name"), kind) {
        Answer::Authoritative(answer) => {
            let _ = write!(text, " => {}", answer.code);
            let mut section = |title: &str, records: &mut dyn Iterator<Item = &Record>| {
                records.for_each(|r| {
                    let _ = write!(text, "\n  {title}{}", record(r));
                });
            };
            section("", &mut answer.answers.iter());
            section("soa: ", &mut answer.soa.iter());
            section("also: ", &mut answer.additionals.iter());
            if let Some(further) = answer.further {
                let _ = write!(text, "\n  further: {further}");
            }
        }
        other => {
            let _ = write!(text, " => {other:?}");
        }
    }
    text
}

fn all(zone: &Zone, questions: &[(&str, RecordType)]) -> String {
    questions.iter().map(|(name, kind)| written(zone, name, *kind)).collect::<Vec<_>>().join("\n")
}

use RecordType::{A, AAAA, ANY, CNAME, MX, NS, PTR, SOA, SRV, TXT};

#[test]
fn services_with_addresses() {
    insta::assert_snapshot!(all(
        &zone(),
        &[
            ("web.default.svc.cluster.local.", A),
            ("WEB.Default.svc.Cluster.LOCAL.", A),
            ("web.default.svc.cluster.local.", AAAA),
            ("web.default.svc.cluster.local.", MX),
            ("web.default.svc.cluster.local.", ANY),
            ("dual.default.svc.cluster.local.", A),
            ("dual.default.svc.cluster.local.", AAAA),
            ("_http._tcp.web.default.svc.cluster.local.", SRV),
            ("_dns._udp.web.default.svc.cluster.local.", SRV),
            ("_http._udp.web.default.svc.cluster.local.", SRV),
            ("_http._tcp.web.default.svc.cluster.local.", A),
            ("_tcp.web.default.svc.cluster.local.", SRV),
            ("_sctp.web.default.svc.cluster.local.", SRV),
            ("web.default.svc.cluster.local.", SRV),
            ("10-244-0-5.web.default.svc.cluster.local.", A),
            ("10-244-0-6.web.default.svc.cluster.local.", A),
            ("nobody.default.svc.cluster.local.", A),
            ("web.other.svc.cluster.local.", A),
        ]
    ));
}

#[test]
fn headless_services() {
    insta::assert_snapshot!(all(
        &zone(),
        &[
            ("db.default.svc.cluster.local.", A),
            ("db.default.svc.cluster.local.", AAAA),
            ("db-0.db.default.svc.cluster.local.", A),
            ("db-2.db.default.svc.cluster.local.", A),
            ("10-244-1-9.db.default.svc.cluster.local.", A),
            ("10-244-0-7.db.default.svc.cluster.local.", A),
            ("_sql._tcp.db.default.svc.cluster.local.", SRV),
            ("db.default.svc.cluster.local.", SRV),
            ("_tcp.db.default.svc.cluster.local.", A),
            ("eager.default.svc.cluster.local.", A),
            ("eager-0.eager.default.svc.cluster.local.", A),
            ("empty.default.svc.cluster.local.", A),
        ]
    ));
}

#[test]
fn aliases() {
    insta::assert_snapshot!(all(
        &zone(),
        &[
            ("inside.default.svc.cluster.local.", A),
            ("inside.default.svc.cluster.local.", CNAME),
            ("outside.default.svc.cluster.local.", A),
            ("astray.default.svc.cluster.local.", A),
            ("literal.default.svc.cluster.local.", A),
        ]
    ));
    let round = written(&zone(), "round.default.svc.cluster.local.", A);
    assert_eq!(round.matches("CNAME").count(), CHAIN_LEN_MAX + 1, "a ring has an end: {round}");
}

#[test]
fn the_zone_itself_pods_and_nothing() {
    insta::assert_snapshot!(all(
        &zone(),
        &[
            ("cluster.local.", SOA),
            ("cluster.local.", NS),
            ("cluster.local.", A),
            ("ns.dns.cluster.local.", A),
            ("dns-version.cluster.local.", TXT),
            ("dns-version.cluster.local.", A),
            ("svc.cluster.local.", A),
            ("default.svc.cluster.local.", A),
            ("other.svc.cluster.local.", A),
            ("10-244-0-5.default.pod.cluster.local.", A),
            ("10-244-0-5.default.pod.cluster.local.", AAAA),
            ("fd00--5.default.pod.cluster.local.", AAAA),
            ("10-244-0-5.other.pod.cluster.local.", A),
            ("web.default.pod.cluster.local.", A),
            ("example.org.default.svc.cluster.local.", A),
            ("a.b.c.d.web.default.svc.cluster.local.", A),
            ("nothing.cluster.local.", A),
            ("example.org.", A),
            ("notcluster.local.", A),
        ]
    ));
}

#[test]
fn reverse_names() {
    insta::assert_snapshot!(all(
        &zone(),
        &[
            ("1.0.96.10.in-addr.arpa.", PTR),
            ("1.0.96.10.in-addr.arpa.", A),
            ("7.0.244.10.in-addr.arpa.", PTR),
            ("9.1.244.10.in-addr.arpa.", PTR),
            ("99.0.244.10.in-addr.arpa.", PTR),
            ("2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.", PTR),
            ("244.10.in-addr.arpa.", PTR),
            ("1.2.0.192.in-addr.arpa.", PTR),
        ]
    ));
}

#[test]
fn nothing_is_denied_before_the_first_lists_are_complete() {
    let mut zone = zone();
    zone.complete = false;
    for name in ["web.default.svc.cluster.local.", "nobody.default.svc.cluster.local.", "1.0.96.10.in-addr.arpa."] {
        assert_eq!(zone.answer(&Name::from_str(name).expect("a name"), A), Answer::Unready, "{name}");
    }
    assert_eq!(zone.answer(&Name::from_str("example.org.").expect("a name"), A), Answer::Foreign);
}

#[test]
fn names_follow_their_objects() {
    let mut zone = zone();
    let key = |name: &str| ("default".to_owned(), name.to_owned());
    let ask = |zone: &Zone, name: &str, kind| written(zone, name, kind).replace(&format!("{name} "), "");
    // Another address: the old one's reverse name goes with it.
    add(&mut zone, &service("web", json!({"clusterIP": "10.96.0.9"})), &[]);
    assert_eq!(ask(&zone, "web.default.svc.cluster.local.", A), "A => No Error\n  5 A 10.96.0.9");
    assert!(ask(&zone, "1.0.96.10.in-addr.arpa.", PTR).contains("Non-Existent"));
    // An address that moved to another Service stays when its old owner goes.
    add(&mut zone, &service("heir", json!({"clusterIP": "10.96.0.9"})), &[]);
    zone.set_service(&key("web"), None);
    assert!(ask(&zone, "9.0.96.10.in-addr.arpa.", PTR).contains("PTR heir.default.svc.cluster.local."));
    // Endpoints in several slices, of which one goes.
    let sql = json!([{"name": "sql", "port": 5432, "protocol": "TCP"}]);
    let mut second = slice("db", sql, &[("10.244.2.7", "db-9", true), ("10.244.0.7", "db-0", true)]);
    second.metadata.name = Some("db-second".to_owned());
    zone.set_slice(&key("db-second"), crate::objects::Slice::parse(&second));
    assert_eq!(ask(&zone, "db.default.svc.cluster.local.", A).matches(" A 10.").count(), 4);
    zone.set_slice(&key("db-1"), None);
    assert_eq!(ask(&zone, "db.default.svc.cluster.local.", A).matches(" A 10.").count(), 2);
    assert!(ask(&zone, "7.1.244.10.in-addr.arpa.", PTR).contains("Non-Existent"));
    zone.set_slice(&key("db-second"), None);
    assert!(ask(&zone, "7.0.244.10.in-addr.arpa.", PTR).contains("Non-Existent"));
    assert!(!zone.of_service.contains_key(&key("db")) && !zone.by_endpoint_ip.contains_key(&"10.244.0.7".parse().expect("an address")));
    zone.set_namespace("default", false);
    assert!(ask(&zone, "10-244-0-5.default.pod.cluster.local.", A).contains("Non-Existent"));
}
