//! Why a metric could not be read, in the words of upstream and of client-go.

use api_model::selector::SelectorError;
use thiserror::Error;

/// The API of resources.
pub const RESOURCE: &str = "resource";
/// The API of custom metrics.
pub const CUSTOM: &str = "custom";
/// The API of external metrics.
pub const EXTERNAL: &str = "external";

/// kube's reason for an answer that is no Status.
const NO_STATUS: &str = "Failed to parse error data";

/// Why a metric could not be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum MetricsError {
    /// The request failed.
    #[error("unable to fetch metrics from {api} metrics API: {problem}")]
    Fetch {
        /// The API.
        api: &'static str,
        /// What the server said.
        problem: String,
    },
    /// The answer has no values.
    #[error("no metrics returned from {0} metrics API")]
    Empty(&'static str),
    /// The time for all metrics of the autoscaler is over.
    #[error("context deadline exceeded")]
    Deadline,
    /// The metric's selector is invalid.
    #[error(transparent)]
    Selector(#[from] SelectorError),
}

/// client-go's words for the failure of a request for `named`. Where the answer says nothing of its own, they depend on its code
/// alone.
pub fn words(error: &kube::Error, named: &str) -> String {
    let kube::Error::Api(status) = error else { return api_client::error::chain(error) };
    let general = match status.code {
        404 => "the server could not find the requested resource".to_owned(),
        500 => format!("an error on the server ({:?}) has prevented the request from succeeding", status.message),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned(),
        code => format!("the server responded with the status code {code} but did not return more information"),
    };
    if status.reason == NO_STATUS || status.message == general {
        format!("{general} (get {named})")
    } else {
        api_client::error::chain(error)
    }
}
