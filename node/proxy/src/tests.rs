//! Real packets through real rules, each test in network and mount namespaces of its own that go
//! away with its thread. Without root they say so and pass: there is nothing they could try.
//!
//! The world of each: a node with a bridge, two Pods `a` (10.244.1.2) and `b` (10.244.1.3) on it,
//! and a machine `out` (192.0.2.9) beyond the node's uplink.

use std::collections::BTreeSet;
use std::fs::File;
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::mpsc;

use futures::StreamExt as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use node_netfilter::Listener;
use serde_json::json;

use super::*;
use crate::fixtures::{config, http, rules_of, service, slice, web};

pub(crate) fn isolated<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("needs root: passed over");
        return;
    }
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("new namespaces");
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>).expect("private mounts");
        mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), None::<&str>).expect("an own directory");
        world();
        // The workers are born in the namespaces, too.
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime").block_on(test());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

pub(crate) fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-ec", line]).output().expect("sh runs");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn world() {
    sh("ip link set lo up; ip link add br0 type bridge; ip address add 10.244.1.1/24 dev br0; ip link set br0 up
        echo 1 > /proc/sys/net/ipv4/ip_forward
        for pod in a:2 b:3; do
          n=${pod%:*}; i=${pod#*:}
          ip netns add $n; ip link add v$n type veth peer name eth0 netns $n; ip link set v$n master br0 up; bridge link set dev v$n hairpin on
          ip netns exec $n sh -c \"ip link set lo up; ip link set eth0 up; ip address add 10.244.1.$i/32 dev eth0
            ip route add default via 10.244.1.1 dev eth0 onlink; echo 0 > /proc/sys/net/ipv4/conf/all/accept_redirects\"
        done
        ip netns add out; ip link add up0 type veth peer name up0 netns out; ip link set up0 up; ip address add 192.0.2.1/24 dev up0
        ip netns exec out sh -c 'ip link set lo up; ip link set up0 up; ip address add 192.0.2.9/24 dev up0; ip route add default via 192.0.2.1'
        ip link add nowhere type bridge; ip link set nowhere up; ip route add 10.96.0.0/12 dev nowhere src 192.0.2.1");
}

/// Runs `work` on a thread in a network namespace; the empty name is the node's own.
pub(crate) fn within<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let namespace = (!name.is_empty()).then(|| File::open(format!("/run/netns/{name}")).expect("opened"));
    let thread = std::thread::spawn(move || {
        if let Some(namespace) = namespace {
            setns(namespace, CloneFlags::CLONE_NEWNET).expect("entered");
        }
        work()
    });
    thread.join().expect("no panic")
}

/// Answers on TCP and UDP port 8080 of a Pod: `<pod> <address of the caller>`.
pub(crate) fn serve(pod: &'static str) {
    let (ready, wait) = mpsc::channel();
    let namespace = File::open(format!("/run/netns/{pod}")).expect("opened");
    std::thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).expect("entered");
        let (tcp, udp) = (TcpListener::bind("0.0.0.0:8080").expect("bound"), UdpSocket::bind("0.0.0.0:8080").expect("bound"));
        std::thread::spawn(move || {
            let mut buffer = [0; 16];
            while let Ok((_, from)) = udp.recv_from(&mut buffer) {
                if udp.send_to(format!("{pod} {}", from.ip()).as_bytes(), from).is_err() {
                    return;
                }
            }
        });
        ready.send(()).expect("awaited");
        while let Ok((mut stream, from)) = tcp.accept() {
            if stream.write_all(format!("{pod} {}", from.ip()).as_bytes()).is_err() {
                return;
            }
        }
    });
    wait.recv().expect("listening");
}

pub(crate) fn ask(from: &str, address: &str) -> Result<String, ErrorKind> {
    let address: SocketAddr = address.parse().expect("an address");
    within(from, move || {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(1_500)).map_err(|e| e.kind())?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map_err(|e| e.kind())?;
        Ok(text)
    })
}

/// All endpoints that answer, in a few attempts.
#[track_caller]
fn answers(from: &str, address: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for _ in 0..24 {
        all.insert(ask(from, address).expect("an answer"));
    }
    all
}

