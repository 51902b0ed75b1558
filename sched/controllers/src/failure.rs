//! The failures of a reconcile, and what the loop does about them: conflicts and vanished objects are normal, and every key is
//! tried again with back-off.

use thiserror::Error;

/// Why one reconcile did not finish.
#[derive(Debug, Error)]
pub enum Failure {
    /// A request to the API server failed.
    #[error("{action} {object}")]
    Request {
        /// What was attempted, for example `create pod`.
        action: &'static str,
        /// The object of the attempt.
        object: String,
        /// The server's answer, or why there was none.
        #[source]
        source: Box<kube::Error>,
    },
    /// An object has a value that the controller cannot work with; the key waits for a change of the object.
    #[error("{object}: {problem}")]
    Unusable {
        /// The object.
        object: String,
        /// What is wrong with the value.
        problem: String,
    },
    /// The signing authority failed.
    #[error(transparent)]
    Signing(#[from] crate::config::SigningError),
    /// A part of the work is not done yet.
    #[error("{object}: {waiting_for}")]
    Unfinished {
        /// The object.
        object: String,
        /// What the work waits for.
        waiting_for: String,
        /// Reconcile again after this time at the latest; the first attempts are sooner.
        at_most: std::time::Duration,
    },
}

impl Failure {
    /// The server's status reason code, when the server answered.
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

    /// Whether an object of that name exists already.
    pub fn is_already_exists(&self) -> bool {
        match self {
            Self::Request { source, .. } => matches!(source.as_ref(), kube::Error::Api(status) if status.reason == "AlreadyExists"),
            _ => false,
        }
    }

    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether the namespace is being deleted, so that nothing can be created in it.
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

    /// The server's own words for events, else the whole chain.
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

/// Adds what was attempted on which object.
pub trait During<T> {
    /// Turns a client error into a [`Failure`].
    fn during(self, action: &'static str, object: impl ToString) -> Result<T, Failure>;
}

impl<T> During<T> for Result<T, kube::Error> {
    fn during(self, action: &'static str, object: impl ToString) -> Result<T, Failure> {
        self.map_err(|source| Failure::Request { action, object: object.to_string(), source: Box::new(source) })
    }
}

/// For deletions and clean-ups: an object that is gone already is a success.
pub fn gone_is_fine<T>(result: Result<T, Failure>) -> Result<(), Failure> {
    match result {
        Ok(_) => Ok(()),
        Err(failure) if failure.is_not_found() => Ok(()),
        Err(failure) => Err(failure),
    }
}
