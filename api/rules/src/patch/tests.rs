//! Cases of all three patch kinds, and properties that hold for any input.

use super::operations::{DEPTH_MAX, depth};
use super::*;
use proptest::prelude::*;
use serde_json::{Map, json};

#[test]
fn json_patches_follow_upstream() {
    let object = json!({"a": {"b": [1, 2]}, "c": "x"});
    for (patch, wanted) in [
        (json!([]), object.clone()),
        (json!([{"op": "add", "path": "/a/b/-", "value": 3}]), json!({"a": {"b": [1, 2, 3]}, "c": "x"})),
        (json!([{"op": "remove", "path": "/c"}]), json!({"a": {"b": [1, 2]}})),
        (
            json!([{"op": "test", "path": "/c", "value": "x"}, {"op": "replace", "path": "/c", "value": 1}]),
            json!({"a": {"b": [1, 2]}, "c": 1}),
        ),
        (json!([{"op": "move", "from": "/c", "path": "/a/d"}]), json!({"a": {"b": [1, 2], "d": "x"}})),
        (json!([{"op": "copy", "from": "/a/b/0", "path": "/e"}]), json!({"a": {"b": [1, 2]}, "c": "x", "e": 1})),
        (json!([{"op": "add", "path": "/x~1y~0z", "value": 1}]), json!({"a": {"b": [1, 2]}, "c": "x", "x/y~z": 1})),
        // A finalizer is added where there is none, as kube-rs does it.
        (
            json!([{"op": "test", "path": "/d", "value": null}, {"op": "add", "path": "/d", "value": ["f"]}]),
            json!({"a": {"b": [1, 2]}, "c": "x", "d": ["f"]}),
        ),
        (json!([{"op": "test", "path": "/d"}]), object.clone()),
        (json!([{"op": "replace", "path": "/d", "value": 1}]), json!({"a": {"b": [1, 2]}, "c": "x", "d": 1})),
        (json!([{"op": "copy", "from": "/d", "path": "/e"}]), json!({"a": {"b": [1, 2]}, "c": "x", "e": null})),
        (json!([{"op": "add", "path": "/a/b/-1", "value": 3}]), json!({"a": {"b": [1, 2, 3]}, "c": "x"})),
        (json!([{"op": "add", "path": "/a/b/-3", "value": 0}]), json!({"a": {"b": [0, 1, 2]}, "c": "x"})),
        (json!([{"op": "replace", "path": "/a/b/-1", "value": 3}]), json!({"a": {"b": [1, 3]}, "c": "x"})),
        (json!([{"op": "remove", "path": "/a/b/-2"}]), json!({"a": {"b": [2]}, "c": "x"})),
        (json!([{"op": "remove", "path": "/a/b/01"}]), json!({"a": {"b": [1]}, "c": "x"})),
        (json!([{"op": "test", "path": "", "value": object}, {"op": "replace", "path": "", "value": {"z": 1}}]), json!({"z": 1})),
    ] {
        assert_eq!(json(&object, &patch), Ok(wanted), "{patch}");
    }
}

#[test]
fn json_patches_fail_in_three_ways() {
    let object = json!({"a": 1, "l": [1, 2]});
    for patch in [
        json!([{"op": "test", "path": "/a", "value": 2}]),
        json!([{"op": "test", "path": "/a"}]),
        json!([{"op": "test", "path": "/b", "value": 2}]),
        json!([{"op": "test", "path": "", "value": {}}]),
    ] {
        assert!(matches!(json(&object, &patch), Err(PatchError::TestFailed(_))), "{patch}");
    }
    for patch in [
        json!([{"op": "test", "path": "/b/c", "value": null}]),
        json!([{"op": "remove", "path": "/b"}]),
        json!([{"op": "replace", "path": "/b/c", "value": 1}]),
        json!([{"op": "replace", "path": "", "value": 1}]),
        json!([{"op": "add", "path": "/b/c", "value": 1}]),
        json!([{"op": "add", "path": "/l/3", "value": 1}]),
        json!([{"op": "add", "path": "/l/-4", "value": 1}]),
        json!([{"op": "replace", "path": "/l/2", "value": 1}]),
        json!([{"op": "replace", "path": "/l/-", "value": 1}]),
        json!([{"op": "remove", "path": "/l/-3"}]),
        json!([{"op": "remove", "path": "/l/x"}]),
        json!([{"op": "test", "path": "/l/2", "value": null}]),
        json!([{"op": "copy", "from": "/x/y", "path": "/b"}]),
        json!([{"op": "copy", "path": "/b"}]),
        json!([{"op": "move", "from": "/x", "path": "/b"}]),
        json!([{"op": "move", "from": "/l", "path": "/l/0"}]),
        json!([{"op": "add", "path": "/a/b/c", "value": 1}]),
        json!([{"op": "add", "path": "", "value": {}}]),
        json!([{"op": "add", "path": "a", "value": 1}]),
        json!([{"op": "add", "value": 1}]),
        json!([{"op": "frob", "path": "/a"}]),
        json!([{}]),
    ] {
        assert!(matches!(json(&object, &patch), Err(PatchError::NotApplicable(_))), "{patch}");
    }
    for patch in [json!({}), json!("x"), json!([{"op": "add", "path": 1, "value": 1}]), json!([["add", "/a", null, 1]]), json!([1])] {
        assert!(matches!(json(&object, &patch), Err(PatchError::Malformed(_))), "{patch}");
    }
}

