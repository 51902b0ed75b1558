//! Pods with user namespaces (`hostUsers: false`): who root is inside and on the node, whose the files are, what survives a kill of
//! the node and what does not survive the Pod.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tests::{Cluster, Kubectl, Net, eventually, run};

/// `HOST` is a directory of the node that only root may enter.
const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: own}
spec:
  hostUsers: false
  terminationGracePeriodSeconds: 1
  securityContext: {fsGroup: 2000, supplementalGroups: [3000], sysctls: [{name: net.ipv4.ip_local_port_range, value: 20000 20100}]}
  volumes:
    - {name: notes, emptyDir: {}}
    - {name: fast, emptyDir: {medium: Memory}}
    - {name: host, hostPath: {path: HOST}}
    - {name: image, image: {reference: "samples/tools:latest", pullPolicy: Never}}
    - {name: about, downwardAPI: {defaultMode: 0400, items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
  containers:
    - name: app
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "while [ ! -e /notes/stop ]; do /bin/busybox sleep 1; done; /bin/busybox rm /notes/stop"]
      volumeMounts:
        - {name: notes, mountPath: /notes}
        - {name: notes, mountPath: /part, subPath: part}
        - {name: fast, mountPath: /fast}
        - {name: host, mountPath: /host}
        - {name: image, mountPath: /image}
        - {name: about, mountPath: /about}
    - name: user
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "/bin/busybox sleep 1000000"]
      securityContext: {runAsUser: 1000, runAsGroup: 1001}
      volumeMounts: [{name: notes, mountPath: /notes}, {name: host, mountPath: /host}]
---
apiVersion: v1
kind: Pod
metadata: {name: shared}
spec:
  hostUsers: false
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: app
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "/bin/busybox sleep 1000000"]
      securityContext: {procMount: Unmasked}
---
apiVersion: v1
kind: Pod
metadata: {name: guest}
spec:
  hostUsers: false
  terminationGracePeriodSeconds: 1
  containers: [{name: web, image: "samples/web:latest", imagePullPolicy: Never}]
"#;

#[test]
fn pods_have_users_of_their_own() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    let before = cluster.trace();
    cluster.start();
    cluster.load_samples();
    cluster.kubectl().until_usable("default");
    let host = host_directory(&cluster);
    cluster.kubectl().apply(&PODS.replace("HOST", host.to_str().unwrap())).ok();
    for pod in ["own", "shared", "guest"] {
        cluster.kubectl().until_ready(pod);
    }
    the_node_says_that_it_can(&cluster.kubectl());
    each_pod_has_a_range(&cluster.kubectl());
    files_have_the_ids_of_the_container(&cluster.kubectl(), &host);
    root_inside_is_nobody_outside(&cluster.kubectl(), &host);
    proc_is_whole_where_the_spec_says_so(&cluster.kubectl());
    a_guest_has_a_user_of_the_range(&cluster.kubectl());
    copied_files_have_the_ids_of_the_guest(&cluster.kubectl());
    the_range_survives(&mut cluster);
    nothing_stays(&cluster);
    assert_eq!(cluster.stop(), 0);
    cluster.down();
    assert_eq!(cluster.trace(), before);
}

fn host_directory(cluster: &Cluster) -> PathBuf {
    let host = cluster.data_dir().join("of-the-host");
    fs::create_dir(&host).unwrap();
    fs::write(host.join("secret"), "of root\n").unwrap();
    fs::set_permissions(host.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    host
}

/// One of the Pods.
fn document(number: usize) -> &'static str {
    PODS.split("---").nth(number).unwrap()
}

/// Runs a script in the container of a Pod.
fn sh(kubectl: &Kubectl<'_>, container: &str, script: &str) -> String {
    let script = format!("b() {{ /bin/busybox \"$@\"; }}\n{script}\n");
    kubectl.with_input(&format!("exec -i {container} -- sh"), &script).ok()
}

/// The first id of a Pod's range.
fn first_id(kubectl: &Kubectl<'_>, pod: &str) -> u32 {
    let map = sh(kubectl, pod, "b cat /proc/self/uid_map");
    let numbers: Vec<u32> = map.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert!(numbers[0] == 0 && numbers[1] >= 65_536 && numbers[1].is_multiple_of(65_536) && numbers[2] == 65_536, "{map}");
    assert_eq!(sh(kubectl, pod, "b cat /proc/self/gid_map"), map);
    numbers[1]
}

fn the_node_says_that_it_can(kubectl: &Kubectl<'_>) {
    let node = kubectl.json("get nodes");
    let handlers = node["items"][0]["status"]["runtimeHandlers"].as_array().unwrap();
    assert!(handlers.len() == 3 && handlers.iter().all(|handler| handler["features"]["userNamespaces"] == json!(true)), "{handlers:?}");
}

