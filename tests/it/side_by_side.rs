//! Several clusters on one machine, and starts that are refused: each error says what to do, and the start changes
//! nothing. Packets to unused addresses of the ranges stay on the machine.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::process::Command;

use tests::{Cluster, Kubectl, Net, Ran, cluster, eventually, run};

/// Ports and ranges that differ from the defaults.
const OTHER_PORTS: [&str; 2] = ["--secure-port=6444", "--kubelet-port=10251"];
const OTHER_RANGES: [&str; 2] = ["--cluster-cidr=10.245.0.0/16", "--service-cluster-ip-range=10.112.0.0/16"];

const WEB: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  runtimeClassName: wasmtime
  containers:
    - {name: web, image: "samples/web:latest", imagePullPolicy: Never, ports: [{containerPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: NODEPORT}]
---
apiVersion: v1
kind: Pod
metadata: {name: tools}
spec:
  runtimeClassName: runc
  terminationGracePeriodSeconds: 1
  containers:
    - {name: tools, image: "samples/tools:latest", imagePullPolicy: Never, command: [sleep, "1000000"]}
"#;

#[track_caller]
fn run_web(kubectl: &Kubectl<'_>, node_port: &str) {
    kubectl.until_usable("default");
    kubectl.apply(&WEB.replace("NODEPORT", node_port)).ok();
    kubectl.until_ready("web");
    kubectl.until_ready("tools");
}

#[track_caller]
fn answers(net: &Net, node_port: &str) {
    let url = format!("http://{}:{node_port}/by-node-port", net.ip);
    let answer = eventually(&url, || {
        let ran = net.run("curl", &["-sS", "--max-time", "5", &url]);
        if ran.succeeded() { Ok(ran.stdout) } else { Err(ran.to_string()) }
    });
    assert!(answer.contains("/by-node-port"), "{answer}");
}

/// Runs `skiff up` on its own directory until it ends with an error.
#[track_caller]
fn refused(net: &Net, flags: &[&str]) -> String {
    let dir = tempfile::Builder::new().prefix("skiff-it-").tempdir().expect("a directory");
    let skiff = cluster::programs().join("skiff").display().to_string();
    // The time limit is for a start that wrongly succeeds and would run for ever.
    let ran: Ran = run::run(
        net.command("timeout").arg("20").arg(skiff).args(["up", "--device-plugin-dir="]).args(flags).arg("--data-dir").arg(dir.path()),
        None,
    );
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(&dir.path().display().to_string()), "a directory that is simply removed: {mounts}");
    ran.fails()
}

#[test]
fn two_clusters_share_a_machine_and_a_third_reports_the_conflict() {
    let mut first = Cluster::prepared(Net::alone(), &["up"]);
    first.start();
    first.load_samples();
    let flags: Vec<&str> = ["up"].into_iter().chain(OTHER_PORTS).chain(OTHER_RANGES).collect();
    let mut second = Cluster::prepared(first.net.shared(), &flags);
    second.start();
    second.load_samples();
    for (cluster, node_port) in [(&first, "30081"), (&second, "30082")] {
        run_web(&cluster.kubectl(), node_port);
        answers(&cluster.net, node_port);
        let answer = cluster.kubectl().until_ok("exec tools -- wget -qO- http://web/by-name");
        assert!(answer.contains("/by-name"), "{answer}");
    }

    let before = first.trace();
    let taken = first.skiff(&["up"]).fails();
    assert!(taken.contains("is in use by another skiff process") && taken.contains("--data-dir"), "{taken}");
    let port_taken: Vec<&str> = ["--cluster-cidr=10.246.0.0/16", "--service-cluster-ip-range=10.113.0.0/16"].into();
    let with = |port: &'static str| [port_taken.as_slice(), &[port]].concat();
    let taken = refused(&first.net, &with("--secure-port=6445"));
    assert!(taken.contains("0.0.0.0:10250") && taken.contains("--kubelet-port") && taken.contains("in use"), "{taken}");
    let taken = refused(&first.net, &with("--kubelet-port=10252"));
    assert!(taken.contains("0.0.0.0:6443") && taken.contains("--secure-port") && taken.contains("in use"), "{taken}");
    let taken = refused(&first.net, &["--secure-port=6445", "--kubelet-port=10252"]);
    assert!(taken.contains("already used on this machine") && taken.contains("--cluster-cidr"), "{taken}");
    assert_eq!(first.trace(), before, "a refused start changes nothing");

    // Removing one cluster does not change the other.
    assert_eq!(second.stop(), 0);
    second.down();
    answers(&first.net, "30081");
    unprogrammed_addresses_stay_here(&first);
}

