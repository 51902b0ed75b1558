//! The life of a Pod on one node: how its containers start and end, what they get, how they are probed, and the
//! messages about containers that cannot run.

use std::time::Duration;

use serde_json::{Value, json};
use tests::kubectl::container_id;
use tests::{Cluster, Kubectl, eventually};

use crate::limits::{cgroups, has_shares, limits};

#[test]
fn pods_live_and_end_as_their_specs_say() {
    let cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    load_broken_images(&cluster);
    let profiles = cluster.data_dir().join("kubelet/seccomp");
    std::fs::create_dir_all(&profiles).expect("the node's seccomp profiles");
    std::fs::write(profiles.join("no-mkdir.json"), NO_MKDIR).expect("a profile");
    for file in ["ends", "given", "probes", "refused"] {
        kubectl.ok(&format!("apply -f tests/it/life/{file}.yaml"));
    }
    containers_end(&kubectl);
    containers_are_given_what_they_ask_for(&cluster);
    probes_gate_and_restart(&kubectl);
    what_cannot_run_says_why(&kubectl);
    what_cannot_be_done_says_why(&kubectl);
    what_cannot_be_enforced_does_not_run(&kubectl);
    pods_end_within_their_grace(&kubectl);
}

/// A seccomp profile in the form of the OCI runtime spec: it forbids only to make directories.
const NO_MKDIR: &str = r#"{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
    "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}"#;

/// The containers of `ends.yaml` that end, in a cluster that has just got the file.
pub(super) fn containers_end(kubectl: &Kubectl<'_>) {
    kubectl.until("pod/init", "/status/phase", "Succeeded");
    assert_eq!(kubectl.ok("logs init"), "from init\n");
    assert_eq!(kubectl.ok("logs init -c first"), "ending with code 0\n");
    for (pod, phase, pointer, wanted) in [
        ("init-fails", "Failed", "/status/initContainerStatuses/0/state/terminated/exitCode", json!(3)),
        ("never", "Failed", "/status/containerStatuses/0/state/terminated/exitCode", json!(4)),
        ("never", "Failed", "/status/containerStatuses/0/state/terminated/reason", json!("Error")),
        ("never", "Failed", "/status/containerStatuses/0/restartCount", json!(0)),
        ("on-failure", "Succeeded", "/status/containerStatuses/0/state/terminated/reason", json!("Completed")),
        ("second-try", "Succeeded", "/status/containerStatuses/0/restartCount", json!(1)),
        ("second-try", "Succeeded", "/status/containerStatuses/0/lastState/terminated/exitCode", json!(6)),
        ("eater", "Failed", "/status/containerStatuses/0/state/terminated/reason", json!("OOMKilled")),
        ("eater", "Failed", "/status/containerStatuses/0/state/terminated/exitCode", json!(137)),
    ] {
        let object = format!("pod/{pod}");
        kubectl.until(&object, "/status/phase", phase);
        assert_eq!(kubectl.field(&object, pointer), wanted, "{pod}{pointer}\n{}", kubectl.ok(&format!("describe {object}")));
    }
    kubectl.until("pod/crashes", "/status/containerStatuses/0/state/waiting/reason", "CrashLoopBackOff");
    assert_eq!(kubectl.field("pod/crashes", "/status/containerStatuses/0/lastState/terminated/exitCode"), json!(5));
    assert_eq!(kubectl.ok("logs crashes"), "ending with code 5\n");
    kubectl.until("pod/crashes", "/status/containerStatuses/0/restartCount", 2);
    assert_eq!(kubectl.ok("logs crashes --previous"), "ending with code 5\n");
    let output = kubectl.ok("get pod init-fails");
    assert!(output.contains("Init:Error"), "{output}");
}

