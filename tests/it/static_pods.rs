//! Static Pods with real files, real containers and kubectl: mirror Pods, changes of files, a node that is killed, and a node that
//! starts while the API server does not run.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tests::kubectl::is_ready;
use tests::{Cluster, Kubectl, Net, eventually};

/// Writes a manifest in one step.
fn write(dir: &Path, file: &str, text: &str) {
    let new = dir.join(".new");
    fs::write(&new, text).unwrap();
    fs::rename(new, dir.join(file)).unwrap();
}

fn tools(command: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: tools, namespace: kube-system, labels: {{app: tools}}}}\nspec:\n  \
         terminationGracePeriodSeconds: 1\n  containers:\n    - name: main\n      image: samples/tools:latest\n      \
         imagePullPolicy: Never\n      command: [sh, -c, \"{command}\"]\n"
    )
}

fn web(host_network: bool) -> String {
    let container = json!({"name": "main", "image": "samples/web:latest", "imagePullPolicy": "Never"});
    let spec = json!({"hostNetwork": host_network, "terminationGracePeriodSeconds": 1, "containers": [container]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}).to_string()
}

fn ready(kubectl: &Kubectl<'_>, namespace: &str, pod: &str) -> Value {
    eventually(&format!("{pod} is ready"), || {
        let ran = kubectl.run(&["get", "pod", pod, "-n", namespace, "-o", "json"]);
        let pod: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        if is_ready(&pod) { Ok(pod) } else { Err(format!("{ran}")) }
    })
}

#[test]
fn static_pods_follow_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let flag = format!("--pod-manifest-path={}", dir.path().display());
    let mut cluster = Cluster::prepared(Net::alone(), &["up", "--node-name=n1", &flag]);
    write(dir.path(), "tools.yaml", &tools("echo first; sleep 1000000"));
    write(dir.path(), "web.json", &web(false));
    cluster.start();
    cluster.load_samples();
    a_static_pod_is_seen_like_any_other(&cluster.kubectl());
    a_deleted_mirror_comes_back_and_the_pod_runs_on(&cluster.kubectl());
    files_are_checked(&cluster.kubectl(), dir.path());
    a_killed_node_takes_them_up(&mut cluster);
    a_changed_file_is_another_pod(&cluster, dir.path());
    they_end_with_their_files(&cluster, dir.path());
}

