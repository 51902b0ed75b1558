//! Pods: what `baseline` forbids, and paths out of a container or a volume.

use tests::eventually;

use super::World;

fn pod(name: &str, spec: &str, container: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: tenant}}\nspec:\n  restartPolicy: Never\n  terminationGracePeriodSeconds: 1\n  \
         {spec}\n  containers:\n    - {{name: main, image: 'samples/tools:latest', imagePullPolicy: Never, command: [sleep, '1000'], {container}}}\n"
    )
}

/// Settings that break out of a container, in a Pod and in objects that create or change Pods.
pub(super) fn what_baseline_forbids_is_not_possible_by_a_detour(world: &World<'_>) {
    let violates = "violates PodSecurity \"baseline:latest\"";
    for (spec, container) in [
        ("hostNetwork: true", ""),
        ("hostPID: true", ""),
        ("hostIPC: true", ""),
        ("volumes: [{name: root, hostPath: {path: /}}]", ""),
        ("securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}", ""),
        ("securityContext: {seccompProfile: {type: Unconfined}}", ""),
        ("", "securityContext: {privileged: true}"),
        ("", "securityContext: {capabilities: {add: [SYS_ADMIN]}}"),
        ("", "securityContext: {capabilities: {add: [NET_ADMIN]}}"),
        ("", "ports: [{containerPort: 53, hostPort: 53, protocol: UDP}]"),
        ("initContainers: [{name: first, image: x, securityContext: {privileged: true}}]", ""),
    ] {
        world.refuses(&pod("evil", spec, container), violates);
    }
    // In a template: it is accepted with a warning, and its Pods are rejected.
    let template = "
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: evil, namespace: tenant}
spec:
  replicas: 1
  selector: {matchLabels: {app: evil}}
  template:
    metadata: {labels: {app: evil}}
    spec:
      hostNetwork: true
      containers: [{name: main, image: x}]
";
    world.mallory.with_input("create -f -", template).ok();
    world.until_event("tenant", "evil", violates);
    world.mallory.ok("delete replicaset evil -n tenant");
    // In a change of a harmless Pod: an ephemeral container, also by a user who may add such.
    world.mallory.with_input("create -f -", &pod("harmless", "", "")).ok();
    let debug = "debug harmless -n tenant --image=x --profile=sysadmin";
    world.refused(debug, "orbidden");
    let complaint = world.admin.fails(debug);
    assert!(complaint.contains(violates), "{complaint}");
    // By binding a Pod without the scheduler.
    let binding = r#"{"apiVersion":"v1","kind":"Binding","metadata":{"name":"harmless"},"target":{"kind":"Node","name":"n"}}"#;
    let bound = world.mallory.with_input("create --raw /api/v1/namespaces/tenant/pods/harmless/binding -f -", binding).fails();
    assert!(bound.contains("cannot create resource \"pods/binding\""), "{bound}");
    world.refused("patch pod harmless -n tenant --subresource=status -p {\"status\":{\"podIP\":\"127.0.0.1\"}}", "orbidden");
}

const ON_THE_NODE: &str = "
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: ports}
spec:
  hostNetwork: true
  hostIPC: SHARED
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: 'samples/tools:latest', imagePullPolicy: Never, command: [sleep, '1000']}]
";

/// A Pod on the node's network does not share the node's IPC namespace, unless it requests that too.
pub(super) fn the_nodes_network_is_not_its_shared_memory(world: &World<'_>) {
    let node = std::fs::read_link("/proc/self/ns/ipc").expect("a link").display().to_string();
    for (name, shared) in [("apart", false), ("shared", true)] {
        world.mallory.with_input("create -f -", &ON_THE_NODE.replace("NAME", name).replace("SHARED", &shared.to_string())).ok();
        world.until_ready("ports", name);
        let inside = world.mallory.ok(&format!("exec -n ports {name} -- readlink /proc/self/ns/ipc"));
        assert_eq!(inside.trim() == node, shared, "{name}: {inside}, the node's is {node}");
    }
    world.mallory.ok("delete pod --all -n ports --grace-period=1");
}