fn containers_are_given_what_they_ask_for(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.until("pod/env-wasm", "/status/phase", "Succeeded");
    kubectl.until_ready("given");
    let wasm = kubectl.ok("logs env-wasm").replace("env: ", "");
    for argument in ["arg 1: text\n", "arg 2: $(PLAIN)\n"] {
        assert!(wasm.contains(argument), "{argument:?} in {wasm}");
    }
    for (pod, seen) in [("env-wasm", wasm), ("given", kubectl.ok("exec given -- env"))] {
        let ip = format!("IP={}", kubectl.ip(pod));
        let name = format!("NAME={pod}");
        let wanted = ["PLAIN=text", "BUILT=text and more", "PASSWORD=from the Secret", "CM_COLOUR=green", "MEMORY=67108864", &ip, &name];
        for line in wanted {
            assert!(seen.lines().any(|one| one == line), "{line} in {pod}:\n{seen}");
        }
    }
    let service_account = "/var/run/secrets/kubernetes.io/serviceaccount";
    for (file, wanted) in [
        ("/settings/file.txt", "from the ConfigMap"),
        ("/one", "from the ConfigMap"),
        ("/keys/password", "from the Secret"),
        (&format!("{service_account}/namespace"), "default"),
        ("/machine/ostype", "Linux\n"),
        ("/etc/hostname", "given\n"),
    ] {
        assert_eq!(kubectl.ok(&format!("exec given -- cat {file}")), wanted, "{file}");
    }
    assert_eq!(kubectl.ok(&format!("exec given -- cat {service_account}/token")).split('.').count(), 3, "a token");
    let authority = kubectl.ok(&format!("exec given -- cat {service_account}/ca.crt"));
    assert!(authority.starts_with("-----BEGIN CERTIFICATE-----"), "{authority:?}");
    assert_eq!(kubectl.ok("exec given -- stat -L -c %a /keys/password"), "400\n");
    assert!(kubectl.ok("exec given -- cat /proc/mounts").lines().any(|line| line.starts_with("tmpfs /scratch tmpfs")));
    // The volume in memory has a limit of 1 MiB.
    let full = kubectl.fails("exec given -- dd if=/dev/zero of=/scratch/f bs=64k count=17");
    assert!(full.contains("No space left on device"), "{full}");
    kubectl.ok("exec given -- rm /scratch/f");
    kubectl.fails("exec given -- touch /keys/other");
    kubectl.until_ready("fenced");
    assert_eq!(kubectl.ok("exec fenced -- cat /proc/sys/net/ipv4/ip_local_port_range"), "20000\t20100\n");
    let refused = kubectl.fails("exec fenced -- mkdir /tmp/made");
    assert!(refused.contains("Operation not permitted"), "{refused}");
    kubectl.ok("exec given -- mkdir /tmp/made");
    kubectl.until_ready("whole-name");
    let whole = "whole-name.sub.default.svc.cluster.local";
    for command in ["hostname", "cat /etc/hostname"] {
        assert_eq!(kubectl.ok(&format!("exec whole-name -- {command}")).trim(), whole, "{command}");
    }
    assert!(kubectl.ok("exec whole-name -- cat /etc/hosts").contains(&format!("\t{whole}\twhole-name\n")));
    kubectl.until("pod/env-file", "/status/phase", "Succeeded");
    assert_eq!(kubectl.ok("logs env-file -c linux"), "dark green\na\nb\nunset\n");
    assert!(kubectl.ok("logs env-file -c wasm").contains("env: COLOUR=dark green\n"));
    a_running_container_is_resized(&kubectl);
    kubectl.until_ready("pair");
    assert_eq!(kubectl.ok("exec pair -c tools -- wget -qO- http://localhost:8080/x"), "Hello from WebAssembly! beside /x\n");
    assert_eq!(kubectl.field("pod/pair", "/status/containerStatuses/0/restartCount"), json!(0));
}

/// Increases the resources and sets them back. A request for more than the node has changes nothing.
fn a_running_container_is_resized(kubectl: &Kubectl<'_>) {
    let resize = |cpu: &str, limits: [&str; 2]| {
        let limits = json!({"cpu": limits[0], "memory": limits[1]});
        let patch = json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}, "limits": limits}}]}});
        kubectl.ok(&format!("patch pod given --subresource=resize --patch {patch}"));
    };
    let has = |memory: &str| kubectl.until("pod/given", "/status/containerStatuses/0/resources/limits/memory", memory);
    shares_are_in_the_cgroup(kubectl, "67108864", "20000 100000", 102);
    resize("300m", ["400m", "128Mi"]);
    has("128Mi");
    shares_are_in_the_cgroup(kubectl, "134217728", "40000 100000", 307);
    resize("4k", ["5k", "128Mi"]);
    eventually("a resize is infeasible", || {
        let condition = kubectl.condition("pod/given", "PodResizePending");
        if condition["reason"] == "Infeasible" { Ok(()) } else { Err(condition.to_string()) }
    });
    shares_are_in_the_cgroup(kubectl, "134217728", "40000 100000", 307);
    resize("100m", ["200m", "64Mi"]);
    has("64Mi");
    shares_are_in_the_cgroup(kubectl, "67108864", "20000 100000", 102);
    assert_eq!(kubectl.field("pod/given", "/status/containerStatuses/0/restartCount"), json!(0));
}

