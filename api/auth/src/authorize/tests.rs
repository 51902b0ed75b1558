use api_model::selector::FieldSelector;

use super::escalation::Write;
use super::*;
use crate::role::GROUP;
use crate::testing::Objects;
use api_model::kind::GroupResource;

fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({ "verbs": verbs, "apiGroups": [group], "resources": resources })
}

fn rbac(kind: &str, namespace: &str, name: &str, body: Value) -> Value {
    let mut object = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": name } });
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object.as_object_mut().expect("map").extend(body.as_object().expect("map").clone());
    object
}

fn binding(namespace: &str, name: &str, role: (&str, &str), subjects: Value) -> Value {
    let kind = if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
    rbac(kind, namespace, name, json!({ "roleRef": { "kind": role.0, "name": role.1 }, "subjects": subjects }))
}

fn user(name: &str) -> Value {
    json!({ "kind": "User", "name": name })
}

/// Parses `get pods`, `list apps/deployments ns` or `get pods/log ns name`.
fn ask(text: &str) -> Attributes {
    let mut words = text.split(' ');
    let mut next = || words.next().unwrap_or_default().to_owned();
    let (verb, resource, namespace, name) = (next(), next(), next(), next());
    if resource.starts_with('/') {
        return Attributes { verb, path: resource, ..Attributes::default() };
    }
    let (group, resource) = resource.split_once(':').unwrap_or(("", &resource));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let own = str::to_owned;
    let namespace = if namespace == "-" { String::new() } else { namespace };
    Attributes { verb, group: own(group), resource: own(resource), subresource: own(subresource), namespace, name, ..Attributes::default() }
}

