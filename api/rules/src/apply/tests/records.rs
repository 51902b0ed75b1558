//! The entries in `managedFields` after creates, updates and patches.

use super::*;

#[test]
fn a_new_object_belongs_to_who_made_it() {
    let mut story = Story::for_resource("apps", "deployments");
    story.put("kubectl-create", deployment(Some(1), json!([{"name": "c", "image": "i", "resources": {}}])));
    insta::assert_json_snapshot!(story.at("/metadata/managedFields"));
}

#[test]
fn an_update_owns_what_it_changed() {
    let mut story = Story::config_map();
    story.put("a", json!({"data": {"k": "1", "l": "1", "m": "1"}}));
    story.put("b", json!({"metadata": {"labels": {"x": "y"}}, "data": {"k": "2", "l": "1"}}));
    assert_eq!(story.owners(), ["a Update: .data .data.l", "b Update: .data.k .metadata.labels .metadata.labels.x"]);
    // A write without a change does not change the time.
    let before = story.at("/metadata/managedFields");
    story.put("c", json!({"metadata": {"labels": {"x": "y"}}, "data": {"k": "2", "l": "1"}}));
    assert_eq!(story.at("/metadata/managedFields"), before);
    story.put("a", json!({"data": {"k": "3", "l": "1"}}));
    assert_eq!(story.owners(), ["a Update: .data .data.k .data.l"]);
    assert_eq!(story.at("/metadata/managedFields/0/time"), "2026-01-01T00:00:04Z");
}

#[test]
fn doors_have_entries_of_their_own() {
    let mut story = Story::for_resource("apps", "deployments");
    story.put("c", deployment(Some(1), json!([])));
    story.sub = Some("status");
    let mut changed = deployment(Some(9), json!([]));
    changed["status"] = json!({"replicas": 1});
    changed["metadata"] = json!({"labels": {"not": "ours"}});
    story.put("c", changed);
    assert_eq!(story.owners().last().map(String::as_str), Some("c Update/status: .status.replicas"));
    let entries = story.at("/metadata/managedFields");
    assert_eq!(entries.as_array().map(Vec::len), Some(2), "{entries}");
}

#[test]
fn users_may_set_and_clear_managers_on_the_main_resource_alone() {
    let mut story = Story::config_map();
    story.put("a", json!({"data": {"k": "1"}}));
    let entries = |manager: &str| json!([{"manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}}]);
    story.put("u", json!({"metadata": {"managedFields": entries("b")}, "data": {"k": "1"}}));
    assert_eq!(story.owners(), ["b Apply: .data.k"]);
    for invalid in
        [json!([{"manager": "x"}]), json!([{"manager": "x", "operation": "Steal", "apiVersion": "v1", "fieldsType": "FieldsV1"}, {}])]
    {
        story.put("u", json!({"metadata": {"managedFields": invalid}, "data": {"k": "1"}}));
        assert_eq!(story.owners(), ["b Apply: .data.k"]);
    }
    story.sub = Some("status");
    story.put("u", json!({"metadata": {"managedFields": []}, "data": {"k": "1"}}));
    assert_eq!(story.owners(), ["b Apply: .data.k"]);
    story.sub = None;
    for empty in [json!([]), json!([{}])] {
        story.apply("b", json!({"data": {"k": "1"}}));
        story.put("u", json!({"metadata": {"managedFields": empty}, "data": {"k": "1"}}));
        assert_eq!(story.at("/metadata/managedFields"), Value::Null);
    }
    // Managers are not recorded until the next apply.
    story.put("u", json!({"data": {"k": "2"}}));
    assert_eq!(story.at("/metadata/managedFields"), Value::Null);
}

#[test]
fn the_oldest_updates_are_gathered() {
    let mut story = Story::config_map();
    let mut data = serde_json::Map::new();
    for at in 0..14 {
        data.insert(format!("k{at:02}"), "v".into());
        story.put(&format!("m{at:02}"), json!({ "data": data }));
    }
    story.apply("applier", json!({"data": {"k13": "v"}}));
    let owners = story.owners();
    assert_eq!(owners.len(), 11, "{owners:#?}");
    assert_eq!(owners[0], "applier Apply: .data.k13");
    assert_eq!(owners[1], "ancient-changes Update: .data .data.k00 .data.k01 .data.k02 .data.k03 .data.k04");
    assert_eq!(owners[2], "m05 Update: .data.k05");
}

#[test]
fn times_alone_are_no_change() {
    let mut story = Story::config_map();
    story.apply("a", json!({"data": {"k": "1"}}));
    let old = story.object().clone();
    let with_time = |data: &str| {
        let mut new = old.clone();
        new["metadata"]["managedFields"][0]["time"] = "2027-01-01T00:00:00Z".into();
        new["metadata"]["resourceVersion"] = "7".into();
        new["data"]["k"] = data.into();
        new
    };
    for (data, time) in [("1", "2026-01-01T00:00:01Z"), ("2", "2027-01-01T00:00:00Z")] {
        let mut new = with_time(data);
        keep_times(&old, &mut new);
        assert_eq!(new["metadata"]["managedFields"][0]["time"], time);
    }
}

/// The fast path of [`record`] has the same result as the slow path.
#[test]
fn who_changes_their_own_again_is_recorded_like_everybody() {
    let base = json!({"metadata": {"labels": {"l": "1"}}, "data": {"a": "1", "b": "1"}});
    let changes = [
        ("one", json!({"metadata": {"labels": {"l": "1"}}, "data": {"a": "2", "b": "2"}}), true),
        ("one", base.clone(), true),
        ("two", base.clone(), true),
        ("one", json!({"metadata": {"labels": {"l": "1"}}, "data": {"a": "2", "b": "1"}}), true),
        ("two", json!({"metadata": {"labels": {"l": "1"}}, "data": {"a": "2", "b": "1"}}), false),
        ("one", json!({"metadata": {"labels": {"l": "1"}}, "data": {"a": "1", "b": "1", "c": "1"}}), false),
    ];
    for seconds in [&[][..], &["two"], &["two", "three"]] {
        let mut story = Story::config_map();
        story.put("one", base.clone());
        for (at, second) in seconds.iter().enumerate() {
            let mut object = story.object().clone();
            object["data"][format!("of-{second}")] = at.into();
            story.put(second, object);
        }
        for (manager, change, is_short) in &changes {
            let target = Target::new(&story.kind, None);
            let (old, mut new) = (story.object(), story.object().clone());
            new["metadata"]["labels"] = change["metadata"]["labels"].clone();
            for (key, value) in change["data"].as_object().expect("a map") {
                new["data"][key] = value.clone();
            }
            take(&mut new);
            let (id, now) = (target.id(manager, Operation::Update), "2026-01-01T00:00:59Z");
            let comparison = compare::objects(target.typing, old, &new, &target.scope);
            let short = managers::changed_again(managers::stated(old).expect("entries"), &id, &comparison.changed, now);
            assert_eq!(short.is_some(), *is_short, "{manager} {change} after {seconds:?}");
            let mut managers = Managers::from_object(old);
            update(&mut managers, id, comparison, now);
            managers.write(&mut new);
            if short.is_some() {
                assert_eq!(short.as_ref(), managers::stated(&new), "{manager} {change} after {seconds:?}");
            }
        }
    }
}
