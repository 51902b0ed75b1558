//! Small requests with high cost: expressions with nested loops, patches that double an object.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::eventually;

use super::World;

/// How long the server may take to reject a bomb, including kubectl's own start.
const SOON: Duration = Duration::from_secs(10);
/// How much the server's memory may grow through all patches together.
const MEMORY_KIB_MAX: u64 = 256 * 1024;

/// An administrator's check of ConfigMaps, whose cost depends on the ConfigMap's author.
const POLICY: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-two-alike}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: tenant}}
    resourceRules: [{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}]
  validations:
    - expression: \"!has(object.data) || object.data.all(a, object.data.all(b, a == b || object.data[a] != object.data[b]))\"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-two-alike}
spec: {policyName: no-two-alike, validationActions: [Deny]}
";

fn config_map(name: &str, data: &Value) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "tenant"}, "data": data}).to_string()
}

/// A tenant's data decides how long an administrator's expressions run, up to a limit. The tenant's own expressions, those of
/// claims of devices, are rejected when they may cost too much.
pub(super) fn expressions_cost_no_more_than_their_limit(world: &World<'_>) {
    world.admin.apply(POLICY).ok();
    eventually("the policy holds", || {
        let ran = world.mallory.with_input("create --dry-run=server -f -", &config_map("alike", &json!({"a": "x", "b": "x"})));
        if ran.stderr.contains("failed expression: ") { Ok(()) } else { Err(ran.to_string()) }
    });
    let many: serde_json::Map<String, Value> = (0..4_000).map(|n| (format!("k{n}"), json!(n.to_string()))).collect();
    let began = Instant::now();
    world.refuses(&config_map("many", &Value::Object(many)), "operation cancelled: actual cost limit exceeded");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    world.mallory.with_input("create -f -", &config_map("few", &json!({"a": "x", "b": "y"}))).ok();
    world.mallory.ok("delete configmap few -n tenant");
    world.admin.ok("delete validatingadmissionpolicybindings,validatingadmissionpolicies no-two-alike");

    let claim = |expression: &str| {
        let request = json!({"name": "r", "exactly": {"deviceClassName": "d", "selectors": [{"cel": {"expression": expression}}]}});
        let spec = json!({"devices": {"requests": [request]}});
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "bomb", "namespace": "tenant"}, "spec": spec})
            .to_string()
    };
    let nested = |depth: usize| (0..depth).fold("true".to_owned(), |inner, n| format!("[1,2,3,4,5,6,7,8,9,10].all(x{n}, {inner})"));
    let began = Instant::now();
    world.refuses(&claim(&nested(400)), "Too long: may not be more than 10240 bytes");
    // The scheduler would evaluate the expression for each device.
    world.refuses(&claim(&nested(20)), "too complex, exceeds cost limit");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// Each patch is small, but its result would be large.
pub(super) fn patches_do_not_grow(world: &World<'_>) {
    world.mallory.with_input("create -f -", &config_map("patched", &json!({"a": "x".repeat(1_000)}))).ok();
    let before = memory_kib(world);
    let files = tempfile::tempdir().expect("a directory");
    let file = files.path().join("patch.json");
    let copy = |from: &str, path: &str| json!({"op": "copy", "from": from, "path": path});
    let doubling: Vec<Value> = (0..30).map(|n| copy("", &format!("/data{n}"))).collect();
    let into_itself: Vec<Value> = (0..30).map(|n| copy("/metadata", &format!("/metadata/m{n}"))).collect();
    let many: Vec<Value> = (0..10_001).map(|_| copy("/data", "/metadata/annotations")).collect();
    let swap = [json!({"op": "move", "from": "/data", "path": "/x"}), json!({"op": "move", "from": "/x", "path": "/data"})];
    let wrap = [
        json!({"op": "add", "path": "/x", "value": {}}),
        json!({"op": "move", "from": "/data", "path": "/x/y"}),
        json!({"op": "move", "from": "/x", "path": "/data"}),
    ];
    let copies: Vec<Value> = (0..4_000).map(|n| copy("/data/a", &format!("/data/k{n}"))).collect();
    let repeated = |operations: &[Value], count: usize| operations.iter().cycle().take(count).cloned().collect::<Vec<_>>();
    // The path of the whole object, and a too deep nesting: upstream's message for any patch that does not apply.
    let rejected = "the server rejected our request due to an error in our request";
    for (operations, why) in [
        (doubling, rejected),
        (into_itself, "Unable to complete the copy, the accumulated size increase of copy is"),
        (copies, "Unable to complete the copy, the accumulated size increase of copy is"),
        (many, "The allowed maximum operations in a JSON patch is 10000, got 10001"),
        (repeated(&wrap, 3_000), rejected),
    ] {
        std::fs::write(&file, Value::Array(operations).to_string()).expect("writes");
        let began = Instant::now();
        let words = ["patch", "configmap", "patched", "-n", "tenant", "--type=json", "--patch-file", &file.display().to_string()];
        let complaint = world.mallory.run(&words).fails();
        assert!(complaint.contains(why), "expected: {why}\n{complaint}");
        assert!(began.elapsed() < SOON, "{why}: {:?}", began.elapsed());
    }
    // Thousands of moves without an effect are a valid patch.
    std::fs::write(&file, Value::Array(repeated(&swap, 4_000)).to_string()).expect("writes");
    world.mallory.ok(&format!("patch configmap patched -n tenant --type=json --patch-file {}", file.display()));
    assert_eq!(world.mallory.ok("get configmap patched -n tenant -o jsonpath={.data.a}").len(), 1_000);
    let gained = memory_kib(world).saturating_sub(before);
    assert!(gained < MEMORY_KIB_MAX, "{gained} KiB more than before");
    world.mallory.ok("delete configmap patched -n tenant");
}

/// The peak memory of the server.
fn memory_kib(world: &World<'_>) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.cluster.pid())).expect("the server runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    peak.trim().trim_end_matches(" kB").parse().expect("a number")
}