fn each_pod_has_a_range(kubectl: &Kubectl<'_>) {
    let ids: BTreeSet<u32> = ["own", "shared"].iter().map(|pod| first_id(kubectl, pod)).collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
    // Processes on the node, by the cgroup of their Pod.
    for pod in ["own", "shared", "guest"] {
        let owners = owners(kubectl, pod);
        assert!(!owners.is_empty() && owners.iter().all(|id| *id >= 65_536), "{pod}: {owners:?}");
    }
}

/// The users of the processes of a Pod.
fn owners(kubectl: &Kubectl<'_>, pod: &str) -> BTreeSet<u32> {
    let uid = kubectl.uid(pod);
    let is_of_pod = |process: &Path| fs::read_to_string(process.join("cgroup")).is_ok_and(|text| text.contains(&uid));
    // The owner of the directory is another one for a process that nobody may look into.
    let user = |process: PathBuf| {
        let status = fs::read_to_string(process.join("status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
    };
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok().map(|entry| entry.path()));
    processes.filter(|process| is_of_pod(process)).filter_map(user).collect()
}

fn files_have_the_ids_of_the_container(kubectl: &Kubectl<'_>, host: &Path) {
    let said = sh(
        kubectl,
        "own -c app",
        "for d in /notes /part /fast /host /dev/shm; do echo x > $d/made && b stat -c '%n %u' $d/made; done
         b cat /host/secret /about/name /etc/hostname; echo; b test -r /etc/hosts && b test -r /etc/resolv.conf && echo readable
         b stat -c '%u %g' /bin/busybox /image/bin/busybox /etc/hosts /var/run/secrets/kubernetes.io/serviceaccount/token /about/name
         b id -G; b cat /proc/sys/net/ipv4/ip_local_port_range; echo message > /dev/termination-log && echo written",
    );
    for wanted in
        ["/notes/made 0", "/part/made 0", "/fast/made 0", "/host/made 0", "/dev/shm/made 0", "of root", "own", "readable", "written"]
    {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert!(said.contains("2000") && said.contains("3000") && said.contains("20000\t20100") && !said.contains("65534"), "{said}");
    let made = fs::metadata(host.join("made")).unwrap();
    assert_eq!(made.uid(), 0, "a Pod without a user namespace reads it as its own");
    let said = sh(
        kubectl,
        "own -c user",
        "b id -u; b id -g; echo x > /notes/users && b stat -c '%u %g' /notes/users; b cat /host/secret || echo no",
    );
    assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["1000", "1001", "1000", "2000", "no"]);
}

/// What root inside tries: each command succeeds only if the attack worked.
const TRIES: &[(&str, &str)] = &[
    ("the node's disk", "b mknod /tmp/disk b 254 0 && b head -c 512 /tmp/disk"),
    ("the kernel's settings", "echo 1 > /proc/sys/kernel/panic"),
    ("what runs at a crash", "echo x > /proc/sys/kernel/core_pattern"),
    ("the node's clock", "b date -s 2030-01-01 && [ $(b date +%Y) = 2030 ]"),
    ("a low score", "echo -999 > /proc/self/oom_score_adj"),
    ("another owner", "b chown 70000 /notes/made"),
    ("the image's files for writing", "echo x > /image/made"),
];

fn root_inside_is_nobody_outside(kubectl: &Kubectl<'_>, host: &Path) {
    for (what, attack) in TRIES {
        let said = sh(kubectl, "own -c app", &format!("( {attack} ) >/dev/null 2>&1 && echo done || echo refused"));
        assert_eq!(said.trim(), "refused", "{what}");
    }
    // A file of the node's own range is a stranger's, and stays so.
    let foreign = host.join("foreign");
    fs::write(&foreign, "x").unwrap();
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&foreign, Some(70_000), Some(70_000)).unwrap();
    let said = sh(kubectl, "own -c app", "b cat /host/foreign || echo refused; b chown 0 /host/foreign || echo refused");
    assert_eq!(said.matches("refused").count(), 2, "{said}");
}

fn proc_is_whole_where_the_spec_says_so(kubectl: &Kubectl<'_>) {
    let covers = "b grep -c ' /proc/' /proc/self/mountinfo; true";
    assert_eq!(sh(kubectl, "shared", covers).trim(), "0");
    assert_ne!(sh(kubectl, "own -c app", covers).trim(), "0");
    assert_eq!(sh(kubectl, "shared", "b cat /proc/1/comm").trim(), "pause");
    let open = document(1).replace("hostUsers: false", "hostUsers: true").replace("name: shared", "name: open");
    let refused = kubectl.apply(&open).fails();
    assert!(refused.contains("`hostUsers` must be false to use `Unmasked`"), "{refused}");
    let on_node = document(2).replace("hostUsers: false", "hostUsers: false\n  hostNetwork: true").replace("name: guest", "name: on-node");
    let refused = kubectl.apply(&on_node).fails();
    assert!(refused.contains("when `hostUsers` is false"), "{refused}");
}