fn set<const N: usize>(of: [&str; N]) -> BTreeSet<String> {
    of.into_iter().map(str::to_owned).collect()
}

pub(crate) fn both(name: &str) -> EndpointSlice {
    http(name, &[("10.244.1.2", "here", "ready"), ("10.244.1.3", "here", "ready")])
}

/// Writes rules over those before, as the running proxy does, and keeps to what it does.
pub(crate) async fn write(installed: &mut RuleSet, rules: RuleSet) {
    let script =
        if *installed == RuleSet::default() { script::whole(&config(), &rules) } else { script::change(&config(), installed, &rules) };
    tool::nft(&script).await.expect("nft takes the rules");
    for stale in flows::stale(installed, &rules) {
        tool::forget(&stale).await.expect("forgotten");
    }
    *installed = rules;
}

#[test]
fn a_cluster_address_reaches_every_endpoint_from_everywhere() {
    isolated(|| async {
        serve("a");
        serve("b");
        let mut installed = RuleSet::default();
        write(&mut installed, rules_of(&service("web", web("10.96.0.1")), &[both("web")])).await;
        for bridged in [0, 1] {
            // Whether bridged packets pass netfilter is the machine's choice.
            sh(&format!("echo {bridged} > /proc/sys/net/bridge/bridge-nf-call-iptables || test ! -e /proc/sys/net/bridge"));
            assert_eq!(answers("a", "10.96.0.1:80"), set(["a 10.244.1.1", "b 10.244.1.2"]), "itself by a detour, bridged {bridged}");
        }
        assert_eq!(answers("", "10.96.0.1:80"), set(["a 10.244.1.1", "b 10.244.1.1"]));
        assert_eq!(answers("out", "10.96.0.1:80"), set(["a 10.244.1.1", "b 10.244.1.1"]));
        for from in ["a", "", "out"] {
            assert_eq!(ask(from, "10.96.0.1:81"), Err(ErrorKind::ConnectionRefused), "another port, from {from:?}");
            assert_eq!(ask(from, "10.96.0.2:80"), Err(ErrorKind::HostUnreachable), "nobody's address, from {from:?}");
        }
        // Every change at once: fewer endpoints, none, some again, gone.
        let one = http("web", &[("10.244.1.3", "here", "ready")]);
        write(&mut installed, rules_of(&service("web", web("10.96.0.1")), &[one])).await;
        assert_eq!(answers("a", "10.96.0.1:80"), set(["b 10.244.1.2"]));
        write(&mut installed, rules_of(&service("web", web("10.96.0.1")), &[])).await;
        for from in ["a", "", "out"] {
            assert_eq!(ask(from, "10.96.0.1:80"), Err(ErrorKind::ConnectionRefused), "from {from:?}");
        }
        write(&mut installed, rules_of(&service("web", web("10.96.0.3")), &[both("web")])).await;
        assert_eq!(answers("b", "10.96.0.3:80"), set(["a 10.244.1.3", "b 10.244.1.1"]));
        assert_eq!(ask("b", "10.96.0.1:80"), Err(ErrorKind::HostUnreachable));
        // The last Service gone, the table still there, then the table gone, twice.
        let gone = script::change(&config(), &installed, &RuleSet::default());
        tool::nft(&gone).await.expect("nft takes the rules");
        assert!(tool::has_table("sk1-proxy").await.expect("listed"));
        remove("sk1").await.expect("removed");
        remove("sk1").await.expect("removed twice");
        assert!(!tool::has_table("sk1-proxy").await.expect("listed"));
        assert_eq!(sh("nft list ruleset"), "");
    });
}

