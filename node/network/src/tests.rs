//! Real Pods on real nodes, each test in network and mount namespaces of its own that go away with
//! its thread. Without root they say so and pass: there is nothing they could try.

mod nodes;
mod segments;
mod udp;

use std::fs::File;
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use runtimes_contract::Sandbox;

use super::*;

/// Runs a test on a thread with its own network and mounts, and an own `/run` and `/tmp`.
fn isolated<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("needs root: passed over");
        return;
    }
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("new namespaces");
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>).expect("private mounts");
        for dir in ["/run", "/tmp"] {
            mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), None::<&str>).expect("an own directory");
        }
        run("ip link set lo up");
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a shell line and answers its output.
fn run(line: &str) -> String {
    let output = Command::new("sh").args(["-ec", line]).output().expect("sh runs");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn config(prefix: &str) -> Config {
    Config {
        prefix: prefix.to_owned(),
        state_dir: PathBuf::from("/tmp").join(prefix),
        node_ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        cluster_cidr: range("10.244.0.0/16"),
        service_cidr: range("10.96.0.0/12"),
        dns_ip: Ipv4Addr::new(10, 96, 0, 10),
        reserved_ports: vec![10250],
    }
}

fn range(text: &str) -> Ipv4Net {
    text.parse().expect("a range")
}

/// An uplink with a default route; what leaves by it to the cluster's ranges is counted.
fn uplink() {
    run("ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up
         ip address add 192.0.2.1/24 dev up0; ip route add default via 192.0.2.254
         ip neigh add 192.0.2.254 lladdr 02:00:00:00:00:01 dev up0 nud permanent
         nft 'table ip probe { chain out { type filter hook postrouting priority 500; oifname up0 ip daddr { 10.244.0.0/16, 10.96.0.0/12 } counter; }; }'");
}

fn left_the_node() -> bool {
    !run("nft list table ip probe").contains("packets 0 bytes 0")
}

async fn node(prefix: &str, pod_cidr: &str) -> Network {
    let network = Network::new(config(prefix)).await.expect("the machine has what is needed");
    network.set_pod_cidr(range(pod_cidr)).await.expect("a range of its own");
    network
}

/// Runs `work` on a thread in a Pod's network and UTS namespaces.
fn in_pod<T: Send + 'static>(sandbox: &Sandbox, work: impl FnOnce() -> T + Send + 'static) -> T {
    let open = |path: &Option<PathBuf>| File::open(path.as_ref().expect("pinned")).expect("opened");
    let (net, uts) = (open(&sandbox.network), open(&sandbox.uts));
    let thread = std::thread::spawn(move || {
        setns(net, CloneFlags::CLONE_NEWNET).expect("entered");
        setns(uts, CloneFlags::CLONE_NEWUTS).expect("entered");
        work()
    });
    thread.join().expect("no panic")
}

/// Serves connections in a Pod: each gets the caller's address as the server sees it.
fn serve(pod: &PodNetwork, port: u16) {
    let (ready, wait) = mpsc::channel();
    let address = SocketAddr::new(pod.ip, port);
    let net = File::open(pod.sandbox.network.as_ref().expect("pinned")).expect("opened");
    std::thread::spawn(move || {
        setns(net, CloneFlags::CLONE_NEWNET).expect("entered");
        let listener = TcpListener::bind(address).expect("bound");
        ready.send(()).expect("awaited");
        while let Ok((mut stream, from)) = listener.accept() {
            if stream.write_all(from.ip().to_string().as_bytes()).is_err() {
                return;
            }
        }
    });
    wait.recv().expect("listening");
}

/// What a server answers, or the error of trying.
fn ask(address: SocketAddr) -> Result<String, ErrorKind> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).map_err(|e| e.kind())?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(|e| e.kind())?;
    Ok(text)
}

fn ask_from(pod: &PodNetwork, address: SocketAddr) -> Result<String, ErrorKind> {
    in_pod(&pod.sandbox, move || ask(address))
}

fn at(ip: [u8; 4], port: u16) -> SocketAddr {
    SocketAddr::from((ip, port))
}

/// Everything that a node can leave behind on a machine.
fn traces() -> String {
    run(
        "ip -o link | sed 's/@.*//; s/^[0-9]*: //; s/: .*//' | sort; ip route; ip -o address | grep -v ' fe80:'; nft list ruleset; cat /proc/self/mountinfo | grep -c nsfs || true; ls /tmp",
    )
}

