use api_model::request::Attributes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;
use crate::testing::{Ask, Objects, verdict};

fn node(labels: Value, taints: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1", "uid": "node-1", "labels": labels }, "spec": { "taints": taints } })
}

fn pod(name: &str, on: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "ns", "uid": format!("{name}-uid") },
        "spec": { "nodeName": on, "containers": [{ "name": "c" }], "volumes": [
            { "name": "t", "projected": { "sources": [{ "serviceAccountToken": { "path": "token" } }, { "serviceAccountToken": { "path": "v", "audience": "vault" } }] } },
            { "name": "c", "csi": { "driver": "csi.example.com" } },
        ] },
    })
}

fn view() -> Objects {
    let driver = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": "csi.example.com" },
        "spec": { "tokenRequests": [{ "audience": "driver" }] } });
    Objects::new([driver, node(json!({}), json!([])), pod("mine", "n1"), pod("other", "n2")])
}

/// The plugin with an authorizer that lets nodes request tokens for one audience, in one namespace and for one account.
fn plugin() -> NodeRestriction {
    let allows: Allows = Arc::new(|user, attributes, _| {
        let Attributes { verb, group, version, resource, subresource, namespace, name, path, field_selector } = attributes;
        assert_eq!((verb.as_str(), version.as_str()), ("request-serviceaccounts-token-audience", "v1"));
        assert!(group.is_empty() && subresource.is_empty() && path.is_empty() && field_selector.is_none());
        user.username == "system:node:n1" && (resource.as_str(), namespace.as_str(), name.as_str()) == ("granted", "ns", "default")
    });
    NodeRestriction { allows, mirror_pods: false }
}

fn by_node(ask: Ask<'_>) -> String {
    verdict(ask.by("system:node:n1", &["system:nodes"]).admit(&plugin(), &view()))
}

fn refused(what: &str, message: &str) -> String {
    format!("{what} is forbidden: {message}")
}

#[test]
fn only_nodes_are_restricted() {
    let other = pod("other", "n2");
    assert_eq!(verdict(Ask::delete(&other).admit(&plugin(), &view())), "ok");
    assert_eq!(verdict(Ask::delete(&other).by("system:node:n1", &["people"]).admit(&plugin(), &view())), "ok");
    let nameless = verdict(Ask::delete(&other).by("system:node:", &["system:nodes"]).admit(&plugin(), &view()));
    assert_eq!(nameless, refused("pods \"other\"", "could not determine node from user \"system:node:\""));
}

#[test]
fn a_node_touches_only_its_own_pods() {
    let (mine, other, gone) = (pod("mine", "n1"), pod("other", "n2"), pod("gone", "n1"));
    let mut relabelled = mine.clone();
    relabelled["metadata"]["labels"] = json!({ "a": "b" });
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "mine" } });
    for (ask, wanted) in [
        (Ask::delete(&mine), "ok".to_owned()),
        (Ask::delete(&other), refused("pods \"other\"", "node \"n1\" can only delete pods with spec.nodeName set to itself")),
        (Ask::delete(&gone), "pods \"gone\" not found".to_owned()),
        (Ask::update(&mine, mine.clone()), refused("pods \"mine\"", "unexpected operation \"UPDATE\", node \"n1\" can only delete pods")),
        (Ask::update(&mine, mine.clone()).sub("status"), "ok".to_owned()),
        (
            Ask::update(&other, other.clone()).sub("status"),
            refused("pods \"other\"", "node \"n1\" can only update pod status for pods with spec.nodeName set to itself"),
        ),
        (Ask::update(&mine, relabelled).sub("status"), refused("pods \"mine\"", "node \"n1\" cannot update labels through pod status")),
        (Ask::create_sub(&mine, "eviction", eviction.clone()), "ok".to_owned()),
        (
            Ask::create_sub(&other, "eviction", eviction.clone()),
            refused("pods \"other\"", "node n1 can only evict pods with spec.nodeName set to itself"),
        ),
        (
            Ask::create_sub(&mine, "binding", eviction),
            refused("pods \"mine\"", "unexpected pod subresource \"binding\", only 'status' and 'eviction' are allowed"),
        ),
    ] {
        assert_eq!(by_node(ask), wanted);
    }
}

