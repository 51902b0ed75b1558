//! What happens when a server hangs, when triggers fail, and when a write is denied.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::Namespace;

use super::*;

/// Denies the requests of a rule for which an expression is false, and waits until `is_denied` says so.
async fn deny(cluster: &Cluster, rule: Value, expression: &str, is_denied: impl AsyncFn() -> bool) {
    let spec =
        json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression, "message": "denied by a test"}]});
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"}, "spec": spec});
    cluster.all::<ValidatingAdmissionPolicy>().create(&PostParams::default(), &from(policy)).await.expect("a policy");
    let spec = json!({"policyName": "p", "validationActions": ["Deny"]});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "p"}, "spec": spec});
    cluster.all::<ValidatingAdmissionPolicyBinding>().create(&PostParams::default(), &from(binding)).await.expect("a binding");
    let denied = async {
        while !is_denied().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), denied).await.expect("the policy counts");
}

async fn events_of(cluster: &Cluster, name: &str, reason: &str) -> i32 {
    let events = cluster.api::<Event>().list(&Default::default()).await.expect("events");
    let own = |event: &&Event| event.involved_object.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason);
    events.iter().filter(own).map(|event| event.count.unwrap_or(1)).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_server_holds_up_nobody_else() {
    let cluster = cluster().await;
    // A server that never answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let hanging = json!({"type": "metrics-api", "metadata": {"url": url, "valueLocation": "a", "targetValue": "1", "timeout": "10s"}});
    for index in 0..12 {
        let name = format!("hanging-{index}");
        deploy(&cluster, &name, 1).await;
        let triggers = vec![hanging.clone(); 3];
        scale(&cluster, &name, hanging.clone(), json!({"triggers": triggers, "minReplicaCount": 1})).await;
    }
    until("all have autoscalers", cluster.api::<HorizontalPodAutoscaler>(), |all| all.len() == 12).await;

    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
    cluster.all::<Namespace>().create(&PostParams::default(), &from(namespace)).await.expect("a namespace");
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec});
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), "other");
    deployments.create(&PostParams::default(), &from(web)).await.expect("a Deployment");
    let spec = json!({"scaleTargetRef": {"name": "web"}, "pollingInterval": 1, "triggers": [cron(true, 3)]});
    let object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "web"}, "spec": spec});
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject"));
    let objects: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), "other", &resource);
    objects.create(&PostParams::default(), &from(object)).await.expect("a ScaledObject");
    until("the autoscaler scales", deployments, |all| replicas(all, "web") == Some(3)).await;
    drop(listener);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_trigger_is_not_ready_again_and_again() {
    let cluster = cluster().await;
    let backend = Backend::start().await;
    backend.status.store(500, Ordering::SeqCst);
    deploy(&cluster, "web", 1).await;
    scale(&cluster, "web", backend.metrics_api("/value"), json!({})).await;
    let often = |events: &BTreeMap<String, Event>| {
        let failed = events.values().filter(|event| event.reason.as_deref() == Some("KEDAScalerFailed"));
        failed.map(|event| event.count.unwrap_or(1)).sum::<i32>() >= 4
    };
    until("some looks failed", cluster.api::<Event>(), often).await;
    assert_eq!(events_of(&cluster, "web", "ScaledObjectReady").await, 1);
    until_condition(&cluster, "ScaledObject", "web", "Ready", "False", "TriggerError").await;
    backend.status.store(200, Ordering::SeqCst);
    until_condition(&cluster, "ScaledObject", "web", "Ready", "True", "ScaledObjectReady").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_whose_deletion_failed_goes_on() {
    let cluster = cluster().await;
    let backend = Backend::start().await;
    backend.value.store(4, Ordering::SeqCst);
    let template = json!({"spec": {"containers": [{"name": "c", "image": "v1"}]}});
    let spec = json!({"jobTargetRef": {"template": template}, "pollingInterval": 600, "triggers": [backend.metrics_api("/value")]});
    create(&cluster, "ScaledJob", "work", spec).await;
    let jobs = until("two Jobs", cluster.api::<Job>(), |jobs| jobs.len() == 2).await;
    let names = job_names(&jobs);
    let protect = async |value: Value| {
        for name in &names {
            let patch = json!({"metadata": {"annotations": {"protected": value}}});
            cluster.api::<Job>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("changed");
        }
    };
    protect(json!("yes")).await;
    let rule = json!({"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["jobs"]});
    let is_denied = async || {
        let dry_run = DeleteParams { dry_run: true, ..DeleteParams::default() };
        cluster.api::<Job>().delete(names[0], &dry_run).await.is_err()
    };
    deny(&cluster, rule, "!('protected' in oldObject.metadata.annotations)", is_denied).await;

    backend.value.store(0, Ordering::SeqCst);
    change(&cluster, "ScaledJob", "work", json!({"spec": {"maxReplicaCount": 5}})).await;
    until_event(&cluster, "work", "ScaledJobRolloutCleanupFailed", "denied by a test").await;
    let message = until_condition(&cluster, "ScaledJob", "work", "Ready", "False", "ScaledJobCheckFailed").await;
    assert!(message.starts_with("Not able to delete job: work-"), "{message}");
    protect(Value::Null).await;
    until("the Jobs of the earlier spec go", cluster.api::<Job>(), |jobs| job_names(jobs).is_empty()).await;
    until_condition(&cluster, "ScaledJob", "work", "Ready", "True", "ScaledJobReady").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_whose_status_is_not_written_counts_for_nothing() {
    let cluster = cluster().await;
    deploy(&cluster, "web", 1).await;
    let spec = json!({"scaleTargetRef": {"name": "web"}, "pollingInterval": 600, "triggers": [cron(true, 1)]});
    let metadata = json!({"name": "web", "annotations": {"autoscaling.keda.sh/paused-replicas": "1"}});
    let object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": metadata, "spec": spec});
    api(&cluster, "ScaledObject").create(&PostParams::default(), &from(object)).await.expect("a ScaledObject");
    until_condition(&cluster, "ScaledObject", "web", "Paused", "True", "ScaledObjectPaused").await;
    let rule =
        json!({"apiGroups": ["keda.sh"], "apiVersions": ["v1alpha1"], "operations": ["UPDATE"], "resources": ["scaledobjects/status"]});
    let expression = "has(object.metadata.annotations) && 'free' in object.metadata.annotations";
    let objects = api(&cluster, "ScaledObject");
    let is_denied = async || {
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        let patch = Patch::Merge(json!({"status": {"hpaName": "probe"}}));
        objects.patch_status("web", &dry_run, &patch).await.is_err()
    };
    deny(&cluster, rule, expression, is_denied).await;

    // The triggers are looked at, but the time of the activity cannot be stored.
    change(&cluster, "ScaledObject", "web", json!({"metadata": {"annotations": {"autoscaling.keda.sh/paused-replicas": null}}})).await;
    until_event(&cluster, "web", "KEDAScalersStarted", "Scaler cron is built").await;
    change(&cluster, "ScaledObject", "web", json!({"metadata": {"annotations": {"free": "yes"}}})).await;
    let is_active = |object: &Value| object["status"]["lastActiveTime"].is_string();
    until_object(&cluster, "ScaledObject", "web", "the time is stored", is_active).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_goes_although_its_target_is_not_restored() {
    let cluster = cluster().await;
    deploy(&cluster, "web", 5).await;
    scale(&cluster, "web", cron(false, 2), json!({"advanced": {"restoreToOriginalReplicaCount": true}})).await;
    until_replicas(&cluster, "web", 0).await;
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["deployments/scale"]});
    let deployments = cluster.api::<Deployment>();
    let is_denied = async || {
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        deployments.patch_scale("web", &dry_run, &Patch::Merge(json!({"spec": {"replicas": 1}}))).await.is_err()
    };
    deny(&cluster, rule, "false", is_denied).await;
    api(&cluster, "ScaledObject").delete("web", &DeleteParams::default()).await.expect("deleted");
    until_object(&cluster, "ScaledObject", "web", "it is gone", Value::is_null).await;
    until_event(&cluster, "web", "ScaledObjectUpdateFailed", "denied by a test").await;
    cluster.stop().await;
}
