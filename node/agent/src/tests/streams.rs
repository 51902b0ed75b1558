//! Exec, attach and port-forward as Go's clients ask for them: SPDY, plain and inside a websocket.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use futures::{SinkExt as _, StreamExt as _};
use node_spdy::Headers;
use node_spdy::frame::{Decoder, Encoder, Frame, Reset};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::over_https::{ADMIN, Tls, connect, port};
use super::*;

/// SPDY's client side, on whatever carries it.
struct Client<T> {
    io: T,
    encoder: Encoder,
    decoder: Decoder,
    buffer: BytesMut,
}

impl Client<Tls> {
    /// Upgrades; answers the status line and headers too.
    async fn upgrade(port: u16, path: &str, protocol: &str) -> (Self, String) {
        let mut io = connect(port, ADMIN).await.expect("connected");
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}\r\n\r\n"
        );
        io.write_all(request.as_bytes()).await.expect("written");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(io.read_u8().await.expect("a byte"));
        }
        (Self::over(io), String::from_utf8(head).expect("text").to_ascii_lowercase())
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Client<T> {
    fn over(io: T) -> Self {
        Self { io, encoder: Encoder::default(), decoder: Decoder::default(), buffer: BytesMut::new() }
    }

    async fn say(&mut self, frame: Frame) {
        let mut bytes = BytesMut::new();
        self.encoder.put(&frame, &mut bytes);
        self.io.write_all(&bytes).await.expect("written");
        self.io.flush().await.expect("flushed");
    }

    async fn open(&mut self, id: u32, headers: &[(&str, &str)]) {
        self.say(Frame::SynStream { id, fin: false, headers: Headers::new(headers.iter().copied()) }).await;
    }

    async fn send(&mut self, id: u32, bytes: &'static str, fin: bool) {
        self.say(Frame::Data { id, fin, bytes: Bytes::from_static(bytes.as_bytes()) }).await;
    }

    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.next(&mut self.buffer).expect("a frame") {
                return Some(frame);
            }
            if self.io.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// What comes on each stream until that one ends, or all do.
    async fn until_end_of(&mut self, id: u32) -> BTreeMap<u32, String> {
        let mut said: BTreeMap<u32, String> = BTreeMap::new();
        while let Some(frame) = self.next().await {
            match frame {
                Frame::Data { id: of, fin, bytes } => {
                    said.entry(of).or_default().push_str(std::str::from_utf8(&bytes).expect("text"));
                    if fin && of == id {
                        break;
                    }
                }
                Frame::Reset { id: of, why } if of == id => panic!("stream {id} was reset: {why:?}"),
                _ => {}
            }
        }
        said
    }

    async fn open_forward(&mut self, first: u32, request: &str, port: u16) {
        let port = port.to_string();
        for (id, kind) in [(first, "error"), (first + 2, "data")] {
            self.open(id, &[("streamType", kind), ("port", &port), ("requestID", request)]).await;
        }
        self.say(Frame::Data { id: first, fin: true, bytes: Bytes::new() }).await;
    }
}

async fn running_web() -> (Cluster, Running, u16) {
    let script = Script::default().execs(|spec| {
        let code = i32::from(spec.args.contains(&"fail".to_owned())) * 5;
        Ok(runtimes_fake::ExecReply { stdout: spec.args.join(" ").into_bytes(), stderr: b"warn".to_vec(), code })
    });
    let cluster = Cluster::new(script).await;
    let agent = cluster.start();
    cluster.node_ready().await;
    let mut web = one("web:1");
    web["containers"][0]["stdin"] = json!(true);
    cluster.create("web", web).await;
    cluster.ready("web").await;
    let port = port(&cluster).await;
    (cluster, agent, port)
}

#[tokio::test]
async fn exec_runs_over_every_spdy_protocol() {
    let (_cluster, _agent, port) = running_web().await;
    for protocol in ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"] {
        for command in ["ok", "fail"] {
            let path = format!("/exec/default/web/c?command={command}&output=1&error=1");
            let (mut client, head) = Client::upgrade(port, &path, protocol).await;
            assert!(head.starts_with("http/1.1 101"), "{head}");
            assert!(head.contains("upgrade: spdy/3.1") && head.contains(&format!("x-stream-protocol-version: {protocol}")), "{head}");
            for (id, kind) in [(1, "error"), (3, "stdout"), (5, "stderr")] {
                client.open(id, &[("streamType", kind)]).await;
            }
            let said = client.until_end_of(0).await;
            assert_eq!((said[&3].as_str(), said[&5].as_str()), (command, "warn"));
            let end = said[&1].as_str();
            match (protocol, command) {
                ("v4.channel.k8s.io", "ok") => assert!(end.contains("Success"), "{end}"),
                ("v4.channel.k8s.io", _) => assert!(end.contains("NonZeroExitCode") && end.contains("\"message\":\"5\""), "{end}"),
                (_, "ok") => assert_eq!(end, ""),
                _ => assert!(end.ends_with("exit code 5"), "{end}"),
            }
        }
    }
}

#[tokio::test]
async fn mistakes_of_spdy_clients_are_reported_before_the_upgrade() {
    let (_cluster, _agent, port) = running_web().await;
    for (path, protocol, status, wanted) in [
        ("/exec/default/web/c?output=1", "v4.channel.k8s.io", 400, "you must specify at least 1 command"),
        ("/exec/default/web/x?output=1&command=a", "v4.channel.k8s.io", 404, "container not found (\"x\")"),
        (
            "/exec/default/web/c?output=1&command=a",
            "v9.channel.k8s.io",
            403,
            "client supports [v9.channel.k8s.io], server accepts [v4.channel.k8s.io",
        ),
        ("/portForward/default/none", "portforward.k8s.io", 404, "pod \"default/none\" not found"),
    ] {
        let (mut client, head) = Client::upgrade(port, path, protocol).await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        let mut body = vec![0; length.parse().expect("a number")];
        client.io.read_exact(&mut body).await.expect("a body");
        let body = String::from_utf8(body).expect("text");
        assert!(body.contains(wanted), "{body}");
    }
}

