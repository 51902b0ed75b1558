//! Every served kind through every verb that discovery lists for it, and through no other verb.

mod objects;

use super::*;

/// The steps in the life of an object, which are the same for all kinds.
struct Life<'a> {
    cluster: &'a Cluster,
    kind: &'a api_model::kind::Kind,
    /// Path of the collection.
    path: String,
    object: Value,
}

#[tokio::test]
async fn every_kind_answers_every_verb_it_offers() {
    let cluster = cluster().await;
    cluster.service_account().await;
    for kind in api_model::kind::builtin().iter().filter(|kind| kind.allows("update")) {
        let object = objects::of(kind);
        let path = collection(kind);
        let life = Life { cluster: &cluster, kind, path, object };
        life.is_created().await;
        life.is_read().await;
        life.is_changed().await;
        life.is_applied().await;
        life.has_its_status().await;
        life.is_deleted().await;
        life.is_deleted_with_others().await;
        life.refuses_other_verbs().await;
    }
}

/// The path of a kind's objects, in `default` or in the cluster.
fn collection(kind: &api_model::kind::Kind) -> String {
    let root = if kind.group.is_empty() { "api" } else { "apis" };
    let namespace = if kind.namespaced { "namespaces/default/" } else { "" };
    format!("/{root}/{}/{namespace}{}", kind.api_version(), kind.plural)
}

