//! The setting that lists to whom a guest may connect, for the sockets of both versions of WASI: TCP and UDP, of containers and of further
//! programs in them.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread::JoinHandle;

use crate::components::{Way, async_datagrams, sockets};
use crate::exec::Sleeper;
use crate::harness::Wasmtime;
use crate::http::Network;
use crate::outbound::{bind, in_pod};
use crate::wasm::run;

const PORT: u16 = 7000;
const ADDRESS: (&str, u16) = ("127.0.0.1", PORT);
/// `access-denied` of `wasi:sockets`, as the guests exit with it.
const DENIED_0_2: i32 = 100 + 1;
const DENIED_0_3: i32 = 100;
/// Ends the server.
const LAST: &[u8] = b"ends\n";

/// Answers what arrives over TCP and UDP at one port, and counts the connections and the datagrams.
pub struct Echo {
    threads: [JoinHandle<usize>; 2],
}

impl Echo {
    pub async fn start(network: &Network) -> Self {
        let (listener, socket) = network.inside(|| (TcpListener::bind(ADDRESS).unwrap(), UdpSocket::bind(ADDRESS).unwrap())).await;
        Self { threads: [std::thread::spawn(move || connections(&listener)), std::thread::spawn(move || datagrams(&socket))] }
    }

    /// The number of connections and of datagrams so far.
    pub async fn ended(self, network: &Network) -> [usize; 2] {
        let end = || {
            TcpStream::connect(ADDRESS).unwrap().write_all(LAST).unwrap();
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(LAST, ADDRESS).unwrap();
        };
        network.inside(end).await;
        self.threads.map(|thread| thread.join().unwrap())
    }
}

fn connections(listener: &TcpListener) -> usize {
    for (count, stream) in listener.incoming().enumerate() {
        let (mut stream, mut text) = (stream.unwrap(), [0; 5]);
        stream.read_exact(&mut text).unwrap();
        if text == *LAST {
            return count;
        }
        stream.write_all(b"pong\n").unwrap();
    }
    unreachable!("a listener does not end")
}

fn datagrams(socket: &UdpSocket) -> usize {
    for count in 0.. {
        let mut text = [0; 5];
        let (len, from) = socket.recv_from(&mut text).unwrap();
        if text[..len] == *LAST {
            return count;
        }
        // The sender does not wait for the answer to its last one.
        socket.send_to(b"pong\n", from).unwrap();
    }
    unreachable!("a socket does not end")
}

/// The guests of each way, with the code of those that are denied.
fn all() -> Vec<(&'static str, Vec<u8>, i32)> {
    vec![
        ("TCP of 0.2", sockets(Way::Tcp, PORT), DENIED_0_2),
        ("connected UDP of 0.2", sockets(Way::ConnectedUdp, PORT), DENIED_0_2),
        ("UDP of 0.2", sockets(Way::Udp, PORT), DENIED_0_2),
        ("connected UDP of 0.3", async_datagrams(Way::ConnectedUdp, PORT), DENIED_0_3),
        ("UDP of 0.3", async_datagrams(Way::Udp, PORT), DENIED_0_3),
    ]
}

#[tokio::test]
async fn connections_and_datagrams_go_to_the_hosts_of_the_list() {
    let (harness, network) = (Wasmtime::new(), Network::new("sockets"));
    let echo = Echo::start(&network).await;
    let lists = [
        (&["127.0.0.1:7000"][..], true),
        (&["127.0.0.0/8"], true),
        (&["shop.example:7000"], true),
        (&["*"], true),
        (&[], false),
        (&["127.0.0.1:80", "10.0.0.0/8"], false),
        // They are looked up, or have no addresses.
        (&["shop.example:80", "other.example", "*.example"], false),
    ];
    for (name, guest, denied) in all() {
        for (hosts, is_allowed) in lists {
            let (exit, log) = run(&harness, &in_pod(&harness, &network, &guest, hosts)).await;
            assert_eq!(exit.code, if is_allowed { 0 } else { denied }, "{name} {hosts:?}: {exit:?} {log}");
        }
    }
    let allowed = lists.iter().filter(|(_, is_allowed)| *is_allowed).count();
    // A guest of 0.2 sends two datagrams, one of 0.3 sends one.
    assert_eq!(echo.ended(&network).await, [allowed, (2 * 2 + 2) * allowed], "nothing that was denied arrived");
}

#[tokio::test]
async fn sockets_of_a_program_of_exec_are_bound_by_the_same_list() {
    let network = Network::new("programs");
    let (echo, programs) = (Echo::start(&network).await, all());
    for (hosts, is_allowed) in [(&["127.0.0.1:7000"][..], true), (&["127.0.0.1:7001"], false)] {
        let sleeper = Sleeper::start(|harness, spec| {
            for (name, guest, _) in &programs {
                std::fs::write(harness.dir().join("tools").join(name), guest).unwrap();
            }
            bind(spec, &network, hosts);
        })
        .await;
        for &(name, _, denied) in &programs {
            let wanted = if is_allowed { 0 } else { denied };
            assert_eq!(sleeper.run(&[name], "").await.0, wanted, "{name} {hosts:?}");
        }
        sleeper.remove().await;
    }
    assert_eq!(echo.ended(&network).await, [1, 2 * 2 + 2], "nothing that was denied arrived");
}