/// Unless the server allows it, a node may not even create a mirror Pod that upstream would admit: with matching labels it would be
/// an endpoint of any Service.
#[test]
fn a_node_makes_no_pods() {
    let plain = pod("m", "n1");
    let mut mirror = plain.clone();
    mirror["metadata"]["annotations"] = json!({ pods::MIRROR: "x" });
    mirror["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-1", "controller": true }]);
    mirror["spec"]["volumes"] = json!([]);
    for pod in [plain, mirror] {
        assert_eq!(
            by_node(Ask::create(pod)),
            refused("pods \"m\"", "node \"n1\" cannot create pods: no node here runs static pods (--allow-mirror-pods of the server)")
        );
    }
}

/// Of a server that allows it.
#[test]
fn a_node_makes_mirrors_of_its_own_pods_alone() {
    let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-1", "controller": true });
    let mirror = |path: &str, value: Value| {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "m", "namespace": "ns", "annotations": { pods::MIRROR: "x" }, "ownerReferences": [owner] },
            "spec": { "nodeName": "n1", "containers": [{ "name": "c" }] },
        });
        let (parent, name) = path.rsplit_once('/').expect("a path");
        assert!(!parent.is_empty() && !name.is_empty());
        pod.pointer_mut(parent).expect("an object of the Pod")[name] = value;
        let plugin = NodeRestriction { mirror_pods: true, ..plugin() };
        verdict(Ask::create(pod).by("system:node:n1", &["system:nodes"]).admit(&plugin, &view()))
    };
    let owned = "/metadata/ownerReferences";
    let by_itself = "node \"n1\" can only create pods with an owner reference set to itself";
    let reference = |resource: &str| format!("node \"n1\" can not create pods that reference {resource}");
    assert_eq!(mirror("/metadata/labels", json!({ "app": "x" })), "ok");
    for (path, value, message) in [
        (
            "/metadata/annotations",
            json!({}),
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods".to_owned(),
        ),
        ("/spec/nodeName", json!("n2"), "node \"n1\" can only create pods with spec.nodeName set to itself".to_owned()),
        ("/spec/nodeName", json!(""), "node \"n1\" can only create pods with spec.nodeName set to itself".to_owned()),
        (owned, json!([]), by_itself.to_owned()),
        (owned, json!([owner, owner]), "node \"n1\" can only create pods with a single owner reference set to itself".to_owned()),
        ("/metadata/ownerReferences/0/name", json!("n2"), by_itself.to_owned()),
        ("/metadata/ownerReferences/0/kind", json!("Pod"), by_itself.to_owned()),
        ("/metadata/ownerReferences/0/apiVersion", json!("v2"), by_itself.to_owned()),
        (
            "/metadata/ownerReferences/0/controller",
            json!(false),
            "node \"n1\" can only create pods with a controller owner reference set to itself".to_owned(),
        ),
        (
            "/metadata/ownerReferences/0/blockOwnerDeletion",
            json!(true),
            "node \"n1\" must not set blockOwnerDeletion on an owner reference".to_owned(),
        ),
        ("/metadata/ownerReferences/0/uid", json!("y"), "node n1 UID mismatch: expected node-1 got y".to_owned()),
        ("/spec/serviceAccountName", json!("default"), reference("serviceaccounts")),
        ("/spec/imagePullSecrets", json!([{ "name": "s" }]), reference("secrets")),
        ("/spec/volumes", json!([{ "name": "v", "configMap": { "name": "s" } }]), reference("configmaps")),
        ("/spec/volumes", json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "s" } }]), reference("persistentvolumeclaims")),
        ("/spec/volumes", json!([{ "name": "v", "csi": { "driver": "d" } }]), reference("csidrivers")),
        ("/spec/resourceClaims", json!([{ "name": "r" }]), reference("resourceclaims")),
    ] {
        assert_eq!(mirror(path, value.clone()), refused("pods \"m\"", &message), "{path}: {value}");
    }
}

