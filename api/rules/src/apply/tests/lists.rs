//! Lists with keys, sets and atomic lists; unknown types; values that do not fit their type.

use super::*;

fn container(name: &str, rest: Value) -> Value {
    let mut container = rest;
    container["name"] = name.into();
    container
}

#[test]
fn keys_identify_elements() {
    let mut story = Story::for_resource("apps", "deployments");
    story.apply("a", deployment(None, json!([container("app", json!({"image": "i"})), container("log", json!({"image": "l"}))])));
    story.apply("b", json!({"spec": {"template": {"spec": {"containers": [container("mesh", json!({"image": "m"}))]}}}}));
    story.apply("b", json!({"spec": {"template": {"spec": {"containers": [container("mesh", json!({"image": "m"})), container("app", json!({"env": [{"name": "E", "value": "1"}]}))]}}}}));
    let names = |story: &Story| {
        let containers = story.at("/spec/template/spec/containers");
        containers.as_array().expect("a list").iter().map(|c| c["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&story), ["log", "mesh", "app"]);
    assert_eq!(story.at("/spec/template/spec/containers/2"), json!({"name": "app", "image": "i", "env": [{"name": "E", "value": "1"}]}));
    assert_eq!(
        story.conflict("b", json!({"spec": {"template": {"spec": {"containers": [container("app", json!({"image": "other"}))]}}}})),
        "Apply failed with 1 conflict: conflict with \"a\": .spec.template.spec.containers[name=\"app\"].image"
    );
    // b gives up all of its fields. The element that a also owns stays, without the fields of b.
    story.apply("b", json!({}));
    assert_eq!(names(&story), ["log", "app"]);
    assert_eq!(story.at("/spec/template/spec/containers/1"), json!({"name": "app", "image": "i"}));
}

#[test]
fn a_key_that_is_left_out_has_its_default() {
    let mut story = Story::for_resource("", "services");
    story.apply("a", json!({"spec": {"ports": [{"port": 53}, {"port": 53, "protocol": "UDP"}]}}));
    story.object.as_mut().expect("applied")["spec"]["ports"][0]["protocol"] = "TCP".into();
    story.apply("a", json!({"spec": {"ports": [{"port": 53, "protocol": "UDP", "name": "u"}, {"port": 53, "name": "t"}]}}));
    assert_eq!(
        story.at("/spec/ports"),
        json!([{"port": 53, "protocol": "UDP", "name": "u"}, {"port": 53, "protocol": "TCP", "name": "t"}])
    );
    assert_eq!(
        story.owners(),
        ["a Apply: .spec.ports[port=53,protocol=\"TCP\"] .spec.ports[port=53,protocol=\"UDP\"] \
          .spec.ports[port=53,protocol=\"TCP\"].name .spec.ports[port=53,protocol=\"TCP\"].port \
          .spec.ports[port=53,protocol=\"UDP\"].name .spec.ports[port=53,protocol=\"UDP\"].port .spec.ports[port=53,protocol=\"UDP\"].protocol"]
    );
}

#[test]
fn elements_that_are_not_mentioned_keep_their_position() {
    let cases: [(&[&str], &[&str], &[&str]); 6] = [
        (&["a", "b", "c"], &["b"], &["a", "b", "c"]),
        (&["a", "b", "c"], &["c", "a"], &["b", "c", "a"]),
        (&["a", "c"], &["a", "b", "c"], &["a", "b", "c"]),
        (&["a", "x", "c"], &["a", "b", "c"], &["a", "x", "b", "c"]),
        (&["x"], &["a"], &["x", "a"]),
        (&[], &["b", "a"], &["b", "a"]),
    ];
    for (live, stated, expected) in cases {
        let mut story = Story::config_map();
        story.put("u", json!({"metadata": {"finalizers": live}}));
        story.force("a", json!({"metadata": {"finalizers": stated}}));
        assert_eq!(story.at("/metadata/finalizers"), json!(expected), "{live:?} and {stated:?}");
    }
}

#[test]
fn each_element_of_a_set_is_owned_for_itself() {
    let mut story = Story::config_map();
    story.apply("a", json!({"metadata": {"finalizers": ["a/1", "b/2"]}})).apply("b", json!({"metadata": {"finalizers": ["b/2", "c/3"]}}));
    assert_eq!(
        story.owners(),
        [
            "a Apply: .metadata.finalizers[=\"a/1\"] .metadata.finalizers[=\"b/2\"]",
            "b Apply: .metadata.finalizers[=\"b/2\"] .metadata.finalizers[=\"c/3\"]"
        ]
    );
    story.apply("a", json!({}));
    assert_eq!(story.at("/metadata/finalizers"), json!(["b/2", "c/3"]));
}

#[test]
fn an_atomic_list_or_map_is_owned_whole() {
    let mut story = Story::for_resource("apps", "deployments");
    let with = |args: Value| json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "args": args}]}}}});
    story.apply("a", with(json!(["x", "y"])));
    assert!(story.owners()[0].contains("[name=\"c\"].args"), "{:?}", story.owners());
    assert!(story.conflict("b", with(json!(["x"]))).ends_with(".spec.template.spec.containers[name=\"c\"].args"));
    story.force("b", with(json!(["z"])));
    assert_eq!(story.at("/spec/template/spec/containers/0/args"), json!(["z"]));
    // A selector is atomic too.
    let selecting = |labels: Value| json!({"spec": {"selector": {"matchLabels": labels}}});
    story.apply("a", selecting(json!({"x": "1"})));
    assert!(story.conflict("b", selecting(json!({"y": "1"}))).ends_with("conflict with \"a\": .spec.selector"));
}

