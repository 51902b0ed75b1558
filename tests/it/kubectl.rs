//! The real kubectl against one cluster: daily work, and the messages for mistakes.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use tests::run::run;
use tests::{Cluster, Kubectl, Ran, eventually};

const WEB: &str = include_str!("../../samples/quickstart/web.yaml");

#[test]
fn kubectl_works() {
    let cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    what_is_applied_is_there(&kubectl);
    what_is_wrong_is_rejected(&kubectl);
    commands_run_in_containers(&kubectl);
    logs_are_followed_to_the_end(&kubectl);
    a_deployment_is_rolled_out_and_back(&kubectl);
    objects_are_described_and_explained(&kubectl);
    objects_are_marked_and_watched(&kubectl);
    rights_are_listed(&kubectl);
    quotas_count(&kubectl);
    deleted_objects_are_gone(&kubectl);
}

fn what_is_applied_is_there(kubectl: &Kubectl<'_>) {
    assert_eq!(kubectl.ok("apply -f samples/quickstart/tools.yaml"), "pod/tools created\n");
    assert_eq!(kubectl.apply(WEB).ok(), "deployment.apps/web created\nservice/web created\n");
    assert_eq!(kubectl.apply(WEB).ok(), "deployment.apps/web unchanged\nservice/web unchanged\n");
    let changed = WEB.replace("You asked for ", "You want ");
    assert_eq!(kubectl.apply(&changed).ok(), "deployment.apps/web configured\nservice/web unchanged\n");
    kubectl.ok("rollout status deployment/web --timeout=60s");
    kubectl.ok("wait --for=condition=Ready pod/tools --timeout=60s");
    let wide = kubectl.ok("get pods -o wide");
    for column in ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"] {
        assert!(wide.lines().next().is_some_and(|header| header.contains(column)), "{wide}");
    }
    assert_eq!(
        wide.lines().filter(|line| line.contains("1/1") && line.contains("Running") && line.contains("10.244.")).count(),
        3,
        "{wide}"
    );
    let diff = kubectl.run(&["diff", "-f", "samples/quickstart/tools.yaml"]);
    assert_eq!((diff.code, diff.stdout.as_str()), (0, ""), "{diff}");
}

/// A Pod's spec and the message that kubectl must print.
const REFUSED: [(&str, &str); 5] = [
    (
        "{containers: [{name: c, image: i, imge: x}], colour: red}",
        "strict decoding error: unknown field \"spec.colour\", unknown field \"spec.containers[0].imge\"",
    ),
    (
        "{containers: [{name: c, image: i, ports: [{containerPort: \"x\"}]}]}",
        "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
    ),
    (
        "{runtimeClassName: nope, containers: [{name: c, image: i}]}",
        "pods \"bad\" is forbidden: pod rejected: RuntimeClass \"nope\" not found",
    ),
    ("{containers: [{name: c}]}", "The Pod \"bad\" is invalid: spec.containers[0].image: Required value"),
    (
        "{serviceAccountName: nobody, containers: [{name: c, image: i}]}",
        "pods \"bad\" is forbidden: error looking up service account default/nobody: serviceaccount \"nobody\" not found",
    ),
];

fn what_is_wrong_is_rejected(kubectl: &Kubectl<'_>) {
    for (spec, wanted) in REFUSED {
        let complaint = kubectl.apply(&format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: bad}}\nspec: {spec}\n")).fails();
        assert!(complaint.contains(wanted), "{complaint}");
    }
    assert_eq!(kubectl.fails("get pod bad"), "Error from server (NotFound): pods \"bad\" not found\n");
    assert_eq!(kubectl.fails("get unicorns"), "error: the server doesn't have a resource type \"unicorns\"\n");
    assert_eq!(kubectl.fails("create namespace default"), "Error from server (AlreadyExists): namespaces \"default\" already exists\n");
    assert_eq!(kubectl.fails("create configmap x -n nowhere"), "error: failed to create configmap: namespaces \"nowhere\" not found\n");
    let stale = kubectl.json("get service web").to_string();
    kubectl.ok("annotate service web faster=yes");
    let conflict = kubectl.with_input("replace -f -", &stale).fails();
    let wanted = "Operation cannot be fulfilled on services \"web\": the object has been modified; please apply your changes to the latest version and try again";
    assert!(conflict.contains(wanted), "{conflict}");
    let unfit = kubectl.fails("patch service web --type=merge -p {\"spec\":{\"sessionAffinity\":7}}");
    assert!(unfit.starts_with("The request is invalid: patch: Invalid value: \"{"), "{unfit}");
    assert!(
        unfit.ends_with("json: cannot unmarshal number into Go struct field ServiceSpec.spec.sessionAffinity of type string\n"),
        "{unfit}"
    );
    let immutable = kubectl.fails("patch service web -p {\"spec\":{\"clusterIP\":\"10.96.0.77\"}}");
    assert!(immutable.contains("spec.clusterIPs[0]: Invalid value: [\"10.96.0.77\"]: may not change once set"), "{immutable}");
}

