//! A plugin of the scheduler that runs as a component: its present version, its instance, and what happens when it fails.
//!
//! A failure ends the instance. For the rest of the cycle the plugin says nothing, and the cycle fails if the plugin's policy is `Fail`.
//! The next cycle starts a new instance; when a cycle with that instance fails too, the one after it waits for a back-off, so that a
//! plugin that often fails costs little. Results are thrown away whenever the plugin changed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sched_framework::{
    ClusterEvent, CycleState, ExternalPlugin, ExternalPluginSpec, FailurePolicy, FilterPlugin, NodeInfo, Normalization, Permit,
    PermitCandidate, PermitPlugin, Plugin, PodInfo, Scope, ScorePlugin, Status,
};
use tokio::time::Instant;

use crate::instance::{Instance, PluginError, Prepared};
use crate::metrics;
use crate::values::{Candidate, Node, Pod};

/// The wait after the second failure in a row; it doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// A plugin may depend on everything that it reads of nodes.
const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::NodeAdd,
    ClusterEvent::UpdateNodeLabel,
    ClusterEvent::UpdateNodeTaint,
    ClusterEvent::UpdateNodeAllocatable,
    ClusterEvent::AssignedPodAdd,
    ClusterEvent::AssignedPodDelete,
    ClusterEvent::UpdatePodScaleDown,
    ClusterEvent::ExternalPluginUpdate,
];

/// A plugin.
pub(crate) struct WasmPlugin {
    name: &'static str,
    present: Mutex<Present>,
    /// What the next cycle begins with.
    next: Mutex<Option<Version>>,
}

/// A version of the plugin.
pub(crate) enum Version {
    /// It was loaded and initialized.
    Loaded(Arc<Prepared>, Box<Instance>),
    /// There is none yet, because of this.
    Absent(Arc<ExternalPluginSpec>, String),
}

/// The plugin in the present cycle.
struct Present {
    /// The declaration of the version in use; before there is one, the latest.
    spec: Arc<ExternalPluginSpec>,
    guest: Guest,
    prepared: Option<Arc<Prepared>>,
    /// Another number after each change of the results.
    generation: u64,
    /// Of the version, also after its instance failed.
    scope: Scope,
    normalization: Normalization,
    /// How many of the last cycles failed, one after the other. Cycles without a call do not count.
    failures: u32,
    /// A call of the present cycle succeeded.
    succeeded: bool,
    /// The instance ended in the present cycle.
    failed: bool,
    /// Why the present cycle fails.
    failure: Option<String>,
}

enum Guest {
    Running(Box<Instance>),
    /// There is no instance before that time, if there is one to come.
    Stopped {
        why: String,
        again: Option<Instant>,
    },
}

/// The scores of the feasible nodes of a cycle, by name.
struct Scores(HashMap<String, i64>);

impl WasmPlugin {
    /// A plugin that is not loaded yet.
    pub fn new(spec: Arc<ExternalPluginSpec>) -> Self {
        let name = spec.name;
        let guest = Guest::Stopped { why: "it is not loaded yet".to_owned(), again: None };
        let (scope, normalization) = (Scope::Node, Normalization::None);
        let present = Present {
            spec,
            guest,
            prepared: None,
            generation: 0,
            scope,
            normalization,
            failures: 0,
            succeeded: false,
            failed: false,
            failure: None,
        };
        Self { name, present: Mutex::new(present), next: Mutex::new(None) }
    }

    /// Uses this version from the next cycle on. [`Version::Absent`] does not replace a version that was loaded.
    pub fn set_version(&self, version: Version) {
        let mut next = self.next.lock();
        if matches!(version, Version::Loaded(..)) || !matches!(*next, Some(Version::Loaded(..))) {
            *next = Some(version);
        }
    }

    /// Calls the instance; `None` when there is none, or when it fails.
    fn call<T>(&self, point: &'static str, run: impl FnOnce(&mut Instance) -> Result<T, PluginError>) -> Option<T> {
        let mut present = self.present.lock();
        let Guest::Running(instance) = &mut present.guest else { return None };
        let started = Instant::now();
        let result = run(instance);
        metrics::called(self.name, point, result.is_ok(), started.elapsed());
        match result {
            Ok(value) => {
                present.succeeded = true;
                Some(value)
            }
            Err(error) => {
                let (why, spec) = (format!("running {point} plugin {:?}: {error}", self.name), &present.spec);
                tracing::warn!(plugin = self.name, image = spec.image, error = %error, policy = ?spec.failure_policy, "a scheduler plugin failed");
                present.stop(why);
                None
            }
        }
    }

    /// What the answers of the plugin depend on, if it has the extension point.
    fn implements(&self, has: impl Fn(&Instance) -> bool) -> Option<Scope> {
        let present = self.present.lock();
        matches!(&present.guest, Guest::Running(instance) if has(instance)).then_some(present.scope)
    }
}

