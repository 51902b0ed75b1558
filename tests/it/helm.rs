//! The released Helm 4 and kubectl 1.36 against one cluster: the whole life of a chart, and a day's work with kubectl.
//! By default Helm applies on the server and waits with watches, so this tests both.

use std::process::Command;
use std::thread;

use serde_json::{Value, json};
use tests::run::run;
use tests::{Cluster, Kubectl, cluster, eventually};

const CHART: &str = "tests/it/helm/chart";
const DAY: &str = "tests/it/helm/day.yaml";
/// How long Helm may wait, on a busy machine.
const WAIT: &str = "--wait --timeout=60s";

#[test]
fn helm_and_the_newest_kubectl_work() {
    let cluster = Cluster::up();
    let (helm, kubectl) = (Helm { cluster: &cluster }, cluster.kubectl().with_program(cluster::tool("kubectl")));
    a_chart_is_installed(&helm, &kubectl);
    a_conflict_is_reported_and_overruled(&helm, &kubectl);
    a_failed_upgrade_is_rolled_back(&helm, &kubectl);
    both_ways_of_upgrading_agree(&helm, &kubectl);
    nothing_is_left(&helm, &kubectl);
    kubectl_applies_both_ways(&kubectl);
    kubectl_edits_and_patches(&kubectl);
    kubectl_makes_what_it_can(&kubectl);
    kubectl_tells_rights(&kubectl);
    kubectl_debugs_and_drains(&kubectl);
    kubectl_shows_and_explains(&kubectl);
    kubectl_deletes(&kubectl);
}

/// Helm with a cluster's kubeconfig, and with directories in the cluster's data directory.
struct Helm<'a> {
    cluster: &'a Cluster,
}

impl Helm<'_> {
    fn command(&self, words: &str) -> Command {
        let dir = self.cluster.data_dir();
        let mut command = self.cluster.net.command(&cluster::tool("helm").display().to_string());
        command.args(words.split_whitespace()).current_dir(cluster::project());
        command.env("KUBECONFIG", dir.join("admin.kubeconfig")).env("KUBECACHEDIR", dir.join("helm/discovery"));
        for (name, sub) in [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")] {
            command.env(name, dir.join("helm").join(sub));
        }
        command
    }

    #[track_caller]
    fn ok(&self, words: &str) -> String {
        run(&mut self.command(words), None).ok()
    }

    #[track_caller]
    fn fails(&self, words: &str) -> String {
        run(&mut self.command(words), None).fails()
    }

    /// Number and state of every revision.
    fn history(&self) -> Vec<(u64, String)> {
        let history: Value = serde_json::from_str(&self.ok("history shop -o json")).expect("JSON");
        let revisions = history.as_array().expect("revisions").iter();
        revisions.map(|revision| (revision["revision"].as_u64().expect("a number"), text(&revision["status"]))).collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn a_chart_is_installed(helm: &Helm<'_>, kubectl: &Kubectl<'_>) {
    thread::scope(|scope| {
        let install = scope.spawn(|| run(&mut helm.command(&format!("install shop {CHART} {WAIT}")), None));
        finish_job(kubectl, "shop-before");
        assert!(install.join().expect("helm ends").ok().contains("STATUS: deployed"));
    });
    assert_eq!(kubectl.field("deployment/shop", "/status/readyReplicas"), 1);
    assert_eq!(kubectl.field("offers.shop.example.com/shop", "/spec/price"), 5);
    let data = json!({"greeting": "You asked for ", "authority": "known", "deployments": "true"});
    assert_eq!(kubectl.field("configmap/shop", "/data"), data);
    let secret = kubectl.json("get secret sh.helm.release.v1.shop.v1");
    assert_eq!((&secret["type"], &secret["metadata"]["labels"]["status"]), (&json!("helm.sh/release.v1"), &json!("deployed")));
    // The hook's Job is deleted, as its policy says.
    assert_eq!(kubectl.ok("get jobs -o name"), "");
    assert!(helm.ok("test shop --timeout=60s").contains("Phase:          Succeeded"));
    let status = helm.ok("status shop");
    for text in ["==> v1/Deployment", "==> v1/Offer", "==> v1/Pod(related)", "1/1"] {
        assert!(status.contains(text), "{status}");
    }
}

/// Does what the Job controller would do.
fn finish_job(kubectl: &Kubectl<'_>, job: &str) {
    kubectl.until_ok(&format!("get job {job}"));
    let at = "2026-01-01T00:00:01Z";
    let met = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at, "lastProbeTime": at});
    let status = json!({"status": {
        "startTime": "2026-01-01T00:00:00Z", "completionTime": at, "succeeded": 1, "uncountedTerminatedPods": {},
        "conditions": [met("SuccessCriteriaMet"), met("Complete")],
    }});
    kubectl.run(&["patch", "job", job, "--subresource=status", "--type=merge", "-p", &status.to_string()]).ok();
}

