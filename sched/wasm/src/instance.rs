//! A running plugin: a store with one instance, and the calls into it. A call that fails ends the instance: nobody knows what its memory
//! is like then.

use std::sync::Arc;
use std::time::Duration;

use sched_framework::{ExternalPluginSpec, Normalization, Permit, Scope, Status};
use thiserror::Error;
use wasmtime::component::{ComponentNamedList, Func, Instance as Component, InstancePre, Lift, Lower};
use wasmtime::{Store, Trap};

use crate::host::Host;
use crate::ticker::{TICK, Ticker};
use crate::values::{Candidate, Decision, Node, Pod, Settings, Verdict, one_line};

/// The most bytes that a plugin returns in one call, and passes to its log in one call.
const RETURNED_BYTES_MAX: usize = 4 << 20;
/// The highest raw score that is normalized: sums and products of scores stay in their range.
const SCORE_MAX: i64 = 1 << 40;
/// The start and the initialization of a plugin may take this many times the instructions of a call. They have no more time: a plugin
/// that failed is started again between two scheduling cycles.
const START_FUEL_FACTOR: u64 = 20;
/// The frames of a backtrace in the log.
const BACKTRACE_LEN_MAX: usize = 2_048;

const PLUGIN: &str = "skiff:scheduler/plugin@0.1.0";
const FILTER: &str = "skiff:scheduler/filter@0.1.0";
const SCORE: &str = "skiff:scheduler/score@0.1.0";
const PERMIT: &str = "skiff:scheduler/permit@0.1.0";

