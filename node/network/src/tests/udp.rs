//! Datagrams: nobody sends them a second time.

use super::*;

/// Each time the carrier of the bridge comes, the kernel drops what is sent to a Pod until it has noticed that.
#[test]
fn the_bridge_keeps_its_carrier_as_pods_come_and_go() {
    isolated(|| async {
        uplink();
        let network = node("sk1", "10.244.0.0/24").await;
        run("mkdir /tmp/sys; mount -t sysfs sysfs /tmp/sys");
        let changes = || run("cat /tmp/sys/class/net/sk1-br/carrier_changes");
        let before = changes();
        for uid in ["uid-a", "uid-b"] {
            let pod = network.add_pod(uid, "web", &[], None).await.expect("added");
            answer_udp(&pod, 514, uid);
            let sender = UdpSocket::bind("10.244.0.1:0").expect("bound");
            sender.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
            sender.send_to(b"?", SocketAddr::new(pod.ip, 514)).expect("sent");
            let mut answer = [0; 16];
            let len = sender.recv(&mut answer).unwrap_or_else(|error| panic!("{uid} does not answer its first datagram: {error}"));
            assert_eq!(&answer[..len], uid.as_bytes());
            network.remove_pod(uid).await.expect("removed");
        }
        assert_eq!(changes(), before);
    });
}

#[test]
fn a_udp_sender_that_keeps_its_port_finds_the_next_pod() {
    isolated(|| async {
        uplink();
        let network = node("sk1", "10.244.0.0/24").await;
        let ports = [HostPort { host_ip: None, protocol: Protocol::Udp, host_port: 5140, container_port: 514 }];
        let sender = UdpSocket::bind("192.0.2.1:40000").expect("bound");
        sender.set_read_timeout(Some(Duration::from_secs(1))).expect("set");
        sender.connect("192.0.2.1:5140").expect("connected");
        let mut answer = [0; 16];
        // Before there is a Pod: the flow leads to the node itself, which refuses.
        sender.send(b"?").expect("sent");
        assert_eq!(sender.recv(&mut answer).map_err(|error| error.kind()), Err(ErrorKind::ConnectionRefused));
        for uid in ["uid-a", "uid-b"] {
            let pod = network.add_pod(uid, "logs", &ports, None).await.expect("added");
            answer_udp(&pod, 514, uid);
            let len = sender.send(b"?").and_then(|_| sender.recv(&mut answer)).unwrap_or_else(|error| panic!("{uid}: {error}"));
            assert_eq!(&answer[..len], uid.as_bytes());
            network.remove_pod(uid).await.expect("removed");
        }
    });
}

/// Answers datagrams in a Pod.
fn answer_udp(pod: &PodNetwork, port: u16, text: &'static str) {
    let address = SocketAddr::new(pod.ip, port);
    let socket = in_pod(&pod.sandbox, move || UdpSocket::bind(address).expect("bound"));
    std::thread::spawn(move || {
        let mut question = [0; 16];
        while let Ok((_, from)) = socket.recv_from(&mut question) {
            if socket.send_to(text.as_bytes(), from).is_err() {
                return;
            }
        }
    });
}