#[test]
fn node_ports_are_on_every_address_of_the_node() {
    isolated(|| async {
        serve("a");
        serve("b");
        let mut spec = web("10.96.0.1");
        spec["ports"] = json!([{"name": "http", "port": 80, "nodePort": 30080}]);
        spec["externalIPs"] = json!(["203.0.113.7"]);
        let mut installed = RuleSet::default();
        write(&mut installed, rules_of(&service("web", spec.clone()), &[both("web")])).await;
        let masqueraded = set(["a 10.244.1.1", "b 10.244.1.1"]);
        assert_eq!(answers("out", "192.0.2.1:30080"), masqueraded);
        assert_eq!(answers("out", "203.0.113.7:80"), masqueraded);
        assert_eq!(answers("", "192.0.2.1:30080"), masqueraded);
        assert_eq!(answers("a", "192.0.2.1:30080"), masqueraded);
        assert_eq!(ask("", "127.0.0.1:30080"), Err(ErrorKind::ConnectionRefused), "as upstream's nftables mode");

        // With the Local policy the endpoint sees its client, and only endpoints here are used.
        spec["externalTrafficPolicy"] = json!("Local");
        let ends = [("10.244.1.2", "there", "ready"), ("10.244.1.3", "here", "ready")];
        write(&mut installed, rules_of(&service("web", spec.clone()), &[http("web", &ends)])).await;
        assert_eq!(answers("out", "192.0.2.1:30080"), set(["b 192.0.2.9"]));
        assert_eq!(answers("", "192.0.2.1:30080"), masqueraded);
        write(&mut installed, rules_of(&service("web", spec.clone()), &[http("web", &ends[..1])])).await;
        assert_eq!(ask("out", "192.0.2.1:30080"), Err(ErrorKind::TimedOut), "dropped: other nodes may serve it");
        write(&mut installed, rules_of(&service("web", spec), &[])).await;
        assert_eq!(ask("out", "192.0.2.1:30080"), Err(ErrorKind::ConnectionRefused), "nobody serves it");
    });
}

#[test]
fn an_external_address_takes_nothing_from_the_cluster_or_its_node() {
    isolated(|| async {
        serve("a");
        // What is there already: cluster DNS, a program on all of the node's addresses, one on its own port.
        sh("ip address add 10.96.0.10/32 dev nowhere; ip route add default via 192.0.2.9");
        let answering = |at: &'static str| {
            let listener = TcpListener::bind(at).expect("bound");
            std::thread::spawn(move || {
                while let Ok((mut stream, _)) = listener.accept() {
                    if stream.write_all(b"the node's own").is_err() {
                        return;
                    }
                }
            });
        };
        ["10.96.0.10:53", "0.0.0.0:22", "192.0.2.1:30022"].into_iter().for_each(answering);
        let mut spec = web("10.96.0.7");
        let port = |number: u16| json!({"name": format!("p{number}"), "port": number});
        spec["ports"] = json!([port(53), port(22), port(80), port(10250), {"name": "node", "port": 81, "nodePort": 30022}]);
        spec["externalIPs"] = json!(["10.96.0.10", "10.96.0.1", "192.0.2.1", "127.0.0.1", "10.244.1.1", "10.244.1.3", "203.0.113.7"]);
        let ports = ["p53", "p22", "p80", "p10250", "node"].map(|name| json!({"name": name, "port": 8080}));
        let mut slice = slice("evil", json!({}), &[("10.244.1.2", "here", "ready")]);
        slice.ports = serde_json::from_value(json!(ports)).expect("ports");
        let listening = || {
            let at = ["10.96.0.10:53", "0.0.0.0:22", "192.0.2.1:30022"].map(|at| at.parse().expect("an address"));
            Ok(at.map(|at| Listener { protocol: Protocol::Tcp, at }).into())
        };
        let machine = Machine::read(&config(), MachineReader { addresses, listening }).expect("read");
        let rules = crate::fixtures::rules_on(&machine, &service("evil", spec), &[slice]);
        let mut all = rules.own;
        all.merge(&rules.external);
        write(&mut RuleSet::default(), all).await;
        for from in ["a", "b", "", "out"] {
            let own = Ok("the node's own".to_owned());
            assert_eq!(ask(from, "10.96.0.10:53"), own, "cluster DNS, from {from:?}");
            assert_eq!(ask(from, "192.0.2.1:22"), own, "the node's port, from {from:?}");
            assert_eq!(ask(from, "192.0.2.1:30022"), own, "a node port that the node has, from {from:?}");
            assert_eq!(ask(from, "10.96.0.1:80"), Err(ErrorKind::HostUnreachable), "another's cluster address, from {from:?}");
            assert_eq!(ask(from, "192.0.2.1:10250"), Err(ErrorKind::ConnectionRefused), "a port that the node will have, from {from:?}");
            assert_eq!(ask(from, "10.244.1.3:80"), Err(ErrorKind::ConnectionRefused), "another Pod, from {from:?}");
            // Addresses that no other program uses are served: a free port of the node, an address from elsewhere.
            assert_eq!(ask(from, "192.0.2.1:80"), Ok("a 10.244.1.1".to_owned()), "from {from:?}");
            assert_eq!(ask(from, "203.0.113.7:80"), Ok("a 10.244.1.1".to_owned()), "from {from:?}");
        }
        assert_eq!(ask("", "127.0.0.1:22"), Ok("the node's own".to_owned()));
        assert_eq!(ask("", "127.0.0.1:80"), Err(ErrorKind::ConnectionRefused));
        // A table of host ports comes between: the node's administrator may use those.
        sh(
            "nft 'table ip hostports { chain prerouting { type nat hook prerouting priority -99; ip daddr 192.0.2.1 tcp dport 80 dnat to 10.244.1.3:1; }; }'",
        );
        assert_eq!(ask("out", "192.0.2.1:80"), Err(ErrorKind::ConnectionRefused), "the host port's, where nobody listens");
        let refused: BTreeSet<String> = rules.refused.iter().map(ToString::to_string).collect();
        assert_eq!(refused.len(), 8, "{refused:#?}");
    });
}