fn commands_run_in_containers(kubectl: &Kubectl<'_>) {
    let shell = |script: &str| kubectl.run(&["exec", "tools", "--", "sh", "-c", script]);
    let both = shell("echo out; echo err >&2");
    assert_eq!((both.code, both.stdout.as_str(), both.stderr.as_str()), (0, "out\n", "err\n"));
    let failed = shell("exit 7");
    assert_eq!((failed.code, failed.stderr.as_str()), (7, "command terminated with exit code 7\n"));
    assert_eq!(kubectl.with_input("exec -i tools -- cat", "hi").ok(), "hi");
    let much = "0123456789abcde\n".repeat(1 << 16);
    assert_eq!(kubectl.with_input("exec -i tools -- sh -c md5sum", &much).ok(), shell("yes 0123456789abcde | head -n 65536 | md5sum").ok());
    assert_eq!(shell("yes 0123456789abcde | head -n 65536").ok(), much);
    let terminal = on_a_terminal(&kubectl.command(&["exec", "-it", "tools", "--", "sh", "-c", "test -t 0 && exit 3"]));
    assert_eq!(terminal.code, 3, "{terminal}");
    let absent = kubectl.fails("exec tools -- nosuch");
    assert!(absent.contains("exec: \"nosuch\": executable file not found in $PATH"), "{absent}");
    let web = kubectl.ok("get pods -l app=web -o name");
    let web = web.lines().next().expect("a Pod");
    let wasm = kubectl.fails(&format!("exec {web} -- ls"));
    assert!(wasm.contains("exec: \"ls\": executable file not found in $PATH"), "{wasm}");
}

/// Runs a command whose input and output are a terminal.
fn on_a_terminal(command: &Command) -> Ran {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line: Vec<String> = words.map(|word| format!("'{}'", word.to_str().expect("text"))).collect();
    run(Command::new("script").args(["-qec", &line.join(" "), "/dev/null"]), None)
}

const JOBS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: counter}
spec:
  runtimeClassName: runc
  restartPolicy: Never
  containers:
    - {name: c, image: "samples/tools:latest", imagePullPolicy: Never, command: [sh, -c, "echo one; sleep 1; echo two; exit 4"]}
---
apiVersion: v1
kind: Pod
metadata: {name: stuck}
spec:
  runtimeClassName: runc
  volumes: [{name: v, configMap: {name: none}}]
  containers:
    - {name: c, image: "samples/tools:latest", imagePullPolicy: Never, volumeMounts: [{name: v, mountPath: /v}]}
---
apiVersion: v1
kind: Pod
metadata: {name: imageless}
spec:
  runtimeClassName: runc
  containers:
    - {name: c, image: "127.0.0.1:1/no/where:latest"}
---
apiVersion: v1
kind: Pod
metadata: {name: nodeless}
spec:
  runtimeClassName: runc
  nodeSelector: {no: where}
  containers:
    - {name: c, image: "samples/tools:latest"}
"#;

