use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, NodeSelector, PersistentVolume, PersistentVolumeClaim, Secret};
use node_volumes::{Token, TokenAsk};
use serde_json::{Value, json};

use super::*;

struct Objects;

#[async_trait]
impl Source for Objects {
    async fn config_map(&self, _namespace: &str, name: &str) -> Result<ConfigMap, SourceError> {
        let missing = SourceError::NotFound { resource: "configmap", name: name.to_owned() };
        let data = BTreeMap::from([("A".to_owned(), "1".to_owned()), ("bad=name".to_owned(), "x".to_owned())]);
        (name == "settings").then(|| ConfigMap { data: Some(data), ..ConfigMap::default() }).ok_or(missing)
    }

    async fn secret(&self, _namespace: &str, name: &str) -> Result<Secret, SourceError> {
        Err(SourceError::NotFound { resource: "secret", name: name.to_owned() })
    }

    async fn claim(&self, _namespace: &str, name: &str) -> Result<PersistentVolumeClaim, SourceError> {
        Err(SourceError::NotFound { resource: "persistentvolumeclaims", name: name.to_owned() })
    }

    async fn volume(&self, name: &str) -> Result<PersistentVolume, SourceError> {
        Err(SourceError::NotFound { resource: "persistentvolumes", name: name.to_owned() })
    }

    fn selects_node(&self, _selector: &NodeSelector) -> bool {
        false
    }

    async fn token(&self, _ask: &TokenAsk) -> Result<Token, SourceError> {
        Err(SourceError::Failed { what: "a token".to_owned(), message: "not here".to_owned() })
    }
}

async fn vars(container: Value) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut container = container;
    container["name"] = json!("c");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u", "labels": {"app": "x"}},
        "spec": {"nodeName": "n1", "serviceAccountName": "sa", "containers": [container]},
    }))
    .expect("a pod");
    let service = json!({"metadata": {"name": "db", "namespace": "ns"}, "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 5432}]}});
    let services = [std::sync::Arc::new(serde_json::from_value(service).expect("a service"))];
    let from = Sources {
        objects: &Objects,
        services: &services,
        pod_ips: &["10.244.0.5".parse().expect("an address")],
        host_ips: &["192.0.2.1".parse().expect("an address")],
        allocatable: Allocatable { cpu_milli: 4_000, memory_bytes: 1 << 30, ephemeral_storage_bytes: 0 },
        volumes: &Volumes::new("/nowhere", "/nowhere", "/nowhere"),
    };
    variables(&pod, &pod.spec.as_ref().expect("a spec").containers[0], &from).await
}

#[tokio::test]
async fn sources_come_in_upstreams_order() {
    let got = vars(json!({
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "settings"}}, {"secretRef": {"name": "none", "optional": true}}],
        "env": [
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
            {"name": "URL", "value": "http://$(DB_SERVICE_HOST):$(DB_SERVICE_PORT)/$(P_A)/$(LATER)/$$(IP)"},
            {"name": "LATER", "value": "x"},
            {"name": "P_A", "value": "own"},
            {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "NOTHING", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "none", "optional": true}}},
            {"name": "DB_PORT", "value": "overridden"},
        ],
    }))
    .await
    .expect("variables");
    let show: Vec<String> = got.iter().map(|(name, value)| format!("{name}={value}")).collect();
    insta::assert_snapshot!(show.join("\n"), @r"
    APP=x
    CPUS=4
    DB_PORT=overridden
    DB_PORT_5432_TCP=tcp://10.96.0.7:5432
    DB_PORT_5432_TCP_ADDR=10.96.0.7
    DB_PORT_5432_TCP_PORT=5432
    DB_PORT_5432_TCP_PROTO=tcp
    DB_SERVICE_HOST=10.96.0.7
    DB_SERVICE_PORT=5432
    IP=10.244.0.5
    LATER=x
    NODE=n1
    P_A=own
    URL=http://10.96.0.7:5432/1/$(LATER)/$(IP)
    ");
}

#[tokio::test]
async fn what_is_missing_is_named_in_upstreams_words() {
    for (env, wanted) in [
        (json!({"configMapKeyRef": {"name": "settings", "key": "none"}}), "couldn't find key none in ConfigMap ns/settings"),
        (json!({"configMapKeyRef": {"name": "none", "key": "a"}}), "configmap \"none\" not found"),
        (json!({"secretKeyRef": {"name": "none", "key": "a"}}), "secret \"none\" not found"),
        (json!({"fieldRef": {"fieldPath": "spec.nope"}}), "unsupported fieldPath: spec.nope"),
        (json!({"fileKeyRef": {"volumeName": "v", "path": "f", "key": "A"}}), "cannot find the volume \"v\" referenced by FileKeyRef"),
    ] {
        let error = vars(json!({"env": [{"name": "X", "valueFrom": env}]})).await.expect_err(wanted);
        assert_eq!(error.to_string(), wanted);
    }
}

#[test]
fn the_image_lies_under_the_container() {
    let image = [("PATH".to_owned(), "/bin".to_owned()), ("A".to_owned(), "image".to_owned())];
    let got = whole(&image, "web-0", BTreeMap::from([("A".to_owned(), "pod".to_owned())]));
    let got: Vec<_> = got.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(got, ["PATH=/bin", "A=pod", "HOSTNAME=web-0"]);
}

#[test]
fn odd_dollars_stay() {
    let lookup = |name: &str| (name == "A").then(|| "1".to_owned());
    for (text, wanted) in
        [("$(A)", "1"), ("$A", "$A"), ("$$(A)", "$(A)"), ("$$$(A)", "$1"), ("$(A", "$(A"), ("$(B)x", "$(B)x"), ("a$", "a$")]
    {
        assert_eq!(expand(text, &lookup), wanted, "{text}");
    }
}

#[tokio::test]
async fn variables_that_grow_without_end_are_refused() {
    let doubled = |count: usize| {
        let rest = (1..count).map(|number| json!({"name": format!("A{number}"), "value": format!("$(A{0})$(A{0})", number - 1)}));
        let env: Vec<Value> = [json!({"name": "A0", "value": "a".repeat(1 << 10)})].into_iter().chain(rest).collect();
        json!({"env": env})
    };
    assert_eq!(vars(doubled(10)).await.expect("half a MiB")["A9"].len(), 512 << 10);
    let refused = vars(doubled(40)).await.expect_err("a TiB");
    assert_eq!(refused.0, "the environment is longer than 6291456 bytes");
    let references = json!({"env": [{"name": "A", "value": "a".repeat(1 << 20)}, {"name": "B", "value": "$(A)".repeat(1 << 18)}]});
    assert!(vars(references).await.is_err(), "256 GiB in one variable");
}
