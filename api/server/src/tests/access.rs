use super::*;

#[tokio::test]
async fn a_user_without_the_right_gets_forbidden() {
    let cluster = cluster().await;
    let user = cluster.user("jane", &["system:authenticated"]);
    let cases = [
        (
            "/api/v1/namespaces/default/pods",
            "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"",
        ),
        (
            "/api/v1/namespaces/default/pods/x/log",
            "pods \"x\" is forbidden: User \"jane\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"default\"",
        ),
        (
            "/apis/apps/v1/deployments",
            "deployments.apps is forbidden: User \"jane\" cannot list resource \"deployments\" in API group \"apps\" at the cluster scope",
        ),
        ("/metrics", "forbidden: User \"jane\" cannot get path \"/metrics\""),
    ];
    for (path, message) in cases {
        let request = Request::builder().uri(path).body(Body::empty()).expect("a request");
        let answer = json_of(send(&user, request).await).await;
        assert_eq!(answer.refusal(), (403, message));
        assert_eq!(answer.body["reason"], "Forbidden");
    }
}

#[tokio::test]
async fn a_role_lets_in() {
    let cluster = cluster().await;
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]});
    let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "reader"}, "subjects": [{"apiGroup": rbac, "kind": "User", "name": "jane"}]});
    cluster.post(&format!("/apis/{rbac}/v1/namespaces/default/roles"), role).await.ok();
    cluster.post(&format!("/apis/{rbac}/v1/namespaces/default/rolebindings"), binding).await.ok();
    let user = cluster.user("jane", &["system:authenticated"]);
    let status = |path: &'static str| {
        let user = user.clone();
        async move { send(&user, Request::builder().uri(path).body(Body::empty()).expect("a request")).await.status() }
    };
    assert_eq!(status("/api/v1/namespaces/default/pods").await, StatusCode::OK);
    assert_eq!(status("/api/v1/namespaces/kube-system/pods").await, StatusCode::FORBIDDEN);
    assert_eq!(status("/api").await, StatusCode::OK);
}

/// As in upstream: the subject stays without a namespace, and the authorizer uses the binding's namespace.
#[tokio::test]
async fn a_service_account_without_a_namespace_is_one_of_the_bindings_own() {
    let cluster = cluster().await;
    let base = "/apis/rbac.authorization.k8s.io/v1";
    let binding = |kind: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "bots"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": "bot"}]})
    };
    let made = cluster.post(&format!("{base}/namespaces/default/rolebindings"), binding("RoleBinding")).await.ok();
    assert_eq!(made["subjects"], json!([{"kind": "ServiceAccount", "name": "bot"}]));
    for (user, path, expected) in [
        ("system:serviceaccount:default:bot", PODS, StatusCode::OK),
        ("system:serviceaccount:default:bot", "/api/v1/namespaces/kube-system/pods", StatusCode::FORBIDDEN),
        ("system:serviceaccount:kube-system:bot", PODS, StatusCode::FORBIDDEN),
    ] {
        let request = Request::builder().uri(path).body(Body::empty()).expect("a request");
        assert_eq!(send(&cluster.user(user, &["system:authenticated"]), request).await.status(), expected, "{user} at {path}");
    }
    let refused = cluster.post(&format!("{base}/clusterrolebindings"), binding("ClusterRoleBinding")).await;
    let message = "ClusterRoleBinding.rbac.authorization.k8s.io \"bots\" is invalid: subjects[0].namespace: Required value";
    assert_eq!(refused.refusal(), (422, message));
}