fn roles() -> Objects {
    let mut reader = rbac("ClusterRole", "", "reader", json!({ "rules": [rule(&["get", "list"], "", &["pods"])] }));
    reader["metadata"]["labels"] = json!({ "to-all": "true" });
    let gathers = json!({ "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "to-all": "true" } }] }, "rules": [rule(&["*"], "", &["secrets"])] });
    Objects::new([
        reader,
        rbac("ClusterRole", "", "all", gathers),
        rbac("ClusterRole", "", "paths", json!({ "rules": [{ "verbs": ["get"], "nonResourceURLs": ["/metrics", "/healthz/*"] }] })),
        rbac("Role", "ns", "writer", json!({ "rules": [rule(&["create"], "apps", &["deployments"])] })),
        binding("", "everyone-reads", ("ClusterRole", "reader"), json!([user("ann"), { "kind": "Group", "name": "readers" }])),
        binding("", "gathered", ("ClusterRole", "all"), json!([user("gus")])),
        binding("", "paths", ("ClusterRole", "paths"), json!([user("ann")])),
        binding("ns", "reads-here", ("ClusterRole", "reader"), json!([user("ben")])),
        binding("ns", "writes-here", ("Role", "writer"), json!([{ "kind": "ServiceAccount", "name": "bot", "namespace": "ci" }])),
        binding("", "dangling", ("ClusterRole", "gone"), json!([user("dan")])),
        binding("ns", "dangling", ("Role", "gone"), json!([user("dan")])),
    ])
}

#[test]
fn bindings_give_what_their_roles_allow() {
    let (authorizer, view) = (Authorizer::default(), roles());
    let readers = UserInfo::new("zoe", &["readers"]);
    let bot = UserInfo::new("system:serviceaccount:ci:bot", &["system:serviceaccounts"]);
    let named = |name: &str| UserInfo::new(name, &[]);
    for (who, what, wanted) in [
        (named("ann"), "get pods ns p", true),
        (named("ann"), "list pods -", true),
        (named("ann"), "delete pods ns p", false),
        (readers, "list pods other", true),
        (named("ben"), "list pods ns", true),
        (named("ben"), "list pods other", false),
        (named("ben"), "list pods -", false),
        (bot, "create apps:deployments ns", true),
        (named("system:serviceaccount:other:bot"), "create apps:deployments ns", false),
        (named("bot"), "create apps:deployments ns", false),
        (named("gus"), "get pods ns p", true),
        (named("gus"), "get secrets ns s", false),
        (named("ann"), "get /metrics", true),
        (named("ann"), "get /healthz/ping", true),
        (named("ann"), "get /healthz", false),
        (named("ben"), "get /metrics", false),
        (UserInfo::new("root", &["system:masters"]), "delete nodes - n", true),
    ] {
        assert_eq!(authorizer.authorize(&who, &ask(what), &view).is_allowed(), wanted, "{} {what}", who.username);
    }
}

#[test]
fn reasons_read_like_upstreams() {
    let (authorizer, view) = (Authorizer::default(), roles());
    let reason = |who: &str, what: &str| authorizer.authorize(&UserInfo::new(who, &[]), &ask(what), &view).reason().to_owned();
    assert_eq!(
        reason("ann", "get pods ns p"),
        "RBAC: allowed by ClusterRoleBinding \"everyone-reads\" of ClusterRole \"reader\" to User \"ann\""
    );
    assert_eq!(reason("ben", "get pods ns p"), "RBAC: allowed by RoleBinding \"reads-here/ns\" of ClusterRole \"reader\" to User \"ben\"");
    assert_eq!(
        reason("system:serviceaccount:ci:bot", "create apps:deployments ns"),
        "RBAC: allowed by RoleBinding \"writes-here/ns\" of Role \"writer\" to ServiceAccount \"bot/ci\""
    );
    assert_eq!(reason("ben", "get secrets ns"), "");
    assert_eq!(reason("dan", "get pods"), "RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found");
    assert_eq!(
        reason("dan", "get pods ns"),
        "RBAC: [clusterrole.rbac.authorization.k8s.io \"gone\" not found, role.rbac.authorization.k8s.io \"gone\" not found]"
    );
}

#[test]
fn refusals_read_like_upstreams() {
    let jane = UserInfo::new("jane", &[]);
    for (what, reason, wanted) in [
        ("list pods n", "", "User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \"n\""),
        ("list nodes -", "", "User \"jane\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"),
        (
            "get apps:deployments/scale n d",
            "because",
            "User \"jane\" cannot get resource \"deployments/scale\" in API group \"apps\" in the namespace \"n\": because",
        ),
        ("get /metrics", "", "User \"jane\" cannot get path \"/metrics\""),
        ("get /<b>&", "", "User \"jane\" cannot get path \"/&lt;b&gt;&amp;\""),
    ] {
        assert_eq!(forbidden_message(&jane, &ask(what), reason), wanted);
    }
}

#[test]
fn the_index_follows_changes() {
    let (authorizer, mut view) = (Authorizer::default(), roles());
    let may = |view: &Objects| authorizer.authorize(&UserInfo::new("eve", &[]), &ask("get pods ns p"), view).is_allowed();
    assert!(!may(&view));
    view.put(binding("ns", "new", ("ClusterRole", "reader"), json!([user("eve")])));
    assert!(may(&view));
    view.remove(&GroupResource::new(GROUP, "clusterroles"), "", "reader");
    assert!(!may(&view));
}

#[test]
fn reviews_list_what_a_user_may_do() {
    let (authorizer, view) = (Authorizer::default(), roles());
    let status = authorizer.rules_for(&UserInfo::new("ann", &[]), "ns", &view);
    let wanted = json!({
        "resourceRules": [{ "verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"] }],
        "nonResourceRules": [{ "verbs": ["get"], "nonResourceURLs": ["/metrics", "/healthz/*"] }],
        "incomplete": false,
    });
    assert_eq!(status, wanted);
    let dangling = authorizer.rules_for(&UserInfo::new("dan", &[]), "ns", &view);
    assert_eq!(dangling["incomplete"], true);
    assert!(dangling["evaluationError"].as_str().expect("text").contains("not found"));
    let node = authorizer.rules_for(&UserInfo::new("system:node:n1", &["system:nodes"]), "ns", &view);
    assert_eq!(node["evaluationError"], "node authorizer does not support user rule resolution");
}

fn write(kind: &str, user: &UserInfo, new: &Value, old: Option<&Value>, view: &Objects) -> String {
    let resource = GroupResource::new(GROUP, kind);
    let (namespace, name) = (api_model::meta::namespace(new), api_model::meta::name(new));
    let write = Write { resource: &resource, namespace, name, new, old };
    Authorizer::default().check_escalation(user, &write, view).map_or_else(|error| error.to_string(), |()| "ok".to_owned())
}

#[test]
fn nobody_gives_what_they_do_not_have() {
    let mut view = roles();
    let ann = UserInfo::new("ann", &["a", "b"]);
    let role = |rules: Value| rbac("Role", "ns", "new", json!({ "rules": rules }));
    assert_eq!(write("roles", &ann, &role(json!([rule(&["get"], "", &["pods"])])), None, &view), "ok");
    let more = role(json!([rule(&["get", "delete", "watch"], "", &["pods"]), rule(&["get"], "apps", &["deployments"])]));
    assert_eq!(
        write("roles", &ann, &more, None, &view),
        "user \"ann\" (groups=[\"a\" \"b\"]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"watch\"]}\n\
         {APIGroups:[\"apps\"], Resources:[\"deployments\"], Verbs:[\"get\"]}"
    );
    assert_eq!(write("roles", &ann, &more, Some(&more), &view), "ok", "nothing new");
    assert_eq!(write("roles", &UserInfo::new("root", &["system:masters"]), &more, None, &view), "ok");
    let gathering = rbac("ClusterRole", "", "g", json!({ "aggregationRule": { "clusterRoleSelectors": [{}] } }));
    assert_eq!(write("clusterroles", &ann, &gathering, None, &view), "must have cluster-admin privileges to use an aggregationRule");

    view.put(rbac("ClusterRole", "", "escalator", json!({ "rules": [rule(&["escalate"], GROUP, &["roles"])] })));
    view.put(binding("", "escalator", ("ClusterRole", "escalator"), json!([user("ann")])));
    assert_eq!(write("roles", &ann, &more, None, &view), "ok", "holds escalate");
}

#[test]
fn nobody_binds_what_they_do_not_have() {
    let mut view = roles();
    let ben = UserInfo::new("ben", &[]);
    let to = |namespace: &str, kind: &str, role: &str| binding(namespace, "new", (kind, role), json!([user("eve")]));
    assert_eq!(write("rolebindings", &ben, &to("ns", "ClusterRole", "reader"), None, &view), "ok");
    assert!(write("rolebindings", &ben, &to("other", "ClusterRole", "reader"), None, &view).contains("not currently held"));
    assert!(write("clusterrolebindings", &ben, &to("", "ClusterRole", "reader"), None, &view).contains("not currently held"));
    assert!(write("rolebindings", &ben, &to("ns", "Role", "writer"), None, &view).contains("deployments"));
    let missing = to("ns", "Role", "none");
    assert_eq!(write("rolebindings", &ben, &missing, None, &view), "role.rbac.authorization.k8s.io \"none\" not found");
    assert_eq!(write("rolebindings", &ben, &missing, Some(&missing), &view), "ok", "nothing new");

    view.put(rbac("ClusterRole", "", "binder", json!({ "rules": [rule(&["bind"], GROUP, &["roles"])] })));
    view.put(binding("ns", "binder", ("ClusterRole", "binder"), json!([user("ben")])));
    assert_eq!(write("rolebindings", &ben, &to("ns", "Role", "writer"), None, &view), "ok", "holds bind");
}

fn node_view() -> Objects {
    let pod = |name: &str, on: &str, spec: Value| {
        let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "ns" }, "spec": spec });
        pod["spec"]["nodeName"] = on.into();
        pod
    };
    let volumes = json!([
        { "name": "s", "secret": { "secretName": "volume" } },
        { "name": "p", "projected": { "sources": [{ "secret": { "name": "projected" } }, { "configMap": { "name": "projected" } }] } },
        { "name": "c", "persistentVolumeClaim": { "claimName": "claim" } },
        { "name": "e", "ephemeral": { "volumeClaimTemplate": {} } },
    ]);
    let mine = json!({
        "serviceAccountName": "runner",
        "imagePullSecrets": [{ "name": "pull" }],
        "volumes": volumes,
        "initContainers": [{ "envFrom": [{ "secretRef": { "name": "from" } }] }],
        "containers": [{ "env": [{ "valueFrom": { "configMapKeyRef": { "name": "key" } } }] }],
        "resourceClaims": [{ "name": "gpu", "resourceClaimName": "gpu" }],
    });
    let other = json!({ "serviceAccountName": "other", "imagePullSecrets": [{ "name": "others" }] });
    let volume = |name: &str, claim: &str| json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name }, "spec": { "claimRef": { "namespace": "ns", "name": claim } } });
    let slice = |name: &str, on: &str| json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": name }, "spec": { "nodeName": on } });
    let mut mine = pod("mine", "n1", mine);
    mine["status"] = json!({ "extendedResourceClaimStatus": { "resourceClaimName": "mine-extended-resources-x" } });
    Objects::new([
        slice("own", "n1"),
        slice("foreign", "n2"),
        mine,
        pod("other", "n2", other),
        volume("pv", "claim"),
        volume("foreign", "elsewhere"),
    ])
}