#[test]
fn pods_reach_each_other_and_the_node_and_leave_no_trace() {
    isolated(|| async {
        uplink();
        let before = traces();
        let network = node("sk1", "10.244.0.0/24").await;
        let a = network.add_pod("uid-a", "web-0", &[], None).await.expect("added");
        let b = network.add_pod("uid-b", "web-1", &[], None).await.expect("added");
        assert_eq!(a.ip.to_string(), "10.244.0.2");
        assert_eq!(in_pod(&a.sandbox, || run("hostname")), "web-0\n");
        assert_ne!(run("hostname"), "web-0\n");
        assert_eq!(in_pod(&a.sandbox, || run("ip -6 -o address show dev eth0 | wc -l")), "0\n", "no address that nobody allocated");

        let port_range = |sandbox: &Sandbox| in_pod(sandbox, || run("cat /proc/sys/net/ipv4/ip_local_port_range"));
        let of_others = (port_range(&b.sandbox), run("cat /proc/sys/net/ipv4/ip_local_port_range"));
        let sysctls = [("net.ipv4.ip_local_port_range", "20000 20100"), ("kernel.shm_rmid_forced", "1")];
        let sysctls: Vec<(String, String)> = sysctls.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        set_sysctls(&a.sandbox, sysctls.clone()).await.expect("set");
        assert_eq!(port_range(&a.sandbox), "20000\t20100\n");
        assert_eq!((port_range(&b.sandbox), run("cat /proc/sys/net/ipv4/ip_local_port_range")), of_others, "nobody else's");
        let on_node = Sandbox { network: None, ipc: None, ..a.sandbox.clone() };
        set_sysctls(&on_node, sysctls).await.expect_err("the node's own stay as they are");
        let of_machine = vec![("kernel.panic".to_owned(), "0".to_owned())];
        set_sysctls(&a.sandbox, of_machine).await.expect_err("it has no namespace");
        let nonsense = vec![("net.ipv4.ip_local_port_range".to_owned(), "nonsense".to_owned())];
        set_sysctls(&a.sandbox, nonsense).await.expect_err("the kernel refuses it");

        serve(&b, 80);
        let to_b = SocketAddr::new(b.ip, 80);
        assert_eq!(ask_from(&a, to_b).as_deref(), Ok("10.244.0.2"));
        assert_eq!(ask_from(&b, to_b).as_deref(), Ok("10.244.0.3"));
        assert_eq!(ask(to_b).as_deref(), Ok("10.244.0.1"));
        assert_eq!(network.add_pod("uid-a", "web-0", &[], None).await.expect("again"), a);
        assert_eq!(network.pods().await.expect("listed"), ["uid-a", "uid-b"]);

        // The next process finds everything, and running Pods notice nothing.
        drop(network);
        let network = node("sk1", "10.244.0.0/24").await;
        assert_eq!(network.add_pod("uid-b", "web-1", &[], None).await.expect("adopted"), b);
        assert_eq!(ask_from(&a, to_b).as_deref(), Ok("10.244.0.2"));

        network.remove_pod("uid-a").await.expect("removed");
        network.remove_pod("uid-a").await.expect("removed twice");
        assert_eq!(network.pods().await.expect("listed"), ["uid-b"]);
        network.remove_all().await.expect("removed");
        network.remove_all().await.expect("removed twice");
        assert_eq!(traces(), before);
    });
}

/// Runs a shell line as root of a Pod's user namespace, in its other namespaces.
fn as_root_in_pod(sandbox: &Sandbox, line: &str) -> String {
    let pin = |path: &Option<PathBuf>| path.as_ref().expect("pinned").display().to_string();
    let user = sandbox.user.as_ref().expect("a user namespace").path.display();
    let (net, ipc, uts) = (pin(&sandbox.network), pin(&sandbox.ipc), pin(&sandbox.uts));
    run(&format!("nsenter --user={user} --net={net} --ipc={ipc} --uts={uts} sh -ec '{line}'"))
}

