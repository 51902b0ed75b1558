//! Why a forwarded request got no response, and whether the cause is the client or the server.

use std::error::Error;

use hyper_util::client::legacy;

use crate::backend::ConnectError;
use crate::reused::Unheard;

/// Why there is no response.
#[derive(Debug)]
pub struct Failure {
    /// The message.
    pub why: String,
    /// Whether the cause is the request or its body. Such a failure says nothing about the server.
    pub is_of_request: bool,
    /// Whether a reused connection ended before the first byte of the response.
    pub is_of_reuse: bool,
}

impl Failure {
    /// The request cannot be sent.
    pub fn of_request(error: &dyn Error) -> Self {
        Self { why: error.to_string(), is_of_request: true, is_of_reuse: false }
    }

    /// The failure on a connection for this request alone.
    pub fn of_own(error: &hyper::Error) -> Self {
        Self { why: error.to_string(), is_of_request: error.is_user(), is_of_reuse: false }
    }

    /// The failure on a pooled connection, or in the connection attempt of the pool.
    pub fn of_pooled(error: &legacy::Error) -> Self {
        let cause = error.source().and_then(|source| source.downcast_ref::<hyper::Error>());
        let mut known = http::Extensions::new();
        error.connect_info().into_iter().for_each(|connection| connection.get_extras(&mut known));
        Self {
            why: root_cause(error),
            // Without a cause, the request was not sent at all.
            is_of_request: !error.is_connect() && cause.is_none_or(hyper::Error::is_user),
            is_of_reuse: known.get::<Unheard>().is_some_and(Unheard::get),
        }
    }
}

/// A failed connection attempt.
impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self { why: error.to_string(), is_of_request: false, is_of_reuse: false }
    }
}

/// The innermost error. The outer errors only say that something failed.
pub fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