fn a_conflict_is_reported_and_overruled(helm: &Helm<'_>, kubectl: &Kubectl<'_>) {
    kubectl.ok(r#"patch configmap shop --field-manager=owner --type=merge -p {"data":{"greeting":"mine"}}"#);
    let upgrade = format!("upgrade shop {CHART} --set greeting=Hello {WAIT}");
    let complaint = helm.fails(&upgrade);
    assert!(complaint.contains("Apply failed with 1 conflict: conflict with \"owner\" using v1: .data.greeting"), "{complaint}");
    helm.ok(&format!("{upgrade} --force-conflicts"));
    assert_eq!(kubectl.field("configmap/shop", "/data/greeting"), "Hello");
    assert_eq!(states(helm), ["superseded", "failed", "deployed"]);
}

fn states(helm: &Helm<'_>) -> Vec<String> {
    helm.history().into_iter().map(|(_, state)| state).collect()
}

fn a_failed_upgrade_is_rolled_back(helm: &Helm<'_>, kubectl: &Kubectl<'_>) {
    let complaint = helm.fails(&format!("upgrade shop {CHART} --set port=99999 --rollback-on-failure {WAIT}"));
    let wanted = "Service \"shop\" is invalid: spec.ports[0].port: Invalid value: 99999: must be between 1 and 65535, inclusive";
    assert!(complaint.contains(wanted), "{complaint}");
    assert!(complaint.contains("has been rolled back"), "{complaint}");
    assert_eq!(states(helm)[3..], ["failed", "deployed"]);
    assert_eq!(kubectl.field("service/shop", "/spec/ports/0/port"), 80);
}

fn both_ways_of_upgrading_agree(helm: &Helm<'_>, kubectl: &Kubectl<'_>) {
    for (port, way) in [(81, "--server-side=false"), (82, "--server-side=true")] {
        helm.ok(&format!("upgrade shop {CHART} --set port={port} {way} {WAIT}"));
        assert_eq!(kubectl.field("service/shop", "/spec/ports"), json!([{"port": port, "protocol": "TCP", "targetPort": 8080}]));
    }
    helm.ok(&format!("rollback shop 1 {WAIT}"));
    assert_eq!(kubectl.field("service/shop", "/spec/ports/0/port"), 80);
    assert_eq!(kubectl.field("deployment/shop", "/spec/template/spec/containers/0/env/0/value"), "You asked for ");
    assert_eq!(helm.history().last(), Some(&(8, "deployed".to_owned())));
}

fn nothing_is_left(helm: &Helm<'_>, kubectl: &Kubectl<'_>) {
    helm.ok("uninstall shop --cascade=foreground --wait --timeout=60s");
    assert_eq!(helm.ok("list -A -q"), "");
    assert_eq!(kubectl.ok("get pods,replicasets,deployments,jobs,secrets,offers -o name"), "");
    assert_eq!(kubectl.ok("get configmaps,services -o name"), "configmap/kube-root-ca.crt\nservice/kubernetes\n");
    // Helm never deletes definitions.
    kubectl.ok("delete crd offers.shop.example.com");
}

fn kubectl_applies_both_ways(kubectl: &Kubectl<'_>) {
    assert_eq!(kubectl.ok(&format!("apply -f {DAY}")), "configmap/day created\ndeployment.apps/day created\n");
    assert_eq!(kubectl.ok(&format!("apply -f {DAY}")), "configmap/day unchanged\ndeployment.apps/day unchanged\n");
    let applied = "configmap/day serverside-applied\ndeployment.apps/day serverside-applied\n";
    assert_eq!(kubectl.ok(&format!("apply --server-side -f {DAY}")), applied);
    let changed = std::fs::read_to_string(cluster::project().join(DAY)).expect("a file").replace("two: \"2\"", "two: \"3\"");
    let refused = kubectl.with_input("apply --server-side --field-manager=other -f -", &changed).fails();
    assert!(refused.contains("conflict with \"kubectl\": .data.two"), "{refused}");
    let diff = kubectl.with_input("diff -f -", &changed);
    assert_eq!(diff.code, 1, "{diff}");
    assert!(diff.stdout.contains("-  two: \"2\"\n+  two: \"3\"\n"), "{diff}");
    assert!(kubectl.with_input("apply -f -", &changed).ok().starts_with("configmap/day configured\n"));
    kubectl.ok("wait --for=jsonpath={.data.two}=3 configmap/day --timeout=5s");
}

fn kubectl_edits_and_patches(kubectl: &Kubectl<'_>) {
    let edit = |script: &str, what: &str| run(kubectl.command(&["edit", what]).env("KUBE_EDITOR", format!("sed -i {script}")), None);
    assert_eq!(edit("s/one:/uno:/", "configmap/day").ok(), "configmap/day edited\n");
    assert_eq!(kubectl.field("configmap/day", "/data"), json!({"uno": "1", "two": "3"}));
    for (kind, patch) in [
        ("strategic", r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"samples/tools:two"}]}}}}"#),
        ("merge", r#"{"metadata":{"annotations":{"note":"well"}}}"#),
        ("json", r#"[{"op":"test","path":"/spec/replicas","value":0},{"op":"add","path":"/spec/paused","value":true}]"#),
    ] {
        assert_eq!(kubectl.ok(&format!("patch deployment day --type={kind} -p {patch}")), "deployment.apps/day patched\n");
    }
    kubectl.ok("rollout resume deployment/day");
    kubectl.ok(r#"patch deployment day --subresource=scale --type=merge -p {"spec":{"replicas":0}}"#);
    kubectl.ok("set image deployment/day c=samples/tools:three");
    assert!(kubectl.ok("rollout status deployment/day --timeout=30s").contains("successfully rolled out"));
    assert_eq!(kubectl.ok("autoscale deployment day --max=3 --cpu=50%"), "horizontalpodautoscaler.autoscaling/day autoscaled\n");
    assert!(kubectl.ok("get hpa day").contains("cpu: <unknown>/50%"));
    assert_eq!(kubectl.ok("expose deployment day --port=80"), "service/day exposed\n");
}

fn kubectl_makes_what_it_can(kubectl: &Kubectl<'_>) {
    for (words, made) in [
        ("job j --image=samples/job:latest", "job.batch/j"),
        ("cronjob c --image=samples/job:latest --schedule=@daily", "cronjob.batch/c"),
        ("job k --from=cronjob/c", "job.batch/k"),
        ("secret generic s --from-literal=a=b", "secret/s"),
        ("serviceaccount bot", "serviceaccount/bot"),
        ("role reader --verb=get,list --resource=pods,pods/log", "role.rbac.authorization.k8s.io/reader"),
        ("rolebinding reader --role=reader --serviceaccount=default:bot", "rolebinding.rbac.authorization.k8s.io/reader"),
        ("poddisruptionbudget p --selector=app=day --min-available=1", "poddisruptionbudget.policy/p"),
        ("priorityclass low --value=5", "priorityclass.scheduling.k8s.io/low"),
        ("ingress i --rule=a.example/b=day:80", "ingress.networking.k8s.io/i"),
        ("service nodeport n --tcp=80", "service/n"),
        ("quota q --hard=pods=100", "resourcequota/q"),
        ("namespace other", "namespace/other"),
    ] {
        assert_eq!(kubectl.ok(&format!("create {words}")), format!("{made} created\n"));
    }
    assert!(kubectl.ok("create token bot --duration=10m").split('.').count() == 3);
}

fn kubectl_tells_rights(kubectl: &Kubectl<'_>) {
    const BOT: &str = "--as=system:serviceaccount:default:bot";
    assert_eq!(kubectl.ok(&format!("auth can-i get pods --subresource=log {BOT}")), "yes\n");
    assert_eq!(kubectl.run(&["auth", "can-i", "delete", "pods", BOT]).stdout, "no\n");
    let list = kubectl.ok(&format!("auth can-i --list {BOT}"));
    assert!(list.lines().any(|line| line.split_whitespace().collect::<Vec<_>>() == ["pods/log", "[]", "[]", "[get", "list]"]), "{list}");
    let who = kubectl.ok("auth whoami --as=jane --as-group=g -o jsonpath={.status.userInfo.groups}");
    assert_eq!(who, r#"["g","system:authenticated"]"#);
}

const NODE: &str = "{apiVersion: v1, kind: Node, metadata: {name: away}}";
const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: day}, spec: {nodeName: away, terminationGracePeriodSeconds: 0, containers: [{name: c, image: i}]}}";