#[test]
fn clients_stay_with_their_endpoint() {
    isolated(|| async {
        serve("a");
        serve("b");
        let mut spec = web("10.96.0.1");
        spec["sessionAffinity"] = json!("ClientIP");
        let mut installed = RuleSet::default();
        write(&mut installed, rules_of(&service("web", spec.clone()), &[both("web")])).await;
        let first = answers("out", "10.96.0.1:80");
        assert_eq!(first.len(), 1, "{first:?}");
        // It is remembered while another endpoint comes and goes, and forgotten with its own.
        let (own, other) = if first.contains("a 10.244.1.1") { ("10.244.1.2", "10.244.1.3") } else { ("10.244.1.3", "10.244.1.2") };
        write(&mut installed, rules_of(&service("web", spec.clone()), &[http("web", &[(own, "here", "ready")])])).await;
        write(&mut installed, rules_of(&service("web", spec.clone()), &[both("web")])).await;
        assert_eq!(answers("out", "10.96.0.1:80"), first);
        write(&mut installed, rules_of(&service("web", spec), &[http("web", &[(other, "here", "ready")])])).await;
        assert!(answers("out", "10.96.0.1:80").is_disjoint(&first));
    });
}

#[test]
fn udp_clients_are_led_away_from_endpoints_that_are_gone() {
    isolated(|| async {
        serve("a");
        serve("b");
        let spec = json!({"clusterIP": "10.96.0.53", "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]});
        let port = json!({"name": "dns", "port": 8080, "protocol": "UDP"});
        let to = |ip: &str| rules_of(&service("names", spec.clone()), &[slice("names", port.clone(), &[(ip, "here", "ready")])]);
        let mut installed = RuleSet::default();
        write(&mut installed, to("10.244.1.2")).await;
        let socket = within("out", || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("bound");
            socket.connect("10.96.0.53:53").expect("connected");
            socket.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
            socket
        });
        let ask = || {
            let mut buffer = [0; 64];
            socket.send(b"?").expect("sent");
            let len = socket.recv(&mut buffer).expect("an answer");
            String::from_utf8_lossy(&buffer[..len]).into_owned()
        };
        assert_eq!(ask(), "a 10.244.1.1");
        write(&mut installed, to("10.244.1.3")).await;
        assert_eq!(ask(), "b 10.244.1.1", "the same socket, so the same flow");
    });
}

/// An API server whose lists are empty and which then sends the given events, each to the watch of its kind.
fn server() -> (kube::Client, impl Fn() -> usize, impl Fn(&str, serde_json::Value)) {
    type Events = tokio::sync::broadcast::Sender<(String, bytes::Bytes)>;
    let events: Events = tokio::sync::broadcast::channel(64).0;
    let sender = events.clone();
    let answer = move |request: http::Request<kube::client::Body>| {
        let plural = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let watching = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let chunks = if watching {
            let lines = tokio_stream::wrappers::BroadcastStream::new(events.subscribe());
            lines.filter_map(move |event| std::future::ready(event.ok().filter(|(of, _)| *of == plural).map(|(_, line)| line))).boxed()
        } else {
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": []});
            futures::stream::iter([bytes::Bytes::from(list.to_string())]).boxed()
        };
        let body = http_body_util::StreamBody::new(chunks.map(|chunk| Ok::<_, std::convert::Infallible>(http_body::Frame::data(chunk))));
        async { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
    };
    let client = kube::Client::new(tower::service_fn(answer), "default");
    let watches = {
        let sender = sender.clone();
        move || sender.receiver_count()
    };
    let tell = move |plural: &str, event: serde_json::Value| {
        sender.send((plural.to_owned(), bytes::Bytes::from(format!("{event}\n")))).expect("a watch");
    };
    (client, watches, tell)
}

/// Waits until a condition holds, and returns how long that took.
async fn until_holds(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    started.elapsed()
}

/// Those of the interfaces.
fn addresses() -> std::io::Result<Vec<Ipv4Addr>> {
    let interfaces = nix::ifaddrs::getifaddrs()?;
    Ok(interfaces.filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip())).collect())
}