#[test]
fn json_patches_are_bounded() {
    let operation = json!({"op": "add", "path": "/a", "value": 1});
    let many = Value::Array(vec![operation; OPERATIONS_MAX + 1]);
    assert_eq!(json(&json!({}), &many), Err(PatchError::TooManyOperations(OPERATIONS_MAX + 1)));
    let mut doubling = vec![json!({"op": "add", "path": "/a", "value": ["x".repeat(1000)]})];
    doubling.extend((0..100).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/-"})));
    assert!(matches!(json(&json!({}), &Value::Array(doubling)), Err(PatchError::CopyTooLarge(_))));
}

/// Each pair of moves wraps the object once more. An object after thousands of them could not be stored and read again,
/// and code that walks it would exhaust its stack.
#[test]
fn json_patches_do_not_pile_up_without_end() {
    let wrap = [
        json!({"op": "add", "path": "/b", "value": {}}),
        json!({"op": "move", "from": "/a", "path": "/b/c"}),
        json!({"op": "move", "from": "/b", "path": "/a"}),
    ];
    let tower = |levels: usize| Value::Array(wrap.iter().cycle().take(3 * levels).cloned().collect());
    let object = json!({"a": {}});
    let allowed = json(&object, &tower(100)).expect("fits");
    assert_eq!(depth(&allowed), 102);
    assert!(matches!(json(&object, &tower(3_000)), Err(PatchError::NotApplicable(_))));
    // Many moves that do not nest the object are allowed.
    let swap = [json!({"op": "move", "from": "/a", "path": "/b"}), json!({"op": "move", "from": "/b", "path": "/a"})];
    let swaps = Value::Array(swap.iter().cycle().take(9_000).cloned().collect());
    assert_eq!(json(&object, &swaps), Ok(object.clone()));
}

/// Measuring the nesting of a large object takes time in proportion to the object. Ten thousand measurements would take
/// a minute of CPU time.
#[test]
fn many_moves_in_a_large_and_deep_object_cost_little() {
    let deep = (0..DEPTH_MAX - 3).fold(json!([]), |inner, _| json!([inner]));
    let large = Value::Array(vec![json!([]); 500_000]);
    let mut operations = vec![json!({"op": "add", "path": "/a", "value": {"deep": deep, "large": large}})];
    let swap = [json!({"op": "move", "from": "/a", "path": "/b"}), json!({"op": "move", "from": "/b", "path": "/a"})];
    operations.extend(swap.iter().cycle().take(3_000).cloned());
    let began = std::time::Instant::now();
    assert!(matches!(json(&json!({}), &Value::Array(operations)), Err(PatchError::NotApplicable(_))));
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn merge_patches_follow_upstream() {
    for (object, patch, wanted) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        (json!({"a": [1]}), json!({"a": [{"b": null, "c": 1}, null]}), json!({"a": [{"c": 1}, null]})),
        (json!({"a": null}), json!({"a": {"b": null}}), json!({"a": {}})),
    ] {
        assert_eq!(merge(&object, &patch), Ok(wanted), "{object} {patch}");
    }
    assert!(merge(&json!({}), &json!(["x"])).is_err());
}

fn pod() -> &'static Schema {
    api_schema::of_gvk("", "v1", "Pod").expect("served")
}

/// A Pod with a list of containers.
fn with(containers: Value) -> Value {
    json!({"spec": {"containers": containers}})
}