#[test]
fn a_user_namespace_owns_the_others_of_its_pod() {
    isolated(|| async {
        uplink();
        let before = traces();
        let network = node("sk1", "10.244.0.0/24").await;
        let plain = network.add_pod("uid-a", "plain", &[], None).await.expect("added");
        assert_eq!(plain.sandbox.user, None);
        let pod = network.add_pod("uid-b", "own", &[], Some(131_072)).await.expect("added");
        assert_eq!(pod.sandbox.user.as_ref().map(|user| user.first_id), Some(131_072));
        let sysctls =
            [("net.ipv4.ip_local_port_range", "20000 20100"), ("net.ipv4.ping_group_range", "5 700"), ("kernel.shm_rmid_forced", "1")];
        set_sysctls(&pod.sandbox, sysctls.map(|(name, value)| (name.to_owned(), value.to_owned())).into()).await.expect("set");
        // Its root may do in them what root does: the name, addresses, rules, low ports.
        let line = "cat /proc/self/uid_map; hostname; hostname other; hostname; ip address add 192.0.2.77/32 dev lo;
                    cat /proc/sys/net/ipv4/ip_local_port_range /proc/sys/kernel/shm_rmid_forced";
        let words: Vec<String> = as_root_in_pod(&pod.sandbox, line).split_whitespace().map(str::to_owned).collect();
        assert_eq!(words, ["0", "131072", "65536", "own", "other", "20000", "20100", "1"]);
        serve(&plain, 80);
        assert_eq!(ask_from(&pod, SocketAddr::new(plain.ip, 80)).as_deref(), Ok(pod.ip.to_string().as_str()));

        drop(network);
        let network = node("sk1", "10.244.0.0/24").await;
        let user = |sandbox: &Sandbox| {
            std::fs::metadata(&sandbox.user.as_ref().expect("one").path).map(|state| std::os::unix::fs::MetadataExt::ino(&state))
        };
        let of_first = user(&pod.sandbox).expect("pinned");
        let again = network.add_pod("uid-b", "own", &[], Some(131_072)).await.expect("adopted");
        assert_eq!((&again, user(&again.sandbox).expect("pinned")), (&pod, of_first), "the same namespace");
        // A half-made sandbox is made again with all of its namespaces.
        nix::mount::umount2(&pod.sandbox.user.as_ref().expect("one").path, nix::mount::MntFlags::MNT_DETACH).expect("unpinned");
        let made = network.add_pod("uid-b", "own", &[], Some(131_072)).await.expect("made again");
        assert!(as_root_in_pod(&made.sandbox, "hostname third; hostname").starts_with("third"));
        network.remove_pod("uid-b").await.expect("removed");
        assert!(!made.sandbox.user.expect("one").path.exists());
        network.add_pod("uid-c", "left", &[], Some(196_608)).await.expect("added");
        network.remove_all().await.expect("removed");
        assert_eq!(traces(), before);
    });
}

#[test]
fn what_nobody_programmed_never_leaves_the_node() {
    isolated(|| async {
        uplink();
        let network = node("sk1", "10.244.0.0/24").await;
        let pod = network.add_pod("uid-a", "web-0", &[], None).await.expect("added");
        for ip in [[10, 96, 5, 5], [10, 111, 255, 254], [10, 244, 9, 9], [10, 244, 255, 255]] {
            let started = Instant::now();
            let (from_pod, from_node) = (ask_from(&pod, at(ip, 80)), ask(at(ip, 80)));
            assert!(matches!(from_pod, Err(ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)), "{ip:?}: {from_pod:?}");
            assert!(matches!(from_node, Err(ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)), "{ip:?}: {from_node:?}");
            assert!(started.elapsed() < Duration::from_secs(2), "{ip:?} is refused at once");
        }
        // A Pod's own localhost is not the node's, by no detour.
        let listener = TcpListener::bind("127.0.0.1:7000").expect("bound");
        in_pod(&pod.sandbox, || {
            run(
                "ip address del 127.0.0.1/8 dev lo; ip route add 127.0.0.1 via 10.244.0.1 dev eth0 onlink; echo 1 > /proc/sys/net/ipv4/conf/eth0/route_localnet",
            )
        });
        assert!(in_pod(&pod.sandbox, || TcpStream::connect_timeout(&at([127, 0, 0, 1], 7000), Duration::from_millis(300)).is_err()));
        drop(listener);
        assert!(!left_the_node());
        // Without the rules the routes still hold everything back, though not as fast.
        run("nft delete table ip sk1-net");
        assert!(in_pod(&pod.sandbox, || TcpStream::connect_timeout(&at([10, 96, 5, 5], 80), Duration::from_millis(300)).is_err()));
        assert!(!left_the_node());
        // And a test that could not fail would be worth nothing.
        run("ip route del 10.96.0.0/12");
        assert!(in_pod(&pod.sandbox, || TcpStream::connect_timeout(&at([10, 96, 5, 5], 80), Duration::from_millis(300)).is_err()));
        assert!(left_the_node());
    });
}

