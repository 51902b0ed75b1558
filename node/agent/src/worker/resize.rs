//! Whether a running Pod may have the resources of its spec by now.

use std::sync::Arc;

use jiff::Timestamp;
use runtimes_contract::ContentKind;

use super::Worker;
use super::plan::{Step, plan};
use crate::container::resources::InstanceResources;
use crate::container::{self, resources};
use crate::record::{Resize, Resizing};
use crate::resize::{self, Pending};

impl Worker {
    /// Checks the resources that the API's Pod requests beyond its allocation, and allocates those that fit, when the directory of Pods
    /// `is_complete`.
    pub(super) fn weigh_resize(&mut self, now: Timestamp, is_complete: bool) {
        let differs = resize::differs(&self.wanted, &self.record.allocation);
        if self.record.ends(&self.pod) || !differs {
            // As long as something runs, an infeasible spec does not count.
            let is_infeasible = self.record.pending.as_ref().is_some_and(|pending| !pending.is_deferred());
            let stays = differs && is_infeasible && self.record.anything_runs();
            if !stays && self.record.pending.take().is_some() {
                self.node.directory.content(&self.name.uid);
            }
            return;
        }
        if !is_complete {
            return;
        }
        let fixed_cpus = self.fixed_cpus().map(|pending| ("guaranteed_pod_cpu_manager_static_policy", pending));
        let fixed = fixed_cpus.or_else(|| self.fixed_memory().map(|pending| ("webassembly_memory_limit", pending)));
        let (detail, weighed) = match fixed {
            Some((detail, pending)) => {
                self.node.directory.content(&self.name.uid);
                (detail, Err(pending))
            }
            None => {
                let allocated = self.node.directory.allocate(&self.name.uid, &self.wanted, self.node.allocatable(), api_clock::now());
                ("insufficient_node_allocatable", allocated)
            }
        };
        match weighed {
            Ok(()) => {
                self.record.allocation = resize::desired(&self.wanted);
                self.record.pending = None;
                self.record.resize.ask(now);
                self.record.resizing = Some(Resizing::Here);
                self.pod = self.wanted.clone();
                self.effects.pod = self.pod.clone();
                self.node.note(&self.pod, None, false, "ResizeStarted", "Pod resize started");
            }
            Err(pending) => {
                if self.record.pending.as_ref().is_none_or(|record| record.reason != pending.reason) {
                    let message = format!("Pod resize {}: {}", pending.reason, pending.message);
                    let reason = if pending.is_deferred() { "ResizeDeferred" } else { "ResizeInfeasible" };
                    self.node.note(&self.pod, None, true, reason, message);
                    if !pending.is_deferred() {
                        self.node.kubelet_metrics.resizes.infeasible(detail);
                    }
                }
                self.record.pending = Some(pending);
            }
        }
    }

    /// As upstream, no Guaranteed Pod is resized where some of them have CPUs alone.
    fn fixed_cpus(&self) -> Option<Pending> {
        let is_fixed = self.node.cpu_manager.is_some() && resources::qos(&self.wanted) == "Guaranteed";
        is_fixed.then(|| Pending::infeasible("Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy".to_owned()))
    }

    /// How far a WASM guest may grow is settled when it starts. Its limit may be that of the whole Pod; that of an ephemeral container
    /// always is.
    fn fixed_memory(&self) -> Option<Pending> {
        let spec = self.wanted.spec.as_ref()?;
        let fixed = self.record.containers.iter().find_map(|(name, record)| {
            let alive = record.alive()?;
            let is_wasm = self.node.parts.by_handler(&alive.handler)?.runs() == ContentKind::Wasm;
            let (_, container) = container::find_any(&self.wanted, name)?;
            let wanted = InstanceResources::of(spec, &container).limits;
            let changes = alive.resources.limits.memory_bytes != wanted.memory_bytes;
            (is_wasm && changes && !resize::restarts(spec, &container, &alive.resources)).then_some(name)
        })?;
        let message = format!(
            "the memory limit of WebAssembly container \"{fixed}\" cannot change while it runs; a resizePolicy RestartContainer for memory allows it"
        );
        Some(Pending::infeasible(message))
    }

    /// The next step. A resize that an earlier agent began goes on once its resources are allocated again. No container starts before with
    /// less than the spec requests: it would have to be restarted for the rest.
    pub(super) fn next_step(&self, now: Timestamp, is_complete: bool) -> Step {
        let step = plan(&self.pod, &self.record, now);
        let waits = match step {
            Step::Resize => true,
            Step::Start(_) => resize::differs(&self.wanted, &self.record.allocation),
            _ => false,
        };
        if waits && !is_complete { Step::Wait(None) } else { step }
    }

    /// Whether the cgroups may have other limits than the Pod's status.
    pub(super) fn resizes(&self) -> bool {
        self.record.resize != Resize::Settled || resize::differs(&self.wanted, &self.record.allocation)
    }

    /// Sets the allocated resources on the running instances and on the Pod as a whole.
    pub(super) fn resize(&mut self) {
        self.record.resize = Resize::Busy { again: false };
        let running = self.record.containers.iter().filter_map(|(name, record)| Some((name.clone(), record.alive()?.clone())));
        let running = running.filter(|(_, alive)| !alive.stopping).collect();
        let pod_level = self.record.pod_level.clone();
        self.tasks.spawn(api_tasks::named("node-agent/pod-resize", self.effects.clone().resize(running, pod_level)));
    }

    /// Replaces the worker's Pod by the Pod in the API, with its allocation.
    pub(super) fn take_up(&mut self, wanted: Arc<k8s_openapi::api::core::v1::Pod>) {
        self.node.kubelet_metrics.resizes.requested(&self.wanted, &wanted);
        self.pod = resize::with_allocation(&wanted, &self.record.allocation);
        self.wanted = wanted;
        self.effects.pod = self.pod.clone();
    }
}
