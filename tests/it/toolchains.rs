//! Guests in C, Python, JavaScript, Go and Zig, as the commands of docs/wasm.md make them.

use serde_json::{Value, json};
use tests::run::patiently;
use tests::toolchain::guest;
use tests::{Cluster, Kubectl};

use crate::guests::{ends_with, pod};

/// The compilers and interpreters are large, and what they make is.
const TIMES: u32 = 4;

#[test]
fn guests_of_every_toolchain_run_unchanged() {
    let work = tempfile::tempdir().expect("a directory");
    let guests = std::thread::scope(|scope| {
        let work = work.path();
        let builds =
            ["web-py", "service-py", "web-js", "hello-go", "hello-zig", "hello"].map(|name| (name, scope.spawn(move || guest(work, name))));
        builds.map(|(name, build)| (name, build.join().expect("a build that succeeds")))
    });
    let cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    patiently(TIMES, || {
        for (name, module) in &guests {
            let output = cluster.skiff(&["image", "import", &format!("guests/{name}:v1"), &module.display().to_string()]).ok();
            let kind = match name.split('-').next() {
                Some("web") => "a server (wasi:http/incoming-handler)",
                Some("service") => "a server (wasi:http/handler of WASI 0.3)",
                _ => "a WASI preview 1 program",
            };
            assert!(output.contains(kind), "{name}: {output}");
        }
        greets(&kubectl, "web-py", "Hello from Python! well/met?by=chance\n");
        greets(&kubectl, "service-py", "three\ntwo\none\nHello from Python! well/met?by=chance\n");
        greets(&kubectl, "web-js", "Hello from JavaScript! well/met?by=chance\n");
        says_and_ends(&kubectl, "hello-go", 7, "Hello from Go! well\n");
        says_and_ends(&kubectl, "hello-zig", 7, "Hello from Zig! well\n");
        start(&kubectl, "hello", json!({"args": ["met"]}));
        let log = ends_with(&kubectl, "hello", 0);
        let wanted = ["Hello from WebAssembly!\n", ": met\n", "env: GREETING=well\n"];
        assert!(wanted.iter().all(|line| log.contains(line)), "{log}");
    });
}

fn start(kubectl: &Kubectl<'_>, name: &str, mut container: Value) {
    container["env"] = json!([{"name": "GREETING", "value": "well"}]);
    kubectl.apply(&pod(name, name, json!({}), container).to_string()).ok();
}

#[track_caller]
fn greets(kubectl: &Kubectl<'_>, name: &str, wanted: &str) {
    let probe = json!({"httpGet": {"port": 8080, "path": "/ready"}, "timeoutSeconds": 10});
    start(kubectl, name, json!({"ports": [{"containerPort": 8080}], "readinessProbe": probe}));
    kubectl.until_ready(name);
    assert_eq!(kubectl.ok(&format!("get --raw /api/v1/namespaces/default/pods/{name}:8080/proxy/met?by=chance")), wanted);
}

#[track_caller]
fn says_and_ends(kubectl: &Kubectl<'_>, name: &str, code: i32, log: &str) {
    start(kubectl, name, json!({"args": [code.to_string()]}));
    assert_eq!(ends_with(kubectl, name, code), log);
}