#[tokio::test]
async fn attach_joins_stdin_and_output() {
    let (_cluster, _agent, port) = running_web().await;
    let (mut client, head) = Client::upgrade(port, "/attach/default/web/c?input=1&output=1", "v4.channel.k8s.io").await;
    assert!(head.starts_with("http/1.1 101"), "{head}");
    for (id, kind) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
        client.open(id, &[("streamType", kind)]).await;
    }
    // The fake container echoes its input, and ends its output when its stdin ends.
    client.send(3, "hello", true).await;
    let said = client.until_end_of(0).await;
    assert_eq!(said[&5], "hello");
    assert!(said[&1].contains("Success"), "{said:?}");
}

/// A server on this machine's loopback, which is the Pod's here: it answers each connection in capitals
/// when it has heard all.
async fn shouting() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut heard = String::new();
                stream.read_to_string(&mut heard).await.expect("heard");
                stream.write_all(heard.to_uppercase().as_bytes()).await.expect("said");
            });
        }
    });
    port
}

/// A port without a listener.
fn silent() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// Several connections to one port and one to a port that refuses, all at once.
async fn forwards<T: AsyncRead + AsyncWrite + Unpin>(mut client: Client<T>) {
    let (loud, quiet) = (shouting().await, silent());
    client.open_forward(1, "0", loud).await;
    client.open_forward(5, "1", quiet).await;
    client.open_forward(9, "2", loud).await;
    // Pairs are identified by their ids, not by their order: data may come before error.
    let port = loud.to_string();
    client.open(13, &[("streamType", "data"), ("port", &port), ("requestID", "3")]).await;
    client.open(15, &[("streamType", "error"), ("port", &port), ("requestID", "3")]).await;
    client.send(11, "second", true).await;
    client.send(3, "first", true).await;
    client.send(13, "third", true).await;
    let mut said: BTreeMap<u32, String> = BTreeMap::new();
    let mut ended = std::collections::BTreeSet::new();
    while ![3, 5, 7, 11, 13].iter().all(|id| ended.contains(id)) {
        match client.next().await.expect("a frame") {
            Frame::Data { id, fin, bytes } => {
                said.entry(id).or_default().push_str(std::str::from_utf8(&bytes).expect("text"));
                if fin {
                    ended.insert(id);
                }
            }
            Frame::Reset { id, why } => panic!("stream {id} was reset: {why:?}"),
            _ => {}
        }
    }
    assert_eq!((said[&3].as_str(), said[&11].as_str(), said[&13].as_str()), ("FIRST", "SECOND", "THIRD"));
    assert_eq!(said.get(&1).map(String::as_str).unwrap_or_default(), "");
    let refused = &said[&5];
    assert!(refused.starts_with(&format!("error forwarding port {quiet} to pod web, uid ")), "{refused}");
    assert!(refused.contains(&format!("dial tcp4 127.0.0.1:{quiet}: connect: connection refused")), "{refused}");
    // A stream that is not part of a connection is rejected, and the others continue.
    client.open(17, &[("streamType", "data"), ("port", "0"), ("requestID", "4")]).await;
    let refused = loop {
        if let Frame::Reset { id: 17, why } = client.next().await.expect("a frame") {
            break why;
        }
    };
    assert_eq!(refused, Reset::RefusedStream);
}

#[tokio::test]
async fn ports_are_forwarded_over_spdy() {
    let (_cluster, _agent, port) = running_web().await;
    let (client, head) = Client::upgrade(port, "/portForward/default/web", "portforward.k8s.io").await;
    assert!(head.starts_with("http/1.1 101") && head.contains("x-stream-protocol-version: portforward.k8s.io"), "{head}");
    forwards(client).await;
}

#[tokio::test]
async fn ports_are_forwarded_over_spdy_in_a_websocket() {
    let (_cluster, _agent, port) = running_web().await;
    let stream = connect(port, ADMIN).await.expect("connected");
    let mut request = "wss://localhost/portForward/default/web".into_client_request().expect("a request");
    let protocol = "SPDY/3.1+portforward.k8s.io";
    request.headers_mut().insert("sec-websocket-protocol", protocol.parse().expect("a header"));
    let (socket, answer) = client_async(request, stream).await.expect("upgraded");
    assert_eq!(answer.headers()["sec-websocket-protocol"], protocol);
    // As kubectl does: each write is a message, wherever it is cut.
    let (near, far) = tokio::io::duplex(1 << 16);
    tokio::spawn(tunnel(socket, far));
    forwards(Client::over(near)).await;
}

/// Bytes in messages of seven, and back.
async fn tunnel(socket: WebSocketStream<Tls>, far: tokio::io::DuplexStream) {
    let (mut sink, mut messages) = socket.split();
    let (mut from, mut to) = tokio::io::split(far);
    let up = async {
        let mut buffer = [0; 7];
        while let Ok(len @ 1..) = from.read(&mut buffer).await {
            sink.send(Message::binary(buffer[..len].to_vec())).await.expect("sent");
        }
    };
    let down = async {
        while let Some(Ok(message)) = messages.next().await {
            if let Message::Binary(bytes) = message
                && to.write_all(&bytes).await.is_err()
            {
                return;
            }
        }
    };
    tokio::join!(up, down);
}