#[test]
fn a_node_reads_what_its_pods_need() {
    let view = node_view();
    let node = UserInfo::new("system:node:n1", &["system:nodes"]);
    let cases = "
        get secrets ns volume: yes
        watch secrets ns volume: yes
        get secrets ns projected: yes
        get secrets ns pull: yes
        get secrets ns from: yes
        get secrets ns others: no
        get secrets other volume: no
        list secrets ns: no
        delete secrets ns volume: no
        get configmaps ns projected: yes
        get configmaps ns key: yes
        get configmaps ns pull: no
        get persistentvolumeclaims ns claim: yes
        get persistentvolumeclaims ns mine-e: yes
        list persistentvolumeclaims ns claim: no
        update persistentvolumeclaims/status ns claim: yes
        update persistentvolumeclaims/status ns elsewhere: no
        get persistentvolumes - pv: yes
        get persistentvolumes - foreign: no
        create serviceaccounts/token ns runner: yes
        create serviceaccounts/token ns other: no
        get serviceaccounts ns runner: no
        get pods ns mine: yes
        get pods ns other: no
        list pods -: no
        create pods ns: yes
        delete pods ns other: yes
        update pods ns mine: no
        patch pods/status ns mine: yes
        create pods/eviction ns mine: yes
        get pods/log ns mine: no
        get nodes - n1: yes
        get nodes - n2: no
        list nodes -: no
        create nodes -: yes
        patch nodes/status - n1: yes
        delete nodes - n1: no
        get coordination.k8s.io:leases kube-node-lease n1: yes
        update coordination.k8s.io:leases kube-node-lease n2: no
        create coordination.k8s.io:leases kube-node-lease: yes
        get coordination.k8s.io:leases default n1: no
        list coordination.k8s.io:leases kube-node-lease: no
        list services -: yes
        watch node.k8s.io:runtimeclasses -: yes
        create events ns: yes
        create certificates.k8s.io:certificatesigningrequests -: yes
        get storage.k8s.io:csinodes - n1: yes
        get storage.k8s.io:csinodes - n2: no
        get resource.k8s.io:resourceclaims ns gpu: yes
        get resource.k8s.io:resourceclaims ns mine-extended-resources-x: yes
        get resource.k8s.io:resourceclaims ns others: no
        create resource.k8s.io:resourceslices -: yes
        update resource.k8s.io:resourceslices - own: yes
        delete resource.k8s.io:resourceslices - foreign: no
        list resource.k8s.io:resourceslices -: no
        create apps:deployments ns: no
        get /metrics: no";
    for case in cases.trim().lines() {
        let (what, wanted) = case.trim().rsplit_once(": ").expect("a case");
        let decision = node::authorize(&node, &ask(what), &view);
        assert_eq!(decision.is_allowed(), wanted == "yes", "{what}: {}", decision.reason());
    }
}

