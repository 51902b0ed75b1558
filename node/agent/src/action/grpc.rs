//! `grpc` probes: the gRPC health service (`grpc.health.v1.Health/Check`) answers `SERVING`. Request and response are two
//! fields each, so they are encoded here by hand over HTTP/2.

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::GRPCAction;
use runtimes_contract::PROBE_HEADER;
use tokio::net::TcpStream;

use super::{ActionError, Target};

/// Bytes of an answer that are read.
const ANSWER_LEN_MAX: usize = 4_096;
/// `SERVING` of `HealthCheckResponse.ServingStatus`.
const SERVING: u8 = 1;

pub(crate) async fn probe(target: &Target<'_>, action: &GRPCAction) -> Result<(), ActionError> {
    let port = u16::try_from(action.port).map_err(|_| ActionError::PortNumber(action.port))?;
    let address = format!("{}:{port}", target.ip);
    let stream = TcpStream::connect((target.ip, port)).await.map_err(|error| ActionError::Dial { address: address.clone(), error })?;
    let failed =
        |doing: &'static str, error: Box<dyn std::error::Error + Send + Sync>| ActionError::Grpc { doing, address: address.clone(), error };
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| failed("connecting to", error.into()))?;
    let request = request(&address, action, target.token().as_deref()).map_err(ActionError::GrpcRequest)?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(|error| failed("asking", error.into()))?;
        let headers = answer.headers().clone();
        let body = Limited::new(answer.into_body(), ANSWER_LEN_MAX).collect().await.map_err(|error| failed("reading from", error))?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        let code = trailers
            .get("grpc-status")
            .or_else(|| headers.get("grpc-status"))
            .and_then(|code| code.to_str().ok())
            .unwrap_or("0")
            .to_owned();
        verdict(&code, &body.to_bytes())
    };
    let (mut exchange, mut connection) = (std::pin::pin!(exchange), std::pin::pin!(connection));
    tokio::select! {
        verdict = &mut exchange => verdict,
        ended = &mut connection => match ended {
            // The server has sent everything and closed the connection: its answer can still be read.
            Ok(()) => exchange.await,
            Err(error) => Err(ActionError::GrpcEnded { address: address.clone(), error }),
        },
    }
}

/// The request; a token shows the container that it is the node's.
fn request(address: &str, action: &GRPCAction, token: Option<&str>) -> http::Result<http::Request<Full<Bytes>>> {
    let mut request = http::Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(token) = token {
        request = request.header(PROBE_HEADER, token);
    }
    request.body(Full::new(message(action.service.as_deref().unwrap_or_default())))
}

/// `HealthCheckRequest { string service = 1 }` with gRPC's five-byte head.
fn message(service: &str) -> Bytes {
    let mut body = BytesMut::new();
    if !service.is_empty() {
        body.put_u8(0x0a);
        put_varint(&mut body, service.len());
        body.put_slice(service.as_bytes());
    }
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(body.len()).unwrap_or(0));
    framed.put_slice(&body);
    framed.freeze()
}

/// A number in protobuf's encoding: seven bits a byte, the lowest first, with a mark on all bytes but the last.
fn put_varint(into: &mut BytesMut, mut number: usize) {
    while number > 0x7f {
        into.put_u8(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
        number >>= 7;
    }
    into.put_u8(u8::try_from(number).unwrap_or(0));
}

/// `HealthCheckResponse { ServingStatus status = 1 }` behind the five-byte head.
fn verdict(code: &str, body: &[u8]) -> Result<(), ActionError> {
    match code {
        "0" => {}
        "12" => return Err(ActionError::GrpcUnimplemented),
        code => return Err(ActionError::GrpcStatus(code.to_owned())),
    }
    let status = match body.get(5..) {
        Some([0x08, status, ..]) => *status,
        _ => 0,
    };
    if status == SERVING { Ok(()) } else { Err(ActionError::GrpcUnhealthy(name(status))) }
}

fn name(status: u8) -> &'static str {
    match status {
        0 => "UNKNOWN",
        2 => "NOT_SERVING",
        3 => "SERVICE_UNKNOWN",
        _ => "SERVING",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_the_node_recognizes_its_probes() {
        let token = |token| {
            let request = request("10.0.0.1:80", &GRPCAction::default(), token).expect("a request");
            request.headers().get(PROBE_HEADER).cloned()
        };
        assert_eq!(token(Some("of the node")).expect("a header"), "of the node");
        assert_eq!(token(None), None);
    }

    #[test]
    fn messages_are_framed() {
        assert_eq!(&message("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&message("ab")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        assert_eq!(message(&"x".repeat(300)).get(..8), Some(&[0, 0, 0, 1, 47, 0x0a, 0xac, 2][..]));
        let verdict = |code: &str, body: &[u8]| super::verdict(code, body).map_err(|error| error.to_string());
        assert_eq!(verdict("0", &[0, 0, 0, 0, 2, 8, 1]), Ok(()));
        assert_eq!(verdict("0", &[0, 0, 0, 0, 2, 8, 2]), Err("service unhealthy (responded with \"NOT_SERVING\")".to_owned()));
        assert_eq!(verdict("0", &[0, 0, 0, 0, 0]), Err("service unhealthy (responded with \"UNKNOWN\")".to_owned()));
        assert!(verdict("12", &[]).is_err());
    }
}