/// On a node without a machine.
fn kubectl_debugs_and_drains(kubectl: &Kubectl<'_>) {
    kubectl.apply(NODE).ok();
    kubectl.ok("taint node away a=b:NoSchedule");
    kubectl.apply(POD).ok();
    kubectl.ok("debug day --image=samples/tools:latest --target=c -c debugger");
    assert_eq!(kubectl.field("pod/day", "/spec/ephemeralContainers/0/name"), "debugger");
    assert_eq!(kubectl.ok("label pod day l=1"), "pod/day labeled\n");
    let drained = kubectl.ok("drain away --force --timeout=30s");
    assert!(drained.ends_with("pod/day evicted\nnode/away drained\n"), "{drained}");
    assert_eq!(kubectl.field("node/away", "/spec/unschedulable"), true);
    kubectl.ok("delete node away");
}

fn kubectl_shows_and_explains(kubectl: &Kubectl<'_>) {
    for (words, wanted) in [
        ("get deployment day -o wide", "samples/tools:three"),
        ("get configmap day -o jsonpath={.data.uno}", "1"),
        ("get configmap day -o custom-columns=N:.metadata.name,D:.data.two", "day   3"),
        ("get configmap day -o yaml --show-managed-fields", "manager: kubectl-edit"),
        ("get configmaps --chunk-size=1 -l made=by-day -o name", "configmap/day"),
        ("explain hpa.spec.metrics --api-version=autoscaling/v2", "GROUP:      autoscaling"),
        ("describe hpa day", "Deployment/day"),
        ("api-resources --api-group=batch -o wide", "cronjobs"),
        ("get --raw /readyz?verbose", "readyz check passed"),
        ("events --for=deployment/shop", "ScalingReplicaSet"),
        ("version", "Client Version: v1.36."),
    ] {
        let output = kubectl.ok(words);
        assert!(output.contains(wanted), "{wanted:?} is not in what `kubectl {words}` shows:\n{output}");
    }
    eventually("metrics of the nodes", || {
        let ran = kubectl.run(&["top", "nodes"]);
        if ran.stdout.contains("CPU(cores)") { Ok(()) } else { Err(ran.to_string()) }
    });
}

fn kubectl_deletes(kubectl: &Kubectl<'_>) {
    let set = || kubectl.ok("get replicasets -l app=day -o name");
    assert!(set().lines().count() > 1);
    assert_eq!(kubectl.ok("delete deployment day --cascade=orphan"), "deployment.apps \"day\" deleted from default namespace\n");
    assert!(set().lines().count() > 1);
    kubectl.ok("delete replicasets -l app=day --cascade=foreground");
    assert_eq!(set(), "");
    kubectl.ok("delete namespace other");
    kubectl.ok("delete jobs,cronjobs,horizontalpodautoscalers,ingresses --all");
}