#[test]
fn a_node_lists_by_its_own_name_only() {
    let node = UserInfo::new("system:node:n1", &["system:nodes"]);
    let list = |resource: &str, selector: &str| {
        let field_selector = Some(FieldSelector::parse(selector).expect("parses"));
        node::authorize(&node, &Attributes { field_selector, ..ask(&format!("list {resource} -")) }, &Objects::default())
    };
    assert!(list("pods", "spec.nodeName=n1").is_allowed());
    assert!(list("pods", "spec.nodeName=n1,status.phase=Running").is_allowed());
    assert_eq!(list("pods", "spec.nodeName=n2").reason(), "can only list/watch pods with spec.nodeName field selector");
    assert!(!list("pods", "spec.nodeName!=n1").is_allowed());
    assert!(list("nodes", "metadata.name=n1").is_allowed());
    assert_eq!(list("nodes", "metadata.name=n2").reason(), "node 'n1' cannot read all nodes, only its own Node object");
}

#[test]
fn only_nodes_are_nodes() {
    let view = node_view();
    for user in [UserInfo::new("system:node:n1", &[]), UserInfo::new("n1", &["system:nodes"])] {
        assert_eq!(node::authorize(&user, &ask("get secrets ns volume"), &view), Decision::NoOpinion(String::new()));
    }
    let nameless = node::authorize(&UserInfo::new("system:node:", &["system:nodes"]), &ask("get secrets ns volume"), &view);
    assert_eq!(nameless.reason(), "unknown node for user \"system:node:\"");
}

