//! Errors of the client as text for users. kube's own text of an answer from the API server contains the answer twice, the
//! second time as a dump of its fields.

use std::error::Error;

use kube::core::Status;
use kube::runtime::watcher;

/// An error and its sources in one sentence, each part once; an answer of the API server in its own words, as in client-go.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    if let Some(status) = answer(error) {
        return if status.message.is_empty() { format!("{} ({})", status.reason, status.code) } else { status.message.clone() };
    }
    let own = error.to_string();
    let Some(source) = error.source() else { return own };
    let (whole, short) = (source.to_string(), chain(source));
    if own.contains(&whole) {
        own.replacen(&whole, &short, 1)
    } else if own.contains(&short) {
        own
    } else {
        format!("{own}: {short}")
    }
}

/// Whether a watch ended normally: the server's history does not reach back far enough any more, or the connection closed. The
/// next attempt continues from there.
pub fn is_everyday(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchError(status) => status.code == 410,
        watcher::Error::WatchFailed(_) => true,
        _ => false,
    }
}

/// The API server's answer, if the error is one.
fn answer<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Status> {
    let own = error.downcast_ref::<kube::Error>().or_else(|| error.downcast_ref::<Box<kube::Error>>().map(|error| &**error));
    match own {
        Some(kube::Error::Api(status)) => Some(status),
        Some(_) => None,
        None => error.downcast_ref::<Status>().or_else(|| error.downcast_ref::<Box<Status>>().map(|status| &**status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> kube::Error {
        kube::Error::Api(Box::new(Status::failure("pods \"web\" not found", "NotFound").with_code(404)))
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{doing}")]
    struct Failure {
        doing: &'static str,
        #[source]
        source: Box<kube::Error>,
    }

    #[test]
    fn an_answer_of_the_server_is_said_once() {
        assert!(refused().to_string().contains("Status {"), "what kube says of it has changed: {}", refused());
        assert_eq!(chain(&refused()), "pods \"web\" not found");
        let failure = Failure { doing: "patch pod default/web", source: Box::new(refused()) };
        assert_eq!(chain(&failure), "patch pod default/web: pods \"web\" not found");
        let watching = watcher::Error::WatchStartFailed(refused());
        assert_eq!(chain(&watching), "failed to start watching object: pods \"web\" not found");
        let silent = kube::Error::Api(Box::new(Status::failure("", "Timeout").with_code(504)));
        assert_eq!(chain(&silent), "Timeout (504)");
    }

    #[test]
    fn causes_are_said_once() {
        let source: Box<dyn Error + Send + Sync> = "connection refused".into();
        assert_eq!(chain(&kube::Error::Service(source)), "ServiceError: connection refused");
    }
}
