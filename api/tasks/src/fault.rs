//! Fault injection for tests: makes a running task panic, end, or hang. Builds without debug assertions have
//! `fault/absent.rs` instead, which does nothing.

use std::future::Future;
use std::pin::pin;
use std::sync::LazyLock;

use tokio::sync::watch;

/// The fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The task panics.
    Panic,
    /// The task returns. Only a task of a set can.
    End,
    /// The task hangs.
    Stall,
}

static FAULTS: LazyLock<watch::Sender<Option<(String, Fault)>>> = LazyLock::new(|| watch::Sender::new(None));

/// Injects a fault into every running task of the given name. A task of a set that starts later also gets the latest
/// fault, so that a test need not wait for its start.
pub fn inject(name: &str, fault: Fault) {
    FAULTS.send_replace(Some((name.to_owned(), fault)));
}

/// Injects the fault of a line such as `panic node-agent/pod-manager`; `false` for any other line.
pub fn inject_line(line: &str) -> bool {
    let Some((fault, name)) = line.trim().split_once(' ') else { return false };
    let fault = match fault {
        "panic" => Fault::Panic,
        "end" => Fault::End,
        "stall" => Fault::Stall,
        _ => return false,
    };
    inject(name, fault);
    true
}

/// A point in a thread where a fault takes effect. Only `panic` has an effect.
pub fn point(name: &'static str) {
    let wanted = FAULTS.borrow().clone();
    if wanted.is_some_and(|(wanted, fault)| wanted == name && fault == Fault::Panic) {
        panic_of(name);
    }
}

/// Waits for the next fault for the given task.
async fn next_fault(name: &'static str, mut faults: watch::Receiver<Option<(String, Fault)>>) -> Fault {
    while faults.changed().await.is_ok() {
        let found = faults.borrow_and_update().clone();
        if let Some((wanted, fault)) = found
            && wanted == name
        {
            return fault;
        }
    }
    std::future::pending().await
}

/// A receiver that returns the latest fault first.
fn with_latest() -> watch::Receiver<Option<(String, Fault)>> {
    let mut faults = FAULTS.subscribe();
    faults.mark_changed();
    faults
}

/// Runs the work; `None` if a fault ended it.
pub(crate) async fn or_done<W: Future>(name: &'static str, work: W) -> Option<W::Output> {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        fault = next_fault(name, with_latest()) => match fault {
            Fault::Panic => panic_of(name),
            Fault::End => None,
            Fault::Stall => std::future::pending().await,
        },
        output = &mut work => Some(output),
    }
}

/// Runs the work. A fault cannot make it return early.
pub(crate) async fn or_result<W: Future>(name: &'static str, work: W) -> W::Output {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        fault = next_fault(name, FAULTS.subscribe()) => match fault {
            Fault::Panic => panic_of(name),
            Fault::End | Fault::Stall => std::future::pending().await,
        },
        output = &mut work => output,
    }
}

#[expect(clippy::panic, reason = "that a task panics is what was asked for")]
fn panic_of(name: &str) -> ! {
    panic!("a fault was injected\ninto {name}")
}
