use super::*;
use serde_json::Value;

fn endpoints(metadata: Value, subsets: Value) -> Endpoints {
    let mut whole = json!({"name": "db", "namespace": "ns", "uid": "e"});
    meta::overlay(&mut whole, &metadata);
    serde_json::from_value(json!({"metadata": whole, "subsets": subsets})).expect("Endpoints")
}

fn addresses(count: usize) -> Vec<Value> {
    (0..count).map(|number| json!({"ip": format!("10.{}.{}.{}", number / 62500, number / 250 % 250, number % 250)})).collect()
}

/// Applies a plan to slices, as the server does.
fn after(slices: &[Arc<EndpointSlice>], actions: Vec<Action>) -> Vec<Arc<EndpointSlice>> {
    let mut slices = slices.to_vec();
    for action in actions {
        match action {
            Action::Create(mut slice) => {
                slice.metadata.name = Some(format!("db-{}", slices.len()));
                slices.push(Arc::from(slice));
            }
            Action::Change { slice, patch } => {
                let mut value = json!(slice.as_ref());
                for field in ["endpoints", "ports"] {
                    if let Some(new) = patch.get(field) {
                        value[field] = new.clone();
                    }
                }
                if let Some(metadata) = patch.get("metadata") {
                    meta::overlay(&mut value["metadata"], metadata);
                }
                let index = slices.iter().position(|other| other.metadata.name == slice.metadata.name).expect("there");
                let without_null = |map: &mut Value| map.as_object_mut().map(|map| map.retain(|_, value| !value.is_null()));
                without_null(&mut value["metadata"]["labels"]);
                without_null(&mut value["metadata"]["annotations"]);
                slices[index] = Arc::new(serde_json::from_value(value).expect("a slice"));
            }
            Action::Delete(slice) => slices.retain(|other| other.metadata.name != slice.metadata.name),
        }
    }
    slices
}

/// The kinds of the writes.
fn kinds(actions: &[Action]) -> Vec<&'static str> {
    let kind = |action: &Action| match action {
        Action::Create(_) => "create",
        Action::Change { .. } => "change",
        Action::Delete(_) => "delete",
    };
    actions.iter().map(kind).collect()
}

/// The slices of Endpoints with addresses of both families.
fn both_families() -> Vec<Arc<EndpointSlice>> {
    let metadata = json!({"labels": {"app": "db"}, "annotations": {"note": "x", LAST_CHANGE: "2024-01-01T00:00:00Z", LAST_APPLIED: "{}"}});
    let subsets = json!([{
        "addresses": [{"ip": "010.0.0.2", "hostname": "two", "nodeName": "n1"}, {"ip": "fd00::1"}],
        "notReadyAddresses": [{"ip": "::ffff:10.0.0.3", "targetRef": {"kind": "Pod", "name": "p"}}],
        "ports": [{"name": "sql", "port": 5432, "protocol": "TCP", "appProtocol": "pg"}],
    }]);
    after(&[], plan(&endpoints(metadata, subsets), vec![]).actions)
}