#[test]
fn a_node_keeps_its_own_node_and_not_its_taints() {
    let old = node(json!({ "kubernetes.io/hostname": "a" }), json!([]));
    let update = |labels: Value, taints: Value| by_node(Ask::update(&old, node(labels, taints)));
    assert_eq!(update(json!({ "kubernetes.io/hostname": "b", "mine/x": "y", "topology.kubernetes.io/zone": "z" }), json!([])), "ok");
    assert_eq!(
        update(json!({}), json!([{ "key": "a", "effect": "NoSchedule" }])),
        refused("nodes \"n1\"", "node \"n1\" is not allowed to modify taints")
    );
    let hostname =
        json!({ "kubernetes.io/hostname": "a", "node-role.kubernetes.io/control-plane": "", "x.node-restriction.kubernetes.io/y": "" });
    assert_eq!(
        update(hostname.clone(), json!([])),
        refused(
            "nodes \"n1\"",
            "is not allowed to modify labels: node-role.kubernetes.io/control-plane, x.node-restriction.kubernetes.io/y"
        )
    );
    assert_eq!(
        by_node(Ask::create(node(hostname, json!([])))),
        refused(
            "nodes \"n1\"",
            "node \"n1\" is not allowed to set the following labels: node-role.kubernetes.io/control-plane, x.node-restriction.kubernetes.io/y"
        )
    );
    let tainted = node(json!({}), json!([{ "key": "a", "effect": "NoSchedule" }]));
    assert_eq!(by_node(Ask::create(tainted)), "ok", "a node may register with taints");
    let other = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n2" } });
    assert_eq!(by_node(Ask::create(other)), refused("nodes \"n2\"", "node \"n1\" is not allowed to modify node \"n2\""));
}

/// With an owner that does not exist, the garbage collector deletes the Node. The node then registers again, without
/// the taints and labels that others set (CVE-2025-5187).
#[test]
fn a_node_does_not_say_whose_it_is() {
    let mut owned = node(json!({}), json!([]));
    owned["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "x" }]);
    let old = node(json!({}), json!([]));
    let wanted = refused("nodes \"n1\"", "node \"n1\" is not allowed to modify ownerReferences");
    for sub in ["", "status"] {
        assert_eq!(by_node(Ask::update(&old, owned.clone()).sub(sub)), wanted, "{sub}");
        assert_eq!(by_node(Ask::update(&owned, old.clone()).sub(sub)), wanted, "nor that of others taken away: {sub}");
    }
    assert_eq!(by_node(Ask::update(&owned, owned.clone())), "ok", "what others set stays");
    assert_eq!(by_node(Ask::create(owned)), refused("nodes \"n1\"", "node \"n1\" is not allowed to set ownerReferences"));
}

/// The other nodes route the addresses of a node's Pod range to that node.
#[test]
fn a_node_does_not_choose_its_pod_range() {
    let with = |field: &str, value: Value| {
        let mut node = node(json!({}), json!([]));
        node["spec"][field] = value;
        node
    };
    let old = with("podCIDRs", Value::Null);
    for (field, value) in [("podCIDR", json!("0.0.0.0/0")), ("podCIDRs", json!(["10.244.1.0/24"]))] {
        let wanted = |verb: &str| refused("nodes \"n1\"", &format!("node \"n1\" is not allowed to {verb} podCIDRs"));
        assert_eq!(by_node(Ask::create(with(field, value.clone()))), wanted("set"), "{field}");
        assert_eq!(by_node(Ask::update(&old, with(field, value.clone()))), wanted("modify"), "{field}");
        let given = with(field, value);
        assert_eq!(by_node(Ask::update(&given, given.clone())), "ok");
    }
}

#[test]
fn a_node_does_not_name_its_configuration() {
    let with = |source: Value| {
        let mut node = node(json!({}), json!([]));
        node["spec"]["configSource"] = source;
        node
    };
    let source = json!({ "configMap": { "name": "c", "namespace": "kube-system", "kubeletConfigKey": "k" } });
    assert_eq!(
        by_node(Ask::create(with(source.clone()))),
        refused("nodes \"n1\"", "node \"n1\" is not allowed to create pods with a non-nil configSource")
    );
    assert_eq!(
        by_node(Ask::update(&with(Value::Null), with(source.clone()))),
        refused("nodes \"n1\"", "node \"n1\" is not allowed to update configSource to a new non-nil configSource")
    );
    assert_eq!(by_node(Ask::update(&with(source.clone()), with(Value::Null))), "ok");
    assert_eq!(by_node(Ask::update(&with(source.clone()), with(source))), "ok");
}

/// Upstream's `admitCSR`: a node requests certificates only for its own name.
#[test]
fn a_node_asks_for_certificates_of_its_own() {
    let ask = |signer: &str, request: &str| {
        let csr = json!({ "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": "r" },
            "spec": { "signerName": signer, "request": STANDARD.encode(request) } });
        by_node(Ask::create(csr))
    };
    let (own, other) = (include_str!("n1.csr"), include_str!("n2.csr"));
    let refused = |why: &str| refused("certificatesigningrequests.certificates.k8s.io \"r\"", why);
    for signer in ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"] {
        assert_eq!(ask(signer, own), "ok");
        for foreign in [other, include_str!("two-names.csr")] {
            assert_eq!(ask(signer, foreign), refused("can only create a node CSR with CN=system:node:n1"), "{signer}");
        }
        assert!(ask(signer, "x").contains("unable to parse csr: "), "{}", ask(signer, "x"));
    }
    assert_eq!(ask("kubernetes.io/kube-apiserver-client", other), "ok", "for a person to decide");
}

