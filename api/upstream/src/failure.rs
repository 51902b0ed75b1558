//! Why a request that was passed on got no answer, and whom that speaks against.

use std::error::Error;

use hyper_util::client::legacy;

use crate::backend::ConnectError;
use crate::reused::Unheard;

/// Why there is no answer.
#[derive(Debug)]
pub struct Failure {
    /// In words.
    pub why: String,
    /// Whether it lies in the request or its body: it tells nothing of the server.
    pub is_of_request: bool,
    /// Whether a connection that had been good before ended before the first byte of the answer.
    pub is_of_reuse: bool,
}

impl Failure {
    /// The request cannot be sent.
    pub fn of_request(error: &dyn Error) -> Self {
        Self { why: error.to_string(), is_of_request: true, is_of_reuse: false }
    }

    /// Over a connection of its own.
    pub fn of_own(error: &hyper::Error) -> Self {
        Self { why: error.to_string(), is_of_request: error.is_user(), is_of_reuse: false }
    }

    /// Over one of those that are kept, or while a new one was made.
    pub fn of_kept(error: &legacy::Error) -> Self {
        let cause = error.source().and_then(|source| source.downcast_ref::<hyper::Error>());
        let mut known = http::Extensions::new();
        error.connect_info().into_iter().for_each(|connection| connection.get_extras(&mut known));
        Self {
            why: root_cause(error),
            // Without a cause it was not even tried.
            is_of_request: !error.is_connect() && cause.is_none_or(hyper::Error::is_user),
            is_of_reuse: known.get::<Unheard>().is_some_and(Unheard::get),
        }
    }
}

/// Of connecting.
impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self { why: error.to_string(), is_of_request: false, is_of_reuse: false }
    }
}

/// The innermost error: the layers around it only say that something failed.
pub fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
