//! A node with a slow disk does all its work, only later.

use tests::machine::{Machine, on_machines};

/// A bad disk: that many operations, and bytes, a second.
const IOPS: u32 = 80;
const BYTES_PER_SECOND: u32 = 1_500_000;

#[test]
#[ignore = "takes minutes: `cargo xtask soak` runs it"]
fn a_slow_disk_is_endured() {
    on_machines(6, || {
        let mut machine = Machine::new(2_000);
        machine.limit_disk(IOPS, BYTES_PER_SECOND);
        machine.boot();
        machine.start_skiff("");
        machine.load_samples(&["web.wasm", "tools.tar"]);
        let kubectl = machine.kubectl();
        kubectl.ok("apply -f samples/quickstart/web.yaml -f samples/quickstart/tools.yaml");
        for n in 0..20 {
            kubectl.ok(&format!("create configmap slow-{n} --from-literal=n={n}"));
        }
        kubectl.ok("rollout status deployment/web --timeout=300s");
        kubectl.until_ready("tools");
        kubectl.until_ok("exec tools -- wget -qO- http://web/x");
        assert_eq!(kubectl.ok("get configmaps -o name").matches("slow-").count(), 20);
        let events = kubectl.ok("get events -A");
        assert!(!events.contains("NodeNotReady"), "the node was ready all the time:\n{events}");
    });
}
