//! A node whose own memory or process ids are short: a soft threshold of memory gives a Pod time to end, and a Pod with many processes is
//! evicted for the ids that it uses.

use tests::machine::Machine;
use tests::{eventually, kubectl};

use super::{LEAST_MIB, the_others_run};

/// The soft threshold of memory, in MiB.
const SOFT_MIB: u64 = 350;
/// The threshold of process ids.
const PIDS: u64 = 1_100;
/// The processes of [`CROWD`] beside its first one.
const PROCESSES: u64 = 200;

/// Takes that many MiB, which a full pipe makes it keep, and needs two seconds to end: a hard threshold leaves one.
const PATIENT: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: patient }
spec:
  restartPolicy: Never
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "trap 'sleep 2; exit 7' TERM; dd if=/dev/zero bs=TAKENM count=1 | sleep 1000000 & wait"]
"#;

/// Has many processes, which wait for a writer that never comes.
pub(super) const CROWD: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: crowd }
spec:
  restartPolicy: Never
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "trap exit TERM; busybox mkfifo /fifo; for n in $(seq 200); do read line < /fifo & done; wait"]
"#;

/// The flags of the thresholds.
pub(super) fn thresholds() -> String {
    format!(
        "'--eviction-hard=memory.available<{LEAST_MIB}Mi,pid.available<{PIDS}' --eviction-pressure-transition-period=10s \
         '--eviction-soft=memory.available<{SOFT_MIB}Mi' --eviction-soft-grace-period=memory.available=3s \
         --eviction-max-pod-grace-period=30"
    )
}

/// Memory that the kernel could give, in MiB.
pub(super) fn available_mib(machine: &mut Machine) -> u64 {
    let available = machine.run("sed -n 's/^MemAvailable: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo").ok();
    available.trim().parse::<u64>().expect("a number") / 1_024
}

/// A Pod that leaves the node more than the hard threshold, but less than the soft one, is evicted when that has lasted for the grace
/// period. It has its own time to end.
pub(super) fn who_takes_memory_has_time_to_end(machine: &mut Machine) {
    let taken = available_mib(machine).checked_sub(LEAST_MIB.midpoint(SOFT_MIB)).expect("the machine has more memory than that");
    machine.kubectl().apply(&PATIENT.replace("TAKEN", &taken.to_string())).ok();
    until_under(machine, "MemoryPressure", "memory-pressure");
    let begin = format!("The node was low on resource: memory. Threshold quantity: {SOFT_MIB}Mi, available: ");
    machine.kubectl().until_evicted("patient", &begin);
    let code = machine.kubectl().field("pod/patient", "/status/containerStatuses/0/state/terminated/exitCode");
    assert_eq!(code, 7, "it ended by itself");
}

/// The range of process ids is narrow all at once. The Pod with the most processes goes, and all others stay.
pub(super) fn who_takes_the_process_ids_goes(machine: &mut Machine) {
    let counter = format!("cat /sys/fs/cgroup/skiff/*/besteffort/pod{}/pids.current", machine.kubectl().uid("crowd"));
    eventually("all its processes are there", || {
        let found = machine.run(&counter).stdout;
        if found.trim().parse::<u64>().is_ok_and(|count| count > PROCESSES) { Ok(()) } else { Err(found) }
    });
    // Without the Pod, the node has half of its processes more than the threshold.
    let narrow = format!("tasks=$(cut -d / -f 2 /proc/loadavg | cut -d ' ' -f 1) && echo $((tasks + {PIDS} - {PROCESSES} / 2))");
    let before = machine.run("cat /proc/sys/kernel/pid_max").ok();
    machine.run(&format!("{narrow} > /proc/sys/kernel/pid_max")).ok();
    until_under(machine, "PIDPressure", "pid-pressure");
    let begin = format!("The node was low on resource: pids. Threshold quantity: {PIDS}, available: ");
    machine.kubectl().until_evicted("crowd", &begin);
    the_others_run(machine);
    machine.run(&format!("echo {} > /proc/sys/kernel/pid_max", before.trim())).ok();
}

/// Waits until the node has the condition and the taint that goes with it. Both last for the transition period of this node at least.
pub(super) fn until_under(machine: &Machine, condition: &str, taint: &str) {
    let key = format!("node.kubernetes.io/{taint}");
    eventually(&format!("the node is under {condition}"), || {
        let node = machine.kubectl().field("nodes", "/items/0");
        let is_short = kubectl::condition(&node, condition)["status"] == "True";
        let taints = node["spec"]["taints"].as_array();
        let is_tainted = taints.is_some_and(|all| all.iter().any(|taint| taint["key"] == key.as_str() && taint["effect"] == "NoSchedule"));
        if is_short && is_tainted { Ok(()) } else { Err(node.to_string()) }
    });
}
