//! Faults on demand, for tests: a running task is made to panic, to end, or to stand still. Builds without debug
//! assertions have `fault/absent.rs` instead, which does nothing.

use std::future::Future;
use std::pin::pin;
use std::sync::LazyLock;

use tokio::sync::watch;

/// What a task is made to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It panics.
    Panic,
    /// It returns; only tasks of a set can.
    End,
    /// It is not run any more.
    Stall,
}

static FAULTS: LazyLock<watch::Sender<Option<(String, Fault)>>> = LazyLock::new(|| watch::Sender::new(None));

/// Every running task of that name gets the fault. A task of a set gets the latest fault also when the task begins later,
/// so that whoever injects need not know when it does.
pub fn inject(name: &str, fault: Fault) {
    FAULTS.send_replace(Some((name.to_owned(), fault)));
}

/// Takes a line such as `panic node-agent/pod-manager`; `false` when it is no such line.
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

/// A place in a thread where a fault that is meant for it takes effect; only a panic can.
pub fn point(name: &'static str) {
    let wanted = FAULTS.borrow().clone();
    if wanted.is_some_and(|(wanted, fault)| wanted == name && fault == Fault::Panic) {
        panic_of(name);
    }
}

/// Waits for a fault that is meant for that task and that the receiver did not see yet.
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

/// Faults of which the latest counts as not seen.
fn with_latest() -> watch::Receiver<Option<(String, Fault)>> {
    let mut faults = FAULTS.subscribe();
    faults.mark_changed();
    faults
}

/// The work, or `None` when it was made to end.
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

/// The work; it cannot be made to end.
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
