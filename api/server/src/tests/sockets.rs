//! Watches and logs as messages of a websocket.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::nodes::{node, served, with_pod};
use super::*;

type Socket = WebSocketStream<tokio_rustls::client::TlsStream<TcpStream>>;

/// A websocket to a path, with a subprotocol or none; or the status of the rejection.
async fn open(cluster: &Cluster, path: &str, protocol: Option<&str>) -> Result<Socket, u16> {
    let (address, connector) = served(cluster).await;
    let stream = TcpStream::connect(address).await.expect("connected");
    let stream = connector.connect("127.0.0.1".try_into().expect("a name"), stream).await.expect("a handshake");
    let mut request = format!("wss://127.0.0.1{path}").into_client_request().expect("a request");
    if let Some(protocol) = protocol {
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, protocol.parse().expect("a header"));
    }
    match client_async(request, stream).await {
        Ok((socket, _)) => Ok(socket),
        Err(tokio_tungstenite::tungstenite::Error::Http(refusal)) => Err(refusal.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

async fn next(socket: &mut Socket) -> Message {
    socket.next().await.expect("a message").expect("no error")
}

#[tokio::test]
async fn a_watch_has_an_event_a_message() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({})).await;
    cluster.config_map("b", json!({})).await;
    let path = format!("{CONFIG_MAPS}?watch=true");
    let mut plain = open(&cluster, &path, None).await.expect("upgraded");
    let name_of = |text: &str| -> String {
        let event: Value = serde_json::from_str(text).expect("one event");
        format!("{} {}", event["type"].as_str().expect("a type"), event["object"]["metadata"]["name"].as_str().expect("a name"))
    };
    for wanted in ["ADDED a", "ADDED b"] {
        let Message::Text(text) = next(&mut plain).await else { panic!("no text") };
        assert_eq!(name_of(&text), wanted);
    }
    let mut base64 =
        open(&cluster, &format!("{path}&fieldSelector=metadata.name%3Da"), Some("base64.binary.k8s.io")).await.expect("upgraded");
    let Message::Text(text) = next(&mut base64).await else { panic!("no text") };
    let text = String::from_utf8(STANDARD.decode(text.as_str()).expect("base64")).expect("text");
    assert_eq!(name_of(&text), "ADDED a");
    cluster.delete(&format!("{CONFIG_MAPS}/b")).await.ok();
    let Message::Text(text) = next(&mut plain).await else { panic!("no text") };
    assert_eq!(name_of(&text), "DELETED b");
    let mut short = open(&cluster, &format!("{path}&timeoutSeconds=1&resourceVersion=0"), Some("binary.k8s.io")).await.expect("upgraded");
    let Message::Binary(bytes) = next(&mut short).await else { panic!("no bytes") };
    assert!(bytes.starts_with(b"{\"type\":\"ADDED\""), "{bytes:?}");
    let Message::Close(Some(end)) = next(&mut short).await else { panic!("no end") };
    assert_eq!(u16::from(end.code), 1000);
}

#[tokio::test]
async fn a_log_comes_as_bytes_and_a_refusal_as_itself() {
    let cluster = cluster().await;
    with_pod(&cluster, node().await).await;
    let mut log = open(&cluster, &format!("{PODS}/p/log"), Some("binary.k8s.io")).await.expect("upgraded");
    assert_eq!(next(&mut log).await, Message::binary(b"/containerLogs/default/p/c?".to_vec()));
    assert!(matches!(next(&mut log).await, Message::Close(Some(_))));
    assert_eq!(open(&cluster, &format!("{PODS}/q/log"), None).await.map(drop), Err(404));
}