impl Present {
    /// Ends the instance after a failure.
    fn stop(&mut self, why: String) {
        self.failures = self.failures.saturating_add(1);
        self.failed = true;
        self.generation += 1;
        let backoff = match self.failures {
            1 => Duration::ZERO,
            more => BACKOFF_MIN.saturating_mul(1 << (more - 2).min(20)).min(BACKOFF_MAX),
        };
        if self.spec.failure_policy == FailurePolicy::Fail {
            self.failure = Some(why.clone());
        }
        self.guest = Guest::Stopped { why, again: Some(Instant::now() + backoff) };
    }

    fn run(&mut self, instance: Box<Instance>) {
        self.generation += 1;
        self.scope = instance.scope();
        self.normalization = instance.normalization();
        self.guest = Guest::Running(instance);
    }

    /// Starts a new instance if the last one failed and its back-off is over.
    fn restart(&mut self) {
        let Guest::Stopped { again: Some(again), .. } = &self.guest else { return };
        let Some(prepared) = self.prepared.clone().filter(|_| *again <= Instant::now()) else { return };
        match prepared.start() {
            Ok(instance) => self.run(Box::new(instance)),
            Err(error) => {
                tracing::warn!(plugin = self.spec.name, image = self.spec.image, error = %error, "a scheduler plugin did not start again");
                self.stop(format!("starting plugin {:?}: {error}", self.spec.name));
            }
        }
    }
}

impl Plugin for WasmPlugin {
    fn name(&self) -> &'static str {
        self.name
    }

    fn scope(&self) -> Scope {
        self.present.lock().scope
    }
}

impl FilterPlugin for WasmPlugin {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let Some(scope) = self.implements(Instance::filters) else { return Status::Success };
        let nodes = [Node::new(node)];
        let statuses = self.call("Filter", |instance| instance.filter(&Pod::in_scope(pod, scope), &nodes));
        statuses.and_then(|statuses| statuses.into_iter().next()).unwrap_or(Status::Success)
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        EVENTS
    }
}

impl ScorePlugin for WasmPlugin {
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, feasible: &[&NodeInfo]) -> bool {
        let Some(scope) = self.implements(Instance::scores) else { return false };
        if scope == Scope::Cluster && !feasible.is_empty() {
            let nodes: Vec<Node<'_>> = feasible.iter().map(|node| Node::new(node)).collect();
            let scores = self.call("Score", |instance| instance.score(&Pod::in_scope(pod, scope), &nodes)).unwrap_or_default();
            let by_name = feasible.iter().map(|node| node.name.clone()).zip(scores);
            state.write(self.name, Scores(by_name.collect()));
        }
        true
    }

    fn score(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        match self.implements(Instance::scores)? {
            Scope::Cluster => state.read::<Scores>(self.name)?.0.get(&node.name).copied(),
            Scope::Node => {
                let nodes = [Node::new(node)];
                let scores = self.call("Score", |instance| instance.score(&Pod::in_scope(pod, Scope::Node), &nodes))?;
                scores.first().copied()
            }
        }
    }

    fn normalization(&self) -> Normalization {
        self.present.lock().normalization
    }
}

impl PermitPlugin for WasmPlugin {
    fn permit(&self, candidates: &[PermitCandidate<'_>]) -> Vec<Permit> {
        if self.implements(Instance::permits).is_some() {
            let lowered: Vec<Candidate<'_>> = candidates.iter().map(lowered).collect();
            if let Some(answers) = self.call("Permit", |instance| instance.permit(&lowered)) {
                return answers;
            }
        }
        match self.failure() {
            Some(why) => vec![Permit::Error(why.into()); candidates.len()],
            None => vec![Permit::Allow; candidates.len()],
        }
    }
}

fn lowered<'a>(candidate: &PermitCandidate<'a>) -> Candidate<'a> {
    Candidate {
        pod: Pod::new(candidate.pod),
        node: Node::new(candidate.node),
        waited_seconds: u32::try_from(candidate.waited.as_secs()).unwrap_or(u32::MAX),
    }
}

impl ExternalPlugin for WasmPlugin {
    fn begin_cycle(&self) -> u64 {
        let next = self.next.lock().take();
        let mut guard = self.present.lock();
        let present = &mut *guard;
        present.failure = None;
        if present.succeeded && !present.failed {
            present.failures = 0;
        }
        (present.succeeded, present.failed) = (false, false);
        match next {
            Some(Version::Loaded(prepared, instance)) => {
                present.spec = Arc::clone(&prepared.spec);
                present.prepared = Some(prepared);
                present.failures = 0;
                present.run(instance);
            }
            Some(Version::Absent(spec, why)) if present.prepared.is_none() => {
                present.spec = spec;
                present.guest = Guest::Stopped { why, again: None };
            }
            Some(Version::Absent(..)) | None => present.restart(),
        }
        match &mut present.guest {
            Guest::Running(instance) => instance.begin_cycle(),
            Guest::Stopped { why, .. } if present.spec.failure_policy == FailurePolicy::Fail => {
                let why = why.clone();
                present.failure = Some(why);
            }
            Guest::Stopped { .. } => {}
        }
        present.generation
    }

    fn failure(&self) -> Option<String> {
        self.present.lock().failure.clone()
    }
}
