//! What can go wrong in a reconcile, and what the loop does about it: conflicts and vanished
//! objects are everyday, everything is tried again with back-off.

use thiserror::Error;

/// Why one reconcile did not finish.
#[derive(Debug, Error)]
pub enum Failure {
    /// A request to the API server failed.
    #[error("{action} {object}")]
    Request {
        /// What was attempted, for example `create pod`.
        action: &'static str,
        /// On which object.
        object: String,
        /// The server's answer, or why there was none.
        #[source]
        source: Box<kube::Error>,
    },
    /// An object holds something that cannot be worked with; a change of it is waited for.
    #[error("{object}: {problem}")]
    Unusable {
        /// The object.
        object: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The signing authority failed.
    #[error(transparent)]
    Signing(#[from] crate::config::SigningError),
    /// Some of what was to be done is not done yet.
    #[error("{object}: {waiting_for}")]
    Unfinished {
        /// The object.
        object: String,
        /// What is waited for.
        waiting_for: String,
        /// Look again after so long at the latest; sooner at first.
        at_most: std::time::Duration,
    },
}

impl Failure {
    /// The server's status reason code, where the server answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Request { source, .. } => code(source),
            _ => None,
        }
    }

    /// Whether the object has changed since it was read: read again.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Whether the object is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether the namespace is being deleted, so that creating in it is pointless.
    pub fn is_namespace_terminating(&self) -> bool {
        match self {
            Self::Request { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => {
                    let causes = status.details.as_ref().map(|d| d.causes.as_slice()).unwrap_or_default();
                    causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// The server's own words, for events; else the whole chain.
    pub fn message(&self) -> String {
        match self {
            Self::Request { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => status.message.clone(),
                other => api_client::error::chain(other),
            },
            other => other.chain(),
        }
    }

    /// The error and its sources in one line, for the log.
    pub fn chain(&self) -> String {
        api_client::error::chain(self)
    }
}

/// The HTTP status of an answered request.
pub fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Says what was attempted on which object.
pub trait During<T> {
    /// Turns a client error into a [`Failure`].
    fn during(self, action: &'static str, object: impl ToString) -> Result<T, Failure>;
}

impl<T> During<T> for Result<T, kube::Error> {
    fn during(self, action: &'static str, object: impl ToString) -> Result<T, Failure> {
        self.map_err(|source| Failure::Request { action, object: object.to_string(), source: Box::new(source) })
    }
}

/// For deletes and clean-ups: what is gone already is success.
pub fn gone_is_fine<T>(result: Result<T, Failure>) -> Result<(), Failure> {
    match result {
        Ok(_) => Ok(()),
        Err(failure) if failure.is_not_found() => Ok(()),
        Err(failure) => Err(failure),
    }
}
