//! WASM guests on a terminal: of a `kubectl run`, and of a `kubectl attach` to one that runs.

use std::io::Write as _;
use std::process::{Command, Stdio};

use tests::run::run;
use tests::{Cluster, Kubectl, eventually};

/// A guest that writes what it reads.
const CAT: &str = include_str!("../../../runtimes/wasmtime/tests/guests/cat.wat");

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: typist}
spec:
  restartPolicy: Never
  containers: [{name: c, image: "it/cat:latest", imagePullPolicy: Never, stdin: true, tty: true}]
"#;

/// The same command with a terminal for its input and output.
pub fn on_one(command: &Command) -> Command {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line: Vec<String> = words.map(|word| format!("'{}'", word.to_str().expect("text"))).collect();
    let mut script = Command::new("script");
    script.args(["-qec", &line.join(" "), "/dev/null"]);
    script
}

/// A guest that writes the first line that it reads: its terminal has shown the line before.
pub fn guests_are_run_on_one(cluster: &Cluster, kubectl: &Kubectl<'_>) {
    let work = tempfile::tempdir().expect("a directory");
    let line = CAT.replace("(br $next)", "");
    for (name, text) in [("cat", CAT), ("line", line.as_str())] {
        let file = work.path().join(format!("{name}.wasm"));
        std::fs::write(&file, wat::parse_str(text).expect("a module")).expect("written");
        cluster.skiff(&["image", "import", &format!("it/{name}:latest"), &file.display().to_string()]).ok();
    }
    kubectl.apply(POD).ok();
    let command = ["run", "line", "-it", "--image=it/line:latest", "--image-pull-policy=Never", "--restart=Never"];
    run(&mut on_one(&kubectl.command(&command)), Some("you\n")).ok();
    kubectl.until("pod/line", "/status/phase", "Succeeded");
    assert_eq!(kubectl.ok("logs line"), "you\r\nyou\r\n");
    kubectl.ok("delete pod line --timeout=60s");
}

/// A guest that runs: it reads what the client types, and the interrupt character ends it.
pub fn guests_are_attached_to(kubectl: &Kubectl<'_>) {
    kubectl.until_ready("typist");
    let mut attach = on_one(&kubectl.command(&["attach", "-it", "typist"]));
    let mut attached = attach.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("script starts");
    let mut input = attached.stdin.take().expect("a pipe");
    input.write_all(b"you\n").expect("typed");
    // From then on kubectl passes on what it reads, also the interrupt character, which would end kubectl itself before.
    eventually("the guest writes the line", || match kubectl.ok("logs typist") {
        log if log == "you\r\nyou\r\n" => Ok(()),
        log => Err(log),
    });
    input.write_all(b"\x03").expect("typed");
    kubectl.until("pod/typist", "/status/phase", "Failed");
    let ended = kubectl.container("typist", "c")["state"]["terminated"].clone();
    assert_eq!(ended["exitCode"], 130, "{ended}");
    // The client ends with its container.
    attached.wait().expect("it ends");
    kubectl.ok("delete pod typist --timeout=60s");
}
