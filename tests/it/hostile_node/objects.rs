//! Objects of others: the node reads none and writes none. Of its own Node it writes only what a node may write.

use super::*;

/// A node registers once. What it may not change later, it may not set at registration either.
pub(super) fn it_registers_as_it_is(admin: &Kubectl<'_>, evil: &Kubectl<'_>) {
    let node = |name: &str, metadata: Value, spec: Value| {
        let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec});
        node["metadata"].as_object_mut().expect("an object").extend(metadata.as_object().expect("an object").clone());
        evil.with_input("create -f -", &node.to_string())
    };
    let owner = json!({"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1"}]});
    for (name, metadata, spec, wanted) in [
        ("other", json!({}), json!({}), "node \"evil\" is not allowed to modify node \"other\""),
        ("evil", owner, json!({}), "node \"evil\" is not allowed to set ownerReferences"),
        ("evil", json!({}), json!({"podCIDRs": ["10.244.0.0/24"]}), "node \"evil\" is not allowed to set podCIDRs"),
        ("evil", json!({}), json!({"podCIDR": "0.0.0.0/0"}), "node \"evil\" is not allowed to set podCIDRs"),
        (
            "evil",
            json!({"labels": {"node-role.kubernetes.io/control-plane": ""}}),
            json!({}),
            "is not allowed to set the following labels: node-role.kubernetes.io/control-plane",
        ),
    ] {
        let refused = node(name, metadata, spec).fails();
        assert!(refused.contains(wanted), "{refused}");
    }
    node("evil", json!({}), json!({})).ok();
    admin.ok("taint node evil quarantine=yes:NoSchedule");
}

pub(super) fn it_reads_and_writes_what_is_its_own(admin: &Kubectl<'_>, evil: &Evil<'_>) {
    let kubectl = &evil.kubectl;
    eventually("the node may read what its Pod names", || {
        let read = kubectl.run(&["get", "secret", "ours", "-o", "jsonpath={.data.password}"]);
        if read.stdout == STANDARD.encode("for-our-pod") { Ok(()) } else { Err(read.to_string()) }
    });
    reads_are_of_its_own(kubectl);
    writes_are_of_its_own(kubectl);
    its_node_stays_what_others_made_it(admin, evil);
    pods_of_others_are_left_alone(admin, evil);
    tokens_are_of_its_own_pods(admin, kubectl);
}

fn reads_are_of_its_own(evil: &Kubectl<'_>) {
    let unrelated = "no relationship found between node 'evil' and this object";
    for (words, wanted) in [
        ("get secret theirs", unrelated),
        ("get secrets", "No Object name found"),
        ("get secrets -A", "can only read namespaced object of this type"),
        ("get secret -n kube-system -l a=b", "No Object name found"),
        ("get configmaps -A", "can only read namespaced object of this type"),
        ("get pods -A", "can only list/watch pods with spec.nodeName field selector"),
        ("get pods -A --watch", "can only list/watch pods with spec.nodeName field selector"),
        ("get pods -A --field-selector=spec.nodeName=victim", "can only list/watch pods with spec.nodeName field selector"),
        ("get pods -A --field-selector=spec.nodeName!=evil", "can only list/watch pods with spec.nodeName field selector"),
        ("get pod theirs", unrelated),
        ("get node victim", "node 'evil' cannot read 'victim', only its own Node object"),
        ("get lease victim -n kube-node-lease", "can only access node lease with the same name as the requesting node"),
        ("get leases -n kube-node-lease", "can only get, create, update, patch, or delete a node lease"),
        ("get lease kube-controller-manager -n kube-system", "can only access leases in the \"kube-node-lease\" system namespace"),
        ("get csinode victim", "can only access CSINode with the same name as the requesting node"),
        ("get serviceaccounts -A", "can only create tokens for individual service accounts"),
        ("get clusterroles", "cannot list resource \"clusterroles\""),
        ("get resourceslices", "can only list/watch/deletecollection resourceslices with nodeName field selector"),
        ("get pods --as=system:node:victim --as-group=system:nodes", "cannot impersonate"),
        ("get secrets --as=kubernetes-admin --as-group=system:masters", "cannot impersonate"),
        ("get --raw /metrics", "cannot get path \"/metrics\""),
    ] {
        let refused = evil.fails(words);
        assert!(refused.contains(wanted), "{words}: {refused}");
    }
}