/// A Pod whose volume holds links to the node's files, and a Pod that mounts them with `subPath`.
const LINKS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: tenant}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, emptyDir: {}}]
  initContainers:
    - name: first
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, 'ln -s / /data/root; ln -s /etc /data/etc; ln -s ../../../../../../.. /data/up; ln -s /proc/self/root /data/magic']
      volumeMounts: [{name: data, mountPath: /data}]
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sleep, '1000']
      volumeMounts: [{name: data, mountPath: /host, subPath: PATH}]
";

/// Paths of a Pod that would reach the node's files.
pub(super) fn paths_do_not_lead_out(world: &World<'_>) {
    for (spec, container, why) in [
        ("volumes: [{name: ../up, emptyDir: {}}]", "", "spec.volumes[0].name: Invalid value"),
        ("volumes: [{name: v, emptyDir: {}}]", "volumeMounts: [{name: v, mountPath: /v, subPath: ../..}]", "must not contain '..'"),
        ("volumes: [{name: v, emptyDir: {}}]", "volumeMounts: [{name: v, mountPath: /v, subPath: /etc}]", "must be a relative path"),
        ("volumes: [{name: v, configMap: {name: c, items: [{key: k, path: ../../up}]}}]", "", "must not contain '..'"),
        (
            "volumes: [{name: v, projected: {sources: [{downwardAPI: {items: [{path: ../up, fieldRef: {fieldPath: metadata.name}}]}}]}}]",
            "",
            "must not contain '..'",
        ),
        ("hostname: \"a\\n1.2.3.4 kubernetes.default\"", "", "spec.hostname: Invalid value"),
        ("hostAliases: [{ip: 1.2.3.4, hostnames: [\"a\\n10.96.0.1 b\"]}]", "", "Invalid value"),
        ("dnsConfig: {searches: [\"a\\nnameserver 1.2.3.4\"]}", "", "Invalid value"),
    ] {
        world.refuses(&pod("evil", spec, container), why);
    }
    let key = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: evil, namespace: tenant}\ndata: {../../etc/passwd: x}";
    world.refuses(key, "a valid config key must consist of");
    let links = [("to-root", "root"), ("to-etc", "etc/ssl"), ("upwards", "up"), ("by-magic", "magic/etc")];
    for (name, path) in links {
        world.mallory.with_input("create -f -", &LINKS.replace("NAME", name).replace("PATH", path)).ok();
    }
    for (name, _) in links {
        world.until_event("tenant", name, "is outside of the volume");
    }
    // The termination message is a file on the node: the node reads only a regular file, only the container's own, and
    // only its first bytes.
    let words = pod("words", "", "terminationMessagePath: /dev/words").replace(
        "command: [sleep, '1000']",
        "command: [sh, -c, 'rm -f /dev/words; ln -sf /etc/hostname /dev/words; yes 0123456789 | head -c 8000000 > /dev/words; exit 1']",
    );
    world.mallory.with_input("create -f -", &words).ok();
    let said = eventually("the end of pod words", || {
        let state = "jsonpath={.status.phase} {.status.containerStatuses[0].state.terminated.message}";
        let ran = world.admin.run(&["get", "pod", "words", "-n", "tenant", "-o", state]);
        ran.stdout.strip_prefix("Failed ").map(str::to_owned).ok_or_else(|| ran.to_string())
    });
    assert!(said.starts_with("0123456789") && said.len() <= 4096, "{} bytes", said.len());
    world.mallory.with_input("create -f -", &pod("core", "", "terminationMessagePath: /proc/sys/kernel/core_pattern")).ok();
    world.until_event("tenant", "core", "/proc");
    // More environment than a program can get: an error of the container, not of the node.
    let value = "x".repeat(120_000);
    let many: Vec<String> = (0..20).map(|n| format!("{{name: V{n}, value: {value}}}")).collect();
    world.mallory.with_input("create -f -", &pod("huge", "", &format!("env: [{}]", many.join(", ")))).ok();
    eventually("the end of pod huge", || {
        let log = world.admin.run(&["logs", "huge", "-n", "tenant"]);
        if log.stdout.contains("argument list too long") { Ok(()) } else { Err(log.to_string()) }
    });
    world.mallory.ok("delete pod --all -n tenant --grace-period=1");
}