/// Requests and limits in the kernel's files, in the hierarchy that has the controller.
fn shares_are_in_the_cgroup(kubectl: &Kubectl<'_>, memory_limit: &str, cpu_quota: &str, cpu_shares: u32) {
    let dirs = cgroups(container_id(&kubectl.field("pod/given", "/status/containerStatuses/0")));
    assert_eq!(limits(&dirs), (memory_limit.to_owned(), cpu_quota.to_owned()), "{dirs:?}");
    assert_eq!(has_shares(&dirs, cpu_shares), Ok(()), "{dirs:?}");
}

fn probes_gate_and_restart(kubectl: &Kubectl<'_>) {
    let ready_addresses = |wanted: usize| {
        eventually(&format!("{wanted} ready endpoints"), || {
            let slices = kubectl.json("get endpointslices -l kubernetes.io/service-name=gated");
            let endpoints = slices["items"]
                .as_array()
                .into_iter()
                .flatten()
                .flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
            let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true).count();
            if ready == wanted { Ok(()) } else { Err(slices.to_string()) }
        });
    };
    kubectl.until("pod/gated", "/status/phase", "Running");
    ready_addresses(0);
    kubectl.ok("exec gated -- touch /work/ready");
    kubectl.until_ready("gated");
    ready_addresses(1);
    kubectl.ok("exec gated -- rm /work/ready");
    ready_addresses(0);

    kubectl.until_ready("sick");
    kubectl.ok("exec sick -- rm /work/well");
    kubectl.until("pod/sick", "/status/containerStatuses/0/restartCount", 1);
    kubectl.until_ready("sick");
    assert_eq!(kubectl.ok("logs sick --previous"), "started\n");
    let output = kubectl.ok("describe pod sick");
    assert!(output.contains("Liveness probe failed") && output.contains("will be restarted"), "{output}");
}

fn load_broken_images(cluster: &Cluster) {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("writes");
        path.display().to_string()
    };
    let malformed = write("malformed.wasm", b"\0asm\x01\0\0\0\x01\xff\xff\xff");
    let complaint = cluster.skiff(&["image", "import", "samples/malformed:latest", &malformed]).fails();
    assert!(complaint.contains("cannot run here: invalid WebAssembly: "), "{complaint}");
    let broken = write("broken.wat", b"(module)");
    cluster.skiff(&["image", "import", "samples/broken:latest", &broken]).ok();
    let stranger = write("stranger.wat", br#"(module (import "env" "launch" (func)) (func (export "_start")))"#);
    cluster.skiff(&["image", "import", "samples/stranger:latest", &stranger]).ok();
    let neither = write("notes.txt", b"neither a module nor an archive");
    let complaint = cluster.skiff(&["image", "import", "samples/notes:latest", &neither]).fails();
    assert!(complaint.contains("notes.txt is no .wasm or .wat file, OCI layout or docker-save archive"), "{complaint}");
}