fn logs_are_followed_to_the_end(kubectl: &Kubectl<'_>) {
    kubectl.apply(JOBS).ok();
    kubectl.until("pod/counter", "/status/phase", "Running");
    // `logs -f` ends because the container ends.
    assert_eq!(kubectl.ok("logs -f counter"), "one\ntwo\n");
    assert_eq!(kubectl.ok("logs counter --tail=1"), "two\n");
    kubectl.until("pod/counter", "/status/phase", "Failed");
    assert_eq!(kubectl.field("pod/counter", "/status/containerStatuses/0/state/terminated/exitCode"), 4);
    for (pod, why) in [("stuck", "ContainerCreating"), ("imageless", "trying and failing to pull image")] {
        let wanted = format!("Error from server (BadRequest): container \"c\" in pod \"{pod}\" is waiting to start: {why}\n");
        eventually(&wanted, || {
            let ran = kubectl.run(&["logs", pod]);
            if ran.stderr == wanted { Ok(()) } else { Err(ran.to_string()) }
        });
    }
    let nowhere = kubectl.fails("exec nodeless -- ls");
    assert_eq!(nowhere, "Error from server (BadRequest): pod nodeless does not have a host assigned\n");
    let previous = kubectl.fails("logs tools -p");
    assert!(previous.contains("previous terminated container \"tools\" in pod \"tools\" not found"), "{previous}");
    let events = eventually("events tell what is wrong", || {
        let events = kubectl.ok("events");
        let all = ["FailedScheduling", "FailedMount", "ErrImagePull"].iter().all(|reason| events.contains(reason));
        if all { Ok(events) } else { Err(events) }
    });
    assert!(events.contains("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."), "{events}");
    assert!(events.contains("configmap \"none\" not found"), "{events}");
}

fn a_deployment_is_rolled_out_and_back(kubectl: &Kubectl<'_>) {
    assert_eq!(kubectl.ok("scale deployment/web --replicas=3"), "deployment.apps/web scaled\n");
    kubectl.ok("wait --for=jsonpath={.status.readyReplicas}=3 deployment/web --timeout=60s");
    assert_eq!(kubectl.ok("set env deployment/web GREETING=Bad"), "deployment.apps/web env updated\n");
    kubectl.ok("rollout status deployment/web --timeout=60s");
    let history = kubectl.ok("rollout history deployment/web");
    let revisions =
        |history: &str| history.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u32>().ok()).collect::<Vec<_>>();
    assert_eq!(revisions(&history), [1, 2, 3]);
    assert_eq!(kubectl.ok("rollout undo deployment/web --to-revision=1"), "deployment.apps/web rolled back\n");
    assert!(kubectl.ok("rollout status deployment/web --timeout=60s").contains("successfully rolled out"));
    assert_eq!(revisions(&kubectl.ok("rollout history deployment/web")), [2, 3, 4]);
    assert_eq!(kubectl.field("deployment/web", "/spec/template/spec/containers/0/env/0/value"), "You asked for ");
    assert_eq!(kubectl.ok("rollout restart deployment/web"), "deployment.apps/web restarted\n");
    kubectl.ok("rollout status deployment/web --timeout=60s");
}

fn objects_are_described_and_explained(kubectl: &Kubectl<'_>) {
    for (words, wanted) in [
        (
            "describe pod tools",
            &["Runtime Class Name:  runc", "Successfully assigned default/tools to ", "PodReadyToStartContainers   True"][..],
        ),
        (
            "describe deployment web",
            &["3 desired | 3 updated | 3 total | 3 available | 0 unavailable", "NewReplicaSetAvailable", "ScalingReplicaSet"],
        ),
        ("describe service web", &["TargetPort:               8080/TCP", "Endpoints:                10.244."]),
        ("describe nodes", &["KubeletReady", "Allocated resources:", "PodCIDR:"]),
        ("explain pod.spec.containers.resources", &["FIELD: resources <ResourceRequirements>", "limits\t<map[string]Quantity>"]),
        ("explain deployment.spec.strategy --recursive", &["rollingUpdate\t<RollingUpdateDeployment>", "maxSurge\t<IntOrString>"]),
        ("get all", &["deployment.apps/web", "replicaset.apps/web-", "service/kubernetes", "pod/tools"]),
        ("api-resources --api-group=apps", &["deployments", "deploy", "apps/v1", "true", "ReplicaSet"]),
        ("get runtimeclasses", &["wasmtime", "runc", "HANDLER"]),
    ] {
        let output = kubectl.ok(words);
        for text in wanted {
            assert!(output.contains(text), "{text:?} is not in what `kubectl {words}` shows:\n{output}");
        }
    }
    assert!(kubectl.fails("explain pod.colour").contains("field \"colour\" does not exist"));
}

