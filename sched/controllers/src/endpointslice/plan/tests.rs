use super::*;

fn service(extra: Value) -> Service {
    let mut spec = json!({"clusterIP": "10.96.0.5", "selector": {"app": "web"}, "ipFamilies": ["IPv4"],
        "ports": [{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}]});
    for (key, value) in extra.as_object().expect("an object") {
        spec[key] = value.clone();
    }
    serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "ns", "uid": "svc", "labels": {"tier": "front"}}, "spec": spec}))
        .expect("a Service")
}

fn pod(name: &str, extra: Value) -> Arc<Pod> {
    let number: u32 = name.bytes().map(u32::from).sum();
    let mut value = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]},
        "status": {"phase": "Running", "podIPs": [{"ip": format!("10.244.{}.{}", number / 250, number % 250)}], "conditions": [{"type": "Ready", "status": "True"}]},
    });
    for (key, extra) in extra.as_object().expect("an object") {
        for (field, extra) in extra.as_object().expect("an object") {
            value[key][field] = extra.clone();
        }
    }
    Arc::new(serde_json::from_value(value).expect("a Pod"))
}

fn zone(node: &str) -> Option<String> {
    (node == "n1").then(|| "z1".to_owned())
}

/// The writes of a Service without hints in proportion to zones.
fn plan(service: &Service, pods: &[Arc<Pod>], zone: &dyn Fn(&str) -> Option<String>, slices: Vec<Arc<EndpointSlice>>) -> Vec<Action> {
    super::plan(service, pods, &Topology { zone, shares: &|| None }, slices).actions
}

/// Applies a plan to slices, as the server does.
fn after(slices: &[Arc<EndpointSlice>], actions: Vec<Action>) -> Vec<Arc<EndpointSlice>> {
    let mut slices = slices.to_vec();
    for action in actions {
        match action {
            Action::Create(mut slice) => {
                let name = format!("web-{}", slices.len());
                slice.metadata.uid = Some(name.clone());
                slice.metadata.name = Some(name);
                slices.push(Arc::from(slice));
            }
            Action::Change { slice, patch } => {
                let mut value = serde_json::to_value(slice.as_ref()).expect("json");
                if let Some(endpoints) = patch.get("endpoints") {
                    value["endpoints"] = endpoints.clone();
                }
                let labels = patch.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default();
                for (key, label) in labels {
                    value["metadata"]["labels"][key] = label;
                }
                let at = slices.iter().position(|s| s.metadata.name == slice.metadata.name).expect("there");
                slices[at] = Arc::new(serde_json::from_value(value).expect("a slice"));
            }
            Action::Delete(slice) => slices.retain(|s| s.metadata.name != slice.metadata.name),
        }
    }
    slices
}

fn counts(slices: &[Arc<EndpointSlice>]) -> Vec<usize> {
    slices.iter().map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len)).collect()
}

