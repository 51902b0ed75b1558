//! Clients that leave: what they sent arrives, then the end of the input; what they started runs on. The real kubectl
//! is killed, and kube-rs drops its connections right after writing.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Stdio;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::AttachParams;
use tests::cluster::tool;
use tests::{Cluster, Kubectl, client, eventually};
use tokio::io::AsyncWriteExt as _;

use super::Forward;

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: heard}
spec:
  runtimeClassName: runc
  restartPolicy: Never
  containers:
    - {name: c, image: "samples/tools:latest", imagePullPolicy: Never, command: [cat], stdin: true, stdinOnce: true}
---
apiVersion: v1
kind: Pod
metadata: {name: listens}
spec:
  runtimeClassName: runc
  terminationGracePeriodSeconds: 1
  containers:
    - name: c
      image: samples/tools:latest
      imagePullPolicy: Never
      stdin: true
      # With the end of its own input the first says at once that it will say nothing; the others go on listening.
      command:
        - sh
        - -c
        - |
          nc -l -p 9000 < /dev/null > /tmp/silent
          for n in 1 2; do nc -l -p 9001 > /tmp/forwarded-$n; echo end >> /tmp/forwarded-$n; done
          sleep 100000
"#;

/// More than the buffers of pipes and sockets.
const MUCH: usize = 3 << 20;
/// Fits into the buffer of kube-rs for a forwarded port.
const FORWARDED: usize = 100_000;

#[test]
fn clients_that_leave_are_heard_out() {
    let mut cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    kubectl.ok("apply -f samples/quickstart/tools.yaml");
    kubectl.apply(PODS).ok();
    for pod in ["tools", "heard", "listens"] {
        kubectl.until_ready(pod);
    }
    what_was_sent_arrives(&cluster);
    what_was_sent_to_a_port_arrives(&cluster);
    for (n, spdy_alone) in [(1, false), (2, true)] {
        a_killed_forward_ends_its_connections(&cluster, n, spdy_alone);
    }
    for websockets in ["true", "false"] {
        a_killed_client_ends_its_input_alone(&kubectl, websockets);
    }
    commands_run_on_through_a_restart(&mut cluster);
}

/// The text of a file in a Pod; `None` if the file does not exist.
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

/// kube-rs writes and then drops the connection, with websockets.
fn what_was_sent_arrives(cluster: &Cluster) {
    client::story(cluster, async |client| {
        let pods: Api<Pod> = Api::default_namespaced(client);
        // Nobody reads the output of `cat`: a client that takes it stops to send when its buffer for it is full.
        let stdin = AttachParams::default().stdin(true).stdout(false).stderr(false);
        let script = "tr -d . > /tmp/copied; echo end >> /tmp/copied";
        let mut copy = pods.exec("tools", ["sh", "-c", script], &stdin).await.expect("a command");
        // kube-rs buffers the last written bytes and drops them with the connection. So the dots here and the empty
        // lines below may be lost.
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

/// kube-rs writes to a port of a Pod and drops the connection. The Pod has closed its own side before.
fn what_was_sent_to_a_port_arrives(cluster: &Cluster) {
    client::story(cluster, async |client| {
        let pods: Api<Pod> = Api::default_namespaced(client);
        let mut forward = pods.portforward("listens", &[9000]).await.expect("forwarded");
        forward.take_stream(9000).expect("a stream").write_all(&[b'z'; FORWARDED]).await.expect("written");
        // kube-rs sends a second close frame and reports an error for it.
        let _ended = forward.join().await;
    });
    until_file(&cluster.kubectl(), "listens", "/tmp/silent", &"z".repeat(FORWARDED));
}

/// What kubectl has sent arrives, and the Pod's connection ends with kubectl.
fn a_killed_forward_ends_its_connections(cluster: &Cluster, n: u32, spdy_alone: bool) {
    let kubectl = cluster.kubectl().with_program(tool("kubectl"));
    let path = format!("/tmp/forwarded-{n}");
    let mut forward = Forward::to(&kubectl, "pod/listens", ":9001", spdy_alone);
    let port: u16 = forward.port.parse().expect("a port");
    let connection = cluster.net.enter(move || {
        let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("kubectl listens");
        connection.write_all(&[b'z'; FORWARDED]).expect("kubectl reads");
        connection
    });
    let connection = connection.join().expect("connected");
    until_file(&kubectl, "listens", &path, &"z".repeat(FORWARDED));
    forward.child.kill().expect("it is ours");
    until_file(&kubectl, "listens", &path, &format!("{}end\n", "z".repeat(FORWARDED)));
    drop(connection);
}

/// Neither the command nor its children end with kubectl. The command reads the end of its input.
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