fn a_guest_has_a_user_of_the_range(kubectl: &Kubectl<'_>) {
    let owners = owners(kubectl, "guest");
    assert!(owners.len() == 1 && owners.iter().all(|id| id % 65_536 == 65_534), "{owners:?}");
    let said = sh(kubectl, "own -c app", &format!("b wget -q -O - http://{}:8080/", kubectl.ip("guest")));
    assert!(!said.is_empty());
}

/// A guest whose files a Linux container of the same Pod sees, too.
const COPIED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: copied}
spec:
  hostUsers: false
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1000, runAsGroup: 1001, fsGroup: 2000}
  volumes: [{name: data, emptyDir: {}}]
  containers:
    - {name: web, image: "samples/web:latest", imagePullPolicy: Never, volumeMounts: [{name: data, mountPath: /data}]}
    - name: side
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "/bin/busybox sleep 1000000"]
      volumeMounts: [{name: data, mountPath: /data}]
"#;

/// `kubectl cp` to and from the guest, by the node's own tar.
fn copied_files_have_the_ids_of_the_guest(kubectl: &Kubectl<'_>) {
    kubectl.apply(COPIED).ok();
    kubectl.until_ready("copied");
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    fs::write(at("sent"), "of a user of the node\n").unwrap();
    // kubectl writes owners into its archive: a user of the node, whom the Pod does not know.
    std::os::unix::fs::chown(at("sent"), Some(70_000), Some(70_000)).unwrap();
    fs::set_permissions(at("sent"), fs::Permissions::from_mode(0o640)).unwrap();
    kubectl.ok(&format!("cp -c web {} copied:/data/sent", at("sent").display()));
    let side = "copied -c side";
    let found = sh(kubectl, side, "b stat -c '%u %g %a' /data/sent; b cat /data/sent; echo more >> /data/sent && echo written");
    assert_eq!(found, "1000 2000 640\nof a user of the node\nwritten\n");

    sh(kubectl, side, "umask 077; echo private > /data/private");
    kubectl.ok(&format!("cp -c web copied:/data/private {}", at("private").display()));
    assert_eq!(fs::read_to_string(at("private")).unwrap(), "private\n");
    let archive = kubectl.command(&["exec", "copied", "-c", "web", "--", "tar", "cf", "-", "/data/private"]).output().unwrap();
    fs::write(at("archive"), &archive.stdout).unwrap();
    let listed = run::run(Command::new("tar").args(["--numeric-owner", "-tvf"]).arg(at("archive")), None).ok();
    assert!(listed.starts_with("-rw------- 1000/2000 "), "{listed}");
    kubectl.ok("delete pod copied --timeout=60s");
}

/// The end of a container, and the end of the node's process.
fn the_range_survives(cluster: &mut Cluster) {
    let ids = |kubectl: &Kubectl<'_>| ["own", "shared"].map(|pod| first_id(kubectl, pod));
    let before = ids(&cluster.kubectl());
    sh(&cluster.kubectl(), "own -c app", "echo > /notes/stop");
    cluster.kubectl().until("pod/own", "/status/containerStatuses/0/restartCount", 1);
    cluster.kubectl().until_ready("own");
    assert_eq!(ids(&cluster.kubectl()), before);
    assert_eq!(sh(&cluster.kubectl(), "own -c app", "b stat -c %u /notes/made").trim(), "0");
    let shims = cluster.shims();
    cluster.kill();
    cluster.start();
    for pod in ["own", "shared", "guest"] {
        cluster.kubectl().until_ready(pod);
    }
    assert_eq!((ids(&cluster.kubectl()), cluster.shims()), (before, shims), "no container was restarted");
    let late = document(1).replace("name: shared", "name: late");
    cluster.kubectl().apply(&late).ok();
    cluster.kubectl().until_ready("late");
    assert!(!before.contains(&first_id(&cluster.kubectl(), "late")), "the ranges of those that run are known");
}

fn nothing_stays(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let uid = kubectl.uid("own");
    let dir = cluster.data_dir().join("kubelet/pods").join(&uid);
    assert!(dir.join("userns").exists());
    kubectl.ok("delete pod own shared guest late --wait");
    eventually("nothing of the Pod is mounted or on the disk", || {
        let mounts = cluster.trace();
        if dir.exists() { Err(format!("{}\n{mounts:?}", dir.display())) } else { Ok(()) }
    });
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let left: Vec<&str> = table.lines().filter(|line| line.contains(&uid)).collect();
    assert_eq!(left, [""; 0]);
}
