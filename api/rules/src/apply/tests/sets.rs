//! Properties of sets, and their written form.

use proptest::prelude::*;
use serde_json::Map;

use super::*;

fn set(fields: Value) -> FieldSet {
    wire::decode(fields.as_object().expect("a map")).expect("a set")
}

#[test]
fn fields_are_written_as_they_were_read() {
    let fields = json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}, "f:finalizers": {"v:\"a/b\"": {}},
        "f:list": {"i:3": {}}}});
    let read = set(fields.clone());
    assert_eq!(Value::Object(wire::encode(&read)), fields);
    assert_eq!(
        read.paths(),
        [
            ".spec.finalizers[=\"a/b\"]",
            ".spec.list[3]",
            ".spec.ports[port=80,protocol=\"TCP\"]",
            ".spec.ports[port=80,protocol=\"TCP\"].name"
        ]
    );
}

#[test]
fn keys_are_equal_whatever_their_order() {
    let one = set(json!({"k:{\"b\":1,\"a\":\"x\"}": {}}));
    assert_eq!(one, set(json!({"k:{ \"a\": \"x\", \"b\": 1 }": {}})));
    assert_eq!(one.paths(), ["[a=\"x\",b=1]"]);
}

#[test]
fn rejects_what_is_no_set() {
    for bad in [json!({"spec": {}}), json!({"x:spec": {}}), json!({"k:{": {}}), json!({"f:spec": 1}), json!({"i:x": {}})] {
        assert_eq!(wire::decode(bad.as_object().expect("a map")), None, "{bad}");
    }
}

fn sets() -> impl Strategy<Value = FieldSet> {
    let leaf = prop_oneof![Just(json!({})), Just(json!({".": {}}))];
    let tree = leaf.prop_recursive(3, 20, 3, |inner| {
        let key = prop_oneof![Just("f:a"), Just("f:b"), Just("k:{\"n\":1}"), Just("v:2"), Just(".")];
        prop::collection::btree_map(key, inner, 0..4).prop_map(|fields| {
            let fields = fields.into_iter().map(|(key, value)| (key.to_owned(), if key == "." { json!({}) } else { value }));
            Value::Object(fields.collect::<Map<_, _>>())
        })
    });
    tree.prop_map(set)
}

fn members(set: &FieldSet) -> std::collections::BTreeSet<String> {
    set.paths().into_iter().collect()
}

proptest! {
    #[test]
    fn sets_are_sets_of_their_paths(a in sets(), b in sets()) {
        let (of_a, of_b) = (members(&a), members(&b));
        prop_assert_eq!(members(&a.union(&b)), &of_a | &of_b);
        prop_assert_eq!(members(&a.intersection(&b)), &of_a & &of_b);
        prop_assert_eq!(members(&a.difference(&b)), &of_a - &of_b);
        prop_assert_eq!(a.overlaps(&b), !(&of_a & &of_b).is_empty());
        prop_assert_eq!(wire::decode(&wire::encode(&a)), Some(a));
    }
}
