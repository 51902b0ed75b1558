//! The API: objects of others, more rights than one's own, more than one's quota.

use super::World;

/// Requests outside the tenant's own namespace.
pub(super) fn what_others_have_is_out_of_reach(world: &World<'_>) {
    for words in [
        "get secrets -n kube-system",
        "get configmap secret -n neighbour",
        "get pods -A",
        "get nodes",
        "get --raw /api/v1/nodes",
        "exec -n neighbour good -- true",
        "logs -n neighbour good",
        "port-forward -n neighbour good 18080:80",
        "create token default -n kube-system",
        "delete pod good -n neighbour",
        "patch service good -n neighbour -p {}",
        "label namespace tenant pod-security.kubernetes.io/enforce=privileged --overwrite",
        "delete namespace neighbour",
        "get leases -n kube-node-lease",
        "get certificatesigningrequests",
        "create namespace more",
        "create clusterrolebinding mine --clusterrole=cluster-admin --user=mallory",
        "create priorityclass high --value=1000000",
        "get --raw /metrics",
        "get --raw /debug/pprof/",
        "top pods -n neighbour",
        "top pods -A",
        "top nodes",
        "get --raw /apis/metrics.k8s.io/v1beta1/namespaces/neighbour/pods/good",
        "get --raw /api/v1/namespaces/neighbour/pods/good/proxy/",
        "get --raw /api/v1/namespaces/neighbour/services/good:80/proxy/",
        // Paths whose meaning changes if they are decoded twice.
        "get --raw /api/v1/namespaces/tenant/../neighbour/configmaps/secret",
        "get --raw /api/v1/namespaces/tenant/configmaps/..%2f..%2fneighbour%2fconfigmaps%2fsecret",
        "get --raw /api/v1/namespaces/tenant%2f..%2fneighbour/configmaps/secret",
        "get --raw //api/v1/namespaces/neighbour/configmaps/secret",
        "get --raw /api/v1/watch/namespaces/neighbour/configmaps/secret",
    ] {
        let ran = world.mallory.run(&words.split(' ').collect::<Vec<_>>());
        assert!(!ran.succeeded() && !ran.stdout.contains("is-not-for-mallory"), "{ran}");
        let refused = ["Forbidden", "forbidden", "NotFound", "not found", "could not find", "301", "Moved Permanently"];
        assert!(refused.iter().any(|word| ran.stderr.contains(word)), "{ran}");
    }
    let (node, all) = (
        world.admin.ok("get nodes -o name"),
        ["proxy/pods", "proxy/metrics", "proxy/metrics/resource", "proxy/run/neighbour/good/main?cmd=id"],
    );
    for path in all {
        world.refused(&format!("get --raw /api/v1/{}/{path}", node.trim().replace("node/", "nodes/")), "orbidden");
    }
}

/// Rights that the tenant lacks, by every way to grant rights.
pub(super) fn more_rights_are_out_of_reach(world: &World<'_>) {
    let escalation = "is attempting to grant RBAC permissions not currently held";
    world.refused("create rolebinding mine --clusterrole=cluster-admin --user=mallory -n tenant", escalation);
    world.refused("create role all --verb=* --resource=* -n tenant", escalation);
    world.refused("create role nodes --verb=get --resource=nodes --resource=nodes/proxy -n tenant", escalation);
    world.refused("create role slices --verb=create --resource=endpointslices.discovery.k8s.io -n tenant", escalation);
    world.refused("create role bind --verb=bind --verb=escalate --resource=clusterroles -n tenant", escalation);
    // A change of a role that is already bound is the same as a binding.
    let widen = r#"[{"op":"replace","path":"/rules/0/verbs","value":["*"]},{"op":"replace","path":"/rules/0/resources","value":["*"]}]"#;
    world.mallory.ok("create role mine --verb=get --resource=pods -n tenant");
    let widened = world.mallory.run(&["patch", "role", "mine", "-n", "tenant", "--type=json", "-p", widen]).fails();
    assert!(widened.contains(escalation), "{widened}");
    world.refused("get pods -n tenant --as=kubernetes-admin", "cannot impersonate");
    world.refused("get pods -n tenant --as=mallory --as-group=system:masters", "cannot impersonate");
    world.refused("get pods -n tenant --as=system:serviceaccount:kube-system:default", "cannot impersonate");
    let token = "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/service-account-token\nmetadata: {name: theirs, namespace: kube-system, annotations: {kubernetes.io/service-account.name: default}}";
    world.refuses(token, "forbidden");
    for (group, kind, spec) in [
        (
            "apiregistration.k8s.io/v1",
            "APIService",
            "{group: g.example, version: v1, groupPriorityMinimum: 1, versionPriority: 1, service: {name: good, namespace: tenant}}",
        ),
        (
            "certificates.k8s.io/v1",
            "CertificateSigningRequest",
            "{request: YQ==, signerName: kubernetes.io/kube-apiserver-client, usages: [client auth]}",
        ),
    ] {
        world.refuses(&format!("apiVersion: {group}\nkind: {kind}\nmetadata: {{name: v1.g.example}}\nspec: {spec}"), "forbidden");
    }
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        world.refuses(&format!("apiVersion: admissionregistration.k8s.io/v1\nkind: {kind}\nmetadata: {{name: mine}}"), "forbidden");
    }
}

const QUOTA: &str = "
apiVersion: v1
kind: ResourceQuota
metadata: {name: few, namespace: ports}
spec: {hard: {configmaps: '4', services.nodeports: '0', limits.memory: 64Mi}}
";
const SMALL: &str = "
apiVersion: v1
kind: Pod
metadata: {name: small, namespace: ports}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sleep, '1000']
      resources: {limits: {memory: 32Mi}}
";

/// A quota counts all objects, however they were created.
pub(super) fn quotas_hold(world: &World<'_>) {
    world.admin.apply(QUOTA).ok();
    let loop_of = |n: u32| -> String {
        (0..n).map(|_| "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: many-, namespace: ports}\n---\n").collect()
    };
    let over = world.mallory.with_input("create -f -", &loop_of(8)).fails();
    assert!(over.contains("exceeded quota: few, requested: configmaps=1, used: configmaps=4, limited: configmaps=4"), "{over}");
    world.refused("patch resourcequota few -n ports --type=merge -p {\"spec\":{\"hard\":null}}", "orbidden");
    world.refused(
        "patch resourcequota few -n ports --subresource=status --type=merge -p {\"status\":{\"used\":{\"configmaps\":\"0\"}}}",
        "orbidden",
    );
    world.mallory.ok("create service clusterip plain --tcp=80 -n ports");
    // By a change of an existing object.
    world.refused("patch service plain -n ports -p {\"spec\":{\"type\":\"NodePort\"}}", "exceeded quota");
    world.mallory.ok("delete service plain -n ports");
    world.mallory.with_input("create -f -", SMALL).ok();
    let grown = r#"{"spec":{"containers":[{"name":"main","resources":{"limits":{"memory":"128Mi"},"requests":{"memory":"128Mi"}}}]}}"#;
    let resize = ["patch", "pod", "small", "-n", "ports", "--subresource=resize", "-p", grown];
    assert!(world.mallory.run(&resize).fails().contains("resource \"pods/resize\""));
    let complaint = world.admin.run(&resize).fails();
    assert!(complaint.contains("exceeded quota: few, requested: limits.memory=96Mi"), "{complaint}");
    world.mallory.ok("delete pod small -n ports --grace-period=1");
    world.admin.ok("delete resourcequota few -n ports");
}