fn objects_are_marked_and_watched(kubectl: &Kubectl<'_>) {
    let mut watch = kubectl.command(&["get", "pods", "tools", "-w", "-L", "tier"]);
    let mut watch = watch.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("kubectl starts");
    let mut rows = BufReader::new(watch.stdout.take().expect("its output")).lines();
    let mut next = || rows.next().expect("a row").expect("text");
    assert!(next().ends_with("TIER"));
    assert!(!next().contains("front"));
    assert_eq!(kubectl.ok("label pod tools tier=front"), "pod/tools labeled\n");
    assert!(next().contains("front"));
    watch.kill().expect("it runs");
    watch.wait().expect("it ends");
    assert_eq!(kubectl.fails("label pod tools tier=back"), "error: 'tier' already has a value (front), and --overwrite is false\n");
    assert_eq!(kubectl.ok("annotate pod tools note=well"), "pod/tools annotated\n");
    assert_eq!(kubectl.ok("get pods -l tier=front -o name"), "pod/tools\n");
    assert_eq!(kubectl.ok("get pods -l tier,tier!=front -o name"), "");
    assert_eq!(kubectl.ok("get pods --field-selector=status.phase=Failed -o name"), "pod/counter\n");
    assert!(kubectl.fails("get pods --field-selector=spec.colour=red").contains("field label not supported: spec.colour"));
}

fn rights_are_listed(kubectl: &Kubectl<'_>) {
    assert_eq!(kubectl.ok("auth can-i create pods"), "yes\n");
    assert_eq!(kubectl.run(&["auth", "can-i", "list", "pods", "--as", "jane"]).stdout, "no\n");
    let refused = kubectl.fails("get pods --as jane");
    assert!(refused.contains("User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""), "{refused}");
    kubectl.ok("create rolebinding janes --clusterrole=admin --user=jane");
    assert_eq!(kubectl.ok("auth can-i list pods --as jane"), "yes\n");
    let raised = kubectl.fails("create rolebinding more --clusterrole=cluster-admin --user=jane --as jane");
    assert!(
        raised.contains("user \"jane\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held"),
        "{raised}"
    );
}

fn quotas_count(kubectl: &Kubectl<'_>) {
    kubectl.ok("create quota few --hard=count/roles.rbac.authorization.k8s.io=1");
    kubectl.ok("create role first --verb=get --resource=pods");
    kubectl.until("resourcequota/few", "/status/used/count~1roles.rbac.authorization.k8s.io", "1");
    let described = kubectl.ok("describe quota few");
    assert!(
        described.lines().any(|line| line.split_whitespace().collect::<Vec<_>>() == ["count/roles.rbac.authorization.k8s.io", "1", "1"]),
        "{described}"
    );
    let refused = kubectl.fails("create role second --verb=get --resource=pods");
    assert!(refused.contains("exceeded quota: few, requested: count/roles.rbac.authorization.k8s.io=1, used: "), "{refused}");
    kubectl.ok("delete quota few");
    kubectl.ok("delete role first");
}

fn deleted_objects_are_gone(kubectl: &Kubectl<'_>) {
    assert_eq!(kubectl.ok("delete pod tools"), "pod \"tools\" deleted\n");
    assert_eq!(kubectl.ok("delete pods counter stuck imageless nodeless --now").lines().count(), 4);
    kubectl.with_input("delete -f -", WEB).ok();
    eventually("nothing of the Deployment is left", || {
        let left = kubectl.ok("get pods,replicasets,endpointslices -l app=web -o name");
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    kubectl.ok("create namespace short");
    kubectl.ok("create configmap inside -n short --from-literal=a=b");
    kubectl.ok("delete namespace short --timeout=60s");
    assert!(kubectl.fails("get configmap inside -n short").contains("not found"));
}
