//! A fresh Debian without a network (except to its host) becomes a node with the steps of docs/nodes.md only: the story
//! runs the page's commands, and its systemd unit. Then it runs the quickstart and removes the node.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tests::cluster::{programs, project, sample};
use tests::machine::{Machine, on_machines};
use tests::{Ran, eventually};

const UNIT: &str = "/etc/systemd/system/skiff.service";
const KUBECONFIG: &str = "/var/lib/skiff/admin.kubeconfig";
const PROGRAMS: [&str; 3] = ["skiff", "skiff-shim-runc", "skiff-shim-wasmtime"];
const GUESTS: [&str; 3] = ["web.wasm", "lookup.wasm", "tools.tar"];
const MANIFESTS: [&str; 3] = ["lookup.yaml", "tools.yaml", "web.yaml"];

/// Every place where a node leaves traces, listed without tools that a fresh Debian lacks.
const SURVEY: &str = "
ls /sys/class/net | sed 's/^/link /'
cut -f 1,2,8 /proc/net/route | sed 's/^/route /'
nft list ruleset | sed 's/^/rule /'
cut -d ' ' -f 5 /proc/self/mountinfo | grep skiff | sed 's/^/mount /'
find /sys/fs/cgroup -type d -name '*skiff*' | sed 's/^/cgroup /'
find /etc /run /var -name '*skiff*' | sed 's/^/file /'
cat /proc/[0-9]*/comm 2>/dev/null | grep skiff | sed 's/^/process /'
true
";

#[test]
fn a_fresh_debian_runs_the_quickstart_as_the_docs_say() {
    let docs = std::fs::read_to_string(project().join("docs/nodes.md")).expect("docs/nodes.md");
    let docs = docs.split("\n## ").find(|section| section.starts_with("Setting a machine up")).expect("its section");
    let (commands, unit) = (blocks(docs, "console"), blocks(docs, "ini"));
    let commands: Vec<&str> = commands.iter().flat_map(|block| block.lines()).filter_map(|line| line.strip_prefix("# ")).collect();
    let [packages, install, enable, export, wait, disable, down, remove] = commands[..] else { panic!("{commands:#?}") };
    on_machines(4, || {
        let mut machine = Machine::debian(&files());
        machine.boot();
        machine.run("mount -o ro /dev/vdb /mnt").ok();
        eventually("the machine has its address and a default route", || succeeded(machine.run("grep -q 00000000.*0003 /proc/net/route")));
        let before = survey(&mut machine);
        // The machine cannot fetch the packages: its image contains them.
        machine.run(packages).ok();
        machine.run(&format!("cd /mnt && {install}")).ok();
        machine.run(&format!("cat > {UNIT} << 'END'\n{}END", unit.concat())).ok();
        machine.run(enable).ok();
        eventually("the node is ready", || succeeded(machine.run(&format!("{export}; {wait} || (journalctl -u skiff; false)"))));
        the_quickstart_runs(&mut machine, export);

        machine.run(disable).ok();
        let left = survey(&mut machine);
        assert!(left.iter().any(|line| line == "process skiff-shim-runc"), "containers go on: {left:#?}");
        machine.run(down).ok();
        machine.run(remove).ok();
        assert_eq!(survey(&mut machine), before);
        machine.power_off();
    });
}

fn the_quickstart_runs(machine: &mut Machine, export: &str) {
    for file in GUESTS {
        let name = file.split('.').next().expect("a name");
        machine.run(&format!("skiff image import samples/{name}:latest /mnt/samples/{file}")).ok();
    }
    machine.run(&format!("{export}; kubectl apply -f /mnt/quickstart")).ok();
    machine.take_kubeconfig(KUBECONFIG);
    machine.kubectl().ok("rollout status deployment/web --timeout=240s");
    machine.kubectl().until_ready("tools");
    let ask = format!("{export}; kubectl exec tools -- wget -qO- http://web/x");
    let answer = eventually("the Service answers", || {
        let ran = machine.run(&ask);
        succeeded(ran.clone()).map(|()| ran.stdout)
    });
    assert_eq!(answer, "Hello from WebAssembly! You asked for /x\n");
    let ip = machine.kubectl().field("service/web", "/spec/clusterIP");
    let ip = ip.as_str().expect("a cluster IP").to_owned();
    let seen = machine.kubectl().ok("exec tools -- nslookup web.default.svc.cluster.local");
    assert!(seen.contains(&ip), "{seen}");
    machine.kubectl().until("pod/lookup", "/status/phase", "Succeeded");
    assert_eq!(machine.kubectl().ok("logs lookup"), format!("web.default.svc.cluster.local: {ip}\n"));
}

/// The files that are copied to the machine: the programs and the samples.
fn files() -> Vec<(String, PathBuf)> {
    let programs = PROGRAMS.map(|name| (name.to_owned(), programs().join(name)));
    let guests = GUESTS.map(|file| (format!("samples/{file}"), PathBuf::from(sample(file))));
    let manifests = MANIFESTS.map(|file| (format!("quickstart/{file}"), project().join("samples/quickstart").join(file)));
    programs.into_iter().chain(guests).chain(manifests).collect()
}

/// The code blocks of a language in a Markdown text.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fences = text.split("```").skip(1).step_by(2);
    fences.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).map(str::to_owned).collect()
}

fn survey(machine: &mut Machine) -> BTreeSet<String> {
    machine.run(SURVEY).ok().lines().map(str::to_owned).collect()
}

fn succeeded(ran: Ran) -> Result<(), String> {
    if ran.succeeded() { Ok(()) } else { Err(ran.to_string()) }
}