fn what_cannot_run_says_why(kubectl: &Kubectl<'_>) {
    for (pod, reason, words) in [
        ("wasm-as-linux", "CreateContainerConfigError", "holds WebAssembly, but RuntimeClass \"runc\""),
        ("linux-as-wasm", "CreateContainerConfigError", "holds a Linux file system, but RuntimeClass \"wasmtime\""),
        ("absent", "ErrImageNeverPull", "is not present with pull policy of Never"),
        ("misspelt", "InvalidImageName", "Not A Name"),
        ("broken", "CreateContainerError", "it does not export _start"),
        ("stranger", "CreateContainerError", "env"),
        ("no-settings", "CreateContainerConfigError", "configmap \"missing\" not found"),
        ("no-secret", "CreateContainerConfigError", "secret \"absent\" not found"),
        ("no-key", "CreateContainerConfigError", "couldn't find key pass-word in Secret default/keys"),
        ("no-variable", "CreateContainerConfigError", "couldn't parse env file \"dir\": not a regular file"),
        ("no-profile", "CreateContainerError", "cannot load seccomp profile"),
        (
            "wasm-profile",
            "CreateContainerError",
            "a WebAssembly container runs under the seccomp profile of its shim and can have no other",
        ),
        ("wasm-unconfined", "CreateContainerError", "a WebAssembly container runs under the seccomp profile of its shim"),
        ("wasm-capability", "CreateContainerConfigError", "has securityContext.capabilities.add SYS_ADMIN: a WebAssembly container"),
        ("wasm-proc", "CreateContainerConfigError", "has securityContext.procMount Unmasked: a WebAssembly container"),
        (
            "wasm-propagation",
            "CreateContainerConfigError",
            "has mountPropagation HostToContainer, which a WebAssembly container cannot have",
        ),
        ("wasm-root", "CreateContainerConfigError", "container's runAsUser breaks non-root policy (pod: \"wasm-root_default("),
    ] {
        kubectl.until_waiting(pod, reason, words);
    }
    kubectl.until("pod/wrong-path", "/status/phase", "Failed");
    let ended = kubectl.field("pod/wrong-path", "/status/containerStatuses/0/state/terminated");
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("StartError"), &json!(128)), "{ended}");
    let message = ended["message"].as_str().unwrap_or_default();
    assert!(message.contains("exec: \"/usr/bin/absent\": stat /usr/bin/absent: no such file or directory"), "{message}");
}

/// Hooks have no TCP check, and the kernel no room for a longer name.
fn what_cannot_be_done_says_why(kubectl: &Kubectl<'_>) {
    kubectl.until("pod/tcp-hook", "/status/phase", "Failed");
    let said = kubectl.ok("describe pod tcp-hook");
    assert!(said.contains("FailedPostStartHook") && said.contains("Cannot run handler: invalid handler: tcpSocket"), "{said}");
    eventually("a Pod whose name is too long gets no sandbox", || {
        let said = kubectl.ok("describe pod long-name");
        let words = "failed to construct FQDN from pod hostname and cluster domain";
        if said.contains("FailedCreatePodSandBox") && said.contains(words) { Ok(()) } else { Err(said) }
    });
}

/// A Pod does not run if the node cannot enforce one of its restrictions.
fn what_cannot_be_enforced_does_not_run(kubectl: &Kubectl<'_>) {
    let has_app_armor = std::path::Path::new("/sys/kernel/security/apparmor").exists();
    for (pod, reason, message) in [
        ("app-armor", "AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"),
        ("unsafe-sysctl", "SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted"),
    ] {
        if pod == "app-armor" && has_app_armor {
            // Such a machine runs it.
            continue;
        }
        let object = format!("pod/{pod}");
        kubectl.until(&object, "/status/phase", "Failed");
        assert_eq!(kubectl.field(&object, "/status/reason"), reason);
        assert!(kubectl.field(&object, "/status/message").to_string().contains(&message.replace('"', "\\\"")), "{pod}");
    }
    eventually("no user of another Pod's range runs in a Pod with users of its own", || {
        let said = kubectl.ok("describe pod own-users");
        if said.contains("hostUsers: false") && said.contains("the container runs as 70000") { Ok(()) } else { Err(said) }
    });
    assert_eq!(kubectl.field("pod/own-users", "/status/phase"), "Pending");
}

fn pods_end_within_their_grace(kubectl: &Kubectl<'_>) {
    for (pod, least, most) in
        [("polite", Duration::ZERO, Duration::from_secs(10)), ("stubborn", Duration::from_secs(2), Duration::from_secs(12))]
    {
        kubectl.until_ready(pod);
        eventually("its trap is set", || match kubectl.ok(&format!("logs {pod}")).as_str() {
            "up\n" => Ok(()),
            other => Err(other.to_owned()),
        });
        let began = std::time::Instant::now();
        kubectl.ok(&format!("delete pod {pod} --wait"));
        let took = began.elapsed();
        assert!(took >= least && took < most, "{pod} took {took:?}");
        assert_eq!(kubectl.field(&format!("pod/{pod}"), "/metadata/name"), Value::Null);
    }
}
