//! The real kubectl, and waiting for what it shows.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::net::Net;
use crate::project::project;
use crate::run::{Ran, eventually, run};

/// How long kubectl watches an object, as its flag.
const WATCH_LIMIT: &str = "--request-timeout=5s";

/// The real kubectl with one kubeconfig.
pub struct Kubectl<'a> {
    net: &'a Net,
    kubeconfig: PathBuf,
    program: PathBuf,
    namespace: &'static str,
}

impl<'a> Kubectl<'a> {
    /// kubectl in a namespace with a kubeconfig.
    pub fn new(net: &'a Net, kubeconfig: PathBuf) -> Self {
        Self { net, kubeconfig, program: PathBuf::from("kubectl"), namespace: "default" }
    }

    /// The same kubeconfig with another kubectl.
    pub fn with_program(self, program: PathBuf) -> Self {
        Self { program, ..self }
    }

    /// The same kubeconfig with another namespace for what names none.
    pub fn in_namespace(self, namespace: &'static str) -> Self {
        Self { namespace, ..self }
    }

    /// The command, which the story runs or spawns.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.net.command(&self.program.display().to_string());
        command.arg("--kubeconfig").arg(&self.kubeconfig).current_dir(project());
        if self.namespace != "default" {
            command.args(["--namespace", self.namespace]);
        }
        command.args(args);
        // Every cluster of the tests has the same address, so kubectl must not cache one cluster's discovery for
        // another.
        command.env("KUBECACHEDIR", self.kubeconfig.with_extension("cache"));
        // Most calls end before they have collected garbage that matters. Without, they take a sixth less time.
        command.env("GOGC", "off").env("GOMEMLIMIT", "256MiB");
        command
    }

    /// Runs kubectl.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args), None)
    }

    /// Runs kubectl with words split at spaces, and returns its output; the test fails if kubectl fails.
    #[track_caller]
    pub fn ok(&self, words: &str) -> String {
        self.run(&words.split_whitespace().collect::<Vec<_>>()).ok()
    }

    /// Runs kubectl with words split at spaces, and returns its error output; the test fails if kubectl succeeds.
    #[track_caller]
    pub fn fails(&self, words: &str) -> String {
        self.run(&words.split_whitespace().collect::<Vec<_>>()).fails()
    }

    /// Repeats kubectl with words split at spaces until it succeeds; returns its output.
    #[track_caller]
    pub fn until_ok(&self, words: &str) -> String {
        eventually(words, || {
            let ran = self.run(&words.split_whitespace().collect::<Vec<_>>());
            if ran.succeeded() { Ok(ran.stdout) } else { Err(ran.to_string()) }
        })
    }

    /// Applies YAML.
    #[track_caller]
    pub fn apply(&self, yaml: &str) -> Ran {
        run(&mut self.command(&["apply", "-f", "-"]), Some(yaml))
    }

    /// Runs kubectl with text as its input.
    #[track_caller]
    pub fn with_input(&self, words: &str, input: &str) -> Ran {
        run(&mut self.command(&words.split_whitespace().collect::<Vec<_>>()), Some(input))
    }

    /// An object, or a list of them, as JSON.
    #[track_caller]
    pub fn json(&self, words: &str) -> Value {
        let text = self.ok(&format!("{words} -o json"));
        serde_json::from_str(&text).expect("kubectl prints JSON")
    }

    /// A field of an object by JSON pointer; null when object or field is absent.
    pub fn field(&self, object: &str, pointer: &str) -> Value {
        let ran = self.run(&["get", object, "-o", "json"]);
        let value: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        value.pointer(pointer).cloned().unwrap_or_default()
    }

    /// The UID of a Pod.
    #[track_caller]
    pub fn uid(&self, pod: &str) -> String {
        self.field(&format!("pod/{pod}"), "/metadata/uid").as_str().expect("a UID").to_owned()
    }

    /// The address of a Pod.
    #[track_caller]
    pub fn ip(&self, pod: &str) -> String {
        self.field(&format!("pod/{pod}"), "/status/podIP").as_str().expect("an address").to_owned()
    }

    /// A condition of an object; null when the object is absent, or has none of that type.
    pub fn condition(&self, object: &str, kind: &str) -> Value {
        condition(&self.field(object, ""), kind).clone()
    }

    /// The status of a container of a Pod; null when there is none.
    pub fn container(&self, pod: &str, name: &str) -> Value {
        let statuses = self.field(&format!("pod/{pod}"), "/status/containerStatuses");
        statuses.as_array().and_then(|all| all.iter().find(|status| status["name"] == name)).cloned().unwrap_or_default()
    }

    /// Waits until a field has a value.
    #[track_caller]
    pub fn until(&self, object: &str, pointer: &str, wanted: impl Into<Value>) {
        let wanted = wanted.into();
        let of = |value: &Value| value.pointer(pointer).cloned().unwrap_or_default();
        eventually(&format!("{object}{pointer} = {wanted}"), || {
            // An object that does not exist has no fields, and cannot be watched.
            if self.shows(object, |value| of(value) == wanted) || self.field(object, pointer) == wanted {
                return Ok(());
            }
            Err(self.run(&["describe", object]).to_string())
        });
    }

    /// Waits until a condition of an object has a status.
    #[track_caller]
    pub fn until_condition(&self, object: &str, kind: &str, wanted: &str) {
        eventually(&format!("{object} has {kind}={wanted}"), || {
            let found = self.condition(object, kind);
            if found["status"] == wanted { Ok(()) } else { Err(found.to_string()) }
        });
    }

    /// Watches an object for some seconds; returns whether the closure accepted one of its states. One kubectl instead of
    /// many: most of what one costs is its start.
    fn shows(&self, object: &str, mut accepts: impl FnMut(&Value) -> bool) -> bool {
        let mut watch = self.command(&["get", object, "-o", "json", "--watch", "--output-watch-events", WATCH_LIMIT]);
        let mut watch = watch.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("kubectl starts");
        let states = BufReader::new(watch.stdout.take().expect("a pipe"));
        let mut events = serde_json::Deserializer::from_reader(states).into_iter::<Value>().map_while(Result::ok);
        let accepted = events.any(|event| event["type"] != "DELETED" && accepts(&event["object"]));
        // The kill fails if kubectl has ended already. Wait for its end in both cases.
        let _ended = watch.kill();
        watch.wait().expect("kubectl ends");
        accepted
    }

    /// Waits until the metrics of the server have this line, a series with its value.
    #[track_caller]
    pub fn until_counted(&self, sample: &str) {
        eventually(sample, || {
            let metrics = self.ok("get --raw /metrics");
            let (series, _) = sample.rsplit_once(' ').unwrap_or((sample, ""));
            match metrics.lines().find(|line| line.rsplit_once(' ').is_some_and(|(of, _)| of == series)) {
                Some(line) if line == sample => Ok(()),
                other => Err(other.unwrap_or("no such series").to_owned()),
            }
        });
    }

    /// Waits until a namespace accepts Pods: it needs the ServiceAccount `default`.
    #[track_caller]
    pub fn until_usable(&self, namespace: &str) {
        self.until_ok(&format!("get serviceaccount default -n {namespace}"));
    }

    /// Creates a ready Node that has no agent: Pods are bound to it, and nobody runs them.
    #[track_caller]
    pub fn add_node(&self, name: &str, labels: &Value, cpu: &str, memory: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}});
        self.apply(&node.to_string()).ok();
        let capacity = json!({"cpu": cpu, "memory": memory, "pods": "110"});
        let ready = json!({"type": "Ready", "status": "True", "reason": "Story", "message": ""});
        let status = json!({"status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}}).to_string();
        self.run(&["patch", "node", name, "--subresource=status", "--type=merge", "-p", &status]).ok();
        self.run(&["patch", "node", name, "--type=merge", "-p", r#"{"spec":{"taints":null}}"#]).ok();
    }

    /// Waits until a Pod is ready.
    #[track_caller]
    pub fn until_ready(&self, pod: &str) {
        let object = format!("pod/{pod}");
        eventually(&format!("pod {pod} is ready"), || {
            if self.shows(&object, is_ready) { Ok(()) } else { Err(self.run(&["describe", &object]).to_string()) }
        });
    }

    /// Waits until the first container of a Pod waits for that reason, with a message that contains the words; returns the
    /// message.
    #[track_caller]
    pub fn until_waiting(&self, pod: &str, reason: &str, words: &str) -> String {
        let object = format!("pod/{pod}");
        eventually(&format!("{pod} waits with {reason}: {words}"), || {
            let mut message = String::new();
            let waits = |pod: &Value| {
                let status = &pod["status"]["containerStatuses"][0];
                message = status["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned();
                is_waiting(status, reason, words)
            };
            if self.shows(&object, waits) { Ok(message) } else { Err(self.run(&["describe", &object]).to_string()) }
        })
    }

    /// Waits until a Pod is evicted, with a message that begins like that; returns the message.
    #[track_caller]
    pub fn until_evicted(&self, pod: &str, begin: &str) -> String {
        let object = format!("pod/{pod}");
        self.until(&object, "/status/phase", "Failed");
        let status = self.field(&object, "/status");
        assert_eq!(status["reason"], "Evicted", "{pod}: {status:#}");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.starts_with(begin), "{pod}: {status:#}");
        message.to_owned()
    }
}

/// A condition of an object as JSON; null when it has none of that type.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|one| one["type"] == kind)).unwrap_or(&Value::Null)
}

/// Whether a Pod or a Node is ready.
pub fn is_ready(object: &Value) -> bool {
    condition(object, "Ready")["status"] == "True"
}

/// Whether a container waits for that reason, with a message that contains the words, by its status.
pub fn is_waiting(status: &Value, reason: &str, words: &str) -> bool {
    let waiting = &status["state"]["waiting"];
    waiting["reason"] == reason && waiting["message"].as_str().is_some_and(|message| message.contains(words))
}

/// The id of a container by its status, without the name of the runtime.
#[track_caller]
pub fn container_id(status: &Value) -> &str {
    status["containerID"].as_str().and_then(|id| id.split("://").nth(1)).expect("an id")
}