#[test]
fn lists_of_maps_merge_by_their_key() {
    let before = with(json!([{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}]));
    for (patch, wanted) in [
        (
            with(json!([{"name": "b", "image": "2"}])),
            with(json!([{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "2"}])),
        ),
        (
            with(json!([{"name": "c", "image": "1"}])),
            with(
                json!([{"name": "c", "image": "1"}, {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}]),
            ),
        ),
        (
            with(json!([{"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": null}]}])),
            with(json!([{"name": "a", "image": "1", "env": [{"name": "Y", "value": "2"}, {"name": "X"}]}, {"name": "b", "image": "1"}])),
        ),
        (with(json!([{"$patch": "delete", "name": "a"}])), with(json!([{"name": "b", "image": "1"}]))),
        (with(json!([{"$patch": "replace"}, {"name": "z"}])), with(json!([{"name": "z"}]))),
        (with(json!([{"$patch": "replace"}])), with(json!([]))),
    ] {
        assert_eq!(strategic(pod(), &before, &patch), Ok(wanted), "{patch}");
    }
}

#[test]
fn maps_obey_their_directives() {
    for (before, patch, wanted) in [
        (
            json!({"metadata": {"labels": {"a": "1"}}}),
            json!({"metadata": {"labels": {"$patch": "replace", "b": "2"}}}),
            json!({"metadata": {"labels": {"b": "2"}}}),
        ),
        (
            json!({"metadata": {"labels": {"a": "1"}}}),
            json!({"metadata": {"labels": {"$patch": "delete"}}}),
            json!({"metadata": {"labels": {}}}),
        ),
        (
            json!({"metadata": {"labels": {"a": "1"}}}),
            json!({"metadata": {"labels": {"$patch": "merge", "b": "2"}}}),
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
        ),
        (json!({"metadata": {"labels": {"a": "1"}}}), json!({"metadata": {"labels": {"a": null}}}), json!({"metadata": {"labels": {}}})),
        (
            json!({"metadata": {}}),
            json!({"metadata": {"labels": {"$patch": "merge", "a": "1", "b": null}}}),
            json!({"metadata": {"labels": {"a": "1"}}}),
        ),
        (
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}}),
        ),
    ] {
        assert_eq!(strategic(pod(), &before, &patch), Ok(wanted), "{patch}");
    }
}

#[test]
fn lists_of_primitives_are_sets_where_the_schema_says_so() {
    let before = json!({"metadata": {"finalizers": ["a/1", "b/2"]}, "spec": {"containers": [{"name": "a", "args": ["x", "y"]}]}});
    let patched = |patch: Value| strategic(pod(), &before, &patch);
    assert_eq!(
        patched(json!({"metadata": {"finalizers": ["c/3", "a/1"]}})).map(|o| o.pointer("/metadata/finalizers").cloned()),
        Ok(Some(json!(["c/3", "a/1", "b/2"])))
    );
    assert_eq!(
        patched(json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/1"]}})).map(|o| o.pointer("/metadata/finalizers").cloned()),
        Ok(Some(json!(["b/2"])))
    );
    assert_eq!(
        patched(json!({"spec": {"containers": [{"name": "a", "args": ["z"]}]}})).map(|o| o.pointer("/spec/containers/0/args").cloned()),
        Ok(Some(json!(["z"]))),
        "an atomic list is replaced"
    );
}

#[test]
fn element_order_is_the_patchs_and_strangers_keep_their_positions() {
    let names = |list: &[&str]| Value::Array(list.iter().map(|name| json!({"name": name})).collect());
    for (before, patch, order, wanted) in [
        (&["a", "b", "c"][..], &[][..], &["c", "b", "a"][..], &["c", "b", "a"][..]),
        (&["a", "b"], &["c"], &["a", "c", "b"], &["a", "c", "b"]),
        (&["x", "a", "b"], &["c"], &["c", "a", "b"], &["c", "x", "a", "b"]),
        (&["a", "x", "b"], &["c"], &["a", "b", "c"], &["a", "x", "b", "c"]),
        (&["a", "b", "x"], &[], &["b", "a"], &["b", "a", "x"]),
    ] {
        let mut spec = Map::new();
        if !patch.is_empty() {
            spec.insert("containers".to_owned(), names(patch));
        }
        spec.insert("$setElementOrder/containers".to_owned(), names(order));
        let result = strategic(pod(), &with(names(before)), &json!({"spec": spec}));
        assert_eq!(result, Ok(with(names(wanted))), "{before:?} {patch:?} {order:?}");
    }
    let contradiction =
        json!({"spec": {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}], "containers": [{"name": "b"}, {"name": "a"}]}});
    assert!(matches!(strategic(pod(), &with(json!([])), &contradiction), Err(PatchError::Malformed(_))));
}

