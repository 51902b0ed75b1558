//! Open connections: ports of Pods forwarded to the user's machine, attaching to a container, the proxies of the API
//! server. With the real kubectl in both its protocols, and with kube-rs.

mod copies;
mod leaving;
mod terminals;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use tests::run::run;
use tests::{Cluster, Kubectl, Ran, client, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: cat}
spec:
  runtimeClassName: runc
  restartPolicy: Never
  containers:
    - {name: c, image: "samples/tools:latest", imagePullPolicy: Never, command: [cat], stdin: true, stdinOnce: true}
---
apiVersion: v1
kind: Pod
metadata: {name: ticks}
spec:
  runtimeClassName: runc
  terminationGracePeriodSeconds: 1
  containers:
    - {name: c, image: "samples/tools:latest", imagePullPolicy: Never, command: [sh, -c, "while true; do echo tick; sleep 0.1; done"]}
"#;

#[test]
fn connections_reach_into_pods() {
    let cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    kubectl.ok("apply -f samples/quickstart/web.yaml -f samples/quickstart/tools.yaml");
    kubectl.apply(PODS).ok();
    kubectl.ok("rollout status deployment/web --timeout=60s");
    for pod in ["tools", "cat", "ticks"] {
        kubectl.until_ready(pod);
    }
    // A server on the Pod's own loopback.
    kubectl.ok("exec tools -- mkdir /www");
    kubectl.run(&["exec", "tools", "--", "sh", "-c", "echo from linux > /www/index.html"]).ok();
    kubectl.ok("exec tools -- httpd -p 127.0.0.1:8081 -h /www");
    ports_are_forwarded(&cluster, &kubectl);
    a_refused_port_is_reported(&cluster, &kubectl);
    containers_are_attached_to(&kubectl);
    pods_are_run_and_joined(&kubectl);
    terminals::guests_are_run_on_one(&cluster, &kubectl);
    terminals::guests_are_attached_to(&kubectl);
    both_protocols_run_commands(&kubectl);
    copies::files_are_copied(&kubectl);
    proxies_lead_to_pods_services_and_nodes(&cluster, &kubectl);
    kube_rs_forwards_ports(&cluster);
}

/// A running `kubectl port-forward` or `kubectl proxy`, and its port on loopback.
struct Forward {
    child: Child,
    port: String,
}

