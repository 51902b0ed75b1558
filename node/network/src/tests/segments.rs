//! Pods of a range that is too wide for one bridge.

use super::*;

/// The second half of the first segment, and the first Pods of the second one: 10.244.1.255, 10.244.2.0, 10.244.2.1.
async fn two_segments() -> (Network, [PodNetwork; 3]) {
    run("mkdir -p /tmp/sk1/pods; printf 10.244.1.254 > /tmp/sk1/pods/last-address");
    let network = node("sk1", "10.244.0.0/22").await;
    let first = network.add_pod("uid-a", "web-0", &[], None).await.expect("added");
    let second = network.add_pod("uid-b", "web-1", &[tcp(None, 8080)], None).await.expect("added");
    let third = network.add_pod("uid-c", "web-2", &[], None).await.expect("added");
    (network, [first, second, third])
}

#[test]
fn pods_of_two_bridges_are_neighbours_like_any_others() {
    isolated(|| async {
        uplink();
        let before = traces();
        let (network, [first, second, third]) = two_segments().await;
        let bridge = |veth: &str| run(&format!("ip -o link show {veth} | grep -o 'master [^ ]*'"));
        assert_eq!(bridge("sk1vf401ff"), "master sk1-br\n");
        assert_eq!(bridge("sk1vf40200"), "master sk1-br1\n");
        assert_eq!(second.ip.to_string(), "10.244.2.0");
        let port = |pod: &PodNetwork| SocketAddr::new(pod.ip, 80);
        [&first, &second, &third].into_iter().for_each(|pod| serve(pod, 80));
        for client in [&first, &second, &third] {
            for server in [&first, &second, &third] {
                assert_eq!(ask_from(client, port(server)), Ok(client.ip.to_string()), "{} asks {}", client.ip, server.ip);
            }
            assert_eq!(ask(port(client)).as_deref(), Ok("10.244.0.1"), "the node asks {}", client.ip);
        }
        let dns = at([10, 96, 0, 10], 53);
        answer(dns);
        assert_eq!(ask_from(&second, dns).as_deref(), Ok("the node's own"), "names are for all Pods");
        for address in [[127, 0, 0, 1], [192, 0, 2, 1]] {
            assert!(ask(at(address, 8080)).is_ok(), "a host port on {address:?}");
        }
        assert_eq!(ask_from(&second, at([192, 0, 2, 1], 8080)).as_deref(), Ok("10.244.0.1"), "a host port to itself");
        assert_eq!(ask_from(&first, at([10, 244, 3, 9], 80)), Err(ErrorKind::HostUnreachable), "no Pod has this address");
        assert_eq!(network.add_pod("uid-c", "web-2", &[], None).await.expect("again"), third);

        // What another program removed is set again with its Pods.
        run("ip link del sk1-br1");
        network.set_pod_cidr(range("10.244.0.0/22")).await.expect("repaired");
        assert_eq!(ask_from(&first, port(&third)), Ok(first.ip.to_string()));
        network.remove_pod("uid-c").await.expect("removed");
        assert!(!run("ip neigh show dev sk1-br1").contains("10.244.2.1 "));
        assert!(run("ip neigh show dev sk1-br1").contains("10.244.2.0 "));
        network.remove_all().await.expect("removed");
        assert_eq!(traces(), before);
    });
}

#[test]
fn a_pod_of_the_second_bridge_cannot_speak_as_another() {
    isolated(|| async {
        uplink();
        let (_network, [first, second, third]) = two_segments().await;
        [&first, &third].into_iter().for_each(|pod| serve(pod, 80));
        for claimed in [&first, &third] {
            let (own, claimed) = (second.ip, claimed.ip);
            in_pod(&second.sandbox, move || {
                run(&format!("ip address add {claimed}/32 dev eth0; ip route replace default via 10.244.0.1 dev eth0 onlink src {claimed}"))
            });
            for server in [&first, &third] {
                let answer = ask_from(&second, SocketAddr::new(server.ip, 80));
                assert_ne!(answer, Ok(claimed.to_string()), "{own} asks {} as {claimed}", server.ip);
            }
            in_pod(&second.sandbox, move || {
                run(&format!("ip route replace default via 10.244.0.1 dev eth0 onlink; ip address del {claimed}/32 dev eth0"))
            });
        }
        assert_eq!(ask_from(&second, SocketAddr::new(first.ip, 80)), Ok(second.ip.to_string()), "as itself it may");
    });
}

