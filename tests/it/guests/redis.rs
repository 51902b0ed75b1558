//! A guest whose `wasi:keyvalue` is a Redis server, by a URL from a Secret.

use std::process::{Child, Stdio};

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, eventually};

use super::{components, ends_with, pod};

const PASSWORD: &str = "correct horse";

/// Debian's server on the node's address.
struct Redis<'a> {
    cluster: &'a Cluster,
    process: Child,
}

impl<'a> Redis<'a> {
    fn start(cluster: &'a Cluster) -> Self {
        let mut server = cluster.net.command("redis-server");
        server.args(["--bind", &cluster.net.ip, "--port", "6379", "--save", "", "--appendonly", "no", "--requirepass", PASSWORD]);
        let redis = Self { cluster, process: server.stdout(Stdio::null()).spawn().expect("redis-server starts") };
        eventually("Redis answers", || match redis.ask(&["PING"]).as_str() {
            "PONG" => Ok(()),
            answer => Err(answer.to_owned()),
        });
        redis
    }

    /// The answer to a command of another client.
    fn ask(&self, command: &[&str]) -> String {
        let ran = self
            .cluster
            .net
            .run("redis-cli", &[&["-h", &self.cluster.net.ip, "--no-auth-warning", "-a", PASSWORD, "--raw"], command].concat());
        ran.stdout.trim_end().to_owned()
    }
}

impl Drop for Redis<'_> {
    fn drop(&mut self) {
        // The kill fails if the server has ended already. Wait for its end in both cases.
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

/// The image of [`a_guest_keeps_its_data_in_redis`].
pub fn image() -> Vec<u8> {
    components::interfaces_without_cursor()
}

pub fn a_guest_keeps_its_data_in_redis(cluster: &Cluster, kubectl: &Kubectl<'_>) {
    let redis = Redis::start(cluster);
    let url = format!("redis://:{}@{}:6379", PASSWORD.replace(' ', "%20"), cluster.net.ip);
    kubectl
        .run(&["create", "secret", "generic", "redis", &format!("--from-literal=url={url}"), "--from-literal=wrong=rediss://secret@x"])
        .ok();
    let stores = |name: &str, key: &str| -> Value {
        let url = json!({"name": "REDIS_URL", "valueFrom": {"secretKeyRef": {"name": "redis", "key": key}}});
        let env = json!([url, {"name": "COLOUR", "value": "green\nand blue"}]);
        pod(name, "stores", json!({"wasm.skiff.internal/keyvalue-url-variable": "REDIS_URL"}), json!({"env": env}))
    };
    kubectl.apply(&stores("stores", "url").to_string()).ok();
    ends_with(kubectl, "stores", 0);
    assert_eq!(redis.ask(&["GET", "number"]), "42");

    kubectl.apply(&stores("encrypted", "wrong").to_string()).ok();
    kubectl.until_waiting("encrypted", "CreateContainerConfigError", "REDIS_URL");
    let described = kubectl.ok("describe pod encrypted");
    assert!(!described.contains("secret@x"), "{described}");
    kubectl.ok("delete pod encrypted --timeout=60s");
}