#[test]
fn host_ports_lead_to_their_pod_from_everywhere() {
    isolated(|| async {
        uplink();
        let network = node("sk1", "10.244.0.0/24").await;
        let ports = [
            HostPort { host_ip: None, protocol: Protocol::Tcp, host_port: 8080, container_port: 80 },
            HostPort { host_ip: Some(Ipv4Addr::new(192, 0, 2, 1)), protocol: Protocol::Tcp, host_port: 8081, container_port: 80 },
        ];
        let web = network.add_pod("uid-a", "web-0", &ports, None).await.expect("added");
        let other = network.add_pod("uid-b", "web-1", &[], None).await.expect("added");
        serve(&web, 80);
        assert_eq!(ask(at([127, 0, 0, 1], 8080)).as_deref(), Ok("10.244.0.1"));
        assert_eq!(ask(at([192, 0, 2, 1], 8080)).as_deref(), Ok("192.0.2.1"));
        assert_eq!(ask(at([192, 0, 2, 1], 8081)).as_deref(), Ok("192.0.2.1"));
        assert_eq!(ask(at([127, 0, 0, 1], 8081)), Err(ErrorKind::ConnectionRefused));
        assert_eq!(ask_from(&other, at([192, 0, 2, 1], 8080)).as_deref(), Ok("10.244.0.3"));
        assert_eq!(ask_from(&web, at([192, 0, 2, 1], 8080)).as_deref(), Ok("10.244.0.1"), "to itself");
        let taken = network.add_pod("uid-c", "web-2", &ports, None).await.expect_err("taken");
        assert_eq!(taken.to_string(), "host port 8080/tcp is already taken by another Pod on this node");
        network.remove_pod("uid-a").await.expect("removed");
        assert_eq!(ask(at([192, 0, 2, 1], 8080)), Err(ErrorKind::ConnectionRefused));
    });
}

/// Answers every connection to an address of the node with a text that identifies it.
fn answer(at: SocketAddr) {
    let listener = TcpListener::bind(at).expect("bound");
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            if stream.write_all(b"the node's own").is_err() {
                return;
            }
        }
    });
}

fn tcp(host_ip: Option<[u8; 4]>, host_port: u16) -> HostPort {
    HostPort { host_ip: host_ip.map(Ipv4Addr::from), protocol: Protocol::Tcp, host_port, container_port: 80 }
}

#[test]
fn a_host_port_takes_nothing_from_the_cluster_or_the_node() {
    isolated(|| async {
        uplink();
        let network = node("sk1", "10.244.0.0/24").await;
        let dns = at([10, 96, 0, 10], 53);
        answer(dns);
        answer(at([10, 244, 0, 1], 81));
        answer(at([127, 0, 0, 1], 2379));
        answer(at([0, 0, 0, 0], 22));
        for (port, why) in [
            (
                tcp(Some([10, 96, 0, 10]), 53),
                "host IP 10.96.0.10 is not the node's own: it lies in the range of Service addresses 10.96.0.0/12",
            ),
            (
                tcp(Some([10, 244, 0, 1]), 81),
                "host IP 10.244.0.1 is not the node's own: it lies in the range of Pod addresses 10.244.0.0/16",
            ),
            (tcp(None, 22), "host port 22/tcp is in use: a program of the node listens at 0.0.0.0"),
            (tcp(Some([192, 0, 2, 1]), 22), "host port 22/tcp is in use: a program of the node listens at 0.0.0.0"),
            (tcp(None, 2379), "host port 2379/tcp is in use: a program of the node listens at 127.0.0.1"),
            (tcp(Some([192, 0, 2, 1]), 10250), "host port 10250/tcp is in use: a program of the node listens at 0.0.0.0"),
        ] {
            assert_eq!(network.add_pod("uid-e", "evil", &[port], None).await.expect_err("refused").to_string(), why);
        }
        // Ports that only the cluster's addresses have are free on the node's.
        let evil = network.add_pod("uid-e", "evil", &[tcp(None, 53), tcp(None, 81)], None).await.expect("added");
        serve(&evil, 80);
        let own = Ok("the node's own");
        for port in [53, 81] {
            let cluster = if port == 53 { dns } else { at([10, 244, 0, 1], 81) };
            assert_eq!(ask(cluster).as_deref(), own);
            assert_eq!(ask_from(&evil, cluster).as_deref(), own);
            assert_eq!(ask(at([192, 0, 2, 1], port)).as_deref(), Ok("192.0.2.1"), "the host port serves at the node's address");
        }
        // The node's next process finds the Pod with its ports, although a program listens there by now.
        answer(at([127, 0, 0, 1], 53));
        drop(network);
        let network = node("sk1", "10.244.0.0/24").await;
        assert_eq!(network.add_pod("uid-e", "evil", &[tcp(None, 53), tcp(None, 81)], None).await.expect("kept").ip, evil.ip);
    });
}

