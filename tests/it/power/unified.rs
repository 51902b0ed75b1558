//! A node on a kernel with only cgroup v2 and with AppArmor, unlike the machines of the other stories: limits are in the kernel's files,
//! containers run under their profiles, a container without memory is reported, running Pods are resized, and the node evicts when its own
//! memory is short. Its clock is its own, too, and jumps.

mod clock;
mod pressure;
mod qos;

use serde_json::json;
use tests::cluster::tool;
use tests::eventually;
use tests::machine::{Machine, on_machines};

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
      resources: { requests: { cpu: 0 }, limits: { memory: 48Mi, cpu: 200m } }
";

/// The command of a Linux container of [`LIMITED`].
const SLEEP: &str = "command: ['sleep', '1000000']";

/// Memory that the node reserves for itself, in MiB.
const LEAST_MIB: u64 = 250;

/// Allocates that many MiB at once, and writes to them again and again.
const HOG: &str = r"
apiVersion: v1
kind: Pod
metadata: { name: hog }
spec:
  restartPolicy: Never
  tolerations: [{ key: node.kubernetes.io/memory-pressure, operator: Exists }]
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [dd, if=/dev/zero, of=/dev/null, bs=TAKENM, count=1000000]
";

/// A profile of the administrator.
const PROFILE: &str =
    "profile it-confined flags=(attach_disconnected) { file, network, capability, umount, signal, ptrace, deny /{,**/}denied w, }";
/// Where the kernel shows AppArmor, and loads profiles.
const SECURITYFS: &str = "mount -t securityfs securityfs /sys/kernel/security";

#[test]
fn a_node_on_cgroup_v2_alone_limits_kills_and_resizes() {
    on_machines(4, || {
        let mut machine = Machine::new(2_000);
        machine.boot();
        machine.run(&format!("{SECURITYFS} && echo '{PROFILE}' | /sbin/apparmor_parser --replace --skip-cache")).ok();
        let cpus = "--cpu-manager-policy=static --reserved-cpus=0";
        machine.start_skiff(&format!("{} {cpus}", pressure::thresholds()));
        machine.load_samples(&["web.wasm", "tools.tar", "hello.wasm", "job.wasm"]);
        let hierarchies = machine.run("grep -c cgroup /proc/self/mountinfo").ok();
        assert_eq!(hierarchies.trim(), "1", "there is one hierarchy");
        machine.kubectl().apply(pressure::CROWD).ok();
        for (name, runtime, image, command) in [("linux", "runc", "tools", SLEEP), ("wasm", "wasmtime", "web", "")] {
            machine.kubectl().apply(&of(LIMITED, name, runtime, image, command)).ok();
        }
        for name in ["linux", "wasm"] {
            machine.kubectl().until_ready(name);
            until_limited(&mut machine, name, "cpu.max", "20000 100000");
            until_limited(&mut machine, name, "memory.max", "50331648");
        }
        processes_are_confined(&mut machine);
        cpus_are_exclusive(&mut machine);
        resize(&mut machine);
        let restarts = clock::jumps(&mut machine);
        pressure::who_takes_memory_has_time_to_end(&mut machine);
        who_takes_the_nodes_memory_goes(&mut machine);
        clock::until_restarted(&machine, restarts);
        machine.kubectl().ok("apply -f tests/it/life/ends.yaml");
        life::containers_end(&machine.kubectl());
        let groups = machine.run("find /sys/fs/cgroup/skiff -type d | wc -l").ok();
        machine.kubectl().ok("delete pods --all --timeout=240s");
        let left = machine.run("find /sys/fs/cgroup/skiff -type d -name 'pod*'").ok();
        assert_eq!(left, "", "of {} groups", groups.trim());
    });
}

/// A Pod of [`LIMITED`] or of a template that was made of it. A guest has no command.
fn of(template: &str, name: &str, runtime: &str, image: &str, command: &str) -> String {
    template.replace("NAME", name).replace("RUNTIME", runtime).replace("IMAGE", image).replace("COMMAND", command)
}

/// The node loads a default profile. A Pod may name another one, which must be loaded.
fn processes_are_confined(machine: &mut Machine) {
    for name in ["linux", "wasm"] {
        assert_eq!(profile(machine, name), "skiff-default (enforce)");
    }
    assert_eq!(machine.kubectl().ok("exec linux -- cat /proc/self/attr/current").trim(), "skiff-default (enforce)");
    let named = |name: &str, profile: &str, runtime: &str, image: &str, command: &str| {
        let context = format!("securityContext: {{ appArmorProfile: {{ type: Localhost, localhostProfile: {profile} }} }}");
        let pod = LIMITED.replace("terminationGracePeriodSeconds: 1", &format!("terminationGracePeriodSeconds: 1\n  {context}"));
        of(&pod, name, runtime, image, command)
    };
    machine.kubectl().apply(&named("linux-confined", "it-confined", "runc", "tools", SLEEP)).ok();
    let wasm = named("wasm-confined", "it-confined", "wasmtime", "web", "volumeMounts: [{ name: data, mountPath: /data }]");
    machine.kubectl().apply(&format!("{wasm}  volumes: [{{ name: data, emptyDir: {{}} }}]\n")).ok();
    machine.kubectl().apply(&named("unloaded", "it-unloaded", "runc", "tools", SLEEP)).ok();
    for name in ["linux-confined", "wasm-confined"] {
        machine.kubectl().until_ready(name);
        assert_eq!(profile(machine, name), "it-confined (enforce)");
    }
    machine.kubectl().ok("exec linux-confined -- touch /allowed");
    let refused = machine.kubectl().run(&["exec", "linux-confined", "--", "touch", "/denied"]);
    assert!(!refused.succeeded() && refused.stderr.contains("Permission denied"), "{refused}");
    for (name, confined) in [("wasm", "skiff-default (enforce)"), ("wasm-confined", "it-confined (enforce)")] {
        let ip = machine.kubectl().ip(name);
        machine.run(&format!("curl -fsS --max-time 60 -o /dev/null http://{ip}:8080/")).ok();
        // Also the threads that have run the guest.
        assert_eq!(profile(machine, name), confined);
    }
    // What is started in a WASM container is a process of its own.
    machine.kubectl().ok("cp Cargo.toml wasm-confined:/data/allowed");
    let refused = machine.kubectl().run(&["cp", "Cargo.toml", "wasm-confined:/data/denied"]);
    assert!(!refused.succeeded() && refused.stderr.contains("tar: denied: Permission denied"), "{refused}");
    machine.kubectl().until_waiting("unloaded", "CreateContainerError", "apparmor profile not found it-unloaded");
    machine.kubectl().ok("delete pod linux-confined wasm-confined unloaded --timeout=240s");
}

