//! OpenAPI documents of aggregated servers. Documents of version 3 stay on their servers; the index links to them. The
//! document of version 2 is one for all servers, so the part about an APIService's version is fetched and kept as text.
//! A server without a document, or with one that is too large or invalid, is left out. If a server does not answer, its
//! previous document stays.

use std::cmp::Reverse;
use std::sync::Arc;

use api_model::kind::Kind;
use api_schema::openapi::{self, Others};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;

use super::ask::{Question, Unanswered, ask};
use super::{Aggregation, Remote, discovery};
use api_wire::body::BODY_BYTES_MAX;

/// The user of these requests: upstream's name.
const READER: &str = "system:aggregator";
/// Maximum length of a version 2 document: twice that of a whole Kubernetes.
const V2_BYTES_MAX: usize = 8 << 20;

/// The kept part of a server's OpenAPI v2 document.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    /// The ETag of the whole document, for the next request.
    etag: Option<HeaderValue>,
    /// Paths, definitions and parameters, as JSON.
    part: Bytes,
}

/// The URL of a version's document in a server's OpenAPI v3 index; empty if it has none. If the server does not answer,
/// or fails with a status other than 404, the known URL.
pub(super) async fn v3(aggregation: &Aggregation, remote: &Remote, known: String) -> String {
    let question = Question { path: "/openapi/v3", user: READER, etag: None, answer_bytes_max: BODY_BYTES_MAX };
    match ask(aggregation, remote, question).await {
        Ok(answer) if answer.status.is_success() => {
            let index = serde_json::from_slice(&answer.body).ok();
            index.map(|index: Value| discovery::openapi_of(&index, remote)).unwrap_or_default()
        }
        Ok(answer) if answer.status != StatusCode::NOT_FOUND => known,
        Err(Unanswered::Failed(_)) => known,
        _ => String::new(),
    }
}

/// A version's part of a server's OpenAPI v2 document. The known part if the document has not changed, or if the server
/// does not answer or fails with a status other than 404.
pub(super) async fn v2(aggregation: &Aggregation, remote: &Remote, known: Option<Part>) -> Option<Part> {
    let etag = known.as_ref().and_then(|known| known.etag.as_ref());
    let question = Question { path: "/openapi/v2", user: READER, etag, answer_bytes_max: V2_BYTES_MAX };
    let answer = match ask(aggregation, remote, question).await {
        Ok(answer) => answer,
        Err(why) => {
            tracing::info!(apiservice = remote.name, %why, "an aggregated server's openapi v2 document was not read");
            return known.filter(|_| matches!(why, Unanswered::Failed(_)));
        }
    };
    match answer.status {
        status if status.is_success() => {}
        StatusCode::NOT_FOUND => return None,
        _ => return known,
    }
    let etag = answer.headers.get(header::ETAG).cloned();
    match part_of(aggregation, answer.body, format!("/apis/{}/", remote.group_version())).await {
        Ok(part) => Some(Part { etag, part }),
        Err(why) => {
            tracing::info!(apiservice = remote.name, why, "an aggregated server's openapi v2 document is left out");
            None
        }
    }
}

/// Extracts the part about a version. Only one document at a time, on a blocking thread: a document's tree is large and
/// takes some time.
///
/// # Errors
/// A text for the log.
async fn part_of(aggregation: &Aggregation, document: Bytes, prefix: String) -> Result<Bytes, String> {
    let guard = Arc::clone(&aggregation.reading).lock_owned().await;
    let reading = api_tasks::blocking("api-server/aggregated-openapi", move || {
        let _guard = guard;
        openapi::v2_part(&document, &prefix)
    });
    let part = reading.await.map_err(|error| error.to_string())?;
    part.map(|part| part.into_boxed_slice().into()).map_err(|why| why.to_string())
}

impl Aggregation {
    /// The OpenAPI v3 index with the documents of aggregated servers.
    pub(crate) fn with_openapi(&self, mut index: Value) -> Value {
        for remote in self.remotes.all().iter() {
            let Some(documents) = self.documents_of(remote).filter(|documents| !documents.openapi.is_empty()) else { continue };
            let path = format!("apis/{}", remote.group_version());
            api_wire::json::set(&mut index, &["paths", &path, "serverRelativeURL"], documents.openapi.as_str());
        }
        index
    }

    /// The parts of aggregated servers for the OpenAPI v2 document of these kinds, highest priority first. This takes
    /// some time.
    pub(crate) fn with_openapi_v2(&self, kinds: &[Arc<Kind>]) -> Others {
        let mut remotes: Vec<Arc<Remote>> = self.remotes.all().iter().filter(|remote| remote.is_available).cloned().collect();
        remotes.sort_by_key(|remote| (Reverse(remote.group_priority), Reverse(remote.version_priority), remote.name.clone()));
        let part = |remote: &Arc<Remote>| Some((remote.name.clone(), self.documents_of(remote)?.openapi_v2.as_ref()?.part.clone()));
        let parts: Vec<(String, Bytes)> = remotes.iter().filter_map(part).collect();
        openapi::v2_others(kinds, parts.iter().map(|(name, part)| (name.as_str(), &**part)), |apiservice, why| {
            tracing::info!(apiservice, %why, "an aggregated server's openapi v2 document is left out");
        })
    }
}
