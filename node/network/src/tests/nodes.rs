//! Several clusters and several nodes, and what a Pod costs.

use super::*;

#[test]
fn two_clusters_live_side_by_side() {
    isolated(|| async {
        uplink();
        let first = node("sk1", "10.244.0.0/24").await;
        let pod = first.add_pod("uid-a", "web-0", &[], None).await.expect("added");
        let clash = Network::new(config("sk2")).await.err().expect("same ranges");
        assert!(clash.to_string().contains("--service-cluster-ip-range"), "{clash}");
        assert_eq!(run("ip -o link").matches("sk2").count(), 0, "nothing is half made");

        let mut own = config("sk2");
        (own.cluster_cidr, own.service_cidr, own.dns_ip) = (range("10.45.0.0/16"), range("10.112.0.0/12"), Ipv4Addr::new(10, 112, 0, 10));
        let second = Network::new(own).await.expect("checked");
        second.set_pod_cidr(range("10.45.0.0/24")).await.expect("other ranges");
        let other = second.add_pod("uid-a", "web-0", &[], None).await.expect("added");
        serve(&other, 80);
        assert_eq!(ask(SocketAddr::new(other.ip, 80)).as_deref(), Ok("10.45.0.1"));
        first.remove_all().await.expect("removed");
        assert_eq!(ask(SocketAddr::new(other.ip, 80)).as_deref(), Ok("10.45.0.1"), "the other cluster notices nothing");
        assert!(!pod.sandbox.network.as_ref().is_some_and(|path| path.exists()));
    });
}

#[test]
fn nodes_reach_each_others_pods_under_their_own_addresses() {
    isolated(|| async {
        run("ip netns add n2; ip link add up0 type veth peer name up0 netns n2; ip link set up0 up; ip address add 192.0.2.1/24 dev up0
             ip netns exec n2 sh -c 'ip link set lo up; ip link set up0 up; ip address add 192.0.2.2/24 dev up0'");
        let one = node("sk1", "10.244.1.0/24").await;
        let a = one.add_pod("uid-a", "a", &[], None).await.expect("added");
        let second = std::thread::spawn(|| {
            setns(File::open("/run/netns/n2").expect("opened"), CloneFlags::CLONE_NEWNET).expect("entered");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut config = config("sk1");
                (config.node_ip, config.state_dir) = (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), PathBuf::from("/tmp/n2"));
                let two = Network::new(config).await.expect("checked");
                two.set_pod_cidr(range("10.244.2.0/24")).await.expect("a range of its own");
                let peers = [Peer { pod_cidr: range("10.244.1.0/24"), via: Ipv4Addr::new(192, 0, 2, 1) }];
                two.set_routes(&peers).await.expect("routes");
                two.add_pod("uid-b", "b", &[], None).await.expect("added")
            })
        });
        let b = second.join().expect("the second node");
        serve(&b, 80);
        let to_b = SocketAddr::new(b.ip, 80);
        assert_eq!(ask_from(&a, to_b), Err(ErrorKind::HostUnreachable), "no route yet");
        let peers = [
            Peer { pod_cidr: range("10.244.2.0/24"), via: Ipv4Addr::new(192, 0, 2, 2) },
            Peer { pod_cidr: range("10.244.3.0/24"), via: Ipv4Addr::new(203, 0, 113, 9) },
        ];
        let refused = one.set_routes(&peers).await.expect_err("one node is on no link of ours");
        assert!(matches!(&refused, NetworkError::Routes(routes) if routes.len() == 1), "{refused}");
        let rules = run("nft list chain ip sk1-net postrouting");
        assert!(rules.contains("192.0.2.2"), "Pods speak to the neighbour under their own address: {rules}");
        assert!(!rules.contains("203.0.113.9"), "an address that a node made up is masqueraded to like any other: {rules}");
        assert_eq!(ask_from(&a, to_b).as_deref(), Ok("10.244.1.2"), "the other route is set");
        one.set_routes(&[]).await.expect("routes");
        assert_eq!(ask_from(&a, to_b), Err(ErrorKind::HostUnreachable), "the route is gone");
    });
}

#[test]
fn half_built_pods_are_built_anew() {
    isolated(|| async {
        uplink();
        let network = node("sk1", "10.244.0.0/24").await;
        let whole = network.add_pod("uid-a", "web-0", &[], None).await.expect("added");
        let breakages = [
            "ip link del sk1vf40002",
            "umount /tmp/sk1/ns/uid-a/uts",
            "umount /tmp/sk1/ns/uid-a/net",
            "umount /tmp/sk1/ns/uid-a/*; rm -r /tmp/sk1/ns/uid-a",
            "umount /tmp/sk1/ns/uid-a/*; rm /tmp/sk1/ns/uid-a/ipc",
        ];
        for breakage in breakages {
            run(breakage);
            let again = network.add_pod("uid-a", "web-0", &[], None).await.expect("added again");
            assert_eq!(again, whole, "after {breakage}");
            assert_eq!(in_pod(&again.sandbox, || run("hostname; ip -4 -o address show eth0 | wc -l")), "web-0\n1\n", "after {breakage}");
        }
        // A record that was lost with the power, a veth that was not.
        run("rm /tmp/sk1/pods/uid-a.json /tmp/sk1/pods/last-address");
        let network = node("sk1", "10.244.0.0/24").await;
        assert_eq!(network.pods().await.expect("listed"), ["uid-a"]);
        let other = network.add_pod("uid-b", "web-1", &[], None).await.expect("takes the address over");
        assert_eq!(other.ip, whole.ip);
        network.remove_pod("uid-a").await.expect("removed");
        // A bridge that was removed is created again with its Pods.
        serve(&other, 80);
        run("ip link del sk1-br");
        network.set_pod_cidr(range("10.244.0.0/24")).await.expect("repaired");
        assert_eq!(ask(SocketAddr::new(other.ip, 80)).as_deref(), Ok("10.244.0.1"));
    });
}

#[test]
fn adding_a_pod_takes_milliseconds() {
    isolated(|| async {
        uplink();
        let network = node("sk1", "10.244.0.0/24").await;
        let mut took: Vec<Duration> = Vec::new();
        for at in 0..40 {
            let started = Instant::now();
            network.add_pod(&format!("uid-{at}"), "web", &[], None).await.expect("added");
            took.push(started.elapsed());
        }
        took.sort_unstable();
        eprintln!("add_pod: p50 {:?}, max {:?}", took[20], took[39]);
        let started = Instant::now();
        for at in 0..40 {
            network.remove_pod(&format!("uid-{at}")).await.expect("removed");
        }
        eprintln!("remove_pod: mean {:?}", started.elapsed() / 40);
        assert!(took[20] < Duration::from_millis(50), "far above what it takes on a loaded machine: {:?}", took[20]);
    });
}