#[test]
fn a_node_asks_for_tokens_of_its_own_pods() {
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": "ns" } });
    let ask = |reference: Value| by_node(Ask::create_sub(&account, "token", json!({ "spec": { "boundObjectRef": reference } })));
    let reference = |name: &str, uid: &str| json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid });
    let refused = |message: &str| refused("serviceaccounts \"default\"", message);
    assert_eq!(ask(reference("mine", "mine-uid")), "ok");
    let ask_for = |audiences: Value| {
        let request = json!({ "spec": { "audiences": audiences, "boundObjectRef": reference("mine", "mine-uid") } });
        by_node(Ask::create_sub(&account, "token", request))
    };
    assert_eq!((ask_for(json!(["vault"])), ask_for(json!(["driver"]))), ("ok".to_owned(), "ok".to_owned()));
    assert_eq!(ask_for(json!(["granted"])), "ok");
    assert_eq!(
        ask_for(json!(["elsewhere"])),
        refused(
            "audience \"elsewhere\" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience"
        )
    );
    let other_account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "other", "namespace": "ns" } });
    let body = json!({ "spec": { "audiences": ["granted"], "boundObjectRef": reference("mine", "mine-uid") } });
    assert!(by_node(Ask::create_sub(&other_account, "token", body)).contains("is not authorized"), "the grant names an account");
    assert_eq!(ask_for(json!(["vault", "driver"])), refused("node may only request 0 or 1 audiences"));
    assert_eq!(ask(Value::Null), refused("node requested token not bound to a pod"));
    assert_eq!(ask(reference("mine", "")), refused("node requested token with a pod binding without a uid"));
    assert_eq!(ask(reference("gone", "x")), "pods \"gone\" not found");
    assert_eq!(ask(reference("other", "other-uid")), refused("node requested token bound to a pod scheduled on a different node"));
    assert_eq!(
        ask(reference("mine", "x")),
        refused(
            "the UID in the bound object reference (x) does not match the UID in record. The object might have been deleted and then recreated"
        )
    );
}

#[test]
fn a_node_keeps_its_own_lease() {
    let lease = |namespace: &str, name: &str| {
        let lease =
            json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name, "namespace": namespace } });
        by_node(Ask::create(lease))
    };
    assert_eq!(lease("kube-node-lease", "n1"), "ok");
    let head = |name: &str| format!("leases.coordination.k8s.io {name:?}");
    let wanted = refused(&head("n2"), "can only access node lease with the same name as the requesting node");
    assert_eq!(lease("kube-node-lease", "n2"), wanted);
    assert_eq!(lease("default", "n1"), refused(&head("n1"), "can only access leases in the \"kube-node-lease\" system namespace"));
}

#[test]
fn a_node_writes_only_some_of_a_claims_status() {
    let claim = |status: Value| json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "c", "namespace": "ns" }, "status": status });
    let old = claim(json!({ "phase": "Bound" }));
    assert_eq!(by_node(Ask::update(&old, claim(json!({ "phase": "Bound", "capacity": { "storage": "2Gi" } }))).sub("status")), "ok");
    let wanted = "node \"n1\" is not allowed to update fields other than status.capacity and status.conditions";
    let lost = claim(json!({ "phase": "Lost" }));
    assert_eq!(by_node(Ask::update(&old, lost.clone()).sub("status")), refused("persistentvolumeclaims \"c\"", wanted));
    assert_eq!(by_node(Ask::update(&old, lost)), refused("persistentvolumeclaims \"c\"", "may only update PVC status"));
}
