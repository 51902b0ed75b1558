//! The worker of one Pod: it starts the Pod, makes it ready, ends it and says so.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Kubelet, RETRY_AFTER};
use crate::ledger::Running;

const START_MAX: Duration = Duration::from_secs(3);
const READY_MAX: Duration = Duration::from_secs(4);
const RUN_MAX: Duration = Duration::from_secs(30);
/// The annotation with the percentage of runs that fail.
pub const FAILS: &str = "sim/fails";

pub(super) struct Worker {
    kubelet: Kubelet,
    api: Api<Pod>,
    name: String,
    uid: String,
    started_at: String,
    pod: watch::Receiver<Option<Arc<Pod>>>,
}

/// Why a Pod does not run any more, or not yet.
enum Stop {
    /// It is to be deleted, within this time.
    Deleted(Duration),
    /// It was deleted without waiting for this machine.
    Gone,
}

impl Worker {
    pub(super) fn new(kubelet: Kubelet, pod: &Pod, receiver: watch::Receiver<Option<Arc<Pod>>>) -> Self {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        Self {
            api: Api::namespaced(kubelet.client.clone(), &namespace),
            kubelet,
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            started_at: now(),
            pod: receiver,
        }
    }

    pub(super) async fn run(mut self) {
        let Some(pod) = self.pod.borrow().clone() else { return };
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.clone()).unwrap_or_default();
        let mut is_over = matches!(phase.as_str(), "Succeeded" | "Failed");
        // A machine that comes back runs no Pod a second time that is not to be restarted.
        if !is_over && phase == "Running" && policy == "Never" && pod.metadata.deletion_timestamp.is_none() {
            self.report("Failed", false).await;
            is_over = true;
        }
        let stop = if is_over || pod.metadata.deletion_timestamp.is_some() { self.stopped().await } else { self.live(&pod, &policy).await };
        match stop {
            Stop::Gone => {
                tokio::time::sleep(self.kubelet.up_to(RETRY_AFTER)).await;
                self.kubelet.ledger.end(&self.uid);
            }
            Stop::Deleted(grace) => {
                let is_running = self.kubelet.ledger.running().contains_key(&self.uid);
                if is_running {
                    tokio::time::sleep(grace.mul_f64(self.kubelet.chance())).await;
                    self.kubelet.ledger.end(&self.uid);
                    let phase = if self.kubelet.chance() < 0.5 { "Succeeded" } else { "Failed" };
                    self.report(phase, false).await;
                }
                self.delete().await;
            }
        }
    }

    /// Runs the Pod until it is to stop. A Pod that has ended by itself waits for its deletion.
    async fn live(&mut self, pod: &Pod, policy: &str) -> Stop {
        let running = Running {
            pod: format!("{}/{}", pod.metadata.namespace.as_deref().unwrap_or_default(), self.name),
            node: self.kubelet.node.clone(),
            cpu: cpu(pod),
        };
        if !self.kubelet.ledger.start(&self.uid, &running, self.kubelet.cpu()) {
            self.report("Failed", false).await;
            return self.stopped().await;
        }
        let fails: f64 = pod.metadata.annotations.as_ref().and_then(|all| all.get(FAILS)?.parse().ok()).unwrap_or_default();
        loop {
            if let Some(stop) = self.wait(self.kubelet.up_to(START_MAX)).await {
                return stop;
            }
            self.report("Running", false).await;
            if let Some(stop) = self.wait(self.kubelet.up_to(READY_MAX)).await {
                return stop;
            }
            self.report("Running", true).await;
            let time = if policy == "Always" { Duration::MAX } else { self.kubelet.up_to(RUN_MAX) };
            if let Some(stop) = self.stay_ready(time).await {
                return stop;
            }
            let failed = self.kubelet.chance() * 100.0 < fails;
            if failed && policy == "OnFailure" {
                continue;
            }
            self.kubelet.ledger.end(&self.uid);
            self.report(if failed { "Failed" } else { "Succeeded" }, false).await;
            return self.stopped().await;
        }
    }

    /// Runs for this time, unless the Pod is to stop before that. While the node was lost, others have written that the Pod is not
    /// ready.
    async fn stay_ready(&mut self, time: Duration) -> Option<Stop> {
        let end = tokio::time::sleep(time);
        tokio::pin!(end);
        loop {
            let mut pod = self.pod.clone();
            tokio::select! {
                biased;
                stop = self.stopped() => return Some(stop),
                () = &mut end => return None,
                _ = pod.wait_for(|pod| pod.as_ref().is_some_and(|pod| !is_ready(pod))) => {}
            }
            // The watch shows an older state until the last report has arrived.
            tokio::time::sleep(RETRY_AFTER * 5).await;
            let is_unready = self.pod.borrow().as_ref().is_some_and(|pod| !is_ready(pod) && pod.metadata.deletion_timestamp.is_none());
            if is_unready {
                self.report("Running", true).await;
            }
        }
    }

    /// Waits, unless the Pod is to stop before that.
    async fn wait(&mut self, time: Duration) -> Option<Stop> {
        tokio::time::timeout(time, self.stopped()).await.ok()
    }

    async fn stopped(&mut self) -> Stop {
        let stop = |pod: &Option<Arc<Pod>>| match pod {
            None => Some(Stop::Gone),
            Some(pod) => {
                pod.metadata.deletion_timestamp.as_ref()?;
                let grace = u64::try_from(pod.metadata.deletion_grace_period_seconds.unwrap_or(0)).unwrap_or(0);
                Some(Stop::Deleted(Duration::from_secs(grace)))
            }
        };
        let stopped = self.pod.wait_for(|pod| stop(pod).is_some()).await.map(|pod| stop(&pod).unwrap_or(Stop::Gone));
        match stopped {
            Ok(stop) => stop,
            // The sender is gone with the machine.
            Err(_) => std::future::pending().await,
        }
    }

    fn is_there(&self) -> bool {
        self.pod.borrow().is_some()
    }

    /// Writes the status until the server has it, or the Pod is gone.
    async fn report(&self, phase: &str, is_ready: bool) {
        let now = now();
        let ready = if is_ready { "True" } else { "False" };
        let conditions: Vec<Value> = [("Initialized", "True"), ("Ready", ready), ("ContainersReady", ready)]
            .iter()
            .map(|(kind, status)| json!({"type": kind, "status": status, "lastTransitionTime": now}))
            .collect();
        let state = match phase {
            "Running" => json!({"running": {"startedAt": now}, "terminated": null}),
            _ => json!({"running": null, "terminated": {"exitCode": i32::from(phase == "Failed"), "startedAt": now, "finishedAt": now}}),
        };
        let container = json!({"name": "c", "image": "i", "imageID": "i", "ready": is_ready, "restartCount": 0, "state": state});
        let ip = format!(
            "10.244.{}.{}",
            self.kubelet.node.trim_start_matches('n'),
            u8::from_str_radix(self.uid.get(..2).unwrap_or("0"), 16).unwrap_or(0)
        );
        let mut status = json!({"phase": phase, "startTime": self.started_at, "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": conditions, "containerStatuses": [container]});
        if !matches!(phase, "Running")
            && self.pod.borrow().as_ref().is_some_and(|pod| pod.status.as_ref().is_none_or(|status| status.pod_ip.is_none()))
        {
            status["podIP"] = Value::Null;
            status["podIPs"] = Value::Null;
        }
        let patch = Patch::Strategic(json!({"metadata": {"uid": self.uid}, "status": status}));
        while self.is_there() {
            match self.api.patch_status(&self.name, &PatchParams::default(), &patch).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if status.code == 404 => return,
                Err(_) => tokio::time::sleep(RETRY_AFTER).await,
            }
        }
    }

    async fn delete(&self) {
        let preconditions = Preconditions { uid: Some(self.uid.clone()), resource_version: None };
        let params = DeleteParams::default().grace_period(0).preconditions(preconditions);
        while self.is_there() {
            match self.api.delete(&self.name, &params).await {
                Err(kube::Error::Api(status)) if status.code == 404 => return,
                // The Pod is gone when the watch says so: it may have finalizers.
                _ => tokio::time::sleep(RETRY_AFTER * 5).await,
            }
        }
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// What the first container requests, in thousandths of a core.
fn cpu(pod: &Pod) -> i64 {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let requests = container.and_then(|container| container.resources.as_ref()?.requests.as_ref()?.get("cpu").cloned());
    requests.and_then(|cpu| cpu.0.strip_suffix('m').and_then(|text| text.parse().ok())).unwrap_or_default()
}

fn now() -> String {
    api_clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
