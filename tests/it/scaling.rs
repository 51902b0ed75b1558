//! kubectl with ScaledObjects and ScaledJobs. No node runs here: replicas are numbers, and Jobs do not begin.

use serde_json::json;
use tests::net::Net;
use tests::{Cluster, eventually};

const SAMPLES: &str = include_str!("scaling/samples.yaml");

#[test]
fn a_deployment_goes_to_zero_and_a_queue_becomes_jobs() {
    let mut cluster = Cluster::prepared(Net::alone(), &["server"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    let definitions = kubectl.ok("get crd -o name");
    for plural in ["scaledobjects", "scaledjobs", "triggerauthentications", "clustertriggerauthentications"] {
        assert!(definitions.contains(&format!("customresourcedefinition.apiextensions.k8s.io/{plural}.keda.sh")), "{definitions}");
    }
    kubectl.apply(SAMPLES).ok();
    kubectl.ok("create deployment example-deployment --image=none");
    kubectl.ok("wait --for=condition=Ready=false so/example-scaledobject --timeout=60s");
    let event =
        "get events --field-selector=involvedObject.name=example-scaledobject,reason=KEDAScalerFailed -o jsonpath={.items[*].message}";
    until("the event", || kubectl.ok(event), |events| events.contains("no scaler found for type: example-trigger"));
    assert_eq!(kubectl.ok("get ta,cta -o name").lines().count(), 2);

    // A year from its first to its last minute.
    let trigger = |start: &str, end: &str| json!({"type": "cron", "metadata": {"timezone": "Etc/UTC", "start": start, "end": end, "desiredReplicas": "2"}});
    let (year, never) = (trigger("0 0 1 1 *", "59 23 31 12 *"), trigger("0 0 1 1 *", "1 0 1 1 *"));
    let spec = |trigger| json!({"spec": {"pollingInterval": 1, "cooldownPeriod": 1, "triggers": [trigger]}}).to_string();
    kubectl.run(&["patch", "so", "example-scaledobject", "--type=merge", "-p", &spec(year)]).ok();
    kubectl.until("deployment/example-deployment", "/spec/replicas", 2);
    let listed = kubectl.ok("get so");
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    let heading = "NAME SCALETARGETKIND SCALETARGETNAME MIN MAX READY ACTIVE FALLBACK PAUSED TRIGGERS AUTHENTICATIONS AGE";
    assert_eq!(rows[0].join(" "), heading, "{listed}");
    assert!(rows[1].join(" ").starts_with("example-scaledobject apps/v1.Deployment example-deployment 0 100 True"), "{listed}");
    assert!(kubectl.ok("get hpa keda-hpa-example-scaledobject").contains("Deployment/example-deployment"));
    let metric = "s0-cron-Etc-UTC-0011x-59233112x";
    assert_eq!(kubectl.json("get so example-scaledobject")["status"]["externalMetricNames"], json!([metric]));
    let path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default";
    let read = format!("get --raw {path}/{metric}?labelSelector=scaledobject.keda.sh/name=example-scaledobject");
    let list: serde_json::Value = serde_json::from_str(&kubectl.ok(&read)).expect("JSON");
    assert_eq!((&list["kind"], &list["items"][0]["value"]), (&json!("ExternalMetricValueList"), &json!("2")), "{list}");
    assert!(kubectl.ok("get apiservice v1beta1.external.metrics.k8s.io").contains("Local"));
    kubectl.run(&["patch", "so", "example-scaledobject", "--type=merge", "-p", &spec(never)]).ok();
    kubectl.until("deployment/example-deployment", "/spec/replicas", 0);
    kubectl.ok("delete so example-scaledobject --timeout=60s");
    let gone = kubectl.run(&read.split(' ').collect::<Vec<_>>()).fails();
    assert!(gone.contains("no matching metrics found"), "{gone}");
    until("no autoscaler", || kubectl.ok("get hpa -o name"), str::is_empty);

    let trigger = json!({"type": "kubernetes-workload", "metadata": {"podSelector": "app=queue", "value": "1"}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}});
    let spec = json!({"pollingInterval": 1, "maxReplicaCount": 5, "jobTargetRef": {"template": template}, "triggers": [trigger]});
    let job = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledJob", "metadata": {"name": "work"}, "spec": spec});
    kubectl.apply(&job.to_string()).ok();
    kubectl.ok("create deployment queue --image=none --replicas=2");
    until("two Jobs", || kubectl.ok("get jobs -l scaledjob.keda.sh/name=work -o name"), |jobs| jobs.lines().count() == 2);
    kubectl.ok("delete sj work --timeout=60s");
    until("no Jobs", || kubectl.ok("get jobs -o name"), str::is_empty);
}

/// Looks until the output is as wanted.
fn until(what: &str, look: impl Fn() -> String, is_wanted: impl Fn(&str) -> bool) {
    eventually(what, || {
        let output = look();
        if is_wanted(&output) { Ok(()) } else { Err(output) }
    });
}