/// The AppArmor profiles of all threads of the first process of a Pod's container, one a line. A thread may end meanwhile.
fn profile(machine: &mut Machine, pod: &str) -> String {
    let processes = format!("/sys/fs/cgroup/skiff/*/*/pod{}/*/cgroup.procs", machine.kubectl().uid(pod));
    machine.run(&format!("cat /proc/$(head -n 1 {processes})/task/*/attr/apparmor/current 2>/dev/null | sort -u")).ok().trim().to_owned()
}

/// The second of the machine's two CPUs belongs to one Pod, as long as the Pod exists. The others have no request that would not fit
/// beside it.
fn cpus_are_exclusive(machine: &mut Machine) {
    for name in ["linux", "wasm"] {
        until_limited(machine, name, "cpuset.cpus", "0-1");
    }
    for (runtime, image, command) in [("runc", "tools", SLEEP), ("wasmtime", "web", "")] {
        let pod = LIMITED.replace("requests: { cpu: 0 }, limits: { memory: 48Mi, cpu: 200m }", "limits: { memory: 48Mi, cpu: 1 }");
        machine.kubectl().apply(&of(&pod, "own", runtime, image, command)).ok();
        machine.kubectl().until_ready("own");
        until_limited(machine, "own", "cpuset.cpus.effective", "1");
        until_limited(machine, "own", "cpu.max", "max 100000");
        qos::until_in(machine, "own", "guaranteed", 100);
        for name in ["linux", "wasm"] {
            until_limited(machine, name, "cpuset.cpus.effective", "0");
        }
        machine.kubectl().ok("delete pod own --timeout=240s");
    }
    for name in ["linux", "wasm"] {
        until_limited(machine, name, "cpuset.cpus.effective", "0-1");
    }
}

fn resize(machine: &mut Machine) {
    let started = machine.kubectl().field("pod/linux", "/status/containerStatuses/0/state/running/startedAt");
    let resources = json!({ "requests": { "cpu": "100m" }, "limits": { "cpu": "500m", "memory": "64Mi" } });
    let patch = json!({ "spec": { "containers": [{ "name": "main", "resources": resources }] } });
    machine.kubectl().with_program(tool("kubectl")).run(&["patch", "pod", "linux", "--subresource=resize", "-p", &patch.to_string()]).ok();
    until_limited(machine, "linux", "cpu.max", "50000 100000");
    until_limited(machine, "linux", "memory.max", "67108864");
    qos::until_in(machine, "linux", "burstable", 17);
    qos::until_in(machine, "crowd", "besteffort", 1);
    assert_eq!(machine.kubectl().field("pod/linux", "/status/containerStatuses/0/state/running/startedAt"), started, "without a restart");
}

/// A Pod without a limit uses the memory that the node needs. Only this Pod is evicted. While the pressure lasts, process ids run short,
/// too.
fn who_takes_the_nodes_memory_goes(machine: &mut Machine) {
    let taken = pressure::available_mib(machine).checked_sub(LEAST_MIB / 2).expect("the machine has more memory than that");
    machine.kubectl().apply(&HOG.replace("TAKEN", &taken.to_string())).ok();
    let begin = format!("The node was low on resource: memory. Threshold quantity: {LEAST_MIB}Mi, available: ");
    let message = machine.kubectl().until_evicted("hog", &begin);
    assert!(
        message.contains("Container main was using ") && message.contains(", request is 0, has larger consumption of memory. "),
        "{message}"
    );
    the_others_run(machine);
    pressure::who_takes_the_process_ids_goes(machine);
    eventually("the pressure is over", || {
        let taints = machine.kubectl().ok("get nodes -o jsonpath={.items[0].spec.taints}");
        if taints.contains("-pressure") { Err(taints) } else { Ok(()) }
    });
}

/// The Pods that shall stay.
fn the_others_run(machine: &Machine) {
    for pod in ["linux", "wasm"] {
        assert_eq!(machine.kubectl().field(&format!("pod/{pod}"), "/status/phase"), "Running");
    }
}

/// Waits until the file of a Pod's container has that content.
fn until_limited(machine: &mut Machine, pod: &str, file: &str, wanted: &str) {
    let uid = machine.kubectl().uid(pod);
    eventually(&format!("{file} of {pod} is {wanted}"), || {
        let found = machine.run(&format!("cat /sys/fs/cgroup/skiff/*/*/pod{uid}/*/{file}")).stdout;
        if found.trim() == wanted { Ok(()) } else { Err(found) }
    });
}