/// A user with the right to write roles and bindings cannot gain further rights through them.
#[tokio::test]
async fn nobody_grants_what_they_do_not_hold() {
    let cluster = cluster().await;
    let (rbac, base) = ("rbac.authorization.k8s.io", "/apis/rbac.authorization.k8s.io/v1");
    let role = |name: &str, verb: &str| {
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]})
    };
    let keeper = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "keeper"}, "rules": [
        {"apiGroups": [rbac], "resources": ["roles", "rolebindings"], "verbs": ["create", "update", "patch", "get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]});
    cluster.post(&format!("{base}/clusterroles"), keeper).await.ok();
    let binding = |name: &str, kind: &str, role: &str| {
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": kind, "name": role}, "subjects": [{"apiGroup": rbac, "kind": "User", "name": "jane"}]})
    };
    let (roles, bindings) = (format!("{base}/namespaces/default/roles"), format!("{base}/namespaces/default/rolebindings"));
    cluster.post(&bindings, binding("keepers", "ClusterRole", "keeper")).await.ok();
    let jane = cluster.user("jane", &["system:authenticated"]);
    let ask = |method: Method, path: String, media: &'static str, body: Value| {
        let jane = jane.clone();
        async move {
            let request = Request::builder().method(method).uri(path).header("content-type", media);
            json_of(send(&jane, request.body(Body::from(body.to_string())).expect("a request")).await).await
        }
    };
    let json = "application/json";
    ask(Method::POST, roles.clone(), json, role("reads", "list")).await.ok();
    ask(Method::POST, bindings.clone(), json, binding("readers", "Role", "reads")).await.ok();
    let refused = [
        ask(Method::POST, roles.clone(), json, role("deletes", "delete")).await,
        ask(Method::PUT, format!("{roles}/reads"), json, role("reads", "delete")).await,
        ask(Method::PATCH, format!("{roles}/reads"), "application/merge-patch+json", json!({"rules": role("reads", "*")["rules"]})).await,
        ask(Method::POST, bindings, json, binding("admins", "ClusterRole", "cluster-admin")).await,
    ];
    for answer in refused {
        assert!(answer.refusal().1.contains("is attempting to grant RBAC permissions not currently held"), "{answer:?}");
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
    }
}

#[tokio::test]
async fn a_user_may_be_taken_for_another() {
    let cluster = cluster().await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let request = |body: String| {
        let request = Request::builder().method(Method::POST).uri(path).header("content-type", "application/json");
        let request = request.header("impersonate-user", "jane").header("impersonate-group", "devs").header("impersonate-extra-a%2fb", "c");
        request.body(Body::from(body)).expect("a request")
    };
    let answer = json_of(cluster.raw(request(body.clone())).await).await.ok();
    let user = &answer["status"]["userInfo"];
    assert_eq!(user, &json!({"username": "jane", "groups": ["devs", "system:authenticated"], "extra": {"a/b": ["c"]}}));
    let refused = json_of(send(&cluster.user("joe", &["system:authenticated"]), request(body)).await).await;
    let message = "selfsubjectreviews.authentication.k8s.io is forbidden: User \"joe\" cannot impersonate-on:user-info:create resource \
                   \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at the cluster scope";
    assert_eq!(refused.refusal(), (403, message));
    let nameless = Request::builder().uri("/api").header("impersonate-group", "a").header("impersonate-extra-k", "v");
    let nameless = json_of(cluster.raw(nameless.body(Body::empty()).expect("a request")).await).await;
    let message = "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"a\"}, Extra:map[string][]string{\"k\":[]string{\"v\"}}} \
                   without impersonating a user name";
    assert_eq!(nameless.refusal(), (400, message));
}

/// A request with an unreadable impersonation header is rejected. It does not run as the user itself.
#[tokio::test]
async fn impersonation_headers_are_text() {
    let cluster = cluster().await;
    let get = |name: &'static [u8]| {
        let request =
            Request::builder().uri("/api/v1/namespaces").header("impersonate-user", http::HeaderValue::from_bytes(name).expect("a value"));
        let request = request.body(Body::empty()).expect("a request");
        async { json_of(cluster.raw(request).await).await }
    };
    assert_eq!(get(b"j\xfcrgen").await.status, StatusCode::BAD_REQUEST);
    let known = get("jürgen".as_bytes()).await;
    assert!(known.status == StatusCode::FORBIDDEN && known.refusal().1.contains("User \"jürgen\" cannot list"), "{known:?}");
}

