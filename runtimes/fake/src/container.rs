//! One simulated container: its end follows from its behaviour, the signals and the clock.

use runtimes_contract::{ContainerSpec, ContainerState, ContainerStatus, Exit};
use tokio::time::{Duration, Instant};

use crate::script::Behaviour;

/// SIGKILL.
pub const KILL: i32 = 9;

/// A container.
pub struct Container {
    pub spec: ContainerSpec,
    pub behaviour: Behaviour,
    pub created: Instant,
    pub started: Option<Started>,
}

/// A container that was started.
pub struct Started {
    pub pid: i32,
    pub at: Instant,
    /// The signal that ended it, and when.
    pub killed: Option<(i32, Instant)>,
}

impl Container {
    /// How it has ended by now, if it has.
    pub fn exit(&self, now: Instant, ms: impl Fn(Instant) -> u64) -> Option<Exit> {
        let started = self.started.as_ref()?;
        let by_itself = self.ends_at().filter(|at| *at <= now && started.killed.is_none_or(|(_, killed)| *at <= killed));
        if let Some(at) = by_itself {
            let (code, signal, oom_killed) = match self.behaviour {
                Behaviour::Exit { code, .. } => (code, None, false),
                _ => (137, Some(KILL), true),
            };
            return Some(Exit { code, signal, oom_killed, finished_at_ms: ms(at), message: String::new() });
        }
        let (signal, at) = started.killed?;
        Some(Exit { code: 128 + signal, signal: Some(signal), oom_killed: false, finished_at_ms: ms(at), message: String::new() })
    }

    /// Whether it runs.
    pub fn runs(&self, now: Instant) -> bool {
        self.started.is_some() && self.exit(now, |_| 0).is_none()
    }

    /// When it ends by itself.
    pub fn ends_at(&self) -> Option<Instant> {
        let started = self.started.as_ref()?;
        match self.behaviour {
            Behaviour::Exit { after, .. } | Behaviour::OomKilled { after } => Some(started.at + after),
            _ => None,
        }
    }

    /// Whether a signal ends it.
    pub fn dies_of(&self, signal: i32) -> bool {
        match (signal, &self.behaviour) {
            (KILL, _) => true,
            (1 | 2 | 3 | 15, behaviour) => *behaviour != Behaviour::IgnoreTerm,
            _ => false,
        }
    }

    /// Its status in `list`.
    pub fn status(&self, now: Instant, ms: impl Fn(Instant) -> u64) -> ContainerStatus {
        let state = match (&self.started, self.exit(now, &ms)) {
            (_, Some(exit)) => ContainerState::Exited(exit),
            (Some(started), None) => ContainerState::Running { pid: started.pid },
            (None, None) => ContainerState::Created,
        };
        ContainerStatus {
            id: self.spec.id.clone(),
            labels: self.spec.labels.clone(),
            state,
            created_at_ms: ms(self.created),
            started_at_ms: self.started.as_ref().map(|started| ms(started.at)),
            log_path: self.spec.log_path.clone(),
            user: self.spec.user.clone(),
        }
    }

    /// How long it has run.
    pub fn ran(&self, now: Instant) -> Duration {
        self.started.as_ref().map_or(Duration::ZERO, |started| now.duration_since(started.at))
    }
}
