//! A node on a kernel that has cgroup v2 alone, which the machines of the other stories do not: limits are in the
//! kernel's files, memory that runs out is told, and running Pods are resized.

use serde_json::json;
use tests::cluster::tool;
use tests::eventually;
use tests::machine::Machine;
use tests::run::patiently;

use crate::life;

const LIMITED: &str = r"
apiVersion: v1
kind: Pod
metadata: { name: NAME }
spec:
  runtimeClassName: RUNTIME
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: samples/IMAGE:latest
      imagePullPolicy: Never
      COMMAND
      resources: { requests: { cpu: 100m }, limits: { memory: 48Mi, cpu: 200m } }
";

#[test]
fn a_node_on_cgroup_v2_alone_limits_kills_and_resizes() {
    patiently(4, || {
        let mut machine = Machine::new(2_000);
        machine.boot();
        machine.start_skiff("");
        machine.load_samples(&["web.wasm", "tools.tar", "hello.wasm", "job.wasm"]);
        let hierarchies = machine.run("grep -c cgroup /proc/self/mountinfo").ok();
        assert_eq!(hierarchies.trim(), "1", "there is one hierarchy");
        for (name, runtime, image, command) in
            [("linux", "runc", "tools", "command: ['sleep', '1000000']"), ("wasm", "wasmtime", "web", "")]
        {
            let pod = LIMITED.replace("NAME", name).replace("RUNTIME", runtime).replace("IMAGE", image).replace("COMMAND", command);
            machine.kubectl().apply(&pod).ok();
        }
        for name in ["linux", "wasm"] {
            machine.kubectl().until_ready(name);
            until_limited(&mut machine, name, "cpu.max", "20000 100000");
            until_limited(&mut machine, name, "memory.max", "50331648");
        }
        resize(&mut machine);
        machine.kubectl().ok("apply -f tests/it/life/ends.yaml");
        life::containers_end(&machine.kubectl());
        let groups = machine.run("find /sys/fs/cgroup/skiff -type d | wc -l").ok();
        machine.kubectl().ok("delete pods --all --timeout=240s");
        let left = machine.run("find /sys/fs/cgroup/skiff -type d -name 'pod*'").ok();
        assert_eq!(left, "", "of {} groups", groups.trim());
    });
}

fn resize(machine: &mut Machine) {
    let started = machine.kubectl().field("pod/linux", "/status/containerStatuses/0/state/running/startedAt");
    let patch = json!({ "spec": { "containers": [{ "name": "main", "resources": { "limits": { "cpu": "500m", "memory": "64Mi" } } }] } });
    machine.kubectl().of(tool("kubectl")).run(&["patch", "pod", "linux", "--subresource=resize", "-p", &patch.to_string()]).ok();
    until_limited(machine, "linux", "cpu.max", "50000 100000");
    until_limited(machine, "linux", "memory.max", "67108864");
    assert_eq!(machine.kubectl().field("pod/linux", "/status/containerStatuses/0/state/running/startedAt"), started, "without a restart");
}

/// Waits until the file of a Pod's container has that content.
fn until_limited(machine: &mut Machine, pod: &str, file: &str, wanted: &str) {
    let uid = machine.kubectl().field(&format!("pod/{pod}"), "/metadata/uid");
    let uid = uid.as_str().expect("a UID").to_owned();
    eventually(&format!("{file} of {pod} is {wanted}"), || {
        let found = machine.run(&format!("cat /sys/fs/cgroup/skiff/*/*/pod{uid}/*/{file}")).stdout;
        if found.trim() == wanted { Ok(()) } else { Err(found) }
    });
}