/// Why a plugin failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum PluginError {
    /// It does not export an interface that it needs.
    #[error("it does not export {interface}, {why}")]
    Export {
        /// The interface.
        interface: &'static str,
        /// What needs it.
        why: &'static str,
    },
    /// An export has another type than in `wit/scheduler.wit`.
    #[error("its export {interface} is not that of skiff:scheduler@0.1.0: {message}")]
    Type { interface: &'static str, message: String },
    /// `init` returned an error.
    #[error("init: {0}")]
    Init(String),
    /// A call used up its instructions.
    #[error("{call}: it used up its fuel of {fuel}")]
    Fuel { call: &'static str, fuel: u64 },
    /// The calls of a cycle took too long.
    #[error("{call}: it ran for more than {timeout:?} in a scheduling cycle")]
    Timeout { call: &'static str, timeout: Duration },
    /// The guest ended by a trap.
    #[error("{call}: {message}")]
    Trap { call: &'static str, message: String },
    /// The guest ended by a trap after it was refused memory.
    #[error("{call}: it wanted more than {memory_bytes} bytes of memory ({message})")]
    Memory { call: &'static str, memory_bytes: usize, message: String },
    /// A list has another length than the list that was passed.
    #[error("{call}: it returned {got} results for {wanted}")]
    Number { call: &'static str, got: usize, wanted: usize },
    /// A score is out of its range.
    #[error("score: plugin {plugin:?} returns an invalid score {score}, it should in the range of [{lowest}, {highest}]")]
    Score { plugin: &'static str, score: i64, lowest: i64, highest: i64 },
    /// The machine failed.
    #[error("{0}")]
    System(String),
}

/// What a plugin is started from.
pub(crate) struct Prepared {
    pub spec: Arc<ExternalPluginSpec>,
    pub pre: InstancePre<Host>,
    pub ticker: Ticker,
}

/// A plugin's instance at work. It is dropped after a failure.
pub(crate) struct Instance {
    spec: Arc<ExternalPluginSpec>,
    ticker: Ticker,
    store: Store<Host>,
    filter: Option<Func>,
    score: Option<Func>,
    permit: Option<Func>,
    settings: Settings,
    /// The tick at which the present cycle's time is over.
    deadline: u64,
}

impl Prepared {
    /// Makes an instance and initializes it.
    ///
    /// # Errors
    /// When the component does not export what the profile needs, or fails.
    pub fn start(&self) -> Result<Instance, PluginError> {
        let mut store = Store::new(self.pre.engine(), Host::new(self.spec.name, self.spec.memory_bytes));
        store.limiter(|host| host);
        store.set_hostcall_fuel(RETURNED_BYTES_MAX);
        store.epoch_deadline_trap();
        let mut starting = Starting { prepared: self, store, fuel: self.spec.fuel.saturating_mul(START_FUEL_FACTOR) };
        let component = starting.instantiate()?;
        let init = starting
            .function(&component, PLUGIN, "init")
            .ok_or(PluginError::Export { interface: PLUGIN, why: "without which it is no plugin" })?;
        let settings = starting.init(&init)?;
        let required = self.spec.required;
        let mut optional = |interface, function, is_required: bool| match starting.function(&component, interface, function) {
            None if is_required => Err(PluginError::Export { interface, why: "at whose extension point the profile enables it by name" }),
            func => Ok(func),
        };
        let filter = optional(FILTER, "filter", required.filter)?;
        let score = optional(SCORE, "score", required.score)?;
        let permit = optional(PERMIT, "permit", required.permit)?;
        if filter.is_none() && score.is_none() && permit.is_none() {
            return Err(PluginError::Export { interface: "skiff:scheduler/filter, /score or /permit@0.1.0", why: "one of which it needs" });
        }
        starting.check_types(filter, score, permit)?;
        let (spec, ticker, store) = (Arc::clone(&self.spec), self.ticker.clone(), starting.store);
        Ok(Instance { spec, ticker, store, filter, score, permit, settings, deadline: 0 })
    }
}

/// An instance before its first call.
struct Starting<'a> {
    prepared: &'a Prepared,
    store: Store<Host>,
    fuel: u64,
}

impl Starting<'_> {
    fn bounded<T>(&mut self, call: &'static str, run: impl FnOnce(&mut Store<Host>) -> wasmtime::Result<T>) -> Result<T, PluginError> {
        let spec = &self.prepared.spec;
        bounded(&mut self.store, &self.prepared.ticker, Bound { spec, call, fuel: self.fuel, ticks: ticks(spec.timeout) }, run)
    }

    fn instantiate(&mut self) -> Result<Component, PluginError> {
        let pre = self.prepared.pre.clone();
        self.bounded("start", |store| pre.instantiate(store))
    }

    fn function(&mut self, component: &Component, interface: &str, function: &str) -> Option<Func> {
        let interface = component.get_export_index(&mut self.store, None, interface)?;
        let function = component.get_export_index(&mut self.store, Some(&interface), function)?;
        component.get_func(&mut self.store, function)
    }

    fn init(&mut self, init: &Func) -> Result<Settings, PluginError> {
        let typed = init.typed::<(&str,), (Result<Settings, String>,)>(&self.store).map_err(|error| mistyped(PLUGIN, &error))?;
        let args = self.prepared.spec.args.clone();
        let (settings,) = self.bounded("init", |store| typed.call(store, (args.as_str(),)))?;
        settings.map_err(|message| PluginError::Init(one_line(&message)))
    }
}

impl Starting<'_> {
    /// Checks the types of the functions before the first call.
    fn check_types(&self, filter: Option<Func>, score: Option<Func>, permit: Option<Func>) -> Result<(), PluginError> {
        let store = &self.store;
        if let Some(filter) = filter {
            let typed = filter.typed::<(&Pod<'_>, &[Node<'_>]), (Vec<Verdict>,)>(store);
            typed.map_err(|error| mistyped(FILTER, &error))?;
        }
        if let Some(score) = score {
            score.typed::<(&Pod<'_>, &[Node<'_>]), (Vec<i64>,)>(store).map_err(|error| mistyped(SCORE, &error))?;
        }
        if let Some(permit) = permit {
            permit.typed::<(&[Candidate<'_>],), (Vec<Decision>,)>(store).map_err(|error| mistyped(PERMIT, &error))?;
        }
        Ok(())
    }
}

impl Instance {
    /// What the results of filter and score depend on.
    pub fn scope(&self) -> Scope {
        self.settings.scope()
    }

    /// The normalization of scores.
    pub fn normalization(&self) -> Normalization {
        self.settings.normalization()
    }

    /// Whether the plugin filters.
    pub fn filters(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether the plugin scores.
    pub fn scores(&self) -> bool {
        self.score.is_some()
    }

    /// Whether the plugin has a say in bindings.
    pub fn permits(&self) -> bool {
        self.permit.is_some()
    }

    /// Begins a scheduling cycle: the time for its calls.
    pub fn begin_cycle(&mut self) {
        self.store.data_mut().begin_cycle();
        self.deadline = self.ticker.now().saturating_add(ticks(self.spec.timeout));
    }

    /// The statuses of the nodes.
    pub fn filter(&mut self, pod: &Pod<'_>, nodes: &[Node<'_>]) -> Result<Vec<Status>, PluginError> {
        let Some(filter) = self.filter else { return Ok(vec![Status::Success; nodes.len()]) };
        let (verdicts,): (Vec<Verdict>,) = self.call("filter", &filter, (pod, nodes))?;
        let verdicts = counted("filter", verdicts, nodes.len())?;
        Ok(verdicts.into_iter().map(|verdict| verdict.status(self.spec.name)).collect())
    }

    /// The raw scores of the nodes.
    pub fn score(&mut self, pod: &Pod<'_>, nodes: &[Node<'_>]) -> Result<Vec<i64>, PluginError> {
        let Some(score) = self.score else { return Ok(vec![0; nodes.len()]) };
        let (scores,): (Vec<i64>,) = self.call("score", &score, (pod, nodes))?;
        let scores = counted("score", scores, nodes.len())?;
        let (lowest, highest) = match self.normalization() {
            Normalization::None => (0, sched_framework::SCORE_MAX),
            Normalization::Range => (-SCORE_MAX, SCORE_MAX),
            _ => (0, SCORE_MAX),
        };
        match scores.iter().find(|score| !(lowest..=highest).contains(*score)) {
            Some(score) => Err(PluginError::Score { plugin: self.spec.name, score: *score, lowest, highest }),
            None => Ok(scores),
        }
    }

    /// The decisions about the candidates.
    pub fn permit(&mut self, candidates: &[Candidate<'_>]) -> Result<Vec<Permit>, PluginError> {
        let Some(permit) = self.permit else { return Ok(vec![Permit::Allow; candidates.len()]) };
        let (decisions,): (Vec<Decision>,) = self.call("permit", &permit, (candidates,))?;
        Ok(counted("permit", decisions, candidates.len())?.into_iter().map(Decision::permit).collect())
    }

    fn call<P, R>(&mut self, call: &'static str, func: &Func, params: P) -> Result<R, PluginError>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        let typed = func.typed::<P, R>(&self.store).map_err(|error| mistyped(call, &error))?;
        let ticks = self.deadline.saturating_sub(self.ticker.now());
        let bound = Bound { spec: &self.spec, call, fuel: self.spec.fuel, ticks };
        bounded(&mut self.store, &self.ticker, bound, |store| typed.call(store, params))
    }
}

/// The limits of one call.
struct Bound<'a> {
    spec: &'a ExternalPluginSpec,
    call: &'static str,
    fuel: u64,
    ticks: u64,
}

/// Runs guest code within the limits.
fn bounded<T>(
    store: &mut Store<Host>,
    ticker: &Ticker,
    bound: Bound<'_>,
    run: impl FnOnce(&mut Store<Host>) -> wasmtime::Result<T>,
) -> Result<T, PluginError> {
    let Bound { spec, call, fuel, ticks } = bound;
    if ticks == 0 {
        return Err(PluginError::Timeout { call, timeout: spec.timeout });
    }
    let _running = ticker.run().map_err(|error| PluginError::System(format!("starting the clock of plugins: {error}")))?;
    store.set_fuel(fuel).map_err(|error| PluginError::System(error.to_string()))?;
    // The present tick is partly over.
    store.set_epoch_deadline(ticks.saturating_add(1));
    store.data_mut().wanted_memory = false;
    run(store).map_err(|error| failure(store.data_mut(), &bound, &error))
}

fn failure(host: &mut Host, bound: &Bound<'_>, error: &wasmtime::Error) -> PluginError {
    host.flush();
    let Bound { spec, call, fuel, .. } = *bound;
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => return PluginError::Fuel { call, fuel },
        Some(Trap::Interrupt) => return PluginError::Timeout { call, timeout: spec.timeout },
        _ => {}
    }
    let full = format!("{error:#}");
    let backtrace = full.get(..full.floor_char_boundary(BACKTRACE_LEN_MAX)).unwrap_or_default();
    tracing::debug!(plugin = spec.name, call, error = backtrace, "a scheduler plugin trapped");
    let message = one_line(&error.root_cause().to_string());
    match host.wanted_memory {
        true => PluginError::Memory { call, memory_bytes: spec.memory_bytes, message },
        false => PluginError::Trap { call, message },
    }
}

fn mistyped(interface: &'static str, error: &wasmtime::Error) -> PluginError {
    PluginError::Type { interface, message: one_line(&format!("{error:#}")) }
}

fn counted<T>(call: &'static str, results: Vec<T>, wanted: usize) -> Result<Vec<T>, PluginError> {
    if results.len() == wanted { Ok(results) } else { Err(PluginError::Number { call, got: results.len(), wanted }) }
}

/// The number of ticks of that time.
fn ticks(time: Duration) -> u64 {
    u64::try_from(time.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u64::MAX)
}