/// The next Pod with this address must not get its host port too.
#[test]
fn a_host_port_goes_with_its_pod_also_when_the_rules_fail_once() {
    isolated(|| async {
        uplink();
        let network = node("sk1", "10.244.0.0/24").await;
        network.add_pod("uid-a", "web", &[tcp(None, 8080)], None).await.expect("added");
        let leads = || run("nft list table ip sk1-net").contains("8080");
        assert!(leads());
        run(
            "printf '#!/bin/sh\\nexit 1\\n' > /tmp/broken; chmod +x /tmp/broken; mount --bind /tmp/broken $(readlink -f $(command -v nft))",
        );
        network.remove_pod("uid-a").await.expect_err("nft fails");
        run("umount $(readlink -f $(command -v nft))");
        assert!(leads());
        network.remove_pod("uid-a").await.expect("removed");
        assert!(!leads());
    });
}

#[test]
fn names_are_for_pods_and_the_node() {
    isolated(|| async {
        run("ip netns add lan; ip link add up0 type veth peer name up0 netns lan; ip link set up0 up
             ip address add 192.0.2.1/24 dev up0; ip route add default via 192.0.2.9
             ip netns exec lan sh -c 'ip link set lo up; ip link set up0 up; ip address add 192.0.2.9/24 dev up0; ip route add 10.96.0.0/12 via 192.0.2.1'");
        let network = node("sk1", "10.244.0.0/24").await;
        let pod = network.add_pod("uid-a", "web", &[], None).await.expect("added");
        let dns = at([10, 96, 0, 10], 53);
        answer(dns);
        answer(at([192, 0, 2, 1], 8000));
        let from_lan = |address| {
            let asking = std::thread::spawn(move || {
                setns(File::open("/run/netns/lan").expect("opened"), CloneFlags::CLONE_NEWNET).expect("entered");
                ask(address)
            });
            asking.join().expect("no panic")
        };
        assert_eq!(ask(dns).as_deref(), Ok("the node's own"));
        assert_eq!(ask_from(&pod, dns).as_deref(), Ok("the node's own"));
        assert_eq!(from_lan(at([192, 0, 2, 1], 8000)).as_deref(), Ok("the node's own"), "the link works");
        assert_eq!(from_lan(dns), Err(ErrorKind::HostUnreachable));
    });
}

/// What reaches a UDP port of the node before `last` does.
fn heard_before(socket: &UdpSocket, last: &str) -> Vec<String> {
    let mut heard = Vec::new();
    let mut buffer = [0; 64];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).expect("the last one comes");
        let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
        if text == last {
            return heard;
        }
        heard.push(format!("{text} from {}", from.ip()));
    }
}