#[test]
fn the_running_proxy_follows_its_cluster_and_repairs_its_table() {
    isolated(|| async {
        serve("a");
        let (client, watches, tell) = server();
        let cancel = CancellationToken::new();
        let informers = Informers::new(client.clone(), Tasks::new(cancel.clone()));
        let stop = cancel.clone();
        let machine = MachineReader { addresses, listening: || Ok(Vec::new()) };
        let proxy = tokio::spawn(async move { run(client, &informers, config(), machine, stop).await });
        until_holds("the first table", || sh("nft list tables").contains("sk1-proxy")).await;
        until_holds("both watches", || watches() == 2).await;
        let mut web = serde_json::to_value(service("web", web("10.96.0.1"))).expect("a value");
        web["metadata"]["resourceVersion"] = json!("2");
        let mut slice = serde_json::to_value(http("web", &[("10.244.1.2", "here", "ready")])).expect("a value");
        slice["metadata"]["resourceVersion"] = json!("3");
        tell("services", json!({"type": "ADDED", "object": web}));
        tell("endpointslices", json!({"type": "ADDED", "object": slice}));
        // Not by sending: the kernel answers a rejected packet with ICMP once a second only.
        let programmed = || sh("nft list map ip sk1-proxy services").contains("10.96.0.1");
        let took = until_holds("the Service", programmed).await;
        eprintln!("event to rule: {took:?}");
        assert!(ask("out", "10.96.0.1:80").is_ok());
        assert!(took < Duration::from_millis(500), "far above what it takes on a loaded machine: {took:?}");

        // Others' rules stay when the proxy's are written, and the proxy's are when others flush.
        sh("nft add table ip others");
        tell("endpointslices", json!({"type": "DELETED", "object": slice}));
        until_holds("the refusal", || ask("out", "10.96.0.1:80") == Err(ErrorKind::ConnectionRefused)).await;
        assert!(sh("nft list tables").contains("others"));
        // The table changed behind the proxy's back: the next write fails, and then it is whole.
        sh("nft delete table ip sk1-proxy");
        tell("endpointslices", json!({"type": "ADDED", "object": slice}));
        until_holds("the repair", || sh("nft list tables").contains("sk1-proxy") && programmed()).await;
        assert!(ask("out", "10.96.0.1:80").is_ok());
        cancel.cancel();
        assert!(proxy.await.expect("no panic").is_ok());
        assert!(ask("out", "10.96.0.1:80").is_ok(), "rules outlive the proxy");
    });
}
