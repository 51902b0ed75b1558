//! What containers do, and which faults occur.

use std::time::Duration;

use runtimes_contract::{ContainerSpec, ExecSpec, RuntimeError};

/// What one container does after its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Runs until SIGTERM or SIGKILL; ends with 128 + signal.
    Run,
    /// Runs until SIGKILL: it does not hear SIGTERM.
    IgnoreTerm,
    /// Ends by itself.
    Exit {
        /// The time after its start.
        after: Duration,
        /// With this code.
        code: i32,
    },
    /// Reaches its memory limit.
    OomKilled {
        /// The time after its start.
        after: Duration,
    },
    /// It cannot be created: the image is the cause.
    BadContent(String),
    /// Cannot be started: the command is at fault.
    FailStart(String),
}

/// The result of an exec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecReply {
    /// On stdout.
    pub stdout: Vec<u8>,
    /// On stderr.
    pub stderr: Vec<u8>,
    /// The exit code.
    pub code: i32,
}

type Behaviours = dyn Fn(&ContainerSpec) -> Behaviour + Send + Sync;
type Replies = dyn Fn(&ExecSpec) -> Result<ExecReply, RuntimeError> + Send + Sync;

/// The functions that decide.
pub struct Script {
    pub(crate) behaviour: Box<Behaviours>,
    pub(crate) exec: Box<Replies>,
}

impl Default for Script {
    /// Every container runs until it is stopped; every exec succeeds without output.
    fn default() -> Self {
        Self { behaviour: Box::new(|_| Behaviour::Run), exec: Box::new(|_| Ok(ExecReply::default())) }
    }
}

impl Script {
    /// Decides what a container does.
    pub fn containers(mut self, behaviour: impl Fn(&ContainerSpec) -> Behaviour + Send + Sync + 'static) -> Self {
        self.behaviour = Box::new(behaviour);
        self
    }

    /// Decides the result of an exec.
    pub fn execs(mut self, exec: impl Fn(&ExecSpec) -> Result<ExecReply, RuntimeError> + Send + Sync + 'static) -> Self {
        self.exec = Box::new(exec);
        self
    }
}

/// The operation of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the methods of the trait")]
pub enum Operation {
    Check,
    Prepare,
    Create,
    Start,
    Signal,
    Wait,
    Remove,
    List,
    SetCpus,
    ReopenLog,
    Exec,
    Attach,
    Stats,
}

/// What happens to one call of an operation.
#[derive(Debug)]
pub enum Fault {
    /// It fails and does nothing.
    Error(RuntimeError),
    /// It takes so long, then continues.
    Delay(Duration),
}
