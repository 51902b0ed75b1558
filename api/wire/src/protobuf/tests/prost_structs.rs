//! Against another reader and writer: the structs of the k8s-pb crate, which prost generated from
//! upstream's definitions of an older version.

use std::collections::BTreeSet;

use k8s_pb::api;
use k8s_pb::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_pb::apimachinery::pkg::runtime;
use k8s_pb::apimachinery::pkg::util::intstr::IntOrString;
use prost::Message as _;
use serde_json::json;

use super::every_field::whole;
use super::*;

/// What another program makes of an object that has every field, when it reads and writes it: the names
/// of the fields that it loses, each behind that of the field it stands in.
fn through<T: prost::Message + Default>(api_version: &str, kind: &str) -> Vec<String> {
    let object = whole(api_version, kind).expect("a schema");
    let form = Form::of(api_version, kind).expect("a form");
    let message = form.message(object.to_string().as_bytes()).expect("encodes");
    let read = T::decode(message.as_slice()).expect("the other reads it");
    let lost = differences(&object, &decoded(api_version, kind, &read.encode_to_vec()));
    lost.iter().map(|path| newest(path)).collect()
}

/// The last two names of a path, without the places in lists and the keys of maps, which are numbered.
fn newest(path: &str) -> String {
    let names = path.split('.').map(|name| name.split('[').next().unwrap_or_default());
    let names: Vec<&str> = names.filter(|name| name.get(1..).is_none_or(|rest| rest.parse::<u64>().is_err())).collect();
    names[names.len().saturating_sub(2)..].join(".")
}

macro_rules! through {
    ($($api_version:literal $($module:ident)::+ { $($kind:ident)* })*) => {{
        let mut lost = BTreeSet::new();
        $({
            use $($module)::+ as module;
            $(lost.extend(through::<module::$kind>($api_version, stringify!($kind)));)*
        })*
        lost
    }};
}

#[test]
fn prost_reads_and_writes_the_same_objects() {
    let lost = through! {
        "v1" api::core::v1 {
            Binding ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod PodTemplate
            ReplicationController ResourceQuota Secret Service ServiceAccount
        }
        "events.k8s.io/v1" api::events::v1 { Event }
        "apps/v1" api::apps::v1 { ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet }
        "batch/v1" api::batch::v1 { CronJob Job }
        "autoscaling/v1" api::autoscaling::v1 { Scale }
        "autoscaling/v2" api::autoscaling::v2 { HorizontalPodAutoscaler }
        "authentication.k8s.io/v1" api::authentication::v1 { SelfSubjectReview TokenRequest TokenReview }
        "authorization.k8s.io/v1" api::authorization::v1 {
            LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview
        }
        "certificates.k8s.io/v1" api::certificates::v1 { CertificateSigningRequest }
        "coordination.k8s.io/v1" api::coordination::v1 { Lease }
        "discovery.k8s.io/v1" api::discovery::v1 { EndpointSlice }
        "flowcontrol.apiserver.k8s.io/v1" api::flowcontrol::v1 { FlowSchema PriorityLevelConfiguration }
        "networking.k8s.io/v1" api::networking::v1 { IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR }
        "node.k8s.io/v1" api::node::v1 { RuntimeClass }
        "policy/v1" api::policy::v1 { Eviction PodDisruptionBudget }
        "rbac.authorization.k8s.io/v1" api::rbac::v1 { ClusterRole ClusterRoleBinding Role RoleBinding }
        "resource.k8s.io/v1" api::resource::v1 { DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice }
        "scheduling.k8s.io/v1" api::scheduling::v1 { PriorityClass }
        "storage.k8s.io/v1" api::storage::v1 { CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass }
        "admissionregistration.k8s.io/v1" api::admissionregistration::v1 {
            MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration
        }
        "apiextensions.k8s.io/v1" k8s_pb::apiextensions_apiserver::pkg::apis::apiextensions::v1 { CustomResourceDefinition }
        "apiregistration.k8s.io/v1" k8s_pb::kube_aggregator::pkg::apis::apiregistration::v1 { APIService }
    };
    // What is newer than the crate, and nothing else.
    insta::assert_snapshot!(Vec::from_iter(lost).join("\n"));
}