impl Life<'_> {
    fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().expect("a name")
    }

    fn one(&self) -> String {
        format!("{}/{}", self.path, self.name())
    }

    /// The body of an answer that must be a success.
    fn ok(&self, what: &str, answer: Answer) -> Value {
        assert!(answer.status.is_success(), "{what} of {}: {answer:?}", self.path);
        answer.body
    }

    async fn is_created(&self) {
        let strange = |mut object: Value| {
            object["colour"] = "red".into();
            object
        };
        let strict = format!("{}?fieldValidation=Strict", self.path);
        let refused = self.cluster.post(&strict, strange(self.object.clone())).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}: {refused:?}", self.path);
        assert!(refused.refusal().1.contains("strict decoding error: unknown field \"colour\""), "{refused:?}");
        let dry = self.cluster.post(&format!("{strict}&dryRun=All"), self.object.clone()).await;
        assert_eq!(dry.status, StatusCode::CREATED, "{}: {dry:?}", self.path);
        assert_eq!(self.cluster.get(&self.one()).await.status, StatusCode::NOT_FOUND, "{}", self.path);
        let created = self.ok("create", self.cluster.post(&strict, self.object.clone()).await);
        assert_eq!((&created["kind"], &created["apiVersion"]), (&json!(self.kind.kind), &json!(self.kind.api_version())));
        assert_eq!(created["metadata"]["uid"].as_str().map(str::len), Some(36), "{created}");
        let again = self.cluster.post(&self.path, self.object.clone()).await;
        let wanted = format!("{} \"{}\" already exists", self.kind.group_resource(), self.name());
        assert_eq!(again.refusal(), (409, wanted.as_str()));
        assert_eq!(again.body["reason"], "AlreadyExists");
    }

    async fn is_read(&self) {
        let got = self.ok("get", self.cluster.get(&self.one()).await);
        assert_eq!(got["metadata"]["name"], self.name());
        let list = self.ok("list", self.cluster.get(&self.path).await);
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!(self.kind.list_kind()), &json!(self.kind.api_version())));
        assert!(names(&list).contains(&self.name()), "{}: {list}", self.path);
        let page = self.ok("a page", self.cluster.get(&format!("{}?limit=1", self.path)).await);
        assert_eq!(names(&page).len(), 1, "{}", self.path);
        let chosen = format!("{}?fieldSelector=metadata.name={}", self.path, self.name());
        assert_eq!(names(&self.ok("a selection", self.cluster.get(&chosen).await)), [self.name()]);
        let unknown = self.cluster.get(&format!("{}?fieldSelector=spec.colour=red", self.path)).await;
        assert_eq!(unknown.status, StatusCode::BAD_REQUEST, "{}", self.path);
        for accept in ["application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1beta1;g=meta.k8s.io"] {
            let table = self.ok("a table", self.cluster.get_as(&chosen, accept).await);
            let columns = table["columnDefinitions"].as_array().expect("columns");
            let cells = table["rows"][0]["cells"].as_array().expect("cells");
            assert_eq!(columns.len(), cells.len(), "{table}");
            let named = columns.iter().position(|column| column["format"] == "name").unwrap_or_else(|| panic!("{table}"));
            assert!(cells[named].as_str().is_some_and(|cell| cell.starts_with(self.name())), "{table}");
        }
        let metadata = self.cluster.get_as(&self.one(), "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").await;
        assert_eq!(self.ok("metadata", metadata)["kind"], "PartialObjectMetadata");
        let watch = Request::builder().uri(format!("{chosen}&watch=true")).body(Body::empty()).expect("a request");
        let mut watch = self.cluster.raw(watch).await.into_body();
        let frame = watch.frame().await.expect("an event").expect("a frame").into_data().expect("data");
        let event: Value = serde_json::from_slice(frame.split(|byte| *byte == b'\n').next().expect("a line")).expect("JSON");
        assert_eq!((&event["type"], &event["object"]), (&json!("ADDED"), &got), "{}", self.path);
    }

    async fn is_changed(&self) {
        let mut object = self.ok("get", self.cluster.get(&self.one()).await);
        let before = object["metadata"]["resourceVersion"].clone();
        object["metadata"]["labels"]["put"] = "yes".into();
        let updated = self.ok("update", self.cluster.put(&self.one(), &object).await);
        assert_ne!(updated["metadata"]["resourceVersion"], before, "{}", self.path);
        assert_eq!(self.cluster.put(&self.one(), &object).await.status, StatusCode::CONFLICT, "{}: a stale update", self.path);
        let label = |value: &str| json!({"metadata": {"labels": {"patched": value}}});
        for kind in ["merge", "strategic"] {
            let patched = self.ok(kind, self.cluster.patch(&self.one(), kind, label(kind)).await);
            assert_eq!((&patched["metadata"]["labels"]["patched"], &patched["metadata"]["labels"]["put"]), (&json!(kind), &json!("yes")));
        }
        let operation = json!([{"op": "replace", "path": "/metadata/labels/patched", "value": "json"}]);
        let patched = self.ok("json", self.cluster.patch(&self.one(), "json", operation).await);
        assert_eq!(patched["metadata"]["labels"]["patched"], "json");
        let renamed = self.cluster.patch(&self.one(), "merge", json!({"metadata": {"name": "other"}})).await;
        assert_eq!(renamed.status, StatusCode::BAD_REQUEST, "{}: {renamed:?}", self.path);
    }

    async fn is_applied(&self) {
        let path = format!("{}?fieldManager=battery", self.one());
        let config = json!({
            "apiVersion": self.kind.api_version(), "kind": self.kind.kind,
            "metadata": {"name": self.name(), "labels": {"applied": "yes"}},
        });
        let apply = |path: String| {
            let body = config.to_string();
            async move { self.cluster.request(Method::PATCH, &path, "application/apply-patch+yaml", body).await }
        };
        let applied = self.ok("apply", apply(path.clone()).await);
        assert_eq!((&applied["metadata"]["labels"]["applied"], &applied["metadata"]["labels"]["put"]), (&json!("yes"), &json!("yes")));
        let managers = applied["metadata"]["managedFields"].as_array().expect("managers");
        let is_ours = |entry: &&Value| entry["manager"] == "battery" && entry["operation"] == "Apply";
        assert!(managers.iter().any(|entry| is_ours(&entry)), "{applied}");
        let again = self.ok("apply", apply(path).await);
        assert_eq!(again["metadata"]["resourceVersion"], applied["metadata"]["resourceVersion"], "{}: nothing changed", self.path);
    }

    async fn has_its_status(&self) {
        let path = format!("{}/status", self.one());
        if !self.kind.has_status() {
            assert_eq!(self.cluster.get(&path).await.status, StatusCode::NOT_FOUND, "{path}");
            return;
        }
        let object = self.ok("get of the status", self.cluster.get(&path).await);
        // A Node's status belongs to its kubelet from the beginning.
        assert!(object["status"].is_object() || self.kind.plural == "nodes", "{object}");
        let mut lied = object.clone();
        lied["metadata"]["labels"]["status"] = "yes".into();
        self.ok("update of the status", self.cluster.put(&path, &lied).await);
        let patch = json!({"metadata": {"annotations": {"status": "patched"}}});
        let patched = self.ok("patch of the status", self.cluster.patch(&path, "merge", patch).await);
        assert_eq!(patched["spec"], object["spec"], "{path}");
        // A write of the object itself does not change the status.
        let lie = json!({"status": {"conditions": [{"type": "Lie", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z"}]}});
        let through = self.cluster.patch(&self.one(), "merge", lie).await;
        let stored = if through.status.is_success() { through.body } else { self.ok("get", self.cluster.get(&self.one()).await) };
        assert!(!stored["status"].to_string().contains("Lie"), "{stored}");
    }

    async fn is_deleted(&self) {
        let stale = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}});
        let refused = self.cluster.request(Method::DELETE, &self.one(), "application/json", stale.to_string()).await;
        assert_eq!(refused.status, StatusCode::CONFLICT, "{}: {refused:?}", self.path);
        self.ok("a dry run of delete", self.cluster.delete(&format!("{}?dryRun=All", self.one())).await);
        self.ok("get", self.cluster.get(&self.one()).await);
        self.ok("delete", self.cluster.delete(&self.one()).await);
        self.is_gone().await;
    }

    /// Waits until the object is gone. Removes finalizers, as controllers would do.
    async fn is_gone(&self) {
        for _ in 0..1_000 {
            let answer = self.cluster.get(&self.one()).await;
            if answer.status == StatusCode::NOT_FOUND {
                return;
            }
            assert!(answer.body["metadata"]["deletionTimestamp"].is_string(), "{}: {answer:?}", self.path);
            if self.kind.plural == "namespaces" {
                let mut released = answer.body.clone();
                released["spec"]["finalizers"] = json!([]);
                self.cluster.put(&format!("{}/finalize", self.one()), &released).await;
            }
            let released = json!({"metadata": {"finalizers": null}});
            self.cluster.patch(&self.one(), "merge", released).await;
            tokio::task::yield_now().await;
        }
        panic!("{} does not go", self.one());
    }

    async fn is_deleted_with_others(&self) {
        if !self.kind.allows("deletecollection") {
            return;
        }
        let mut marked = self.object.clone();
        marked["metadata"]["labels"]["battery"] = "together".into();
        self.ok("create", self.cluster.post(&self.path, marked).await);
        let none = self.ok("deletecollection", self.cluster.delete(&format!("{}?labelSelector=battery=other", self.path)).await);
        assert_eq!(none["kind"], self.kind.list_kind(), "{none}");
        self.ok("get", self.cluster.get(&self.one()).await);
        self.ok("deletecollection", self.cluster.delete(&format!("{}?labelSelector=battery=together", self.path)).await);
        self.is_gone().await;
    }

    async fn refuses_other_verbs(&self) {
        for (verb, method, path) in [
            ("deletecollection", Method::DELETE, self.path.clone()),
            ("update", Method::PUT, self.path.clone()),
            ("create", Method::POST, self.one()),
        ] {
            let means_nothing = verb != "deletecollection" || !self.kind.allows(verb);
            if means_nothing {
                let answer = self.cluster.request(method, &path, "application/json", self.object.to_string()).await;
                assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{verb} of {path}: {answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn every_kind_is_described() {
    let cluster = cluster().await;
    let v2 = cluster.get("/openapi/v2").await.ok();
    for kind in api_model::kind::builtin() {
        let root = if kind.group.is_empty() { "api" } else { "apis" };
        let version = format!("{root}/{}", kind.api_version());
        let resources = cluster.get(&format!("/{version}")).await.ok();
        let rows = resources["resources"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["name"] == kind.plural.as_str()).unwrap_or_else(|| panic!("{kind:?}"));
        assert_eq!(row["verbs"], json!(kind.verbs), "{row}");
        let v3 = cluster.get(&format!("/openapi/v3/{version}")).await.ok();
        let namespace = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
        let (all, one) = (format!("/{version}/{namespace}{}", kind.plural), format!("/{version}/{namespace}{}/{{name}}", kind.plural));
        let gvk = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        for document in [&v2, &v3] {
            for (verb, action, path, method) in [
                ("list", "list", &all, "get"),
                ("create", "post", &all, "post"),
                ("deletecollection", "deletecollection", &all, "delete"),
                ("get", "get", &one, "get"),
                ("update", "put", &one, "put"),
                ("patch", "patch", &one, "patch"),
                ("delete", "delete", &one, "delete"),
            ] {
                let operation = &document["paths"][path][method];
                assert_eq!(operation.is_object(), kind.allows(verb), "{method} {path}");
                if kind.allows(verb) {
                    assert_eq!((&operation["x-kubernetes-action"], &operation["x-kubernetes-group-version-kind"]), (&json!(action), &gvk));
                }
            }
            for sub in &kind.subresources {
                assert!(document["paths"][format!("{one}/{}", sub.name)].is_object(), "{one}/{}", sub.name);
            }
        }
        let is_this = |schema: &Value| schema["x-kubernetes-group-version-kind"].as_array().is_some_and(|all| all.contains(&gvk));
        for schemas in [&v2["definitions"], &v3["components"]["schemas"]] {
            let schema = schemas.as_object().expect("schemas").values().find(|schema| is_this(schema)).unwrap_or_else(|| panic!("{gvk}"));
            assert!(schema["properties"].is_object() && schema["description"].is_string(), "{gvk}: {schema}");
        }
    }
}

#[tokio::test]
async fn both_versions_of_autoscalers_are_the_same_objects() {
    let cluster = cluster().await;
    let path = |version: &str, rest: &str| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers{rest}");
    assert_eq!(cluster.get("/apis/autoscaling").await.ok()["preferredVersion"]["version"], "v2");
    let spec = json!({"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 4, "targetCPUUtilizationPercentage": 60});
    let object = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}, "spec": spec});
    let created = cluster.post(&path("v1", "?fieldValidation=Strict"), object).await.ok();
    assert_eq!((&created["apiVersion"], &created["spec"]["targetCPUUtilizationPercentage"]), (&json!("autoscaling/v1"), &json!(60)));
    let newer = cluster.get(&path("v2", "/a")).await.ok();
    assert_eq!((&newer["apiVersion"], &newer["spec"]["minReplicas"]), (&json!("autoscaling/v2"), &json!(1)));
    assert_eq!(newer["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 60);
    let memory = json!([{"op": "add", "path": "/spec/metrics/-", "value":
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}}]);
    cluster.patch(&path("v2", "/a"), "json", memory).await.ok();
    // A client of the older version changes its own fields and keeps those of the newer version.
    let older = cluster.patch(&path("v1", "/a"), "merge", json!({"spec": {"targetCPUUtilizationPercentage": 70}})).await.ok();
    assert_eq!(older["spec"]["targetCPUUtilizationPercentage"], 70);
    assert!(older["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"].as_str().is_some_and(|note| note.contains("1Gi")));
    let newer = cluster.get(&path("v2", "/a")).await.ok();
    assert_eq!(newer["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 70);
    assert_eq!(newer["spec"]["metrics"][1]["resource"]["target"]["averageValue"], "1Gi");
    assert!(newer["metadata"].get("annotations").is_none(), "{newer}");
    // A table has the same cells in every version.
    for version in ["v1", "v2"] {
        let table = cluster.get_as(&path(version, "/a"), "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
        assert_eq!(table["rows"][0]["cells"][2], "cpu: <unknown>/70%, memory: <unknown>/1Gi");
        let list = cluster.get_as(&path(version, "?includeObject=Object"), "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
        assert_eq!(list["rows"][0]["cells"][2], "cpu: <unknown>/70%, memory: <unknown>/1Gi");
        assert_eq!(list["rows"][0]["object"]["apiVersion"], format!("autoscaling/{version}"));
    }
    let gone = cluster.delete(&path("v1", "/a")).await;
    assert!(gone.status.is_success());
    assert_eq!(cluster.get(&path("v2", "/a")).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn components_are_reported() {
    let cluster = cluster().await;
    let answer = cluster.get("/api/v1/componentstatuses").await;
    assert_eq!(answer.headers[header::WARNING], "299 - \"v1 ComponentStatus is deprecated in v1.19+\"");
    let list = answer.ok();
    assert_eq!((&list["kind"], names(&list)), (&json!("ComponentStatusList"), vec!["controller-manager", "etcd-0", "scheduler"]));
    assert_eq!(cluster.get("/api/v1/componentstatuses/etcd-0").await.ok()["conditions"][0]["status"], "True");
    let table = cluster.get_as("/api/v1/componentstatuses", "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
    assert_eq!(table["rows"][1]["cells"], json!(["etcd-0", "Healthy", "ok", ""]));
    assert_eq!(list["items"][1]["metadata"], json!({"name": "etcd-0"}));
    assert_eq!(names(&cluster.get("/api/v1/componentstatuses?fieldSelector=metadata.name=scheduler").await.ok()), ["scheduler"]);
    assert_eq!(cluster.get("/api/v1/componentstatuses/scheduler").await.ok()["conditions"][0]["status"], "False", "it does not run here");
    let config = Config { components: vec!["scheduler".to_owned()], ..config() };
    let with_scheduler = cluster_with(config, Arc::new(MemoryStore::new())).await;
    let scheduler = with_scheduler.get("/api/v1/componentstatuses/scheduler").await.ok();
    assert_eq!(scheduler["conditions"], json!([{"type": "Healthy", "status": "True", "message": "ok"}]));
    assert_eq!(cluster.get("/api/v1/componentstatuses/other").await.refusal(), (404, "componentstatuses \"other\" not found"));
    assert_eq!(cluster.delete("/api/v1/componentstatuses/etcd-0").await.status, StatusCode::METHOD_NOT_ALLOWED);
    cluster.store.close().await;
    assert_eq!(cluster.get("/api/v1/componentstatuses/etcd-0").await.ok()["conditions"][0]["status"], "False");
}