/// The verb `impersonate` allows everything as the other user; the constrained verbs allow only the actions that they
/// name.
#[tokio::test]
async fn impersonation_is_a_right_on_each_thing_that_is_named() {
    let cluster = cluster().await;
    let (rbac, base) = ("rbac.authorization.k8s.io", "/apis/rbac.authorization.k8s.io/v1");
    let grant = async |user: &str, rules: Value| {
        let role = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules});
        cluster.post(&format!("{base}/clusterroles"), role).await.ok();
        let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": user},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}]});
        cluster.post(&format!("{base}/clusterrolebindings"), binding).await.ok();
    };
    let authentication = "authentication.k8s.io";
    grant(
        "old",
        json!([
            {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["jane"]},
            {"apiGroups": [authentication], "resources": ["userextras/scopes"], "verbs": ["impersonate"], "resourceNames": ["read"]},
            {"apiGroups": [authentication], "resources": ["uids"], "verbs": ["impersonate"], "resourceNames": ["7"]},
        ]),
    )
    .await;
    grant(
        "new",
        json!([
            {"apiGroups": [authentication], "resources": ["users"], "verbs": ["impersonate:user-info"], "resourceNames": ["jane"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:user-info:list"]},
        ]),
    )
    .await;
    grant("jane", json!([{"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["list"]}])).await;
    let ask = async |user: &str, path: &str, headers: &[(&str, &str)]| {
        let request = Request::builder().uri(path).header("impersonate-user", "jane");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let user = cluster.user(user, &["system:authenticated"]);
        json_of(send(&user, request.body(Body::empty()).expect("a request")).await).await
    };
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(ask("old", PODS, &[]).await.status, StatusCode::OK);
    assert_eq!(ask("old", secrets, &[("impersonate-uid", "7"), ("impersonate-extra-scopes", "read")]).await.status, StatusCode::OK);
    for (name, value) in [("impersonate-uid", "8"), ("impersonate-extra-scopes", "write"), ("impersonate-group", "system:masters")] {
        let refused = ask("old", PODS, &[(name, value)]).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{name}: {refused:?}");
    }
    assert_eq!(ask("new", PODS, &[]).await.status, StatusCode::OK);
    let refused = ask("new", secrets, &[]).await;
    let message = "secrets is forbidden: User \"new\" cannot impersonate-on:user-info:list resource \"secrets\" in API group \"\" in the namespace \"default\"";
    assert_eq!(refused.refusal(), (403, message));
    let refused = ask("new", PODS, &[("impersonate-group", "system:masters")]).await;
    assert!(refused.refusal().1.ends_with(": impersonating the system:masters group is not allowed"), "{refused:?}");
}

/// A node gets tokens for audiences that its Pods mount, and for audiences that an administrator grants it.
#[tokio::test]
async fn a_node_may_be_granted_audiences() {
    let cluster = cluster().await;
    let uid = cluster.pod("p", "n1").await["metadata"]["uid"].clone();
    let node = cluster.user("system:node:n1", &["system:nodes", "system:authenticated"]);
    let ask = async |audience: &str| {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid});
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [audience], "boundObjectRef": bound}});
        let request = Request::builder().method(Method::POST).uri("/api/v1/namespaces/default/serviceaccounts/default/token");
        let request = request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_string()));
        json_of(send(&node, request.expect("a request")).await).await
    };
    let refused = |audience: &str| {
        let why = "not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience";
        format!("serviceaccounts \"default\" is forbidden: audience \"{audience}\" {why}")
    };
    assert_eq!(ask("registry.example.com").await.refusal(), (403, refused("registry.example.com").as_str()));
    let rbac = "rbac.authorization.k8s.io";
    let rule = json!({"apiGroups": [""], "resources": ["registry.example.com"], "resourceNames": ["default"], "verbs": ["request-serviceaccounts-token-audience"]});
    let role = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "audience"}, "rules": [rule]});
    let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "audience"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "audience"}, "subjects": [{"kind": "Group", "apiGroup": rbac, "name": "system:nodes"}]});
    cluster.post(&format!("/apis/{rbac}/v1/clusterroles"), role).await.ok();
    cluster.post(&format!("/apis/{rbac}/v1/clusterrolebindings"), binding).await.ok();
    assert!(ask("registry.example.com").await.ok()["status"]["token"].is_string());
    assert_eq!(ask("other.example.com").await.refusal(), (403, refused("other.example.com").as_str()));
}

