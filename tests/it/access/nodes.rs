//! A node from its token on: it requests a certificate. With the certificate it reads what it needs and changes only
//! its own objects.

use super::*;

const OBJECTS: &str = "
apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-abcdef, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: abcdef, token-secret: 0123456789abcdef, usage-bootstrap-authentication: 'true',
  auth-extra-groups: 'system:bootstrappers:kubeadm:default-node-token'}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
---
apiVersion: v1
kind: Pod
metadata: {name: other}
spec: {nodeName: n2, containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {a: b}
";

const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: n1}
";

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: own}
spec:
  nodeName: n1
  containers: [{name: c, image: i, envFrom: [{secretRef: {name: key}}]}]
";

#[test]
fn a_node_sees_what_it_needs_and_changes_what_is_its_own() {
    let files = tempfile::tempdir().expect("a directory");
    // Without that controller: it would evict the Pods, because the story has no node that reports.
    let mut cluster = Cluster::prepared(Net::alone(), &["server", "--controllers=*,-node-lifecycle-controller"]);
    cluster.start();
    let admin = cluster.kubectl();
    admin.until_usable("default");
    admin.apply(OBJECTS).ok();
    let node = by_its_token(&cluster, &admin, files.path());
    it_sees_what_its_pods_need(&admin, &node);
    it_changes_what_is_its_own(&admin, &node);
}

/// kubectl as the node `n1`, with the certificate that it got with its bootstrap token.
fn by_its_token<'a>(cluster: &'a Cluster, admin: &Kubectl<'_>, files: &Path) -> Kubectl<'a> {
    let newcomer = kubectl_as(cluster, files, &json!({"token": "abcdef.0123456789abcdef"}));
    let who = newcomer.ok("auth whoami");
    for text in ["system:bootstrap:abcdef", "[system:bootstrappers system:bootstrappers:kubeadm:default-node-token system:authenticated]"] {
        assert!(who.contains(text), "{who}");
    }
    assert!(newcomer.fails("get nodes").contains("User \"system:bootstrap:abcdef\" cannot list resource \"nodes\""));
    let (manifest, key) = request("system:node:n1", "system:nodes", "kubernetes.io/kube-apiserver-client-kubelet");
    newcomer.with_input("create -f -", &manifest).ok();
    let certificate = eventually("the certificate of a node, which nobody has to approve", || {
        let certificate = newcomer.field("csr/system:node:n1", "/status/certificate");
        certificate.as_str().map(str::to_owned).ok_or_else(|| admin.ok("describe csr system:node:n1"))
    });
    admin.ok("delete secret bootstrap-token-abcdef -n kube-system");
    assert!(newcomer.fails("get csr").contains("You must be logged in to the server"), "the token is gone");
    let node = kubectl_as(cluster, files, &json!({"client-certificate-data": certificate, "client-key-data": STANDARD.encode(key)}));
    let who = node.ok("auth whoami");
    assert!(who.contains("system:node:n1") && who.contains("[system:nodes system:authenticated]"), "{who}");
    node
}

fn it_sees_what_its_pods_need(admin: &Kubectl<'_>, node: &Kubectl<'_>) {
    let unrelated = "no relationship found between node 'n1' and this object";
    assert_eq!(
        node.fails("get secret key"),
        format!(
            "Error from server (Forbidden): secrets \"key\" is forbidden: User \"system:node:n1\" cannot get resource \"secrets\" in API \
             group \"\" in the namespace \"default\": {unrelated}\n"
        )
    );
    node.with_input("create -f -", NODE).ok();
    admin.apply(POD).ok();
    eventually("the node may read what its Pod names", || {
        let read = node.run(&["get", "secret", "key", "-o", "jsonpath={.data.a}"]);
        if read.stdout == STANDARD.encode("b") { Ok(()) } else { Err(read.to_string()) }
    });
    assert_eq!(node.ok("get pods -A --field-selector=spec.nodeName=n1 -o name"), "pod/own\n");
    for (words, wanted) in [
        ("get secrets", "No Object name found"),
        ("get secrets -A", "can only read namespaced object of this type"),
        ("get pods -A", "can only list/watch pods with spec.nodeName field selector"),
        ("get pod other", unrelated),
        ("get node n2", "node 'n1' cannot read 'n2', only its own Node object"),
        ("get lease n2 -n kube-node-lease", "can only access node lease with the same name as the requesting node"),
        ("create token default -n kube-system", unrelated),
        ("create token default", "node requested token not bound to a pod"),
    ] {
        let refused = node.fails(words);
        assert!(refused.contains(wanted), "{words}: {refused}");
    }
    assert_eq!(node.ok("get nodes -o name"), "node/n1\nnode/n2\n", "there are routes to all of them");
    let bound = "create token default --bound-object-kind=Pod --bound-object-name=own";
    assert!(node.ok(&format!("{bound} --bound-object-uid={}", admin.uid("own"))).starts_with("ey"));
}

fn it_changes_what_is_its_own(admin: &Kubectl<'_>, node: &Kubectl<'_>) {
    assert_eq!(node.ok("label node n1 example.com/disk=fast"), "node/n1 labeled\n");
    let free = "apiVersion: v1\nkind: Pod\nmetadata: {name: free}\nspec: {nodeName: n1, containers: [{name: c, image: i}]}\n";
    let refused = node.with_input("create -f -", free).fails();
    assert!(refused.contains("node \"n1\" cannot create pods: no node here runs static pods"), "{refused}");
    for (words, wanted) in [
        (
            "label node n1 node-restriction.kubernetes.io/tier=gold",
            "nodes \"n1\" is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/tier",
        ),
        ("taint node n1 a=b:NoSchedule", "nodes \"n1\" is forbidden: node \"n1\" is not allowed to modify taints"),
        ("delete node n2", "User \"system:node:n1\" cannot delete resource \"nodes\""),
        ("delete pod other --wait=false", "node \"n1\" can only delete pods with spec.nodeName set to itself"),
    ] {
        let refused = node.fails(words);
        assert!(refused.contains(wanted), "{words}: {refused}");
    }
    node.ok("delete pod own --grace-period=0 --force");
    assert!(node.fails("get secret key").contains("no relationship found"), "its Pod is gone");
    // Requests of others about the node's rights.
    let review = |name: &str| {
        let manifest = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": "system:node:n2", "groups": ["system:nodes"],
                "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default", "name": name}},
        });
        admin.with_input("create -o jsonpath={.status.allowed} -f -", &manifest.to_string()).ok()
    };
    assert_eq!((review("other").as_str(), review("another").as_str()), ("true", "false"));
}
