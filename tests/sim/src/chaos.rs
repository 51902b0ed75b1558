//! What goes wrong during a run: processes crash and start again, are cut off or suspended, machines lose their power or their network.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_clock::rand::Rng as _;
use api_clock::rand::rngs::StdRng;

use crate::admin::Admin;
use crate::control::{Cluster, Part, Replica};
use crate::entropy;
use crate::ledger::Ledger;
use crate::net::Weather;
use crate::node::Machine;

/// The machine that has room for everything, in thousandths of a core.
const LARGE_CPU: i64 = 64_000;
/// What each machine gets more at the end: the Pods of DaemonSets cannot go elsewhere.
const MORE_CPU: i64 = 1_000;

/// An event of the future.
#[derive(Clone, Copy, Debug)]
enum Event {
    Fault,
    StartReplica(usize),
    ConnectReplica(usize),
    ResumeReplica(usize),
    Boot(usize),
    ConnectMachine(usize),
}

/// The faults of a run, and the parts that they concern.
pub struct Chaos {
    cluster: Cluster,
    rng: StdRng,
    replicas: Vec<Replica>,
    machines: Vec<Machine>,
    /// By their time since the run began; the number tells equal times apart.
    events: BTreeMap<(Duration, u64), Event>,
    next: u64,
    /// The mean time between two faults; none in a calm run.
    every: Option<Duration>,
}

impl Chaos {
    /// Starts the parts of the control plane and the machines.
    pub fn start(cluster: &Cluster, ledger: &Arc<Ledger>) -> Self {
        let mut rng = entropy::stream("chaos");
        let every = [None, Some(60), Some(20), Some(8)][rng.random_range(0..4)].map(Duration::from_secs);
        let count = if rng.random_bool(0.5) { 2 } else { 1 };
        let replicas = (0..count).flat_map(|number| [(Part::Controllers, number), (Part::Scheduler, number)]);
        let replicas = replicas.map(|(part, number)| Replica::new(cluster, part, number, count > 1)).collect();
        let machines = (1..=rng.random_range(2..=5)).map(|number| {
            let (cpu, is_slow) = (rng.random_range(2..=8) * 500, rng.random_bool(0.2));
            Machine::new(cluster, ledger, number, cpu, is_slow)
        });
        let machines = machines.collect();
        let mut chaos = Self { cluster: cluster.clone(), rng, replicas, machines, events: BTreeMap::new(), next: 0, every };
        chaos.replicas.iter_mut().for_each(Replica::start);
        chaos.machines.iter_mut().for_each(Machine::boot);
        if every.is_some() {
            let weather = Weather::draw(&mut chaos.rng);
            cluster.history.note(&format!("! {weather:?}"));
            cluster.net.set_weather(weather);
        }
        chaos.next_fault();
        chaos
    }

    /// Whether nothing fails in this run.
    pub fn is_calm(&self) -> bool {
        self.every.is_none()
    }

    /// Lets faults happen for ever.
    pub async fn run(&mut self) {
        loop {
            let Some((&(at, number), &event)) = self.events.iter().next() else { return std::future::pending().await };
            tokio::time::sleep(at.saturating_sub(entropy::elapsed())).await;
            self.events.remove(&(at, number));
            self.happen(event).await;
        }
    }

    /// Ends all faults: everything runs and is connected, and there is a machine that has room for all Pods.
    pub async fn end(&mut self, ledger: &Arc<Ledger>) {
        self.cluster.net.set_weather(Weather::calm());
        self.cluster.history.note("! all faults end");
        for (_, event) in std::mem::take(&mut self.events) {
            if !matches!(event, Event::Fault) {
                self.happen(event).await;
            }
        }
        self.machines.iter().for_each(|machine| machine.grow(MORE_CPU));
        let mut large = Machine::new(&self.cluster, ledger, 9, LARGE_CPU, false);
        large.boot();
        self.machines.push(large);
    }

    async fn happen(&mut self, event: Event) {
        match event {
            Event::Fault => {
                self.next_fault();
                self.fault().await;
            }
            Event::StartReplica(number) => self.replicas[number].start(),
            Event::ConnectReplica(number) => self.replicas[number].cut(false),
            Event::ResumeReplica(number) => self.replicas[number].suspend(false),
            Event::Boot(number) => self.machines[number].boot(),
            Event::ConnectMachine(number) => self.machines[number].cut(false),
        }
    }

    fn next_fault(&mut self) {
        if let Some(every) = self.every {
            let wait = every.mul_f64(self.rng.random_range(0.1..2.0));
            self.plan(wait, Event::Fault);
        }
    }

    fn plan(&mut self, wait: Duration, event: Event) {
        self.next += 1;
        self.events.insert((entropy::elapsed() + wait, self.next), event);
    }

    async fn fault(&mut self) {
        let pause = Duration::from_secs_f64(self.rng.random_range(0.1..40.0));
        match self.rng.random_range(0..100) {
            0..25 => self.crash(pause),
            25..38 => self.cut_replica(pause),
            38..45 => self.suspend_replica(pause * 2),
            45..60 => self.power_off(pause * 2).await,
            60..80 => self.cut_machine(pause * 3),
            _ => {
                let weather = if self.rng.random_bool(0.5) { Weather::draw(&mut self.rng) } else { Weather::calm() };
                self.cluster.history.note(&format!("! {weather:?}"));
                self.cluster.net.set_weather(weather);
            }
        }
    }

    fn crash(&mut self, pause: Duration) {
        let number = self.rng.random_range(0..self.replicas.len());
        if !self.replicas[number].is_up() {
            return;
        }
        match self.rng.random_bool(0.7) {
            true => self.replicas[number].crash(),
            false => self.replicas[number].stop(),
        }
        self.plan(pause, Event::StartReplica(number));
    }

    fn cut_replica(&mut self, pause: Duration) {
        let number = self.rng.random_range(0..self.replicas.len());
        self.replicas[number].cut(true);
        self.plan(pause, Event::ConnectReplica(number));
    }

    fn suspend_replica(&mut self, pause: Duration) {
        let number = self.rng.random_range(0..self.replicas.len());
        self.replicas[number].suspend(true);
        self.plan(pause, Event::ResumeReplica(number));
    }

    async fn power_off(&mut self, pause: Duration) {
        let number = self.rng.random_range(0..self.machines.len());
        let machine = &mut self.machines[number];
        if !machine.is_on() {
            return;
        }
        machine.power_off();
        if self.rng.random_bool(0.2) {
            let name = machine.name.clone();
            self.cluster.history.note(&format!("! Node {name} is deleted"));
            let _ = Admin::new(self.cluster.admin()).delete("nodes", "", &name, "Background").await;
        }
        self.plan(pause, Event::Boot(number));
    }

    fn cut_machine(&mut self, pause: Duration) {
        let number = self.rng.random_range(0..self.machines.len());
        self.machines[number].cut(true);
        self.plan(pause, Event::ConnectMachine(number));
    }
}
