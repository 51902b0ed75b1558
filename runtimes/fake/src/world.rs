//! The world of simulated containers: what the state directory and the kernel are for a real runtime.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io::Cursor;
use std::sync::Arc;

use parking_lot::Mutex;
use runtimes_contract::{
    AttachSession, ContainerId, ContainerSpec, ContainerState, ContainerStatus, Content, ExecSession, ExecSpec, Exit, HttpRequests,
    Preparation, Processes, RuntimeError, Stats,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::container::{Container, KILL, Started};
use crate::script::{Behaviour, Fault, Operation, Script};

/// When a world begins, in ms since the epoch.
const BEGINS_AT_MS: u64 = 1_750_000_000_000;

/// All containers of one simulated machine.
pub struct World {
    script: Script,
    begun: Instant,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    containers: BTreeMap<ContainerId, (Container, Arc<Notify>)>,
    http_requests: BTreeMap<ContainerId, HttpRequests>,
    preparation: Option<Preparation>,
    without_user_namespaces: BTreeSet<&'static str>,
    faults: HashMap<Operation, VecDeque<Fault>>,
    calls: Vec<Operation>,
    last_pid: i32,
}

impl Inner {
    /// A container has ended: with it end those that share its processes.
    fn end_with(&mut self, id: &ContainerId, now: Instant) {
        let shares = |container: &Container| matches!(&container.spec.processes, Processes::OfContainer(target) if target == id);
        for (container, changed) in self.containers.values_mut().filter(|(container, _)| shares(container)) {
            if container.runs(now)
                && let Some(started) = &mut container.started
            {
                started.killed = Some((KILL, now));
                changed.notify_waiters();
            }
        }
    }
}

impl World {
    /// An empty world. Its clock is tokio's, and begins now.
    pub fn new(script: Script) -> Arc<Self> {
        Arc::new(Self { script, begun: Instant::now(), inner: Mutex::default() })
    }

    /// The next calls of an operation get these faults, one each.
    pub fn inject(&self, operation: Operation, faults: impl IntoIterator<Item = Fault>) {
        self.inner.lock().faults.entry(operation).or_default().extend(faults);
    }

    /// Forgets the faults that did not occur yet.
    pub fn clear_faults(&self) {
        self.inner.lock().faults.clear();
    }

    /// Every operation so far, in order.
    pub fn calls(&self) -> Vec<Operation> {
        self.inner.lock().calls.clone()
    }

    /// The ids of all containers.
    pub fn containers(&self) -> Vec<ContainerId> {
        self.inner.lock().containers.keys().cloned().collect()
    }

    /// From now on the container has these counters of HTTP requests; without any it serves none.
    pub fn set_http_requests(&self, id: &ContainerId, requests: HttpRequests) {
        self.inner.lock().http_requests.insert(id.clone(), requests);
    }

    /// From now on each content needs this preparation; without it none does.
    pub fn set_preparation(&self, preparation: Option<Preparation>) {
        self.inner.lock().preparation = preparation;
    }

    /// From now on the runtime of that handler has no user namespaces.
    pub fn forget_user_namespaces(&self, handler: &'static str) {
        self.inner.lock().without_user_namespaces.insert(handler);
    }

    pub(crate) fn supports_user_namespaces(&self, handler: &str) -> Result<(), RuntimeError> {
        let is_without = self.inner.lock().without_user_namespaces.contains(handler);
        if is_without { Err(RuntimeError::Missing("this world has no user namespaces".into())) } else { Ok(()) }
    }

    pub(crate) fn preparation(&self) -> Option<Preparation> {
        self.inner.lock().preparation
    }

    /// The effect of `kill -9` on every container, as when the machine's memory runs out.
    pub fn kill_all(&self) {
        self.kill(|_| true);
    }

    /// The effect of `kill -9` on some containers.
    pub fn kill(&self, is_meant: impl Fn(&ContainerSpec) -> bool) {
        let inner = self.inner.lock();
        let ids: Vec<_> = inner.containers.iter().filter(|(_, (one, _))| is_meant(&one.spec)).map(|(id, _)| id.clone()).collect();
        drop(inner);
        for id in ids {
            // A container that was not started has nothing to kill.
            let _killed = self.signal(&id, 9);
        }
    }

    /// The specs of all containers, with the CPUs that they have by now.
    pub fn specs(&self) -> Vec<ContainerSpec> {
        self.inner.lock().containers.values().map(|(container, _)| container.spec.clone()).collect()
    }

    pub(crate) fn set_cpus(&self, id: &ContainerId, cpus: &str) -> Result<(), RuntimeError> {
        let mut inner = self.inner.lock();
        let (container, _) = inner.containers.get_mut(id).ok_or_else(|| not_found(id))?;
        if container.started.is_none() {
            return Err(not_started(id));
        }
        container.spec.resources.cpuset_cpus = Some(cpus.to_owned());
        Ok(())
    }

    pub(crate) async fn pass(&self, operation: Operation) -> Result<(), RuntimeError> {
        let fault = {
            let mut inner = self.inner.lock();
            inner.calls.push(operation);
            inner.faults.get_mut(&operation).and_then(VecDeque::pop_front)
        };
        match fault {
            Some(Fault::Error(error)) => Err(error),
            Some(Fault::Delay(time)) => {
                sleep(time).await;
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(crate) fn create(&self, spec: &ContainerSpec) -> Result<(), RuntimeError> {
        let now = Instant::now();
        let inner = self.inner.lock();
        if let Processes::OfContainer(target) = &spec.processes
            && !inner.containers.get(target).is_some_and(|(container, _)| container.runs(now))
        {
            return Err(RuntimeError::NoTarget(target.0.clone()));
        }
        drop(inner);
        let behaviour = if spec.content == Content::Pause { Behaviour::IgnoreTerm } else { (self.script.behaviour)(spec) };
        if let Behaviour::BadContent(why) = behaviour {
            return Err(RuntimeError::BadContent(why));
        }
        let mut inner = self.inner.lock();
        if inner.containers.contains_key(&spec.id) {
            return Err(RuntimeError::Exists(spec.id.0.clone()));
        }
        let container = Container { spec: spec.clone(), behaviour, created: now, started: None };
        inner.containers.insert(spec.id.clone(), (container, Arc::default()));
        Ok(())
    }

    pub(crate) fn start(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let mut inner = self.inner.lock();
        let pid = inner.last_pid + 1;
        let (container, _) = inner.containers.get_mut(id).ok_or_else(|| not_found(id))?;
        if container.started.is_some() {
            return Err(RuntimeError::Unsupported(format!("container {id} cannot be started: it was started before")));
        }
        if let Behaviour::FailStart(why) = &container.behaviour {
            return Err(RuntimeError::Start(why.clone()));
        }
        container.started = Some(Started { pid, at: Instant::now(), killed: None });
        inner.last_pid = pid;
        Ok(())
    }

    pub(crate) fn signal(&self, id: &ContainerId, signal: i32) -> Result<(), RuntimeError> {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        let (container, changed) = inner.containers.get_mut(id).ok_or_else(|| not_found(id))?;
        let (over, dies) = (container.exit(now, |at| self.ms(at)).is_some(), container.dies_of(signal));
        let started = container.started.as_mut().ok_or_else(|| not_started(id))?;
        if !over && dies {
            started.killed = Some((signal, now));
            changed.notify_waiters();
            inner.end_with(id, now);
        }
        Ok(())
    }

    pub(crate) async fn wait(&self, id: &ContainerId) -> Result<Exit, RuntimeError> {
        loop {
            let (ends_at, changed) = {
                let inner = self.inner.lock();
                let (container, changed) = inner.containers.get(id).ok_or_else(|| not_found(id))?;
                if container.started.is_none() {
                    return Err(not_started(id));
                }
                if let Some(exit) = container.exit(Instant::now(), |at| self.ms(at)) {
                    return Ok(exit);
                }
                // Registered under the lock, so that no change is missed.
                (container.ends_at(), changed.clone().notified_owned())
            };
            match ends_at {
                Some(at) => tokio::select! { () = sleep_until(at) => {}, () = changed => {} },
                None => changed.await,
            }
        }
    }

    pub(crate) fn remove(&self, id: &ContainerId) {
        let mut inner = self.inner.lock();
        inner.http_requests.remove(id);
        if let Some((_, changed)) = inner.containers.remove(id) {
            changed.notify_waiters();
            inner.end_with(id, Instant::now());
        }
    }

    /// The statuses of all containers.
    pub fn list(&self) -> Vec<ContainerStatus> {
        let now = Instant::now();
        self.inner.lock().containers.values().map(|(container, _)| container.status(now, |at| self.ms(at))).collect()
    }

    pub(crate) fn check_exists(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.inner.lock().containers.get(id).map(|_| ()).ok_or_else(|| not_found(id))
    }

    /// One core and a MiB for each container that runs.
    pub(crate) fn stats(&self, id: &ContainerId) -> Result<Stats, RuntimeError> {
        let now = Instant::now();
        let inner = self.inner.lock();
        let (container, _) = inner.containers.get(id).ok_or_else(|| not_found(id))?;
        if !matches!(container.status(now, |at| self.ms(at)).state, ContainerState::Running { .. }) {
            return Ok(Stats::default());
        }
        let cpu_ns = u64::try_from(container.ran(now).as_nanos()).unwrap_or(u64::MAX);
        Ok(Stats { cpu_ns, memory_bytes: 1 << 20, working_set_bytes: 1 << 20, pids: 1, ..Stats::default() })
    }

    pub(crate) fn http_requests(&self, id: &ContainerId) -> Result<Option<HttpRequests>, RuntimeError> {
        self.check_exists(id)?;
        Ok(self.inner.lock().http_requests.get(id).copied())
    }

    pub(crate) fn exec(&self, id: &ContainerId, exec: &ExecSpec) -> Result<ExecSession, RuntimeError> {
        self.check_exists(id)?;
        let reply = (self.script.exec)(exec)?;
        let code = reply.code;
        Ok(ExecSession {
            stdin: exec.stdin.then(|| Box::new(tokio::io::sink()) as Box<_>),
            stdout: Box::new(Cursor::new(reply.stdout)),
            stderr: (!exec.tty).then(|| Box::new(Cursor::new(reply.stderr)) as Box<_>),
            // Sizes are read and ignored.
            resize: exec.tty.then(|| tokio::sync::mpsc::channel(1).0),
            exit: Box::pin(async move { Ok(code) }),
        })
    }

    /// A container that echoes its input, and has no output without it.
    pub(crate) fn attach(&self, id: &ContainerId, stdin: bool) -> Result<AttachSession, RuntimeError> {
        let now = Instant::now();
        let inner = self.inner.lock();
        let (container, _) = inner.containers.get(id).ok_or_else(|| not_found(id))?;
        if !matches!(container.status(now, |at| self.ms(at)).state, ContainerState::Running { .. }) {
            return Err(RuntimeError::Start(format!("container {id} is not running")));
        }
        let (said, heard) = tokio::io::duplex(1 << 16);
        Ok(AttachSession {
            stdin: stdin.then(|| Box::new(said) as Box<_>),
            stdout: Box::new(heard),
            stderr: None,
            resize: container.spec.tty.then(|| tokio::sync::mpsc::channel(1).0),
        })
    }

    fn ms(&self, at: Instant) -> u64 {
        BEGINS_AT_MS + u64::try_from(at.duration_since(self.begun).as_millis()).unwrap_or(u64::MAX)
    }
}

fn not_found(id: &ContainerId) -> RuntimeError {
    RuntimeError::NotFound(id.0.clone())
}

fn not_started(id: &ContainerId) -> RuntimeError {
    RuntimeError::Unsupported(format!("container {id} has not been started"))
}
