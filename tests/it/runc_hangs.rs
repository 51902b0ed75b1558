//! A runc that hangs: other Pods notice nothing, and a Pod whose container hangs can be deleted. Probes that hang fail in time, and nothing
//! of them stays. Nor of commands whose clients were killed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use tests::kubectl::container_id;
use tests::{Cluster, Kubectl, Net, Ran, eventually, run};

/// A runc that hangs in a subcommand as long as there is a file with its name, or with its name and that of the container after a dot.
const WRAPPER: &str = r#"#!/bin/sh
for word in "$@"; do
  [ -e "DIR/$word" ] && exec sleep 1000000
  id=$word
done
for word in "$@"; do
  [ -e "DIR/$word.$id" ] && exec sleep 1000000
done
exec RUNC "$@"
"#;

fn pod(name: &str, image: &str) -> String {
    let command = if image == "tools" { "command: [sleep, \"1000000\"], " } else { "" };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n    \
         - {{name: main, {command}image: \"samples/{image}:latest\", imagePullPolicy: Never}}\n"
    )
}

/// Has a subcommand hang, or not any more.
fn hang(dir: &Path, subcommand: &str, hangs: bool) {
    let file = dir.join(subcommand);
    if hangs { fs::write(file, "").unwrap() } else { fs::remove_file(file).unwrap() }
}

/// The processes of the wrapper that hang.
fn hanging(dir: &Path) -> Ran {
    let script =
        format!("for id in $(pgrep -x sleep); do grep -lqz 'SKIFF_RUNC_HANGS={}' /proc/$id/environ && echo $id; done; true", dir.display());
    run::run(Command::new("sh").args(["-c", &script]), None)
}

#[test]
fn a_runc_that_hangs_holds_up_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let runc = run::run(Command::new("sh").args(["-c", "command -v runc"]), None).ok();
    let wrapper = WRAPPER.replace("DIR", &dir.path().display().to_string()).replace("RUNC", runc.trim());
    // The environment of what hangs names the story.
    let wrapper = wrapper.replace("exec sleep", &format!("exec env SKIFF_RUNC_HANGS={} sleep", dir.path().display()));
    fs::write(dir.path().join("runc"), wrapper).unwrap();
    fs::set_permissions(dir.path().join("runc"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    let before = cluster.trace();
    let path = std::env::var("PATH").unwrap();
    cluster.set_env("PATH", format!("{}:{path}", dir.path().display()).into());
    cluster.start();
    cluster.load_samples();
    let kubectl = cluster.kubectl();
    // The shim starts containers itself.
    hang(dir.path(), "start", true);
    kubectl.apply(&pod("runs", "tools")).ok();
    kubectl.until_ready("runs");

    hang(dir.path(), "create", true);
    kubectl.apply(&pod("hangs", "tools")).ok();
    eventually("runc hangs", || {
        let ran = hanging(dir.path());
        if ran.stdout.is_empty() { Err(ran.to_string()) } else { Ok(()) }
    });
    kubectl.apply(&pod("web", "web")).ok();
    kubectl.until_ready("web");
    assert_eq!(kubectl.ok("exec runs -- echo inside").trim(), "inside");
    kubectl.ok("delete pod hangs --timeout=60s");
    assert_eq!(hanging(dir.path()).ok(), "", "what hung has ended");
    hang(dir.path(), "create", false);
    kubectl.apply(&pod("hangs", "tools")).ok();
    kubectl.until_ready("hangs");

    // A later agent ends what an earlier one started.
    kubectl.ok("delete pod hangs --timeout=60s");
    hang(dir.path(), "create", true);
    kubectl.apply(&pod("hangs", "tools")).ok();
    eventually("runc hangs", || {
        let ran = hanging(dir.path());
        if ran.stdout.is_empty() { Err(ran.to_string()) } else { Ok(()) }
    });
    let earlier = hanging(dir.path()).ok();
    cluster.kill();
    hang(dir.path(), "create", false);
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_ready("hangs");
    assert_eq!(hanging(dir.path()).ok(), "", "{earlier} have ended");

    clients_leave_while_runc_hangs(&kubectl, dir.path());
    probes_that_hang_fail_in_time(&kubectl, dir.path());
    hang(dir.path(), "delete", true);
    kubectl.ok("delete pod hangs --timeout=60s");
    kubectl.until_ready("runs");
    hang(dir.path(), "delete", false);
    assert_eq!(hanging(dir.path()).ok(), "");

    assert_eq!(cluster.stop(), 0);
    cluster.down();
    assert_eq!(cluster.trace(), before);
}

/// It is probed each second, and runs a command before it ends.
const PROBED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sleep, "1000000"]
      readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1, timeoutSeconds: 1, failureThreshold: 1}
      lifecycle: {preStop: {exec: {command: ["true"]}}}
