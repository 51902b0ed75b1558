//! Names as the Pod resolves them: its own hosts file, its own nameserver, from inside the shim's root
//! and under its filter of system calls.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runtimes_battery::{Harness, plain_spec};
use runtimes_contract::{ContainerSpec, Mount};

use crate::guests;
use crate::harness::Wasmtime;
use crate::http::Network;

fn file(harness: &Wasmtime, target: &str, text: &str) -> Mount {
    let source: PathBuf = harness.dir().join(Path::new(target).file_name().unwrap());
    std::fs::write(&source, text).unwrap();
    Mount::new(source, target, false)
}

fn resolver(harness: &Wasmtime, network: &Network, name: &str) -> ContainerSpec {
    let mut spec = plain_spec("resolver");
    spec.content = harness.content(&guests::resolve(name));
    spec.cgroup = harness.cgroup("resolver");
    spec.log_path = harness.scratch().join("resolver.log");
    spec.sandbox.network = Some(network.path());
    spec.mounts = vec![
        file(harness, "/etc/hosts", "127.0.0.1 localhost\n10.1.2.33 my-pod\n"),
        file(harness, "/etc/resolv.conf", "search default.svc.cluster.local\nnameserver 127.0.0.1\noptions ndots:5 timeout:2\n"),
    ];
    spec
}

/// Answers three questions for A with 10.96.7.8 (and for AAAA with nothing); returns the questions.
fn nameserver(socket: &UdpSocket) -> Vec<String> {
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut names = Vec::new();
    // glibc asks for both families.
    for _ in 0..2 {
        let mut packet = [0; 512];
        let (len, client) = socket.recv_from(&mut packet).unwrap();
        let question = &packet[12..len];
        let (mut at, mut name) = (0, String::new());
        while question[at] != 0 {
            let label = usize::from(question[at]);
            name += &format!("{}.", String::from_utf8_lossy(&question[at + 1..at + 1 + label]));
            at += label + 1;
        }
        let is_a = question[at + 2] == 1;
        let end = 12 + at + 5;
        let mut answer = packet[..end].to_vec();
        answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
        if is_a {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 96, 7, 8]);
        }
        socket.send_to(&answer, client).unwrap();
        names.push(name);
    }
    names
}

async fn code(harness: &Wasmtime, spec: &ContainerSpec) -> i32 {
    let runtime = harness.runtime();
    runtime.create(spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    let exit = runtime.wait(&spec.id).await.unwrap();
    runtime.remove(&spec.id).await.unwrap();
    exit.code
}

#[tokio::test]
async fn the_pods_hosts_file_is_read() {
    let (harness, network) = (Wasmtime::new(), Network::new("hosts"));
    assert_eq!(code(&harness, &resolver(&harness, &network, "my-pod")).await, 33);
}

#[tokio::test]
async fn the_pods_nameserver_is_queried_along_its_search_list() {
    let (harness, network) = (Wasmtime::new(), Network::new("dns"));
    let socket = network.inside(|| UdpSocket::bind("127.0.0.1:53").unwrap()).await;
    let names = tokio::task::spawn_blocking(move || nameserver(&socket));
    assert_eq!(code(&harness, &resolver(&harness, &network, "web")).await, 8);
    assert_eq!(names.await.unwrap(), ["web.default.svc.cluster.local."; 2]);
}