#[tokio::test]
async fn access_reviews_answer() {
    let cluster = cluster().await;
    let group = "authorization.k8s.io";
    let resource = json!({"verb": "list", "resource": "pods", "namespace": "default"});
    let own = json!({"apiVersion": format!("{group}/v1"), "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": resource}});
    assert_eq!(cluster.post(&format!("/apis/{group}/v1/selfsubjectaccessreviews"), own).await.ok()["status"]["allowed"], true);
    let other = json!({"apiVersion": format!("{group}/v1"), "kind": "SubjectAccessReview", "spec": {"user": "jane", "resourceAttributes": resource}});
    assert_eq!(cluster.post(&format!("/apis/{group}/v1/subjectaccessreviews"), other).await.ok()["status"]["allowed"], false);
    let empty = json!({"apiVersion": format!("{group}/v1"), "kind": "SubjectAccessReview", "spec": {"user": "jane"}});
    let refused = cluster.post(&format!("/apis/{group}/v1/subjectaccessreviews"), empty).await;
    let none = "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified";
    assert_eq!(refused.refusal(), (422, format!("SubjectAccessReview.{group} \"\" is invalid: {none}").as_str()));
    let local = json!({"apiVersion": format!("{group}/v1"), "kind": "LocalSubjectAccessReview", "metadata": {"name": "x"},
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "other"}}});
    let refused = cluster.post(&format!("/apis/{group}/v1/namespaces/default/localsubjectaccessreviews"), local).await;
    for text in ["metadata: Invalid value", "must match metadata.namespace", "at least one of user or group must be specified"] {
        assert!(refused.refusal().1.contains(text), "{text}: {refused:?}");
    }
    let own = json!({"apiVersion": format!("{group}/v1"), "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": resource}});
    let table = Request::builder().method(Method::POST).uri(format!("/apis/{group}/v1/selfsubjectaccessreviews"));
    let table =
        table.header(header::ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io").header(header::CONTENT_TYPE, "application/json");
    let refused = json_of(cluster.raw(table.body(Body::from(own.to_string())).expect("a request")).await).await;
    assert_eq!((refused.status, &refused.body["reason"]), (StatusCode::NOT_ACCEPTABLE, &json!("NotAcceptable")));
    let rules = json!({"apiVersion": format!("{group}/v1"), "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"}});
    let rules = cluster.post(&format!("/apis/{group}/v1/selfsubjectrulesreviews"), rules).await.ok();
    assert!(rules["status"]["resourceRules"].as_array().is_some_and(|rules| !rules.is_empty()), "{rules}");
}

#[tokio::test]
async fn anybody_can_read_where_the_cluster_is() {
    let cluster = cluster().await;
    let anonymous = cluster.user("system:anonymous", &["system:unauthenticated"]);
    let path = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
    let answer = json_of(send(&anonymous, Request::builder().uri(path).body(Body::empty()).expect("a request")).await).await.ok();
    let kubeconfig: Value = serde_yaml::from_str(answer["data"]["kubeconfig"].as_str().expect("YAML")).expect("YAML");
    assert_eq!(kubeconfig["clusters"][0]["cluster"]["server"], "https://10.0.0.1:6443");
}
