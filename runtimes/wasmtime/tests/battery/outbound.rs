//! The setting that lists to whom a guest may connect.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};

use runtimes_contract::{ContainerSpec, Mount};

use crate::exec::Sleeper;
use crate::harness::Wasmtime;
use crate::http::Network;
use crate::sockets::Echo;
use crate::wasm::{run, spec};
use crate::{components, guests};

/// `HTTP-request-denied` and `connection-refused` of `wasi:http`, as the guest exits with them.
const DENIED: i32 = 100 + 15;
const REFUSED: i32 = 100 + 6;

/// The Pod knows its own name, and there is no nameserver.
pub fn in_pod(harness: &Wasmtime, network: &Network, component: &[u8], hosts: &[&str]) -> ContainerSpec {
    let mut spec = spec(harness, component);
    bind(&mut spec, network, hosts);
    for (name, text) in [("hosts", "127.0.0.1 localhost\n127.0.0.1 shop.example\n"), ("resolv.conf", "nameserver 127.0.0.1\n")] {
        let file = harness.dir().join(name);
        std::fs::write(&file, text).unwrap();
        spec.mounts.push(Mount::new(file, format!("/etc/{name}"), true));
    }
    spec
}

/// Puts a container into the network, and lets it connect to these hosts alone.
pub fn bind(spec: &mut ContainerSpec, network: &Network, hosts: &[&str]) {
    spec.sandbox.network = Some(network.path());
    spec.outbound_hosts = Some(hosts.iter().map(|host| host.parse().unwrap()).collect());
}

#[tokio::test]
async fn requests_go_to_the_hosts_of_the_list() {
    let (harness, network) = (Wasmtime::new(), Network::new("fetch"));
    let listener = network.inside(|| TcpListener::bind("127.0.0.1:8000").unwrap()).await;
    let (sender, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let len = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
            sender.send(len).unwrap();
        }
    });
    let cases = [
        ("shop.example:8000", &["shop.example:8000"][..], 0),
        ("SHOP.example:8000", &["*.example"], 0),
        ("shop.example:8000", &["127.0.0.0/8", "other.example"], 0),
        // No name is looked up.
        ("shop.example:8000", &["127.0.0.0/8"], DENIED),
        ("127.0.0.1:8000", &["shop.example"], 0),
        ("shop.example:8000", &["*"], 0),
        ("shop.example:8000", &[], DENIED),
        ("shop.example:8000", &["shop.example:80", "other.example", "*.shop.example", "10.0.0.0/8"], DENIED),
        ("127.0.0.1:8000", &["*.example"], DENIED),
        ("shop.example:8001", &["shop.example"], REFUSED),
    ];
    for (authority, hosts, wanted) in cases {
        let spec = in_pod(&harness, &network, &guests::fetch(authority), hosts);
        let (exit, log) = run(&harness, &spec).await;
        assert_eq!(exit.code, wanted, "{authority} {hosts:?}: {exit:?} {log}");
    }
    assert_eq!(requests.try_iter().filter(|&len| len > 0).count(), cases.iter().filter(|(_, _, code)| *code == 0).count());
}

#[tokio::test]
async fn connections_are_opened_to_the_hosts_of_the_list() {
    let (harness, network) = (Wasmtime::new(), Network::new("connect"));
    let guest = components::async_world();
    let data = harness.dir().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("text"), "of a volume\n").unwrap();
    std::os::unix::fs::chown(&data, Some(runtimes_wasmtime::NOBODY), None).unwrap();
    let echo = Echo::start(&network).await;
    let lists = [(&["127.0.0.1:7000"][..], true), (&["shop.example"], true), (&["127.0.0.1:80", "10.0.0.0/8"], false), (&[], false)];
    for (hosts, is_allowed) in lists {
        let mut spec = in_pod(&harness, &network, &guest, hosts);
        spec.mounts.push(Mount::new(data.clone(), "/data", false));
        let (exit, log) = run(&harness, &spec).await;
        assert_eq!(exit.code == 0, is_allowed, "{hosts:?}: {exit:?} {log}");
        assert_eq!(log.contains("pong"), is_allowed, "{hosts:?}: {exit:?} {log}");
        std::fs::remove_file(&spec.log_path).unwrap();
    }
    let allowed = lists.iter().filter(|(_, is_allowed)| *is_allowed).count();
    assert_eq!(echo.ended(&network).await, [allowed, 0], "nothing that was denied arrived");
}

#[tokio::test]
async fn a_list_without_names_needs_no_nameserver() {
    let (harness, network) = (Wasmtime::new(), Network::new("names"));
    let nameserver = network.inside(|| UdpSocket::bind("127.0.0.1:53").unwrap()).await;
    nameserver.set_nonblocking(true).unwrap();
    for (hosts, wanted) in [(&["10.0.0.0/8"][..], 120), (&["shop.example"], 1)] {
        let spec = in_pod(&harness, &network, &guests::resolve("shop.example"), hosts);
        let (exit, log) = run(&harness, &spec).await;
        assert_eq!(exit.code, wanted, "permanent-resolver-failure, or the last number of the address: {hosts:?} {exit:?} {log}");
    }
    for hosts in [&["10.0.0.0/8"][..], &[]] {
        let spec = in_pod(&harness, &network, &guests::fetch("secret.example:80"), hosts);
        let (exit, log) = run(&harness, &spec).await;
        assert_eq!(exit.code, DENIED, "{hosts:?}: {exit:?} {log}");
    }
    let question = nameserver.recv(&mut [0; 512]).map_err(|error| error.kind());
    assert_eq!(question, Err(std::io::ErrorKind::WouldBlock), "nobody has asked it");
}

#[tokio::test]
async fn a_program_of_exec_is_bound_by_the_same_list() {
    let (network, fetch) = (Network::new("exec"), guests::fetch("127.0.0.1:8001"));
    for (hosts, wanted) in [(&["127.0.0.1:8001"][..], REFUSED), (&["10.0.0.0/8"], DENIED)] {
        let sleeper = Sleeper::start(|harness, spec| {
            std::fs::write(harness.dir().join("tools/fetch.wasm"), &fetch).unwrap();
            bind(spec, &network, hosts);
        })
        .await;
        assert_eq!(sleeper.run(&["fetch.wasm"], "").await.0, wanted, "{hosts:?}");
        sleeper.remove().await;
    }
}
