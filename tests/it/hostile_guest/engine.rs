//! Modules made to break the engine: each uses at most its own container's limits, ends with a reason, and does not
//! disturb others.

use std::fs;

use serde_json::json;
use tests::{Cluster, Kubectl};

/// What a guest does, and the exit code of its container.
const ENDING: &[(&str, &str, i32)] = &[
    ("recursion", "(call $main)", 134),
    // Each page is written, so that it uses real memory.
    (
        "memory",
        "(local $at i32) (loop $more
           (local.set $at (memory.grow (i32.const 1)))
           (if (i32.eq (local.get $at) (i32.const -1)) (then (call $exit (i32.const 7))))
           (i32.store (i32.mul (local.get $at) (i32.const 65536)) (i32.const 1)) (br $more))",
        7,
    ),
    (
        "tables",
        "(if (i32.ne (table.grow $t (ref.null func) (i32.const -2)) (i32.const -1)) (then (unreachable)))
         (loop $more (if (i32.eq (table.grow $t (ref.null func) (i32.const 65536)) (i32.const -1))
           (then (call $exit (i32.const 7)))) (br $more))",
        7,
    ),
    (
        "memories",
        "(if (i32.eq (memory.grow $second (i32.const 512)) (i32.const -1)) (then (unreachable)))
         (if (i32.ne (memory.grow $third (i32.const 512)) (i32.const -1)) (then (unreachable)))
         (call $exit (i32.const 7))",
        7,
    ),
    // Objects that stay reachable.
    (
        "objects",
        "(loop $more (global.set $all (struct.new $list (global.get $all) (array.new_default $bytes (i32.const 65536)))) (br $more))",
        134,
    ),
    // Four gibibytes at once: more than the engine returns in one call, and more than the memory.
    ("random", "(drop (call $random (i32.const 0) (i32.const -1)))", 134),
    ("events", "(drop (call $poll (i32.const 0) (i32.const 64) (i32.const -1) (i32.const 32))) (call $exit (i32.const 7))", 7),
    (
        "many-events",
        // A hundred thousand clocks that have expired.
        "(drop (memory.grow (i32.const 150)))
         (drop (call $poll (i32.const 1024) (i32.const 5000000) (i32.const 100000) (i32.const 32))) (call $exit (i32.const 7))",
        7,
    ),
    // Tries to leave each of its directories: upwards, from the root, and through links that it makes. The exit code
    // counts the successes.
    (
        "paths",
        "(local $fd i32) (local $opened i32) (local.set $fd (i32.const 3))
         (loop $more
           (drop (call $symlink (i32.const 100) (i32.const 11) (local.get $fd) (i32.const 300) (i32.const 2)))
           (drop (call $symlink (i32.const 200) (i32.const 32) (local.get $fd) (i32.const 310) (i32.const 2)))
           (drop (call $link (local.get $fd) (i32.const 1) (i32.const 200) (i32.const 32) (local.get $fd) (i32.const 320) (i32.const 2)))
           (drop (call $rename (local.get $fd) (i32.const 200) (i32.const 32) (local.get $fd) (i32.const 330) (i32.const 2)))
           (local.set $opened (i32.add (local.get $opened) (call $opens (local.get $fd) (i32.const 100) (i32.const 11))))
           (local.set $opened (i32.add (local.get $opened) (call $opens (local.get $fd) (i32.const 200) (i32.const 32))))
           (local.set $opened (i32.add (local.get $opened) (call $opens (local.get $fd) (i32.const 300) (i32.const 2))))
           (local.set $opened (i32.add (local.get $opened) (call $opens (local.get $fd) (i32.const 310) (i32.const 2))))
           (local.set $opened (i32.add (local.get $opened) (call $opens (local.get $fd) (i32.const 320) (i32.const 2))))
           (local.set $opened (i32.add (local.get $opened) (call $opens (local.get $fd) (i32.const 330) (i32.const 2))))
           (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
           (br_if $more (i32.lt_s (local.get $fd) (i32.const 12))))
         (call $exit (local.get $opened))",
        0,
    ),
];

/// Guests that never end by themselves.
const RUNNING: &[(&str, &str)] = &[
    ("loop", "(loop $more (br $more))"),
    // A clock that expires after five hundred years.
    (
        "clock",
        "(i64.store (i32.const 24) (i64.const -1)) (i32.store (i32.const 16) (i32.const 1))
         (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128))) (unreachable)",
    ),
];

/// A preview 1 module with that body.
fn module(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
          (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
          (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "path_symlink" (func $symlink (param i32 i32 i32 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "path_link" (func $link (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "path_rename" (func $rename (param i32 i32 i32 i32 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "path_open"
            (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
          (memory (export "memory") 1) (memory $second 1) (memory $third 1)
          (table $t 1 funcref)
          (type $bytes (array (mut i8)))
          (type $list (struct (field (ref null $list)) (field (ref $bytes))))
          (global $all (mut (ref null $list)) (ref.null $list))
          (data (i32.const 100) "/etc/passwd")
          (data (i32.const 200) "../../../../../../../etc//passwd")
          (data (i32.const 300) "l1        l2        l3        l4")
          (func $opens (param $fd i32) (param $path i32) (param $len i32) (result i32)
            (i32.eqz (call $open (local.get $fd) (i32.const 1) (local.get $path) (local.get $len)
              (i32.const 0) (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 400))))
          (func $main (export "_start") {body}))"#
    );
    wat::parse_str(text).expect("a module")
}

/// Loads the guests and starts a Pod for each.
pub fn start(cluster: &Cluster) {
    let dir = tempfile::tempdir().expect("a directory");
    let bodies = ENDING.iter().map(|(name, body, _)| (*name, *body)).chain(RUNNING.iter().copied());
    for (name, body) in bodies {
        let file = dir.path().join(format!("{name}.wasm"));
        fs::write(&file, module(body)).expect("writes");
        cluster.skiff(&["image", "import", &format!("hostile/{name}:latest"), &file.display().to_string()]).ok();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("engine-{name}")},
            "spec": {
                "runtimeClassName": "wasmtime", "restartPolicy": "Never", "automountServiceAccountToken": false,
                "containers": [{
                    "name": "c", "image": format!("hostile/{name}:latest"), "imagePullPolicy": "Never",
                    "resources": {"limits": {"memory": "64Mi", "cpu": "500m"}},
                    "volumeMounts": [{"name": "one", "mountPath": "/one"}, {"name": "two", "mountPath": "/two"}],
                }],
                "volumes": [{"name": "one", "emptyDir": {}}, {"name": "two", "emptyDir": {}}],
            },
        });
        cluster.kubectl().apply(&pod.to_string()).ok();
    }
}

/// How each guest ended, and that the endless ones can be stopped.
pub fn have_cost_only_themselves(kubectl: &Kubectl<'_>) {
    for (name, _, code) in ENDING {
        let object = format!("pod/engine-{name}");
        let (phase, reason) = if *code == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
        kubectl.until(&object, "/status/phase", phase);
        let ended = kubectl.field(&object, "/status/containerStatuses/0/state/terminated");
        assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(code), &json!(reason)), "{name}: {ended}");
    }
    for (name, _) in RUNNING {
        kubectl.until(&format!("pod/engine-{name}"), "/status/phase", "Running");
        kubectl.ok(&format!("delete pod engine-{name} --grace-period=10 --timeout=60s"));
    }
}
