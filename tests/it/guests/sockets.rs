//! The setting that lists the hosts of a guest, for the sockets of WASI 0.2 and 0.3: two guests of a Pod connect to a server in it.

use serde_json::{Value, json};
use tests::Kubectl;

use super::{ends_with, pod};
use crate::components::{self, Way};

/// `access-denied` of `wasi:sockets`, as the guest of WASI 0.2 ends with it.
const DENIED: i32 = 100 + 1;
/// The guest of WASI 0.3 ends with the number of the step that failed: it connects.
const DENIED_LATER: i32 = 6;
/// The port of the server, which sends back what it gets.
const PORT: u16 = 7000;

pub fn import(import: &dyn Fn(&str, &[u8])) {
    import("sockets", &components::sockets(Way::Tcp, PORT));
    import("sockets-later", &components::async_world());
}

pub fn sockets_reach_the_hosts_of_the_setting(kubectl: &Kubectl<'_>) {
    let lists = [("sockets", "127.0.0.1:7000", 0, 0), ("sockets-denied", "127.0.0.1:80, 10.0.0.0/8", DENIED, DENIED_LATER)];
    for (name, hosts, ..) in lists {
        kubectl.apply(&clients(name, hosts).to_string()).ok();
    }
    for (name, _, code, code_later) in lists {
        ends_with(kubectl, name, code);
        let later = kubectl.container(name, "later");
        assert_eq!(later["state"]["terminated"]["exitCode"], code_later, "{name}: {later}");
        let log = kubectl.ok(&format!("logs {name} -c later"));
        assert_eq!(log.contains("ping"), code == 0, "{name}: {log}");
    }
}

/// A Pod of both guests and their server, which is ready before they start. The second guest reads a file too.
fn clients(name: &str, hosts: &str) -> Value {
    let mut pod = pod(name, "sockets", json!({"wasm.skiff.internal/outbound-hosts": hosts}), json!({}));
    let of_sample = |name: &str, image: &str| json!({"name": name, "image": format!("samples/{image}:latest"), "imagePullPolicy": "Never"});
    let data = json!([{"name": "data", "mountPath": "/data"}]);
    let mut prepare = of_sample("prepare", "tools");
    prepare["command"] = json!(["sh", "-c", "echo of a volume > /data/text"]);
    prepare["volumeMounts"] = data.clone();
    let mut server = of_sample("server", "echo");
    server["restartPolicy"] = json!("Always");
    server["startupProbe"] = json!({"tcpSocket": {"port": PORT}, "periodSeconds": 1});
    let later = json!({"name": "later", "image": "guests/sockets-later:v1", "imagePullPolicy": "Never", "volumeMounts": data});
    let spec = &mut pod["spec"];
    spec["terminationGracePeriodSeconds"] = json!(1);
    spec["initContainers"] = json!([prepare, server]);
    spec["containers"].as_array_mut().expect("containers").push(later);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    pod
}
