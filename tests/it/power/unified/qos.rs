//! The cgroups of the quality of service classes: each Pod lies below that of its class, whose weight is what its Pods request together.

use tests::eventually;
use tests::machine::Machine;

/// Waits until the Pod's cgroup is in that of a class, and the class has that weight of CPU.
pub(super) fn until_in(machine: &mut Machine, pod: &str, class: &str, weight: u32) {
    let uid = machine.kubectl().uid(pod);
    let class_dir = machine.run(&format!("dirname /sys/fs/cgroup/skiff/*/*/pod{uid}")).ok();
    assert!(class_dir.trim().ends_with(&format!("/{class}")), "{pod} lies in {class_dir}");
    eventually(&format!("the weight of {class} is {weight}"), || {
        let found = machine.run(&format!("cat {}/cpu.weight", class_dir.trim())).ok();
        if found.trim() == weight.to_string() { Ok(()) } else { Err(found) }
    });
}
