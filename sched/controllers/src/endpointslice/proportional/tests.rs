//! Upstream's `topologycache` by tables.

use super::*;
use serde_json::{Value, json};

fn endpoint(zone: &str, hint: Option<&str>, ready: bool) -> Endpoint {
    let zone = if zone.is_empty() { Value::Null } else { json!(zone) };
    let hints = hint.map(|zone| json!({"forZones": [{"name": zone}]}));
    serde_json::from_value(json!({"addresses": ["10.0.0.1"], "conditions": {"ready": ready}, "zone": zone, "hints": hints}))
        .expect("an endpoint")
}

/// One slice: the zones of its ready endpoints with the hints that they have, and whether it changes.
type Slice = (&'static [(&'static str, &'static str)], bool);

/// The hints afterwards, slice by slice, and the outcome.
fn assigned(shares: Option<&Shares>, slices: &[Slice]) -> (Vec<(Vec<String>, bool)>, Outcome) {
    let made = |(endpoints, changed): &Slice| {
        let hint = |hint: &'static str| Some(hint).filter(|hint| !hint.is_empty());
        let endpoints: Vec<Endpoint> = endpoints.iter().map(|(zone, hinted)| endpoint(zone, hint(hinted), true)).collect();
        (endpoints, *changed)
    };
    let mut slices: Vec<(Vec<Endpoint>, bool)> = slices.iter().map(made).collect();
    let mut parts: Vec<Part<'_>> = slices.iter_mut().map(|(endpoints, changed)| Part { endpoints, changed }).collect();
    let outcome = assign(shares, &mut parts);
    let hint = |endpoint: &Endpoint| {
        let zones = endpoint.hints.as_ref().and_then(|hints| hints.for_zones.clone()).unwrap_or_default();
        zones.into_iter().map(|zone| zone.name).collect::<Vec<_>>().join("+")
    };
    (slices.iter().map(|(endpoints, changed)| (endpoints.iter().map(hint).collect(), *changed)).collect(), outcome)
}

fn equal() -> Shares {
    Shares::from([("a".to_owned(), 0.5), ("b".to_owned(), 0.5)])
}

fn hinted(counts: &[(&str, usize)]) -> Hinted {
    counts.iter().map(|(zone, count)| ((*zone).to_owned(), *count)).collect()
}

#[test]
fn endpoints_are_hinted_at_their_own_zones_or_at_those_that_lack_some() {
    let thirds = Shares::from([("a".to_owned(), 1.0 / 3.0), ("b".to_owned(), 1.0 / 3.0), ("c".to_owned(), 1.0 / 3.0)]);
    type Case = (&'static str, Shares, &'static [Slice], &'static [&'static [&'static str]], &'static [(&'static str, usize)]);
    let cases: [Case; 5] = [
        ("balanced", equal(), &[(&[("a", ""), ("b", "")], true)], &[&["a", "b"]], &[("a", 1), ("b", 1)]),
        (
            "one zone gives",
            equal(),
            &[(&[("a", ""), ("a", ""), ("a", ""), ("b", "")], true)],
            &[&["b", "a", "a", "b"]],
            &[("a", 2), ("b", 2)],
        ),
        (
            "all in one of three",
            thirds,
            &[(&[("a", ""), ("a", ""), ("a", "")], true)],
            &[&["b", "c", "a"]],
            &[("a", 1), ("b", 1), ("c", 1)],
        ),
        (
            "a slice that does not change keeps its hints",
            equal(),
            &[(&[("a", "b"), ("b", "a")], false), (&[("a", ""), ("b", "")], true)],
            &[&["b", "a"], &["a", "b"]],
            &[("a", 2), ("b", 2)],
        ),
        ("a slice without hints changes", equal(), &[(&[("a", ""), ("b", "")], false)], &[&["a", "b"]], &[("a", 1), ("b", 1)]),
    ];
    for (name, shares, slices, hints, counts) in cases {
        let (after, outcome) = assigned(Some(&shares), slices);
        assert_eq!(outcome, Outcome::Hinted(hinted(counts)), "{name}");
        assert_eq!(after.into_iter().map(|(hints, _)| hints).collect::<Vec<_>>(), hints, "{name}");
    }
}

#[test]
fn a_slice_is_written_only_when_its_hints_must_change() {
    let (after, _) = assigned(Some(&equal()), &[(&[("a", "a"), ("b", "b")], false)]);
    assert!(!after[0].1, "nothing to change");
    let (after, _) = assigned(Some(&equal()), &[(&[("a", "c"), ("b", "b")], false)]);
    assert!(after[0].1, "a hint at a zone that is gone");
    let (after, outcome) = assigned(Some(&equal()), &[(&[("a", "a"), ("a", "a"), ("a", "a"), ("a", "a")], false)]);
    assert!(after[0].1, "one zone would have too many");
    assert_eq!(outcome, Outcome::Hinted(hinted(&[("a", 2), ("b", 2)])));
}

#[test]
fn hints_are_given_up_with_upstreams_words() {
    let uneven = Shares::from([("a".to_owned(), 0.9), ("b".to_owned(), 0.1)]);
    let cases: [(Option<Shares>, &[Slice], &str); 4] = [
        (
            None,
            &[(&[("a", "a"), ("b", "b")], false)],
            "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes",
        ),
        (Some(equal()), &[(&[("a", "a")], false)], "Insufficient number of endpoints (1 endpoints, 2 zones)"),
        (
            Some(uneven),
            &[(&[("a", "a"), ("b", "b")], false)],
            "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold (2 endpoints, 2 zones)",
        ),
        (Some(equal()), &[(&[("a", "a"), ("", "")], false)], "One or more endpoints do not have a zone specified"),
    ];
    for (shares, slices, message) in cases {
        let (after, outcome) = assigned(shares.as_ref(), slices);
        assert_eq!(outcome, Outcome::GivenUp(message.to_owned()));
        assert!(after.iter().all(|(hints, changed)| *changed && hints.iter().all(String::is_empty)), "{message}: {after:?}");
    }
}

#[test]
fn endpoints_that_are_not_ready_have_no_hints_and_do_not_count() {
    let mut endpoints = vec![endpoint("a", None, true), endpoint("a", Some("a"), false), endpoint("b", None, true)];
    let mut changed = true;
    let outcome = assign(Some(&equal()), &mut [Part { endpoints: &mut endpoints, changed: &mut changed }]);
    assert_eq!(outcome, Outcome::Hinted(hinted(&[("a", 1), ("b", 1)])));
    assert!(endpoints[1].hints.is_none());
}

fn node(zone: Value, cpu: Value, ready: &str, extra: &str) -> Arc<Node> {
    let mut labels = json!({"topology.kubernetes.io/zone": zone});
    if !extra.is_empty() {
        labels[extra] = json!("");
    }
    let status = json!({"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": ready}]});
    let mut node = json!({"metadata": {"name": "n", "labels": labels}, "status": status});
    if zone.is_null() {
        node["metadata"]["labels"] = json!({});
    }
    if cpu.is_null() {
        node["status"]["allocatable"] = json!({});
    }
    Arc::new(serde_json::from_value(node).expect("a Node"))
}

#[test]
fn zones_share_the_cpus_of_ready_nodes() {
    let ready = |zone: &str, cpu: &str| node(json!(zone), json!(cpu), "True", "");
    let both = Some(Shares::from([("a".to_owned(), 0.75), ("b".to_owned(), 0.25)]));
    let cases = [
        ("no Node", vec![], None),
        ("one zone", vec![ready("a", "1"), ready("a", "1")], None),
        ("two zones", vec![ready("a", "1"), ready("a", "2"), ready("b", "1000m")], both.clone()),
        ("a Node that is not ready", vec![ready("a", "3"), ready("b", "1"), node(json!(null), json!("9"), "False", "")], both.clone()),
        ("a control plane", vec![ready("a", "3"), ready("b", "1"), node(json!("b"), json!("9"), "True", CONTROL_PLANE[0])], both),
        ("a Node without a zone", vec![ready("a", "3"), ready("b", "1"), node(json!(null), json!("9"), "True", "")], None),
        ("a Node without CPUs", vec![ready("a", "3"), ready("b", "1"), node(json!("b"), json!(null), "True", "")], None),
    ];
    for (name, nodes, expected) in cases {
        assert_eq!(shares(&nodes), expected, "{name}");
    }
}

#[test]
fn a_zone_with_too_few_endpoints_is_overloaded() {
    for (name, counts, shares, expected) in [
        ("nothing is hinted", hinted(&[]), Some(equal()), false),
        ("the shares are unknown", hinted(&[("a", 1), ("b", 1)]), None, true),
        ("balanced", hinted(&[("a", 5), ("b", 5)]), Some(equal()), false),
        ("just enough", hinted(&[("a", 7), ("b", 5)]), Some(equal()), false),
        ("one too few", hinted(&[("a", 8), ("b", 4)]), Some(equal()), true),
        ("a new zone", hinted(&[("a", 5)]), Some(equal()), true),
    ] {
        assert_eq!(is_overloaded(&counts, shares.as_ref()), expected, "{name}");
    }
}