impl Forward {
    /// Reads the port from the first line of output, after the text `before`.
    fn start(command: &mut Command, before: &str) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
        let digits = line.split_once(before).map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect());
        let Some(port) = digits else {
            let output = child.wait_with_output().expect("an end");
            panic!("no port in {line:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        Self { child, port }
    }

    fn to(kubectl: &Kubectl<'_>, what: &str, port: &str, spdy_alone: bool) -> Self {
        let mut command = kubectl.command(&["port-forward", what, port]);
        if spdy_alone {
            command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false");
        }
        Self::start(&mut command, "Forwarding from 127.0.0.1:")
    }

    fn curl(&self, cluster: &Cluster, path: &str) -> Ran {
        cluster.net.run("curl", &["-sS", "--max-time", "20", &format!("http://127.0.0.1:{}{path}", self.port)])
    }

    /// The error output of a command that has ended by itself.
    fn complaint(mut self) -> String {
        eventually("the forward ends", || self.child.try_wait().expect("a child").ok_or_else(|| "it runs".to_owned()));
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().expect("a pipe"), &mut text).expect("text");
        text
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        // The kill fails if the process has ended already. Wait for its end in both cases.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

fn web_pod(kubectl: &Kubectl<'_>) -> String {
    let pods = kubectl.ok("get pods -l app=web -o name");
    pods.lines().next().expect("a Pod").to_owned()
}

fn ports_are_forwarded(cluster: &Cluster, kubectl: &Kubectl<'_>) {
    let web = web_pod(kubectl);
    for spdy_alone in [false, true] {
        for (what, port) in [(web.as_str(), ":8080"), ("service/web", ":80"), ("deployment/web", ":8080")] {
            let forward = Forward::to(kubectl, what, port, spdy_alone);
            assert_eq!(forward.curl(cluster, "/x").ok(), "Hello from WebAssembly! You asked for /x\n", "{what}");
        }
        let forward = Forward::to(kubectl, "pod/tools", ":8081", spdy_alone);
        assert_eq!(forward.curl(cluster, "/").ok(), "from linux\n");
        // Many connections at the same time.
        let many = format!("for i in $(seq 40); do curl -sS --max-time 30 http://127.0.0.1:{}/ & done; wait", forward.port);
        assert_eq!(cluster.net.run("sh", &["-c", &many]).ok(), "from linux\n".repeat(40));
    }
    // A large answer, of which nothing is lost.
    kubectl.run(&["exec", "tools", "--", "sh", "-c", "head -c 20000000 /dev/zero > /www/much"]).ok();
    let forward = Forward::to(kubectl, "pod/tools", ":8081", false);
    let count = format!("curl -sS --max-time 60 http://127.0.0.1:{}/much | wc -c", forward.port);
    assert_eq!(cluster.net.run("sh", &["-c", &count]).ok().trim(), "20000000");
}

fn a_refused_port_is_reported(cluster: &Cluster, kubectl: &Kubectl<'_>) {
    for spdy_alone in [false, true] {
        let forward = Forward::to(kubectl, "pod/tools", ":81", spdy_alone);
        assert!(!forward.curl(cluster, "/").succeeded());
        let complaint = forward.complaint();
        assert!(complaint.contains("error forwarding port 81 to pod tools"), "{complaint}");
        assert!(complaint.contains("dial tcp4 127.0.0.1:81: connect: connection refused"), "{complaint}");
        assert!(complaint.contains("error: lost connection to pod"), "{complaint}");
    }
}

fn containers_are_attached_to(kubectl: &Kubectl<'_>) {
    // The container ends with its stdin, which only this client has.
    assert_eq!(kubectl.with_input("attach -i cat", "one\ntwo\n").ok(), "one\ntwo\n");
    kubectl.until("pod/cat", "/status/phase", "Succeeded");
    assert_eq!(kubectl.ok("logs cat"), "one\ntwo\n");
    let ended = kubectl.fails("attach cat");
    assert!(ended.contains("cannot attach a container in a completed pod; current phase is Succeeded"), "{ended}");
    // The client gets the output from now on. When the client ends, the container runs on.
    let mut attached = kubectl.command(&["attach", "ticks"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("kubectl starts");
    let mut lines = BufReader::new(attached.stdout.take().expect("a pipe")).lines();
    for _ in 0..3 {
        assert_eq!(lines.next().expect("a line").expect("text"), "tick");
    }
    attached.kill().expect("it is ours");
    attached.wait().expect("it ends");
    assert_eq!(kubectl.field("pod/ticks", "/status/containerStatuses/0/restartCount"), 0);
    assert!(kubectl.ok("logs ticks --tail=1").contains("tick"));
}

fn pods_are_run_and_joined(kubectl: &Kubectl<'_>) {
    let image = ["--image=samples/tools:latest", "--image-pull-policy=Never", "--restart=Never"];
    let script = ["--", "sh", "-c", "read x; echo got $x"];
    let piped = run(&mut kubectl.command(&[&["run", "piped", "-i", "--rm", "--quiet"], &image[..], &script[..]].concat()), Some("you\n"));
    assert_eq!(piped.ok(), "got you\n");
    let terminal = ["--", "sh", "-c", "read x; test -t 0 && echo tty $x"];
    let command = kubectl.command(&[&["run", "typed", "-it", "--rm", "--quiet"], &image[..], &terminal[..]].concat());
    let typed = run(&mut terminals::on_one(&command), Some("you\n")).ok();
    assert!(typed.contains("tty you"), "{typed}");
    for pod in ["piped", "typed"] {
        assert!(kubectl.fails(&format!("get pod {pod}")).contains("NotFound"));
    }
}

fn both_protocols_run_commands(kubectl: &Kubectl<'_>) {
    for websockets in ["true", "false"] {
        let exec =
            |words: &[&str], input: Option<&str>| run(kubectl.command(words).env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets), input);
        let both = exec(&["exec", "tools", "--", "sh", "-c", "echo out; echo err >&2; exit 7"], None);
        assert_eq!((both.code, both.stdout.as_str()), (7, "out\n"), "{both}");
        assert!(both.stderr.starts_with("err\n") && both.stderr.contains("exit code 7"), "{both}");
        let much = "0123456789abcde\n".repeat(1 << 16);
        assert_eq!(exec(&["exec", "-i", "tools", "--", "cat"], Some(&much)).ok(), much);
        let absent = exec(&["exec", "tools", "--", "nosuch"], None).fails();
        assert!(absent.contains("exec: \"nosuch\": executable file not found in $PATH"), "{absent}");
    }
}

fn proxies_lead_to_pods_services_and_nodes(cluster: &Cluster, kubectl: &Kubectl<'_>) {
    let said = "Hello from WebAssembly! You asked for /x?y=z\n";
    let namespace = "/api/v1/namespaces/default";
    let web = web_pod(kubectl).replace("pod/", "");
    for object in [format!("pods/{web}"), format!("pods/http:{web}:8080"), "services/web:80".to_owned(), "services/http:web:".to_owned()] {
        assert_eq!(kubectl.ok(&format!("get --raw {namespace}/{object}/proxy/x?y=z")), said, "{object}");
    }
    let refused = kubectl.fails(&format!("get --raw {namespace}/pods/{web}:81/proxy/"));
    assert!(
        refused.contains("error trying to reach service: dial tcp 10.244.") && refused.contains(":81: connect: connection refused"),
        "{refused}"
    );
    let node = kubectl.ok("get nodes -o name").trim().replace("node/", "");
    assert_eq!(kubectl.ok(&format!("get --raw /api/v1/nodes/{node}/proxy/healthz")), "ok");
    let proxy = Forward::start(&mut kubectl.command(&["proxy", "--port=0"]), "Starting to serve on 127.0.0.1:");
    assert_eq!(proxy.curl(cluster, &format!("{namespace}/services/web/proxy/x?y=z")).ok(), said);
    let version = proxy.curl(cluster, "/version").ok();
    assert!(version.contains("gitVersion"), "{version}");
}

/// kube-rs uses websocket channels.
fn kube_rs_forwards_ports(cluster: &Cluster) {
    client::story(cluster, async |client| {
        let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::default_namespaced(client);
        let mut forward = pods.portforward("tools", &[8081, 81]).await.expect("forwarded");
        let mut stream = forward.take_stream(8081).expect("a stream");
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("asked");
        let mut answer = String::new();
        let refused = forward.take_error(81).expect("an error");
        stream.read_to_string(&mut answer).await.expect("answered");
        assert!(answer.ends_with("from linux\n"), "{answer}");
        let refused = refused.await.expect("a refusal");
        assert!(refused.contains("connect: connection refused"), "{refused}");
    });
}