#[test]
fn rejects_malformed_strategic_patches() {
    for patch in [
        json!([]),
        json!({"spec": {"$patch": "frob"}}),
        json!({"spec": {"containers": [{"image": "x"}]}}),
        json!({"spec": {"containers": [{"$patch": "delete"}]}}),
        json!({"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}),
        json!({"spec": {"$setElementOrder/containers": {}}}),
        json!({"spec": {"$retainKeys": ["x"], "nodeName": "y"}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}}),
    ] {
        let mut before = with(json!([{"name": "a"}]));
        before["metadata"] = json!({});
        let result = strategic(pod(), &before, &patch);
        assert!(matches!(result, Err(PatchError::Malformed(_))), "{patch}: {result:?}");
    }
}

#[test]
fn long_lists_cost_little() {
    let list = |prefix: &str| Value::Array((0..20_000).map(|n| json!({"name": format!("{prefix}{n}"), "value": "x"})).collect());
    let env = |list: Value| with(json!([{"name": "a", "env": list}]));
    let start = std::time::Instant::now();
    let merged = strategic(pod(), &env(list("a")), &env(list("b"))).expect("merges");
    assert!(start.elapsed() < std::time::Duration::from_secs(20));
    assert_eq!(merged.pointer("/spec/containers/0/env").and_then(Value::as_array).map(Vec::len), Some(40_000));
}

/// Any JSON value of a small size.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5..5_i64).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 30, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map("[a-d]", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_map() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-d]", any_json(), 0..5).prop_map(|map| Value::Object(map.into_iter().collect()))
}

/// The merge patch from one object to another; `None` where the target has a null, which no merge patch can set.
fn diff(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(a), Value::Object(b)) = (from, to) else {
        return None;
    };
    let mut patch = Map::new();
    for key in a.keys().filter(|key| !b.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in b {
        match (a.get(key), value) {
            (_, Value::Null) => return None,
            (Some(old), new) if old == new => {}
            (Some(old @ Value::Object(_)), new @ Value::Object(_)) => {
                patch.insert(key.clone(), diff(old, new)?);
            }
            (_, new) if holds_null(new) => return None,
            (_, new) => {
                patch.insert(key.clone(), new.clone());
            }
        }
    }
    Some(Value::Object(patch))
}

fn null_in_list(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.values().any(null_in_list),
        Value::Array(list) => list.iter().any(|item| holds_null(item) || null_in_list(item)),
        _ => false,
    }
}

fn holds_null(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.values().any(|value| value.is_null() || holds_null(value)),
        Value::Array(list) => list.iter().any(holds_null),
        _ => false,
    }
}

proptest! {
    #[test]
    fn merging_a_difference_gives_the_other(from in any_map(), to in any_map()) {
        if let Some(patch) = diff(&from, &to) {
            prop_assert_eq!(merge(&from, &patch), Ok(to));
        }
    }

    #[test]
    fn merging_twice_is_merging_once(object in any_map(), patch in any_map()) {
        let once = merge(&object, &patch).expect("a map");
        prop_assert_eq!(merge(&once, &patch), Ok(once.clone()));
    }

    #[test]
    fn strategic_without_lists_is_a_merge(object in any_map(), patch in any_map()) {
        // Unknown fields have no merge keys, so lists are replaced in both. Nulls inside them differ.
        prop_assume!(!null_in_list(&patch));
        let wanted = merge(&object, &patch).expect("a map");
        prop_assert_eq!(strategic(pod(), &object, &patch), Ok(wanted));
    }

    #[test]
    fn strategic_patches_of_containers_are_idempotent(
        before in prop::collection::btree_set("[a-f]", 0..6),
        change in prop::collection::btree_set("[a-h]", 0..6),
    ) {
        let list = |names: &std::collections::BTreeSet<String>, image: &str| with(names.iter().map(|name| json!({"name": name, "image": image})).collect());
        let patch = list(&change, "new");
        let once = strategic(pod(), &list(&before, "old"), &patch).expect("merges");
        prop_assert_eq!(strategic(pod(), &once, &patch), Ok(once.clone()));
        let count = before.union(&change).count();
        prop_assert_eq!(once.pointer("/spec/containers").and_then(Value::as_array).map(Vec::len), Some(count));
    }

    #[test]
    fn no_json_patch_panics(object in any_json(), patch in any_json()) {
        let _any_answer = json(&object, &patch);
        let _any_answer = json(&object, &json!([{"op": "add", "path": "/a", "value": patch}]));
    }
}