#[test]
fn prost_finds_values_where_they_belong() {
    let object = json!({
        "metadata": {"name": "p", "creationTimestamp": "1970-01-01T00:01:00Z", "labels": {"a": "b"}},
        "spec": {
            "volumes": [{"name": "v", "secret": {"secretName": "s", "defaultMode": 256}}],
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "500m"}},
                "livenessProbe": {"httpGet": {"port": "http"}}, "readinessProbe": {"tcpSocket": {"port": 80}},
                "env": [{"name": "e", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": false}}}]}],
            "terminationGracePeriodSeconds": 0,
        },
    });
    let message = Form::of("v1", "Pod").expect("a form").message(object.to_string().as_bytes()).expect("encodes");
    let pod = api::core::v1::Pod::decode(message.as_slice()).expect("reads");
    let (metadata, spec) = (pod.metadata.expect("metadata"), pod.spec.expect("a spec"));
    assert_eq!((metadata.name(), metadata.labels["a"].as_str()), ("p", "b"));
    assert_eq!(metadata.creation_timestamp.expect("a time").seconds(), 60);
    assert_eq!((spec.termination_grace_period_seconds, spec.host_network), (Some(0), None));
    let source = spec.volumes[0].volume_source.as_ref().expect("a source").secret.as_ref().expect("a secret");
    assert_eq!((source.secret_name(), source.default_mode()), ("s", 256));
    let container = &spec.containers[0];
    assert_eq!(container.resources.as_ref().expect("resources").limits["cpu"].string(), "500m");
    let port = |probe: &Option<api::core::v1::Probe>| {
        let handler = probe.as_ref().and_then(|probe| probe.handler.clone()).expect("a handler");
        handler.http_get.and_then(|get| get.port).or(handler.tcp_socket.and_then(|socket| socket.port)).expect("a port")
    };
    let text = port(&container.liveness_probe);
    assert_eq!((text.r#type(), text.str_val()), (1, "http"));
    let number = port(&container.readiness_probe);
    assert_eq!((number.r#type(), number.int_val()), (0, 80));
    let key = container.env[0].value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref()).expect("a key");
    assert_eq!((key.local_object_reference.as_ref().expect("a name").name(), key.key(), key.optional), ("s", "k", Some(false)));
}

/// Upstream's encoder writes every field that is no pointer, so much of a Deployment is zeros.
#[test]
fn what_a_go_client_sends_is_what_it_means() {
    let rolling = api::apps::v1::RollingUpdateDeployment {
        max_unavailable: Some(IntOrString { r#type: Some(0), int_val: Some(0), str_val: Some(String::new()) }),
        max_surge: Some(IntOrString { r#type: Some(1), int_val: Some(0), str_val: Some("25%".to_owned()) }),
    };
    let deployment = api::apps::v1::Deployment {
        metadata: Some(meta::ObjectMeta {
            name: Some("d".to_owned()),
            namespace: Some(String::new()),
            generation: Some(0),
            creation_timestamp: Some(meta::Time::default()),
            ..Default::default()
        }),
        spec: Some(api::apps::v1::DeploymentSpec {
            replicas: Some(0),
            paused: Some(false),
            min_ready_seconds: Some(0),
            strategy: Some(api::apps::v1::DeploymentStrategy { r#type: Some(String::new()), rolling_update: Some(rolling) }),
            ..Default::default()
        }),
        status: Some(api::apps::v1::DeploymentStatus { replicas: Some(0), ..Default::default() }),
    };
    let unknown = runtime::Unknown {
        type_meta: Some(runtime::TypeMeta { api_version: Some("apps/v1".to_owned()), kind: Some("Deployment".to_owned()) }),
        raw: Some(deployment.encode_to_vec()),
        content_encoding: Some(String::new()),
        content_type: Some(String::new()),
    };
    let decoded = decode(&[MAGIC, &unknown.encode_to_vec()].concat()).expect("decodes").value;
    assert_eq!(
        decoded,
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "status": {},
            "spec": {"replicas": 0, "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"}}}})
    );
}

#[test]
fn prost_reads_envelopes_and_frames() {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "m", "reason": "NotFound",
        "details": {"name": "x", "causes": [{"field": "f"}], "retryAfterSeconds": 3}, "code": 404});
    let frame = frame("ERROR", &encode(&status).expect("encodes"));
    let event = meta::WatchEvent::decode(&frame[4..]).expect("reads");
    assert_eq!(event.r#type(), "ERROR");
    let raw = event.object.and_then(|object| object.raw).expect("an object");
    let unknown = runtime::Unknown::decode(raw.strip_prefix(MAGIC).expect("an envelope")).expect("reads");
    assert_eq!(unknown.type_meta.as_ref().map(|meta| (meta.api_version(), meta.kind())), Some(("v1", "Status")));
    let read = meta::Status::decode(unknown.raw()).expect("reads");
    assert_eq!((read.code(), read.reason(), read.details.as_ref().expect("details").retry_after_seconds()), (404, "NotFound", 3));
}
