//! Connections to a port of a Pod's own loopback.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;

use super::Target;

/// How long a connection inside the Pod may take; it is on this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no connection, in the words of container runtimes.
#[derive(Debug, thiserror::Error)]
#[error("failed to connect to localhost:{port} inside namespace {namespace:?}, IPv4: {ipv4} IPv6: {ipv6}")]
pub(super) struct Refused {
    port: u16,
    namespace: String,
    ipv4: String,
    ipv6: String,
}

/// Connects to the Pod's own loopback, by IPv4 or else by IPv6. A thread enters the namespace, connects and ends: a thread that
/// has been in another namespace must not be used again.
pub(super) async fn dial(target: &Target, port: u16) -> Result<TcpStream, Refused> {
    let namespace = target.network.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let refused = |ipv4: &io::Error, ipv6: Option<&io::Error>| Refused {
        port,
        namespace: namespace.clone(),
        ipv4: dial_error("tcp4 127.0.0.1", port, ipv4),
        ipv6: ipv6.map_or_else(String::new, |error| dial_error("tcp6 [::1]", port, error)),
    };
    let network = target.network.clone();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let dialling = std::thread::Builder::new().name("port-forward".to_owned()).spawn(move || {
        let enter = match network {
            Some(path) => std::fs::File::open(path)
                .and_then(|file| nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).map_err(io::Error::from)),
            None => Ok(()),
        };
        let dialled = match enter {
            Ok(()) => both(port),
            Err(error) => Err((error, None)),
        };
        if sender.send(dialled).is_err() {
            tracing::debug!("the client left while its connection was made");
        }
    });
    dialling.map_err(|error| refused(&error, None))?;
    let dialled = receiver.await.unwrap_or_else(|error| Err((io::Error::other(error), None)));
    let stream = dialled.map_err(|(ipv4, ipv6)| refused(&ipv4, ipv6.as_ref()))?;
    stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)).map_err(|error| refused(&error, None))
}

type Dialled = Result<std::net::TcpStream, (io::Error, Option<io::Error>)>;

fn both(port: u16) -> Dialled {
    let dial = |ip: IpAddr| std::net::TcpStream::connect_timeout(&SocketAddr::new(ip, port), CONNECT_TIMEOUT);
    dial(Ipv4Addr::LOCALHOST.into()).or_else(|ipv4| dial(Ipv6Addr::LOCALHOST.into()).map_err(|ipv6| (ipv4, Some(ipv6))))
}

/// An error of connecting, in the words that people search for.
fn dial_error(address: &str, port: u16, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => error.to_string(),
    };
    format!("dial {address}:{port}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refused_port_is_reported_as_such() {
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        let target = Target { name: "web".to_owned(), uid: "u".to_owned(), network: None };
        let refused = dial(&target, port).await.expect_err("nobody listens").to_string();
        assert!(
            refused.contains(&format!("IPv4: dial tcp4 127.0.0.1:{port}: connect: connection refused IPv6: dial tcp6 [::1]:{port}: ")),
            "{refused}"
        );
        let nowhere = Target { network: Some("/nonexistent".into()), ..target };
        let refused = dial(&nowhere, port).await.expect_err("no namespace").to_string();
        assert!(refused.contains("inside namespace \"/nonexistent\", IPv4: "), "{refused}");
    }
}
