//! The machine's clock is set while Pods run.

use tests::eventually;
use tests::machine::Machine;

use super::{LIMITED, of};

/// A Pod whose container ends at once, again and again.
const LOOPS: &str = "loops";
/// How often the clock may be set too late. Back-offs double from ten seconds, so the second is long enough.
const ATTEMPTS: usize = 3;

/// The clock is set forward and back by an hour: what runs goes on, the node stays ready, and new Pods start. Returns how often the
/// container of [`LOOPS`] had been restarted when the clock went back.
pub(super) fn jumps(machine: &mut Machine) -> u64 {
    let status = |machine: &Machine, pod: &str| machine.kubectl().field(&format!("pod/{pod}"), "/status/containerStatuses");
    let before = ["linux", "wasm"].map(|pod| status(machine, pod));
    start(machine, LOOPS, "job", "args: ['5']");
    let mut restarts = 0;
    for (name, seconds) in [("later", 3_600), ("earlier", -3_600)] {
        if seconds < 0 {
            restarts = set_during_back_off(machine, seconds);
        } else {
            set(machine, seconds);
        }
        start(machine, name, "web", "");
        machine.kubectl().until_ready(name);
        the_node_goes_on(machine);
        machine.kubectl().ok(&format!("delete pod {name} --timeout=240s"));
    }
    assert_eq!(["linux", "wasm"].map(|pod| status(machine, pod)), before);
    restarts
}

/// The Lease of the node is renewed, and seen, by the new time.
fn the_node_goes_on(machine: &Machine) {
    let renewed_at = || machine.kubectl().ok("get lease -n kube-node-lease -o jsonpath={.items[0].spec.renewTime}");
    let before = renewed_at();
    eventually("the node renews its Lease", || {
        let now = renewed_at();
        if now == before { Err(now) } else { Ok(()) }
    });
    machine.kubectl().ok("wait --for=condition=Ready node --all --timeout=60s");
}

fn set(machine: &mut Machine, seconds: i64) {
    machine.run(&format!("date -s @$(($(date +%s) + {seconds}))")).ok();
}

/// Sets the clock while the container of [`LOOPS`] waits for its restart. If it has been restarted meanwhile, the clock is set again during
/// the next wait, which is longer. Returns how often the container had been restarted.
fn set_during_back_off(machine: &mut Machine, seconds: i64) -> u64 {
    let pod = format!("pod/{LOOPS}");
    for _ in 0..ATTEMPTS {
        machine.kubectl().until(&pod, "/status/containerStatuses/0/state/waiting/reason", "CrashLoopBackOff");
        let before = restarts_of_loops(machine);
        set(machine, seconds);
        let status = machine.kubectl().field(&pod, "/status/containerStatuses/0");
        if status["state"]["waiting"]["reason"] == "CrashLoopBackOff" && status["restartCount"] == before {
            return before;
        }
        set(machine, -seconds);
    }
    panic!("no back-off of {LOOPS} lasted until the clock was set");
}

/// A back-off that had begun when the clock went back by an hour lasts as long as it would have without that.
pub(super) fn until_restarted(machine: &Machine, restarts: u64) {
    eventually("the container is restarted after its back-off", || {
        let now = restarts_of_loops(machine);
        if now > restarts { Ok(()) } else { Err(machine.kubectl().ok(&format!("describe pod {LOOPS}"))) }
    });
    machine.kubectl().ok(&format!("delete pod {LOOPS} --timeout=240s"));
}

fn start(machine: &Machine, name: &str, image: &str, command: &str) {
    machine.kubectl().apply(&of(LIMITED, name, "wasmtime", image, command)).ok();
}

fn restarts_of_loops(machine: &Machine) -> u64 {
    machine.kubectl().field(&format!("pod/{LOOPS}"), "/status/containerStatuses/0/restartCount").as_u64().unwrap_or(0)
}
