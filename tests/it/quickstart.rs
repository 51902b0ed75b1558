//! The main purpose: from `kubectl apply` to a running WASM Pod and a running Linux Pod, which find each other by DNS.

use tests::Cluster;

#[test]
fn the_quickstart_runs_and_its_parts_find_each_other() {
    let cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    kubectl.ok("apply -f samples/quickstart");
    kubectl.ok("rollout status deployment/web --timeout=60s");
    kubectl.until_ready("tools");
    let answer = kubectl.until_ok("exec tools -- wget -qO- http://web/x");
    assert_eq!(answer, "Hello from WebAssembly! You asked for /x\n");
    let ip = kubectl.field("service/web", "/spec/clusterIP");
    let ip = ip.as_str().expect("a cluster IP");
    let seen = kubectl.ok("exec tools -- nslookup web.default.svc.cluster.local");
    assert!(seen.contains(ip), "{seen}");
    kubectl.until("pod/lookup", "/status/phase", "Succeeded");
    assert_eq!(kubectl.ok("logs lookup"), format!("web.default.svc.cluster.local: {ip}\n"));
}
