//! Settings of guests by annotations of the Pod and of its RuntimeClass: fuel, and the hosts to which a guest may connect.

use serde_json::{Value, json};
use tests::Kubectl;

use super::{components, ends_with, pod};

/// `HTTP-request-denied`, as the guest that fetches ends with it.
const DENIED: i32 = 115;

/// The classes of the Pods, and a web server that Pods reach by its name.
const OBJECTS: &str = r#"
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: frugal, annotations: {wasm.skiff.internal/fuel: "100", wasm.skiff.internal/outbound-hosts: ""}}
handler: wasmtime
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: wrong, annotations: {wasm.skiff.internal/fuel: "much"}}
handler: wasmtime
---
apiVersion: v1
kind: Pod
metadata: {name: shop, labels: {app: shop}}
spec:
  containers: [{name: web, image: "samples/web:latest", imagePullPolicy: Never, ports: [{containerPort: 8080}]}]
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {selector: {app: shop}, ports: [{port: 80, targetPort: 8080}]}
"#;

/// A module that counts to a thousand and ends with 4.
pub const COUNTS: &str = "(func (export \"_start\") (local $number i32)
    (loop $next
      (local.set $number (i32.add (local.get $number) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $number) (i32.const 1000))))
    (call $exit (i32.const 4)))";

/// A command that sends a request to the host `shop`.
pub fn fetches() -> Vec<u8> {
    let text = include_str!("../../../runtimes/wasmtime/tests/guests/fetch.wat").replace("\"NAME\"", "\"shop\"").replace("LEN", "4");
    components::command(&wat::parse_str(text).expect("a module"), "http/types@0.2.12 http/outgoing-handler@0.2.12 io/poll@0.2.12")
}

pub fn settings_are_those_of_the_class_and_the_pod(kubectl: &Kubectl<'_>) {
    kubectl.apply(OBJECTS).ok();
    let create = |name: &str, image: &str, class: Option<&str>, annotations: Value| {
        let mut pod = pod(name, image, annotations, json!({}));
        pod["spec"]["runtimeClassName"] = class.into();
        kubectl.apply(&pod.to_string()).ok();
    };
    let enough = json!({"wasm.skiff.internal/fuel": "1000000"});
    create("frugal", "counts", Some("frugal"), json!({}));
    create("lavish", "counts", Some("frugal"), enough.clone());
    create("wrong", "counts", Some("wrong"), json!({}));
    create("right", "counts", Some("wrong"), enough.clone());
    let log = ends_with(kubectl, "frugal", 134);
    assert!(log.starts_with("the guest used up its fuel of 100 (annotation wasm.skiff.internal/fuel)"), "{log}");
    let message = kubectl.field("pod/frugal", "/status/containerStatuses/0/state/terminated/message");
    assert!(message.as_str().is_some_and(|message| message.contains("used up its fuel of 100")), "{message}");
    ends_with(kubectl, "lavish", 4);
    let complaint = "annotation \"wasm.skiff.internal/fuel\" of RuntimeClass \"wrong\": \"much\" is not a number";
    kubectl.until_waiting("wrong", "CreateContainerConfigError", complaint);
    ends_with(kubectl, "right", 4);

    kubectl.until_ready("shop");
    let hosts = |hosts: &str| json!({"wasm.skiff.internal/fuel": "1000000", "wasm.skiff.internal/outbound-hosts": hosts});
    for (name, class, annotations, code) in [
        // The guest asks for `shop`: the full name has the same address.
        ("fetches", None, hosts("shop.default.svc.cluster.local:80"), 0),
        ("fetches-all", None, json!({}), 0),
        ("fetches-elsewhere", None, hosts("web.default.svc.cluster.local, *.example.com"), DENIED),
        ("fetches-nothing", Some("frugal"), enough, DENIED),
    ] {
        create(name, "fetches", class, annotations);
        ends_with(kubectl, name, code);
    }
    kubectl.ok("delete pods shop wrong --timeout=60s");
}