/// The whole bootstrap policy with its real users.
#[test]
fn the_bootstrap_policy_serves_its_users() {
    let view = Objects::new(crate::bootstrap::objects());
    let authorizer = Authorizer::default();
    let scheduler = UserInfo::new("system:kube-scheduler", &["system:authenticated"]);
    let manager = UserInfo::new("system:kube-controller-manager", &["system:authenticated"]);
    let deployments =
        UserInfo::new("system:serviceaccount:kube-system:deployment-controller", &["system:serviceaccounts", "system:authenticated"]);
    let anonymous = UserInfo::new("system:anonymous", &["system:unauthenticated"]);
    let joining = UserInfo::new(
        "system:bootstrap:abcdef",
        &["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"],
    );
    let node = UserInfo::new("system:node:n1", &["system:nodes", "system:authenticated"]);
    let jane = UserInfo::new("jane", &["system:authenticated"]);
    for (who, what, wanted) in [
        (&scheduler, "create pods/binding ns p", true),
        (&scheduler, "delete pods ns p", true),
        (&scheduler, "create deployments ns", false),
        (&manager, "list apps:replicasets -", true),
        (&deployments, "create apps:replicasets ns", true),
        (&deployments, "create pods ns", false),
        (&anonymous, "get /readyz", true),
        (&anonymous, "get /version", true),
        (&anonymous, "get /api", false),
        (&jane, "get /apis/apps/v1", true),
        (&jane, "create authorization.k8s.io:selfsubjectaccessreviews -", true),
        (&jane, "list pods ns", false),
        (&joining, "create certificates.k8s.io:certificatesigningrequests -", true),
        (&joining, "create certificates.k8s.io:certificatesigningrequests/nodeclient -", true),
        (&joining, "get secrets kube-system s", false),
        (&node, "watch discovery.k8s.io:endpointslices -", true),
        (&node, "list nodes -", true),
        (&node, "list services -", true),
        (&node, "get secrets kube-system s", false),
    ] {
        assert_eq!(authorizer.authorize(who, &ask(what), &view).is_allowed(), wanted, "{} {what}", who.username);
    }
}