#[test]
fn a_pod_speaks_under_its_own_addresses_to_the_node_alone() {
    isolated(|| async {
        uplink();
        let network = node("sk1", "10.244.0.0/24").await;
        let evil = network.add_pod("uid-a", "evil", &[], None).await.expect("added");
        let other = network.add_pod("uid-b", "other", &[], None).await.expect("added");
        serve(&other, 80);
        let node = UdpSocket::bind("10.244.0.1:9999").expect("bound");
        node.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
        let inside = |line: &'static str| in_pod(&evil.sandbox, move || run(line));
        let say = |from: &'static str, text: &'static str| {
            in_pod(&evil.sandbox, move || {
                let socket = UdpSocket::bind(from).expect("bound");
                socket.send_to(text.as_bytes(), "10.244.0.1:9999").expect("sent");
            });
        };
        // Under another's IP address, under that of the node, under none of the cluster's.
        inside(
            "ip address add 10.244.0.3/32 dev eth0; ip address add 10.244.0.1/32 dev lo; ip address add 8.8.8.8/32 dev eth0
                ip route flush table local 10.244.0.1; ip route replace default via 10.244.0.1 dev eth0 onlink",
        );
        say("10.244.0.3:0", "as another Pod");
        say("8.8.8.8:0", "as a stranger");
        // Under another's hardware address.
        inside(
            "ip link set eth0 address 0a:58:0a:f4:00:03; ip route replace default via 10.244.0.1 dev eth0 onlink
                ip neigh replace 10.244.0.1 lladdr 0a:58:0a:f4:00:01 dev eth0 nud permanent",
        );
        say("10.244.0.2:0", "by another's hardware");
        inside(
            "ip link set eth0 address 0a:58:0a:f4:00:02; ip route replace default via 10.244.0.1 dev eth0 onlink
                ip neigh replace 10.244.0.1 lladdr 0a:58:0a:f4:00:01 dev eth0 nud permanent",
        );
        say("10.244.0.2:0", "the end");
        assert_eq!(heard_before(&node, "the end"), [] as [&str; 0]);
        // The bridge has learnt nothing from that, and the node sends no ARP request.
        assert_eq!(ask(SocketAddr::new(other.ip, 80)).as_deref(), Ok("10.244.0.1"));
        let forwarding = run("bridge fdb show br sk1-br | grep 0a:58:0a:f4:00:03");
        assert!(forwarding.contains("dev sk1vf40003") && forwarding.contains("static"), "{forwarding}");
        assert!(run("ip neigh show dev sk1-br").contains("10.244.0.3 lladdr 0a:58:0a:f4:00:03 PERMANENT"));
        // Not past the node to a neighbour: by ARP, by its hardware address, by another protocol.
        let direct = SocketAddr::new(other.ip, 80);
        let refused = |line: &'static str, to: SocketAddr| {
            inside(line);
            in_pod(&evil.sandbox, move || TcpStream::connect_timeout(&to, Duration::from_millis(1_200)).map(|_| ()).map_err(|e| e.kind()))
        };
        inside("ip address del 10.244.0.3/32 dev eth0");
        assert!(refused("ip route add 10.244.0.3 dev eth0 scope link", direct).is_err(), "ARP is not answered");
        assert!(
            refused("ip neigh replace 10.244.0.3 lladdr 0a:58:0a:f4:00:03 dev eth0 nud permanent", direct).is_err(),
            "frames for others"
        );
        in_pod(&other.sandbox, || run("test ! -e /proc/net/if_inet6 || ip -6 address add fd00::3/64 dev eth0 nodad"));
        serve(&PodNetwork { ip: "fd00::3".parse().expect("an address"), ..other.clone() }, 80);
        let six = "[fd00::3]:80".parse().expect("an address");
        assert!(refused("test ! -e /proc/net/if_inet6 || ip -6 address add fd00::2/64 dev eth0 nodad", six).is_err(), "another protocol");
        // All of that was of the Pod's own making: undone, it speaks as before.
        inside("ip route del 10.244.0.3 dev eth0; ip neigh del 10.244.0.3 dev eth0");
        assert_eq!(ask_from(&evil, direct).as_deref(), Ok("10.244.0.2"));
        // What a removed Pod was known by is forgotten.
        network.remove_pod("uid-b").await.expect("removed");
        assert!(!run("ip neigh show dev sk1-br").contains("10.244.0.3"));
    });
}

#[test]
fn a_pod_on_the_nodes_network_has_its_own_ipc() {
    isolated(|| async {
        uplink();
        let network = Network::new(config("sk1")).await.expect("the machine has what is needed");
        let (a, b) =
            (network.add_host_network_pod("uid-a").await.expect("added"), network.add_host_network_pod("uid-b").await.expect("added"));
        assert_eq!(network.add_host_network_pod("uid-a").await.expect("again"), a);
        let namespace = |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).expect("there"));
        let all = [namespace(&a), namespace(&b), namespace(Path::new("/proc/self/ns/ipc"))];
        assert_eq!(std::collections::BTreeSet::from(all).len(), 3, "{all:?}");
        assert_eq!(network.pods().await.expect("listed"), ["uid-a", "uid-b"]);
        network.remove_pod("uid-a").await.expect("removed");
        assert!(!a.exists());
        network.remove_all().await.expect("removed");
        assert!(!b.exists());
    });
}