#[test]
fn a_slice_tells_addresses_ports_and_conditions() {
    let slices = after(&[], plan(&service(json!({})), &[pod("a", json!({}))], &zone, Vec::new()));
    insta::assert_json_snapshot!(slices, @r#"
    [
      {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "addressType": "IPv4",
        "endpoints": [
          {
            "addresses": [
              "10.244.0.97"
            ],
            "conditions": {
              "ready": true,
              "serving": true,
              "terminating": false
            },
            "nodeName": "n1",
            "targetRef": {
              "kind": "Pod",
              "name": "a",
              "namespace": "ns",
              "uid": "uid-a"
            },
            "zone": "z1"
          }
        ],
        "metadata": {
          "generateName": "web-",
          "labels": {
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            "kubernetes.io/service-name": "web",
            "tier": "front"
          },
          "name": "web-0",
          "namespace": "ns",
          "ownerReferences": [
            {
              "apiVersion": "v1",
              "blockOwnerDeletion": true,
              "controller": true,
              "kind": "Service",
              "name": "web",
              "uid": "svc"
            }
          ],
          "uid": "web-0"
        },
        "ports": [
          {
            "name": "http",
            "port": 8080,
            "protocol": "TCP"
          }
        ]
      }
    ]
    "#);
}

#[test]
fn conditions_follow_readiness_and_deletion() {
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let deleting = json!({"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}});
    let cases = [
        (json!({}), json!({}), Some((true, true, false))),
        (json!({}), not_ready.clone(), Some((false, false, false))),
        (json!({}), deleting.clone(), Some((false, true, true))),
        (json!({"publishNotReadyAddresses": true}), not_ready, Some((true, false, false))),
        (json!({"publishNotReadyAddresses": true}), deleting, Some((true, true, true))),
        (json!({}), json!({"status": {"phase": "Failed"}}), None),
        (json!({}), json!({"status": {"podIPs": []}}), None),
    ];
    for (spec, change, expected) in cases {
        let slices = after(&[], plan(&service(spec.clone()), &[pod("a", change.clone())], &zone, Vec::new()));
        let conditions = slices[0].endpoints.iter().flatten().next().and_then(|endpoint| endpoint.conditions.clone());
        let flags = conditions.map(|c| (c.ready == Some(true), c.serving == Some(true), c.terminating == Some(true)));
        assert_eq!(flags, expected, "{spec} {change}");
    }
}

#[test]
fn nothing_changes_when_nothing_changed() {
    let service = service(json!({}));
    let pods = [pod("a", json!({})), pod("b", json!({}))];
    let slices = after(&[], plan(&service, &pods, &zone, Vec::new()));
    assert_eq!(plan(&service, &pods, &zone, slices), []);
    let empty = after(&[], plan(&service, &[], &zone, Vec::new()));
    assert_eq!(counts(&empty), [0], "one empty slice says that nobody serves");
    assert_eq!(plan(&service, &[], &zone, empty), []);
}

#[test]
fn slices_hold_a_hundred_and_are_filled_up() {
    let service = service(json!({}));
    let pods: Vec<_> = (0..250).map(|n| pod(&format!("{}", char::from_u32(500 + n).expect("a letter")), json!({}))).collect();
    let slices = after(&[], plan(&service, &pods, &zone, Vec::new()));
    assert_eq!(counts(&slices), [100, 100, 50]);
    let fewer = &pods[..240];
    let slices = after(&slices, plan(&service, fewer, &zone, slices.clone()));
    assert_eq!(counts(&slices).iter().sum::<usize>(), 240);
    let slices = after(&slices, plan(&service, &pods, &zone, slices.clone()));
    assert_eq!(counts(&slices).iter().sum::<usize>(), 250);
    assert_eq!(slices.len(), 3, "room that came free is used");
    let slices = after(&slices, plan(&service, &[], &zone, slices.clone()));
    assert_eq!(counts(&slices), [0]);
}

#[test]
fn pods_with_other_ports_have_slices_of_their_own() {
    let other = json!({"spec": {"containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 9090}]}]}});
    let without = json!({"spec": {"containers": [{"name": "c"}]}});
    let pods = [pod("a", json!({})), pod("b", other), pod("c", without)];
    let slices = after(&[], plan(&service(json!({})), &pods, &zone, Vec::new()));
    let ports: Vec<_> = slices.iter().map(|slice| slice.ports.clone().unwrap_or_default()[0].port).collect();
    assert_eq!((counts(&slices), ports), (vec![1, 1], vec![Some(8080), Some(9090)]));
}

#[test]
fn a_headless_service_without_ports_still_tells_addresses() {
    let headless = service(json!({"clusterIP": "None", "ports": []}));
    let named = json!({"spec": {"hostname": "host-a", "subdomain": "web"}});
    let slices = after(&[], plan(&headless, &[pod("a", named)], &zone, Vec::new()));
    assert_eq!(counts(&slices), [1]);
    assert_eq!(meta::label(&slices[0].metadata, service::HEADLESS_LABEL), Some(""));
    assert_eq!(slices[0].endpoints.as_ref().expect("one")[0].hostname.as_deref(), Some("host-a"));
}

#[test]
fn labels_follow_the_service() {
    let mut service = service(json!({}));
    let pods = [pod("a", json!({}))];
    let slices = after(&[], plan(&service, &pods, &zone, Vec::new()));
    service.metadata.labels = Some(BTreeMap::from([("tier".to_owned(), "back".to_owned())]));
    let actions = plan(&service, &pods, &zone, slices.clone());
    assert!(
        matches!(&actions[..], [Action::Change { patch, .. }] if *patch == json!({"metadata": {"labels": {"tier": "back"}}})),
        "{actions:?}"
    );
}

#[test]
fn two_families_have_slices_each() {
    let dual = service(json!({"ipFamilies": ["IPv4", "IPv6"]}));
    let pods = [pod("a", json!({"status": {"podIPs": [{"ip": "10.244.0.9"}, {"ip": "fd00::9"}]}}))];
    let slices = after(&[], plan(&dual, &pods, &zone, Vec::new()));
    let types: Vec<_> = slices.iter().map(|slice| slice.address_type.as_str()).collect();
    assert_eq!((types, counts(&slices)), (vec!["IPv4", "IPv6"], vec![1, 1]));
    let single = service(json!({}));
    let slices = after(&slices, plan(&single, &pods, &zone, slices.clone()));
    assert_eq!(slices.len(), 1);
}

/// The server would reject the whole slice, and with it every change of the Service's other endpoints.
#[test]
fn an_address_that_a_node_made_up_keeps_nobody_else_out() {
    let addresses = ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "nonsense", "10.244.9.300", "255.255.255.255"];
    let mut pods = vec![pod("good", json!({}))];
    for address in addresses {
        pods.push(pod(&format!("evil-{address}"), json!({"status": {"podIPs": [{"ip": address}]}})));
    }
    let slices = after(&[], plan(&service(json!({})), &pods, &zone, Vec::new()));
    let listed: Vec<String> =
        slices.iter().flat_map(|slice| slice.endpoints.iter().flatten()).flat_map(|one| one.addresses.clone()).collect();
    assert_eq!(listed, ["10.244.1.175"]);
}

#[test]
fn hints_come_and_go_with_the_traffic_distribution() {
    let distributed = |distribution: &str| service(json!({"trafficDistribution": distribution}));
    let pods = [pod("a", json!({})), pod("b", json!({"status": {"conditions": []}}))];
    let hints = |slices: &[Arc<EndpointSlice>]| -> Vec<Value> {
        let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        endpoints.map(|endpoint| serde_json::to_value(&endpoint.hints).expect("json")).collect()
    };
    let mut slices = after(&[], plan(&service(json!({})), &pods, &zone, Vec::new()));
    assert_eq!(hints(&slices), [json!(null), json!(null)]);
    for (service, expected) in [
        (distributed("PreferSameZone"), json!({"forZones": [{"name": "z1"}]})),
        (distributed("PreferSameNode"), json!({"forZones": [{"name": "z1"}], "forNodes": [{"name": "n1"}]})),
        (distributed("PreferClose"), json!({"forZones": [{"name": "z1"}]})),
        (service(json!({})), json!(null)),
    ] {
        slices = after(&slices, plan(&service, &pods, &zone, slices.clone()));
        assert_eq!(hints(&slices), [expected, json!(null)], "only the ready one");
        assert_eq!(plan(&service, &pods, &zone, slices.clone()), [], "settled");
    }
}

#[test]
fn hints_in_proportion_stay_while_they_fit() {
    let mut auto = service(json!({}));
    auto.metadata.annotations = Some(BTreeMap::from([("service.kubernetes.io/topology-mode".to_owned(), "Auto".to_owned())]));
    let zone = |node: &str| Some(node.replace('n', "z"));
    let on = |name: &str, node: &str| pod(name, json!({"spec": {"nodeName": node}}));
    let pods = [on("a", "n1"), on("b", "n1"), on("c", "n1"), on("d", "n2")];
    let equal = || Some(Shares::from([("z1".to_owned(), 0.5), ("z2".to_owned(), 0.5)]));
    let pass = |service: &Service, shares: &dyn Fn() -> Option<Shares>, slices: &[Arc<EndpointSlice>]| {
        super::plan(service, &pods, &Topology { zone: &zone, shares }, slices.to_vec())
    };
    let first = pass(&auto, &equal, &[]);
    let hinted = Outcome::Hinted(BTreeMap::from([("z1".to_owned(), 2), ("z2".to_owned(), 2)]));
    assert_eq!(first.hints, [("IPv4".to_owned(), hinted)]);
    assert_eq!((first.added, first.removed, first.endpoints, first.slices_desired), (4, 0, 4, 1));
    let slices = after(&[], first.actions);
    let again = pass(&auto, &equal, &slices);
    assert_eq!((again.actions, again.added), (Vec::new(), 0), "settled");
    let given_up = pass(&auto, &|| None, &slices);
    assert!(matches!(given_up.hints.as_slice(), [(_, Outcome::GivenUp(_))]));
    assert_eq!(given_up.actions.len(), 1, "the hints go");
    let off = pass(&service(json!({})), &equal, &slices);
    assert_eq!((off.actions.len(), off.hints.len()), (1, 0), "they go with the annotation, too");
}
