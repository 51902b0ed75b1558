//! Real questions by Debian's `dig`. Each test has its own network namespace, which ends with the test's thread.
//! Without root, the tests say so and pass, because they cannot make a namespace.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Instant;

use nix::sched::{CloneFlags, unshare};
use serde_json::json;
use tokio::process::Command;

use super::*;
use crate::fixtures::{add, service, slice, zone};

fn isolated<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("needs root: passed over");
        return;
    }
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a new namespace");
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status().expect("ip runs");
        assert!(up.success());
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn config(listen: &str, upstream: &[&str]) -> Config {
    let address = |text: &str| -> SocketAddr { text.parse().expect("an address") };
    Config {
        listen: vec![address(listen)],
        domain: "cluster.local".to_owned(),
        ranges: Vec::new(),
        upstream: watch::channel(upstream.iter().map(|text| address(text)).collect()).1,
    }
}

/// Starts a server; cancelling the token ends it.
fn start(zone: Zone, config: Config, cancel: &CancellationToken) -> tokio::task::JoinHandle<Result<(), DnsError>> {
    let cancel = cancel.clone();
    tokio::spawn(async move { serve(Arc::new(RwLock::new(zone)), &config, cancel).await })
}

async fn dig(arguments: &str) -> String {
    // Let the server open its sockets first.
    tokio::task::yield_now().await;
    let output =
        Command::new("dig").args(["+tries=1", "+time=3", "-p", "5300"]).args(arguments.split(' ')).output().await.expect("dig runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The value after a word in dig's output: `status`, `flags`.
fn head(of: &str, word: &str) -> String {
    let from = of.find(&format!("{word}: ")).map_or(of.len(), |at| at + word.len() + 2);
    of[from..].split([',', ';', '\n']).next().unwrap_or_default().to_owned()
}

#[test]
fn dig_gets_answers_by_udp_and_tcp() {
    isolated(|| async {
        let cancel = CancellationToken::new();
        let server = start(zone(), config("127.0.0.1:5300", &[]), &cancel);
        for transport in ["+notcp", "+tcp"] {
            let got = dig(&format!("@127.0.0.1 {transport} web.default.svc.cluster.local")).await;
            assert_eq!((head(&got, "status").as_str(), head(&got, "flags").as_str()), ("NOERROR", "qr aa rd"), "{got}");
            assert!(got.contains("web.default.svc.cluster.local. 5 IN\tA\t10.96.0.1"), "{got}");
            assert!(got.contains("EDNS: version: 0, flags:; udp: 1232"), "{got}");
        }
        let cases = [
            ("+short _sql._tcp.db.default.svc.cluster.local SRV", "0 100 5432 10-244-1-9.db.default.svc.cluster.local."),
            ("+short -x 10.96.0.1", "web.default.svc.cluster.local."),
            ("+short inside.default.svc.cluster.local", "10.96.0.1"),
            ("+noedns wEb.default.svc.cluster.local", "wEb.default.svc.cluster.local. 5 IN\tA\t10.96.0.1"),
            ("nobody.default.svc.cluster.local", "status: NXDOMAIN"),
            ("nobody.default.svc.cluster.local", "IN\tSOA\tns.dns.cluster.local. hostmaster.cluster.local."),
            ("web.default.svc.cluster.local AAAA", "status: NOERROR"),
            ("example.org", "status: REFUSED"),
            ("cluster.local AXFR", "Transfer failed."),
            ("+opcode=4 web.default.svc.cluster.local", "status: NOTIMP"),
            ("-c CH web.default.svc.cluster.local", "status: REFUSED"),
            ("+edns=1 +noednsneg web.default.svc.cluster.local", "status: BADVERS"),
        ];
        for (question, expected) in cases {
            let got = dig(&format!("@127.0.0.1 {question}")).await;
            assert!(got.contains(expected), "{question}: {got}");
        }
        cancel.cancel();
        assert!(server.await.expect("no panic").is_ok());
    });
}

#[test]
fn long_answers_are_cut_for_udp_and_whole_by_tcp() {
    isolated(|| async {
        let mut many = zone();
        let ips: Vec<String> = (0..120).map(|last| format!("10.244.9.{last}")).collect();
        let ends: Vec<(&str, &str, bool)> = ips.iter().map(|ip| (ip.as_str(), "", true)).collect();
        add(&mut many, &service("many", json!({"clusterIP": "None"})), &[slice("many", json!([]), &ends)]);
        let cancel = CancellationToken::new();
        let _server = start(many, config("127.0.0.1:5300", &[]), &cancel);
        let cut = dig("@127.0.0.1 +notcp +ignore +bufsize=4096 many.default.svc.cluster.local").await;
        assert!(head(&cut, "flags").contains("tc"), "{cut}");
        let size: usize = cut.split("rcvd: ").nth(1).and_then(|text| text.trim().parse().ok()).expect("a size");
        assert!(size <= 1_232, "{size}");
        let whole = dig("@127.0.0.1 many.default.svc.cluster.local").await;
        assert_eq!(whole.matches("\tA\t10.244.9.").count(), 120, "dig asks again by TCP");
        let firsts: std::collections::BTreeSet<String> =
            futures::future::join_all((0..8).map(|_| dig("@127.0.0.1 +short +tcp many.default.svc.cluster.local")))
                .await
                .iter()
                .filter_map(|got| got.lines().next().map(str::to_owned))
                .collect();
        assert!(firsts.len() > 1, "clients that take the first address spread: {firsts:?}");
    });
}

#[test]
fn connections_without_end_are_closed() {
    isolated(|| async {
        let cancel = CancellationToken::new();
        let _server = start(zone(), config("127.0.0.1:5300", &[]), &cancel);
        tokio::task::yield_now().await;
        let mut silent = Vec::new();
        for _ in 0..tcp::CONNECTIONS_MAX + 200 {
            let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
            socket.bind("127.0.0.2:0".parse().expect("an address")).expect("bound");
            silent.push(socket.connect("127.0.0.1:5300".parse().expect("an address")).await.expect("connected"));
        }
        let got = dig("@127.0.0.1 +tcp +short inside.default.svc.cluster.local").await;
        assert!(got.ends_with("10.96.0.1\n"), "{got}");
        let mut ended = 0;
        for stream in &silent {
            let mut byte = [0];
            // An open connection has no data.
            ended += usize::from(matches!(stream.try_read(&mut byte), Ok(0)));
        }
        assert!(ended >= 200, "only {ended} of them made room");
    });
}

#[test]
fn other_names_go_to_the_nodes_resolvers() {
    isolated(|| async {
        let cancel = CancellationToken::new();
        // The world outside the cluster: a server of another domain.
        let mut world = Zone::new("example.org", Vec::new(), Vec::new()).expect("a domain");
        add(&mut world, &service("www", json!({"clusterIP": "192.0.2.80"})), &[]);
        world.complete = true;
        let _world = start(world, config("127.0.0.2:5353", &[]), &cancel);
        let mut cluster = zone();
        let target = json!({"type": "ExternalName", "externalName": "www.default.svc.example.org"});
        add(&mut cluster, &service("alias", target), &[]);
        // The first resolver is silent.
        let _cluster = start(cluster, config("127.0.0.1:5300", &["127.0.0.3:5353", "127.0.0.2:5353"]), &cancel);
        let silent = tokio::net::UdpSocket::bind("127.0.0.3:5353").await.expect("bound");
        let got = dig("@127.0.0.1 www.default.svc.example.org").await;
        assert_eq!((head(&got, "status").as_str(), head(&got, "flags").as_str()), ("NOERROR", "qr rd ra"), "{got}");
        assert!(got.contains("A\t192.0.2.80"), "{got}");
        drop(silent);
        let got = dig("@127.0.0.1 nobody.default.svc.example.org").await;
        assert!(got.contains("status: NXDOMAIN") && got.contains("SOA"), "{got}");
        let got = dig("@127.0.0.1 alias.default.svc.cluster.local").await;
        assert!(got.contains("CNAME\twww.default.svc.example.org.") && got.contains("A\t192.0.2.80"), "{got}");
        // When the world is gone, the answer is a failure, and it comes before clients give up.
        cancel.cancel();
        let cancel = CancellationToken::new();
        let _cluster = start(zone(), config("127.0.0.4:5300", &["127.0.0.5:5353"]), &cancel);
        let _silent = tokio::net::UdpSocket::bind("127.0.0.5:5353").await.expect("bound");
        // The same for an alias to a name outside: clients would cache half an answer as a whole one.
        for name in ["www.example.org", "outside.default.svc.cluster.local"] {
            let started = Instant::now();
            let question = format!("@127.0.0.4 -p 5300 +tries=1 +time=5 {name}");
            let output = Command::new("dig").args(question.split(' ')).output().await.expect("dig runs");
            assert!(String::from_utf8_lossy(&output.stdout).contains("status: SERVFAIL"), "{name}");
            assert!(started.elapsed() < Duration::from_secs(5));
        }
    });
}

#[test]
fn resolvers_that_come_later_are_used() {
    isolated(|| async {
        let cancel = CancellationToken::new();
        let mut world = Zone::new("example.org", Vec::new(), Vec::new()).expect("a domain");
        add(&mut world, &service("www", json!({"clusterIP": "192.0.2.80"})), &[]);
        world.complete = true;
        let _world = start(world, config("127.0.0.2:5353", &[]), &cancel);
        let resolvers = watch::Sender::new(Vec::new());
        let _cluster = start(zone(), Config { upstream: resolvers.subscribe(), ..config("127.0.0.1:5300", &[]) }, &cancel);
        let question = "@127.0.0.1 www.default.svc.example.org";
        assert_eq!(head(&dig(question).await, "status"), "REFUSED");
        resolvers.send_replace(vec!["127.0.0.2:5353".parse().expect("an address")]);
        assert!(dig(question).await.contains("A\t192.0.2.80"));
        resolvers.send_replace(Vec::new());
        assert_eq!(head(&dig(question).await, "status"), "REFUSED");
    });
}

#[test]
fn the_address_may_come_after_the_server() {
    isolated(|| async {
        let cancel = CancellationToken::new();
        let mut early = zone();
        early.complete = false;
        let server = start(early, config("10.96.0.10:5300", &[]), &cancel);
        tokio::task::yield_now().await;
        let up = Command::new("ip").args("address add 10.96.0.10/32 dev lo".split(' ')).status().await.expect("ip runs");
        assert!(up.success());
        let got = dig("@10.96.0.10 nobody.default.svc.cluster.local").await;
        assert_eq!(head(&got, "status"), "SERVFAIL", "nothing is denied before the lists are complete");
        // A second server on the address fails with an error that names the address. The first server still answers.
        let address = "10.96.0.10:5300".parse().expect("an address");
        let second = bind::open(address, Duration::ZERO).await.expect_err("taken");
        assert_eq!(second.to_string(), "listening on 10.96.0.10:5300 for DNS");
        assert!(!server.is_finished());
    });
}