fn writes_are_of_its_own(evil: &Kubectl<'_>) {
    let lease = json!({"spec": {"holderIdentity": "evil"}});
    for (words, wanted) in [
        (format!("patch lease victim -n kube-node-lease --type=merge -p {lease}"), "can only access node lease with the same name"),
        ("delete lease victim -n kube-node-lease".to_owned(), "can only access node lease with the same name"),
        ("delete node victim".to_owned(), "cannot delete resource \"nodes\""),
        ("delete node evil".to_owned(), "cannot delete resource \"nodes\""),
        ("label node victim a=b".to_owned(), "only its own Node object"),
        ("create configmap mine --from-literal=a=b".to_owned(), "cannot create resource \"configmaps\""),
        ("create clusterrolebinding mine --clusterrole=cluster-admin --user=system:node:evil".to_owned(), "cannot create resource"),
        ("create service clusterip mine --tcp=80".to_owned(), "cannot create resource \"services\""),
        ("create secret generic mine".to_owned(), "can only read resources of this type"),
        ("delete namespace default".to_owned(), "cannot delete resource \"namespaces\""),
        ("create priorityclass mine --value=1".to_owned(), "cannot create resource \"priorityclasses\""),
    ] {
        let refused = evil.fails(&words);
        assert!(refused.contains(wanted), "{words}: {refused}");
    }
    let foreign = |kind: &str, version: &str, namespace: Value| {
        let object =
            json!({"apiVersion": version, "kind": kind, "metadata": {"name": "other", "namespace": namespace}, "spec": {"drivers": []}});
        evil.with_input("create --validate=false -f -", &object.to_string()).fails()
    };
    let refused = foreign("Lease", "coordination.k8s.io/v1", json!("kube-node-lease"));
    assert!(refused.contains("can only access node lease with the same name as the requesting node"), "{refused}");
    let refused = foreign("CSINode", "storage.k8s.io/v1", Value::Null);
    assert!(refused.contains("can only access CSINode with the same name as the requesting node"), "{refused}");
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "mine"}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.168.78.2"]}]});
    let refused = evil.with_input("create -f -", &slice.to_string()).fails();
    assert!(refused.contains("cannot create resource \"endpointslices\""), "{refused}");
}

fn its_node_stays_what_others_made_it(admin: &Kubectl<'_>, evil: &Evil<'_>) {
    let owners = json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1"}]}});
    let untainted = json!({"spec": {"taints": []}});
    let range = json!({"spec": {"podCIDR": "0.0.0.0/0", "podCIDRs": ["0.0.0.0/0"]}});
    let label = json!({"metadata": {"labels": {"x.node-restriction.kubernetes.io/tier": "gold"}}});
    let uid = admin.field("node/evil", "/metadata/uid");
    for (patch, wanted) in [
        (&owners, "node \"evil\" is not allowed to modify ownerReferences"),
        (&untainted, "node \"evil\" is not allowed to modify taints"),
        (&range, "node \"evil\" is not allowed to modify podCIDRs"),
        (&label, "is not allowed to modify labels: x.node-restriction.kubernetes.io/tier"),
    ] {
        let refused = evil.kubectl.fails(&format!("patch node evil --type=merge -p {patch}"));
        assert!(refused.contains(wanted), "{patch}: {refused}");
        // Through the status the request is rejected, or it changes nothing.
        let _either = evil.patch_status("/api/v1/nodes/evil", "merge", patch);
    }
    let node = admin.json("get node evil");
    assert!(node["spec"]["taints"].to_string().contains("quarantine"), "{node}");
    assert!(node["metadata"]["ownerReferences"].is_null() && !node.to_string().contains("0.0.0.0/0"), "{node}");
    assert!(!node["metadata"]["labels"].to_string().contains("tier"), "{node}");
    assert_eq!(node["metadata"]["uid"], uid);
}