/// Counts packets to the ranges that leave the machine, and sends requests to unused addresses in the ranges.
#[track_caller]
fn unprogrammed_addresses_stay_here(cluster: &Cluster) {
    let (net, kubectl) = (&cluster.net, cluster.kubectl());
    let count = "add table ip watch; add chain ip watch out { type filter hook postrouting priority 300; }; \
                 add rule ip watch out oifname uplink ip daddr { 10.96.0.0/12, 10.244.0.0/16 } counter; \
                 add rule ip watch out oifname uplink ip daddr 203.0.113.1 counter";
    net.run("nft", &[count]).ok();
    for url in ["http://10.96.77.7", "http://10.244.77.7", "http://10.244.0.250"] {
        net.run("curl", &["-sS", "--max-time", "5", url]).fails();
        kubectl.fails(&format!("exec tools -- wget -qO- {url}"));
    }
    // Proof that the counter works: packets to an address outside the ranges do leave.
    net.run("curl", &["-sS", "--max-time", "1", "http://203.0.113.1"]).fails();
    let counted = net.run("nft", &["list", "table", "ip", "watch"]).ok();
    let packets: Vec<&str> = counted.lines().filter_map(|line| line.split("packets ").nth(1)?.split(' ').next()).collect();
    assert!(packets.len() == 2 && packets[0] == "0" && packets[1] != "0", "{counted}");
    net.run("nft", &["delete", "table", "ip", "watch"]).ok();
}

#[test]
fn a_missing_tool_and_a_newer_database_are_named() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    // A machine without runc: a mount namespace in which runc's directory has everything but runc.
    let hidden = tempfile::tempdir().expect("a directory");
    let runc = run::run(Command::new("sh").args(["-c", "readlink -f $(command -v runc)"]), None).ok();
    let runc = runc.trim();
    let script = format!(
        "set -e; mount -t tmpfs none {top}; mkdir {top}/up {top}/work; dir=$(dirname {runc}); \
         mount -t overlay overlay -o lowerdir=$dir,upperdir={top}/up,workdir={top}/work $dir; rm {runc}; exec timeout 20 \"$@\"",
        top = hidden.path().display()
    );
    let skiff = cluster::programs().join("skiff");
    let data_dir = cluster.data_dir().to_owned();
    let mut command = cluster.net.command("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]).arg(skiff).args(["up", "--device-plugin-dir=", "--data-dir"]).arg(&data_dir);
    let missing = run::run(&mut command, None).fails();
    assert!(missing.contains("runc is not installed") && missing.contains("apt-get install runc"), "{missing}");
    let many = refused(&cluster.net, &["--max-pods=300"]);
    let remedy =
        "--max-pods 300 is more than the 253 addresses of the node's Pod range (/24): set --node-cidr-mask-size=23, or --max-pods=253";
    assert!(many.contains(remedy), "{many}");

    cluster.start();
    assert_eq!(cluster.stop(), 0);
    let database = data_dir.join("state.db");
    // The schema version is at a fixed offset in the file (sqlite.org/fileformat.html, "user version").
    let mut file = std::fs::File::options().write(true).open(&database).expect("the database");
    file.seek(SeekFrom::Start(60)).and_then(|_| file.write_all(&99_u32.to_be_bytes())).expect("written");
    let newer = cluster.skiff(&["up"]).fails();
    assert!(newer.contains("written by a newer version") && newer.contains("99"), "{newer}");
}
