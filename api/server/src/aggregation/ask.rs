//! Requests that this server itself sends to aggregated servers. Each uses a new connection, because the check includes
//! whether the server accepts connections.

use std::time::Duration;

use api_model::request::UserInfo;
use api_upstream::backend::ConnectError;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::forward::{connect, identity};
use super::{Aggregation, Remote};

/// Time limit of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The path, and the user in whose name the request is sent.
pub(super) struct Question<'q> {
    pub(super) path: &'q str,
    pub(super) user: &'q str,
    /// The ETag of the answer that is known already.
    pub(super) etag: Option<&'q HeaderValue>,
    pub(super) answer_bytes_max: usize,
}

/// An answer with any status.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    /// The answer is longer than allowed.
    #[error("{0}")]
    TooLong(String),
    /// The connection failed or ended early. A later request may succeed.
    #[error("{0}")]
    Failed(String),
}

impl From<ConnectError> for Unanswered {
    fn from(error: ConnectError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Sends the request and reads the answer.
pub(super) async fn ask(aggregation: &Aggregation, remote: &Remote, question: Question<'_>) -> Result<Answer, Unanswered> {
    let asking = async {
        let mut sender = connect(aggregation, remote).await?;
        let request = Request::get(question.path).header(header::HOST, remote.host()).header(header::ACCEPT, "application/json");
        let mut request = request.body(Body::empty()).map_err(|error| Unanswered::Failed(error.to_string()))?;
        let user = UserInfo::new(question.user, &["system:masters"]);
        request.headers_mut().extend(identity(&user).map_err(|error| Unanswered::Failed(error.message().to_owned()))?);
        request.headers_mut().extend(question.etag.map(|etag| (header::IF_NONE_MATCH, etag.clone())));
        let answer = sender.send_request(request).await.map_err(ConnectError::from)?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, question.answer_bytes_max).collect().await.map_err(|error| match error.is::<LengthLimitError>() {
            true => Unanswered::TooLong(error.to_string()),
            false => Unanswered::Failed(error.to_string()),
        })?;
        Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
    };
    let answered = tokio::time::timeout(ANSWER_TIMEOUT, asking).await;
    answered.unwrap_or_else(|_| Err(Unanswered::Failed("context deadline exceeded".to_owned())))
}