fn a_static_pod_is_seen_like_any_other(kubectl: &Kubectl<'_>) {
    let tools = ready(kubectl, "kube-system", "tools-n1");
    assert_eq!(tools["metadata"]["annotations"]["kubernetes.io/config.source"], "file");
    assert_eq!(tools["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert_eq!(kubectl.ok("logs -n kube-system tools-n1"), "first\n");
    assert_eq!(kubectl.ok("exec -n kube-system tools-n1 -- echo inside").trim(), "inside");
    let described = kubectl.ok("describe pod -n kube-system tools-n1");
    assert!(described.contains("Controlled By:  Node/n1") && described.contains("Container started"), "{described}");
    ready(kubectl, "default", "web-n1");
    let row = kubectl.ok("get pod web-n1 -o wide --no-headers");
    assert!(row.contains("1/1") && row.contains("Running") && row.contains("n1"), "{row}");
    let drained = kubectl.ok("drain n1 --dry-run=client --ignore-daemonsets");
    assert!(!drained.contains("evicting pod"), "mirror Pods stay: {drained}");
}

fn a_deleted_mirror_comes_back_and_the_pod_runs_on(kubectl: &Kubectl<'_>) {
    kubectl.ok("exec -n kube-system tools-n1 -- touch /mark");
    for words in ["delete pod -n kube-system tools-n1 --wait", "delete pod -n kube-system tools-n1 --force --grace-period=0"] {
        let before = ready(kubectl, "kube-system", "tools-n1");
        kubectl.ok(words);
        let again = ready(kubectl, "kube-system", "tools-n1");
        assert_ne!(again["metadata"]["uid"], before["metadata"]["uid"]);
        assert_eq!(again["status"]["containerStatuses"], before["status"]["containerStatuses"]);
        kubectl.ok("exec -n kube-system tools-n1 -- ls /mark");
    }
}

fn files_are_checked(kubectl: &Kubectl<'_>, dir: &Path) {
    let before = ready(kubectl, "kube-system", "tools-n1");
    write(dir, "tools.yaml", "nonsense: [");
    write(
        dir,
        "secret.yaml",
        &tools("true").replace("name: tools,", "name: secret,").replace("containers:", "serviceAccountName: default\n  containers:"),
    );
    eventually("the node says what is wrong", || {
        let events = kubectl.ok("get events -A --field-selector reason=InvalidStaticPod -o jsonpath={.items[*].message}");
        let said = events.contains("tools.yaml: couldn't parse as pod") && events.contains("static pods may not reference serviceaccounts");
        if said { Ok(()) } else { Err(events) }
    });
    assert_eq!(ready(kubectl, "kube-system", "tools-n1")["metadata"]["uid"], before["metadata"]["uid"]);
    assert!(kubectl.fails("get pod -n kube-system secret-n1").contains("not found"));
    write(dir, "tools.yaml", &tools("echo first; sleep 1000000"));
    fs::remove_file(dir.join("secret.yaml")).unwrap();
}

fn a_killed_node_takes_them_up(cluster: &mut Cluster) {
    let before = ready(&cluster.kubectl(), "kube-system", "tools-n1");
    let shims = cluster.shims();
    cluster.kill();
    cluster.start();
    let kubectl = cluster.kubectl();
    let after = ready(&kubectl, "kube-system", "tools-n1");
    assert_eq!(cluster.shims(), shims);
    for field in ["/metadata/uid", "/status/startTime", "/status/containerStatuses"] {
        assert_eq!(after.pointer(field), before.pointer(field), "{field}");
    }
    kubectl.ok("exec -n kube-system tools-n1 -- ls /mark");
}

fn a_changed_file_is_another_pod(cluster: &Cluster, dir: &Path) {
    let kubectl = cluster.kubectl();
    write(dir, "tools.yaml", &tools("echo second; sleep 1000000"));
    eventually("the second one logs", || {
        let said = kubectl.run(&["logs", "-n", "kube-system", "tools-n1"]);
        if said.stdout == "second\n" { Ok(()) } else { Err(format!("{said}")) }
    });
    ready(&kubectl, "kube-system", "tools-n1");
    assert!(!kubectl.run(&["exec", "-n", "kube-system", "tools-n1", "--", "ls", "/mark"]).succeeded());
}

fn they_end_with_their_files(cluster: &Cluster, dir: &Path) {
    for file in ["tools.yaml", "web.json"] {
        fs::remove_file(dir.join(file)).unwrap();
    }
    eventually("no container and no mirror is left", || {
        let (shims, pods) = (cluster.shims(), cluster.kubectl().ok("get pods -A -o name"));
        if shims.is_empty() && !pods.contains("n1") { Ok(()) } else { Err(format!("{shims:?} {pods}")) }
    });
}

/// A Pod on the node's network: the range of Pod addresses comes from the API.
#[test]
fn a_static_pod_runs_while_the_api_server_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut nets = Net::joined(2).into_iter();
    let mut next = || nets.next().expect("a namespace");
    let mut server = Cluster::prepared(next(), &["server", "--allow-mirror-pods"]);
    server.start();
    let [url, token] = server.join_flags();
    let flag = format!("--pod-manifest-path={}", dir.path().display());
    let mut agent = Cluster::prepared(next(), &["agent", "--node-name=a", &url, &token, &flag]);
    agent.start();
    agent.load_samples();
    let _switch = next();
    server.kubectl().ok("wait node/a --for=condition=Ready --timeout=60s");
    agent.kill();
    server.kill();
    write(dir.path(), "web.json", &web(true));
    agent.start();
    eventually("it answers on the node's address", || {
        let said = agent.net.run("curl", &["-s", "http://127.0.0.1:8080/x"]);
        if said.stdout.contains("Hello from WebAssembly!") { Ok(()) } else { Err(format!("{said}")) }
    });
    let shims = agent.shims();
    server.start();
    ready(&server.kubectl(), "default", "web-a");
    assert_eq!((agent.shims(), shims.len()), (shims, 1));
}
