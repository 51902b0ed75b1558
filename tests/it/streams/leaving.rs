//! Clients that leave: what they sent arrives, then its end; what they began runs on. The real kubectl is killed, and
//! kube-rs drops its connections as soon as it has written.

use std::io::Write as _;
use std::process::Stdio;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::AttachParams;
use tests::{Cluster, Kubectl, client, eventually};
use tokio::io::AsyncWriteExt as _;

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: heard}
spec:
  runtimeClassName: runc
  restartPolicy: Never
  containers:
    - {name: c, image: "samples/tools:latest", imagePullPolicy: Never, command: [cat], stdin: true, stdinOnce: true}
"#;

/// More than what pipes and sockets hold by themselves.
const MUCH: usize = 3 << 20;

#[test]
fn clients_that_leave_are_heard_out() {
    let mut cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    kubectl.ok("apply -f samples/quickstart/tools.yaml");
    kubectl.apply(PODS).ok();
    for pod in ["tools", "heard"] {
        kubectl.until_ready(pod);
    }
    what_was_sent_arrives(&cluster);
    for websockets in ["true", "false"] {
        a_killed_client_ends_its_input_alone(&kubectl, websockets);
    }
    commands_run_on_through_a_restart(&mut cluster);
}

/// The text of a file in a Pod; `None` when it is not there.
fn file(kubectl: &Kubectl<'_>, pod: &str, path: &str) -> Option<String> {
    let ran = kubectl.run(&["exec", pod, "--", "cat", path]);
    ran.succeeded().then_some(ran.stdout)
}

fn until_file(kubectl: &Kubectl<'_>, pod: &str, path: &str, wanted: &str) {
    eventually(&format!("{path} is written"), || match file(kubectl, pod, path) {
        Some(text) if text == wanted => Ok(()),
        text => {
            Err(format!("{:?} bytes: {:?}", text.as_ref().map(String::len), text.map(|text| text.chars().take(80).collect::<String>())))
        }
    });
}

/// kube-rs writes and drops the connection, over websockets.
fn what_was_sent_arrives(cluster: &Cluster) {
    client::story(cluster, async |client| {
        let pods: Api<Pod> = Api::default_namespaced(client);
        let stdin = AttachParams::default().stdin(true).stderr(false);
        let script = "tr -d . > /tmp/copied; echo end >> /tmp/copied";
        let mut copy = pods.exec("tools", ["sh", "-c", script], &stdin).await.expect("a command");
        // kube-rs holds back what is written last, and drops it with the connection: that is the dots, and the empty lines below.
        let text = format!("{}{}", "y".repeat(MUCH), ".".repeat(4_096));
        copy.stdin().expect("its input").write_all(text.as_bytes()).await.expect("written");
        drop(copy);
        let mut joined = pods.attach("heard", &stdin.container("c")).await.expect("attached");
        joined.stdin().expect("its input").write_all(format!("words\n{}", "\n".repeat(4_096)).as_bytes()).await.expect("written");
        drop(joined);
    });
    let kubectl = cluster.kubectl();
    until_file(&kubectl, "tools", "/tmp/copied", &format!("{}end\n", "y".repeat(MUCH)));
    kubectl.until("pod/heard", "/status/phase", "Succeeded");
    assert_eq!(kubectl.ok("logs heard").trim_end(), "words");
}

/// Neither the command nor its children end with kubectl, and the command reads the end of its input.
fn a_killed_client_ends_its_input_alone(kubectl: &Kubectl<'_>, websockets: &str) {
    let path = format!("/tmp/killed-{websockets}");
    let script = format!("cat > {path}; (sleep 0.5; echo child >> {path}.child) & wait; echo said; echo said >&2; echo end >> {path}");
    let mut command = kubectl.command(&["exec", "-i", "tools", "--", "sh", "-c", &script]);
    command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut exec = command.spawn().expect("kubectl starts");
    let mut input = exec.stdin.take().expect("a pipe");
    input.write_all(b"words\n").expect("kubectl reads");
    until_file(kubectl, "tools", &path, "words\n");
    exec.kill().expect("it is ours");
    exec.wait().expect("it ends");
    drop(input);
    until_file(kubectl, "tools", &path, "words\nend\n");
    until_file(kubectl, "tools", &format!("{path}.child"), "child\n");
}

fn commands_run_on_through_a_restart(cluster: &mut Cluster) {
    let script = "echo begun > /tmp/restarted; cat; echo said; echo end >> /tmp/restarted";
    let mut command = cluster.kubectl().command(&["exec", "-i", "tools", "--", "sh", "-c", script]);
    let mut exec = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("kubectl starts");
    until_file(&cluster.kubectl(), "tools", "/tmp/restarted", "begun\n");
    cluster.kill();
    assert!(!exec.wait().expect("it ends").success(), "kubectl says that the connection was lost");
    cluster.start();
    until_file(&cluster.kubectl(), "tools", "/tmp/restarted", "begun\nend\n");
}