#[test]
fn without_a_schema_objects_are_granular_and_lists_whole() {
    let mut kind = (**kind::find("", "configmaps").expect("served")).clone();
    (kind.group, kind.kind, kind.plural) = ("example.org".to_owned(), "Cactus".to_owned(), "cacti".to_owned());
    let mut story = Story { kind: std::sync::Arc::new(kind), sub: None, object: None, clock: 0 };
    story.apply("a", json!({"metadata": {"finalizers": ["a/b"]}, "spec": {"size": {"height": 3}, "spines": [{"name": "long"}]}}));
    assert_eq!(story.owners(), ["a Apply: .spec .metadata.finalizers[=\"a/b\"] .spec.size .spec.spines .spec.size.height"]);
    let refused = story.conflict("b", json!({"spec": {"size": {"height": 4, "width": 1}, "spines": []}}));
    assert_eq!(refused, "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.spines\n- .spec.size.height");
    story.apply("b", json!({"spec": {"size": {"width": 1}}})).apply("b", json!({}));
    assert_eq!(story.at("/spec/size"), json!({"height": 3}));
}

#[test]
fn a_configuration_must_fit_its_type() {
    let story = Story::for_resource("apps", "deployments");
    let cases = [
        (json!({"spec": {"colour": 1}}), ".spec.colour: field not declared in schema"),
        (json!({"spec": {"replicas": "3"}}), ".spec.replicas: expected numeric (int or float), got \"3\""),
        (json!({"spec": {"template": []}}), ".spec.template: expected map, got []"),
        (
            json!({"spec": {"template": {"spec": {"containers": [{"image": "i"}]}}}}),
            ".spec.template.spec.containers: element 0: associative list with keys has an element that omits key field \"name\" (and doesn't have default value)",
        ),
        (
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "imge": "i"}, {"name": "c"}]}}}}),
            "errors:\n  .spec.template.spec.containers[name=\"c\"].imge: field not declared in schema\n  \
             .spec.template.spec.containers: duplicate entries for key [name=\"c\"]",
        ),
        (
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "args": [1]}]}}}}),
            ".spec.template.spec.containers[name=\"c\"].args[0]: expected string, got 1",
        ),
    ];
    for (config, expected) in cases {
        assert_eq!(complaint(Typing::new(&story.kind), &story.named(config)).as_deref(), Some(expected));
    }
    let mut twice = Story::for_resource("", "services");
    twice.put("u", json!({"spec": {"ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]}}));
    assert_eq!(twice.owners(), ["u Update: .spec.ports .spec.ports[port=1,protocol=\"TCP\"]"]);
}