#[test]
fn a_node_that_gets_another_range_has_no_routes_of_the_old_one() {
    isolated(|| async {
        uplink();
        let network = node("sk1", "10.244.16.0/22").await;
        let before = network.add_pod("uid-a", "web-0", &[], None).await.expect("added");
        serve(&before, 80);
        assert!(run("ip route").contains("10.244.18.0/23 dev sk1-br1"));
        for (next, pods, why) in [
            ("10.244.16.0/24", 0, "it has the Pod's address, and the same gateway"),
            ("10.244.16.0/21", 0, "so has a wider one"),
            ("10.244.0.0/19", 1, "the gateway is another one"),
            ("10.244.8.0/22", 1, "the Pod's address is not in it"),
        ] {
            assert_eq!(network.withdraw_pod_cidr(range(next)), pods, "{next}: {why}");
        }
        assert!(matches!(network.add_pod("uid-b", "web-1", &[], None).await, Err(NetworkError::Withdrawn(_))), "no new address");
        assert_eq!(network.add_pod("uid-a", "web-0", &[], None).await.expect("it has one"), before);
        // A range with the same gateway cuts nothing off.
        network.set_pod_cidr(range("10.244.16.0/21")).await.expect("a wider range");
        assert_eq!(ask(SocketAddr::new(before.ip, 80)).as_deref(), Ok("10.244.16.1"));
        network.set_pod_cidr(range("10.244.8.0/22")).await.expect("another range");
        let routes = run("ip route");
        assert!(routes.contains("10.244.10.0/23 dev sk1-br1") && !routes.contains("10.244.18.0/23"), "{routes}");
        // The network itself does not wait for a Pod of the old range, and cuts it off. Its address is another node's by now.
        assert_eq!(ask(SocketAddr::new(before.ip, 80)), Err(ErrorKind::HostUnreachable));
        let after = network.add_pod("uid-b", "web-1", &[], None).await.expect("added");
        serve(&after, 80);
        assert_eq!(ask(SocketAddr::new(after.ip, 80)).as_deref(), Ok("10.244.8.1"));
        network.set_pod_cidr(range("10.244.0.0/24")).await.expect("a narrow range, below the others");
        let (routes, addresses) = (run("ip route"), run("ip -o address"));
        assert!(routes.contains("10.244.0.0/24 dev sk1-br ") && !routes.contains("sk1-br1"), "{routes}");
        assert!(!addresses.contains("10.244.8.") && !addresses.contains("10.244.16."), "{addresses}");
        assert!(!run("ip -o link").contains("sk1-br1"));
    });
}

#[test]
fn a_new_process_keeps_the_range_of_the_pods_that_the_next_range_would_cut_off() {
    isolated(|| async {
        uplink();
        let before = node("sk1", "10.244.16.0/24").await.add_pod("uid-a", "web-0", &[], None).await.expect("added");
        serve(&before, 80);
        let network = Network::new(config("sk1")).await.expect("checked");
        let next = range("10.244.8.0/24");
        let refused = network.set_pod_cidr(next).await.expect_err("the Pod needs the previous range");
        let wanted = "1 Pods have addresses of the Pod range 10.244.16.0/24, which the node had before 10.244.8.0/24";
        assert_eq!(refused.to_string(), wanted);
        assert_eq!(ask(SocketAddr::new(before.ip, 80)).as_deref(), Ok("10.244.16.1"));
        assert!(matches!(network.add_pod("uid-b", "web-1", &[], None).await, Err(NetworkError::Withdrawn(_))), "no new address");
        assert_eq!(network.withdraw_pod_cidr(next), 1);
        network.remove_pod("uid-a").await.expect("removed");
        assert_eq!(network.withdraw_pod_cidr(next), 0);
        network.set_pod_cidr(next).await.expect("the next range");
        let after = network.add_pod("uid-b", "web-1", &[], None).await.expect("added");
        assert_eq!(after.ip.to_string(), "10.244.8.2");
    });
}
