//! `tcpSocket` probes: succeed when a connection is established.

use k8s_openapi::api::core::v1::TCPSocketAction;
use tokio::net::TcpStream;

use super::{ActionError, Target, port};

pub(crate) async fn probe(target: &Target<'_>, action: &TCPSocketAction) -> Result<(), ActionError> {
    let port = port(target.container, &action.port)?;
    let own = target.ip.to_string();
    let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(&own);
    match TcpStream::connect((host, port)).await {
        Ok(_) => Ok(()),
        Err(error) => Err(ActionError::Dial { address: format!("{host}:{port}"), error }),
    }
}