"#;

/// What hangs when `runc exec` hangs for the container of a Pod.
fn exec_of(kubectl: &Kubectl<'_>, pod: &str) -> String {
    format!("exec.{}", container_id(&kubectl.container(pod, "main")))
}

/// Each `kubectl exec` is killed while its runc hangs, over both protocols. The node gives a start without a client some seconds: the next
/// part waits until they are over, and after it the Pod is deleted.
fn clients_leave_while_runc_hangs(kubectl: &Kubectl<'_>, dir: &Path) {
    let exec = exec_of(kubectl, "hangs");
    hang(dir, &exec, true);
    let clients = ["true", "false"].map(|websockets| {
        let mut client = kubectl.command(&["exec", "hangs", "--", "true"]);
        client.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        client.spawn().expect("kubectl starts")
    });
    eventually("runc hangs for both clients", || {
        let ran = hanging(dir);
        if ran.stdout.lines().count() == clients.len() { Ok(()) } else { Err(ran.to_string()) }
    });
    hang(dir, &exec, false);
    for mut client in clients {
        assert!(client.try_wait().expect("a child").is_none(), "kubectl waits for its command");
        client.kill().expect("killed");
        client.wait().expect("an end");
    }
    assert_eq!(kubectl.ok("exec hangs -- echo inside").trim(), "inside");
}

/// `runc exec` hangs for one container. `runc kill` hangs for all: nothing needs it.
fn probes_that_hang_fail_in_time(kubectl: &Kubectl<'_>, dir: &Path) {
    kubectl.apply(PROBED).ok();
    kubectl.until_ready("probed");
    let exec = exec_of(kubectl, "probed");
    hang(dir, &exec, true);
    kubectl.until("pod/probed", "/status/containerStatuses/0/ready", false);
    eventually("an event says that the probe has no answer", || {
        let events = kubectl.ok("events --for pod/probed");
        let says_so = events.contains("Readiness probe failed: timeout: probe did not answer within 1s");
        if says_so { Ok(()) } else { Err(events) }
    });
    assert_eq!(kubectl.ok("exec runs -- echo inside").trim(), "inside");
    kubectl.until_ready("runs");
    hang(dir, &exec, false);
    kubectl.until_ready("probed");
    assert_eq!(kubectl.field("pod/probed", "/status/containerStatuses/0/restartCount"), 0);
    eventually("the probes and the commands that hung have ended", || {
        let ran = hanging(dir);
        if ran.stdout.is_empty() { Ok(()) } else { Err(ran.to_string()) }
    });

    // The command before the end hangs, too.
    hang(dir, &exec, true);
    hang(dir, "kill", true);
    kubectl.ok("delete pod probed --timeout=60s");
    hang(dir, &exec, false);
    hang(dir, "kill", false);
    eventually("the command that hung has ended", || {
        let ran = hanging(dir);
        if ran.stdout.is_empty() { Ok(()) } else { Err(ran.to_string()) }
    });
}
