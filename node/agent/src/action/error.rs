//! Why a probe or a hook did not succeed. The text is what the event says; where upstream's kubelet has words for a failure, they
//! are upstream's.

use std::io;

use runtimes_contract::RuntimeError;
use thiserror::Error;

/// A failed action.
#[derive(Debug, Error)]
pub(crate) enum ActionError {
    #[error("missing probe handler")]
    NoHandler,
    #[error("timeout: probe did not answer within {seconds}s")]
    Timeout { seconds: u64 },
    #[error("no runtime for \"{0}\" is configured")]
    NoRuntime(String),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A hook with an action that hooks do not have.
    #[error("Cannot run handler: invalid handler: {0}")]
    InvalidHook(&'static str),
    /// A hook's command failed.
    #[error("command ended with exit code {code}: {output}")]
    HookCommand { code: i32, output: String },
    /// A probe's command failed without output.
    #[error("command ended with exit code {0}")]
    ProbeCommand(i32),
    /// A probe's command failed with this output.
    #[error("{0}")]
    ProbeOutput(String),
    #[error("invalid port number: {0}")]
    PortNumber(i32),
    #[error("couldn't find port: {0}")]
    PortName(String),
    #[error("the Pod has no address")]
    NoAddress,
    #[error("dial tcp {address}: {}", dial_message(.error))]
    Dial { address: String, error: io::Error },
    #[error("Get \"{url}\": {error}")]
    Get { url: String, error: HttpError },
    #[error("HTTP probe failed with statuscode: {0}")]
    ProbeStatus(u16),
    #[error("http hook failed with statuscode: {0}")]
    HookStatus(u16),
    #[error("{doing} {address}: {error}")]
    Grpc { doing: &'static str, address: String, error: Box<dyn std::error::Error + Send + Sync> },
    #[error("connection to {address} ended: {error}")]
    GrpcEnded { address: String, error: hyper::Error },
    #[error("{0}")]
    GrpcRequest(http::Error),
    #[error("this server does not implement the grpc health protocol (grpc.health.v1.Health)")]
    GrpcUnimplemented,
    #[error("rpc failed with status {0}")]
    GrpcStatus(String),
    #[error("service unhealthy (responded with \"{0}\")")]
    GrpcUnhealthy(&'static str),
}

/// A failed HTTP exchange.
#[derive(Debug, Error)]
pub(crate) enum HttpError {
    #[error("dial tcp {address}: {}", dial_message(.error))]
    Dial { address: String, error: io::Error },
    #[error("{0}")]
    Request(http::Error),
    #[error("{0}")]
    ServerName(rustls::pki_types::InvalidDnsNameError),
    #[error("{0}")]
    Tls(io::Error),
    #[error("{0}")]
    Exchange(hyper::Error),
    #[error("stopped after {0} redirects")]
    Redirects(usize),
}

/// Why a connection was not made, in Go's words: users search for those.
fn dial_message(error: &io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        ErrorKind::TimedOut => "connect: connection timed out".to_owned(),
        _ => error.to_string(),
    }
}