#[test]
fn endpoints_become_a_slice_for_each_family() {
    insta::assert_json_snapshot!(both_families().iter().map(|slice| json!([slice.address_type, slice.endpoints])).collect::<Vec<_>>(), @r#"
    [
      [
        "IPv4",
        [
          {
            "addresses": [
              "10.0.0.2"
            ],
            "conditions": {
              "ready": true
            },
            "hostname": "two",
            "nodeName": "n1"
          },
          {
            "addresses": [
              "10.0.0.3"
            ],
            "conditions": {
              "ready": false
            },
            "targetRef": {
              "kind": "Pod",
              "name": "p"
            }
          }
        ]
      ],
      [
        "IPv6",
        [
          {
            "addresses": [
              "fd00::1"
            ],
            "conditions": {
              "ready": true
            }
          }
        ]
      ]
    ]
    "#);
}

#[test]
fn a_slice_has_the_labels_and_annotations_of_the_endpoints() {
    let made = both_families();
    let first = made.first().expect("a slice");
    insta::assert_json_snapshot!(json!([first.metadata, first.ports]), @r#"
    [
      {
        "annotations": {
          "note": "x"
        },
        "generateName": "db-",
        "labels": {
          "app": "db",
          "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
          "kubernetes.io/service-name": "db"
        },
        "name": "db-0",
        "namespace": "ns",
        "ownerReferences": [
          {
            "apiVersion": "v1",
            "blockOwnerDeletion": true,
            "controller": true,
            "kind": "Endpoints",
            "name": "db",
            "uid": "e"
          }
        ]
      },
      [
        {
          "appProtocol": "pg",
          "name": "sql",
          "port": 5432,
          "protocol": "TCP"
        }
      ]
    ]
    "#);
}

#[test]
fn changes_are_as_few_as_possible() {
    let subset = |ips: Value, port: i32| json!([{"addresses": ips, "ports": [{"port": port}]}]);
    let first = endpoints(json!({"labels": {"a": "1"}}), subset(json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]), 80));
    let made = after(&[], plan(&first, vec![]).actions);
    assert_eq!(plan(&first, made.clone()).actions, []);
    let reordered = endpoints(json!({"labels": {"a": "1"}}), subset(json!([{"ip": "10.0.0.2"}, {"ip": "10.0.0.1"}]), 80));
    assert_eq!(plan(&reordered, made.clone()).actions, [], "the order makes no difference");
    let cases = [
        (json!({"labels": {"a": "1"}}), subset(json!([{"ip": "10.0.0.1"}]), 80), json!(["endpoints"])),
        (json!({"labels": {"a": "2"}}), subset(json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]), 80), json!(["metadata"])),
        (
            json!({"labels": {"a": "1"}, "annotations": {"x": "y"}}),
            subset(json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]), 80),
            json!(["metadata"]),
        ),
        // The slice of the old ports becomes that of the new ones.
        (json!({"labels": {"a": "1"}}), subset(json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]), 81), json!(["ports"])),
    ];
    for (metadata, subsets, fields) in cases {
        let new = endpoints(metadata, subsets);
        let actions = plan(&new, made.clone()).actions;
        let [Action::Change { patch, .. }] = actions.as_slice() else { panic!("{actions:?}") };
        assert_eq!(json!(patch.as_object().expect("an object").keys().collect::<Vec<_>>()), fields);
        assert_eq!(plan(&new, after(&made, actions)).actions, [], "one pass is enough");
    }
    let sixth = endpoints(json!({}), subset(json!([{"ip": "fd00::1"}]), 80));
    assert_eq!(kinds(&plan(&sixth, made.clone()).actions), ["create", "delete"], "a slice keeps its family");
    assert_eq!(kinds(&plan(&endpoints(json!({}), json!([])), made.clone()).actions), ["delete"]);
    let twice = [made.as_slice(), &[copy(&made[0], "db-9")]].concat();
    assert_eq!(kinds(&plan(&first, twice).actions), ["delete"], "one slice is enough");
    let mut leaving = sixth;
    leaving.metadata.deletion_timestamp = Some(meta::whole_seconds(jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(kinds(&plan(&leaving, vec![]).actions), Vec::<&str>::new(), "nothing new for Endpoints that are going");
}

fn copy(slice: &EndpointSlice, name: &str) -> Arc<EndpointSlice> {
    let mut copy = slice.clone();
    copy.metadata.name = Some(name.to_owned());
    Arc::new(copy)
}

#[test]
fn a_thousand_addresses_of_a_subset_and_no_more() {
    let mut many = addresses(1200);
    many[0] = json!({"ip": "nowhere"});
    let subsets = json!([{"addresses": many, "ports": [{"port": 80}]}, {"notReadyAddresses": addresses(3), "ports": [{"port": 81}]}]);
    let Mirror { actions, warnings } = plan(&endpoints(json!({}), subsets), vec![]);
    let counts: Vec<usize> = after(&[], actions).iter().map(|slice| slice.endpoints.iter().flatten().count()).collect();
    assert_eq!(counts, [1000, 3]);
    let invalid = "Skipped 1 invalid IP addresses when mirroring to EndpointSlices";
    let too_many = "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. 200 addresses were skipped";
    assert_eq!(warnings, [("InvalidIPAddress", invalid.to_owned()), ("TooManyAddressesToMirror", too_many.to_owned())]);
}

#[test]
fn endpoints_can_exclude_themselves() {
    let mirrored = |metadata: Value| is_mirrored(&endpoints(metadata, json!([])));
    assert!(mirrored(json!({})));
    assert!(mirrored(json!({"labels": {SKIP_MIRROR: "false"}})));
    assert!(!mirrored(json!({"labels": {SKIP_MIRROR: "true"}})));
    assert!(!mirrored(json!({"annotations": {LEADER: "{}"}})));
}
