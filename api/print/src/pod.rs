//! Pods and PodTemplates. The STATUS column of a Pod summarizes its phase, its conditions and the state of every
//! container.

use jiff::Timestamp;
use serde_json::Value;

use crate::printer::{AGE, NAME, Printer, text as column, wide};
use crate::read::{age, at, condition, containers, flag_or, is_true, list, map, name, number, text, text_or, time};
use crate::{duration, selector};

pub(crate) const PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "Pod",
        columns: &[
            NAME,
            column("Ready", "The aggregate readiness state of this pod for accepting traffic."),
            column("Status", "The aggregate status of the containers in this pod."),
            column("Restarts", "How often the containers of this pod were restarted, and how long ago the last of them was."),
            AGE,
            wide("IP", "The first address of the pod."),
            wide("Node", "The node that the pod is bound to."),
            wide("Nominated Node", "The node on which others are preempted for this pod."),
            wide("Readiness Gates", "How many of the conditions that the pod waits for are true."),
        ],
        cells: pod,
    },
    Printer {
        group: "",
        kind: "PodTemplate",
        columns: &[
            NAME,
            column("Containers", "Names of each container in the template."),
            column("Images", "Images referenced by each container in the template."),
            column("Pod Labels", "The labels for the pod template."),
        ],
        cells: pod_template,
    },
];

fn pod(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = Summary::new(pod);
    let restarts = match summary.last_restart {
        Some(at) if summary.restarts != 0 => format!("{} ({} ago)", summary.restarts, duration::human(now.duration_since(at))),
        _ => summary.restarts.to_string(),
    };
    let ip = list(pod, "status.podIPs").first().map_or("", |ip| text(ip, "ip"));
    vec![
        name(pod),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.into(),
        restarts.into(),
        age(pod, now),
        if ip.is_empty() { "<none>".into() } else { ip.into() },
        text_or(pod, "spec.nodeName", "<none>"),
        text_or(pod, "status.nominatedNodeName", "<none>"),
        readiness_gates(pod).into(),
    ]
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "spec.readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let met = gates.iter().filter(|gate| is_true(pod, text(gate, "conditionType"))).count();
    format!("{met}/{}", gates.len())
}

/// The summary of all containers of a Pod.
struct Summary {
    reason: String,
    ready: usize,
    /// Containers that count for readiness: the main containers and the sidecars.
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

/// The number of restarts, and the time of the last one.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += number(status, "restartCount");
        self.last = self.last.max(time(status, "lastState.terminated.finishedAt"));
    }
}

impl Summary {
    fn new(pod: &Value) -> Self {
        let phase = text(pod, "status.phase");
        let sidecars: Vec<&str> =
            list(pod, "spec.initContainers").iter().filter(|c| text(c, "restartPolicy") == "Always").map(|c| text(c, "name")).collect();
        let mut reason = match text(pod, "status.reason") {
            "" => phase.to_owned(),
            reason => reason.to_owned(),
        };
        if condition(pod, "status.conditions", "PodScheduled").is_some_and(|c| text(c, "reason") == "SchedulingGated") {
            "SchedulingGated".clone_into(&mut reason);
        }
        let init = Init::new(pod, &sidecars);
        let initializing = init.reason.is_some();
        let (mut ready, mut restarts) = (init.ready, init.restarts);
        reason = init.reason.unwrap_or(reason);
        if !initializing || is_true(pod, "Initialized") {
            restarts = init.sidecar_restarts;
            ready += main_containers(pod, &mut reason, &mut restarts);
        }
        let deleting = at(pod, "metadata.deletionTimestamp").is_some();
        if deleting && text(pod, "status.reason") == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if deleting && !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut reason);
        }
        let total = list(pod, "spec.containers").len() + sidecars.len();
        Self { reason, ready, total, restarts: restarts.count, last_restart: restarts.last }
    }
}

/// The summary of the init containers.
struct Init {
    /// Why the Pod is not initialized; `None` when it is.
    reason: Option<String>,
    /// Ready sidecars.
    ready: usize,
    restarts: Restarts,
    sidecar_restarts: Restarts,
}

impl Init {
    fn new(pod: &Value, sidecars: &[&str]) -> Self {
        let mut init = Self { reason: None, ready: 0, restarts: Restarts::default(), sidecar_restarts: Restarts::default() };
        for (position, status) in list(pod, "status.initContainerStatuses").iter().enumerate() {
            let sidecar = sidecars.contains(&text(status, "name"));
            init.restarts.add(status);
            if sidecar {
                init.sidecar_restarts.add(status);
            }
            let terminated = at(status, "state.terminated");
            if terminated.is_some_and(|t| number(t, "exitCode") == 0) {
                continue;
            }
            if sidecar && flag_or(status, "started", false) {
                init.ready += usize::from(flag_or(status, "ready", false));
                continue;
            }
            init.reason = Some(match (terminated, text(status, "state.waiting.reason")) {
                (Some(terminated), _) => format!("Init:{}", ended(terminated)),
                (None, "" | "PodInitializing") => format!("Init:{position}/{}", list(pod, "spec.initContainers").len()),
                (None, waiting) => format!("Init:{waiting}"),
            });
            break;
        }
        init
    }
}

/// Sets the reason from the main containers; the first container is read last, so that its reason wins. Returns how
/// many containers are ready.
fn main_containers(pod: &Value, reason: &mut String, restarts: &mut Restarts) -> usize {
    let mut ready = 0;
    for status in list(pod, "status.containerStatuses").iter().rev() {
        restarts.add(status);
        let waiting = text(status, "state.waiting.reason");
        if !waiting.is_empty() {
            waiting.clone_into(reason);
        } else if let Some(terminated) = at(status, "state.terminated") {
            *reason = ended(terminated);
        } else if flag_or(status, "ready", false) && at(status, "state.running").is_some() {
            ready += 1;
        }
    }
    if reason == "Completed" && ready > 0 {
        (if is_true(pod, "Ready") { "Running" } else { "NotReady" }).clone_into(reason);
    }
    ready
}

/// Why a container ended: its reason, or else its signal or exit code.
fn ended(terminated: &Value) -> String {
    match (text(terminated, "reason"), number(terminated, "signal")) {
        ("", 0) => format!("ExitCode:{}", number(terminated, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn pod_template(object: &Value, _: Timestamp) -> Vec<Value> {
    let (names, images) = containers(object, "template.spec.containers");
    vec![name(object), names, images, selector::labels(map(object, "template.metadata.labels")).into()]
}

#[cfg(test)]
mod tests;