fn pods_of_others_are_left_alone(admin: &Kubectl<'_>, evil: &Evil<'_>) {
    let kubectl = &evil.kubectl;
    let refused = |path: &str, patch: Value, wanted: &str| {
        let (code, body) = evil.patch_status(path, "merge", &patch);
        assert!(code == 403 && body.contains(wanted), "{path} {patch}: {code} {body}");
    };
    refused(
        "/api/v1/namespaces/default/pods/theirs",
        json!({"status": {"podIP": "192.168.78.2", "phase": "Failed"}}),
        "can only update pod status for pods with spec.nodeName set to itself",
    );
    refused("/api/v1/nodes/victim", json!({"status": {"phase": "Terminated"}}), "is not allowed to modify node");
    for (words, wanted) in [
        ("delete pod theirs --wait=false".to_owned(), "node \"evil\" can only delete pods with spec.nodeName set to itself"),
        ("delete pods --all -n default --wait=false".to_owned(), "can only list/watch pods with spec.nodeName field selector"),
        ("label pod own app=api".to_owned(), "cannot patch resource \"pods\""),
        ("exec theirs -- id".to_owned(), "no relationship found"),
        ("logs theirs".to_owned(), "no relationship found"),
    ] {
        let refused = kubectl.fails(&words);
        assert!(refused.contains(wanted), "{words}: {refused}");
    }
    let raw = |path: &str, body: Value| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), body.to_string()).expect("writes");
        kubectl
            .run(&["create", "--raw", &format!("/api/v1/namespaces/default/pods/{path}"), "-f", &file.path().display().to_string()])
            .fails()
    };
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "theirs", "namespace": "default"}});
    assert!(raw("theirs/eviction", eviction).contains("node evil can only evict pods with spec.nodeName set to itself"));
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "free"}, "target": {"kind": "Node", "name": "evil"}});
    assert!(raw("free/binding", binding).contains("cannot create resource \"pods/binding\""));
    for command in ["theirs/exec?command=id", "own/exec?command=id", "theirs/attach", "theirs/portforward?ports=80"] {
        let refused = raw(command, json!({}));
        assert!(refused.contains("forbidden"), "{command}: {refused}");
    }
    // Through the status of its own Pod it changes only the status.
    let owners = json!([{"apiVersion": "v1", "kind": "Pod", "name": "theirs", "uid": "1", "controller": true}]);
    let patch = json!({"metadata": {"ownerReferences": owners}, "spec": {"nodeName": "victim"}, "status": {"message": "told"}});
    evil.says_of_its_pod(&patch);
    let own = admin.json("get pod own");
    assert!(
        own["metadata"]["ownerReferences"].is_null() && own["spec"]["nodeName"] == "evil" && own["status"]["message"] == "told",
        "{own}"
    );
    let labels = json!({"metadata": {"labels": {"app": "api"}}});
    refused("/api/v1/namespaces/default/pods/own", labels, "cannot update labels through pod status");
    no_pods_are_made(admin, kubectl);
    what_it_says_of_its_pod_stops_no_service(admin, evil);
}

/// A mirror Pod with a Service's labels would become an endpoint of the Service.
fn no_pods_are_made(admin: &Kubectl<'_>, evil: &Kubectl<'_>) {
    let uid = admin.field("node/evil", "/metadata/uid");
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "made", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"nodeName": "evil", "containers": [{"name": "c", "image": "i"}]},
    });
    let mut refused = |what: &str| {
        let refused = evil.with_input("create -f -", &pod.to_string()).fails();
        assert!(refused.contains("node \"evil\" cannot create pods: no node here runs static pods"), "{what}: {refused}");
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "name": "evil", "uid": uid, "controller": true}]);
    };
    refused("a plain Pod");
    refused("a mirror Pod that upstream takes");
}

/// The server rejects such addresses in an EndpointSlice, and with them the whole write.
fn what_it_says_of_its_pod_stops_no_service(admin: &Kubectl<'_>, evil: &Evil<'_>) {
    admin.apply(SERVICE).ok();
    let running = |ip: &str| {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": ready}})
    };
    evil.says_of_its_pod(&running("127.0.0.1"));
    let good = json!({"metadata": {"labels": {"shared": "yes-it-is"}}});
    admin.ok(&format!("patch pod theirs --type=merge -p {good}"));
    admin.ok(&format!("patch pod theirs --subresource=status --type=merge -p {}", running("10.244.77.7")));
    eventually("the other endpoint of the Service is there", || {
        let addresses = admin.ok("get endpointslices -l kubernetes.io/service-name=shared -o jsonpath={.items[*].endpoints[*].addresses}");
        if addresses == "[\"10.244.77.7\"]" { Ok(()) } else { Err(format!("{addresses}\n{}", admin.ok("get events"))) }
    });
}

fn tokens_are_of_its_own_pods(admin: &Kubectl<'_>, evil: &Kubectl<'_>) {
    let bound =
        |pod: &str| format!("create token default --bound-object-kind=Pod --bound-object-name={pod} --bound-object-uid={}", admin.uid(pod));
    assert!(evil.ok(&bound("own")).starts_with("ey"));
    for (words, wanted) in [
        (bound("theirs"), "node requested token bound to a pod scheduled on a different node"),
        ("create token default".to_owned(), "node requested token not bound to a pod"),
        ("create token default -n kube-system".to_owned(), "no relationship found"),
        (format!("{} --audience=vault", bound("own")), "audience \"vault\" not found in pod spec volume"),
    ] {
        let refused = evil.fails(&words);
        assert!(refused.contains(wanted), "{words}: {refused}");
    }
}
