//! OpenAPI documents of aggregated servers. Those of version 3 stay where they are and have their place in the index;
//! of version 2 there is one for all, so the part that is about an APIService's version is fetched and kept, as text. A
//! server without a document, or whose document is too large or nonsense, is left out; of one that does not answer what it
//! said before is kept.

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

/// Who asks: upstream's name.
const READER: &str = "system:aggregator";
/// The longest document of version 2: twice that of a whole Kubernetes.
const V2_BYTES_MAX: usize = 8 << 20;

/// What is kept of a server's OpenAPI v2 document.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    /// Of the whole document, with which it is asked for again.
    etag: Option<HeaderValue>,
    /// Paths, definitions and parameters, as JSON.
    part: Bytes,
}

/// Where a server's OpenAPI v3 document of a version is; empty where it has none. What is known where that cannot be told.
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

/// A version's part of a server's OpenAPI v2 document: the one that is known, where that is the present one or where that
/// cannot be told.
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

/// Of one document at a time, beside the tasks of the runtime: a tree is large and takes a while.
///
/// # Errors
/// In words for the log.
async fn part_of(aggregation: &Aggregation, document: Bytes, prefix: String) -> Result<Bytes, String> {
    let turn = Arc::clone(&aggregation.reading).lock_owned().await;
    let reading = api_tasks::blocking("api-server/aggregated-openapi", move || {
        let _turn = turn;
        openapi::v2_part(&document, &prefix)
    });
    let part = reading.await.map_err(|error| error.to_string())?;
    part.map(|part| part.into_boxed_slice().into()).map_err(|why| why.to_string())
}

impl Aggregation {
    /// The index of OpenAPI v3.
    pub(crate) fn with_openapi(&self, mut index: Value) -> Value {
        for remote in self.remotes.all().iter() {
            let Some(documents) = self.documents_of(remote).filter(|documents| !documents.openapi.is_empty()) else { continue };
            let path = format!("apis/{}", remote.group_version());
            api_wire::json::set(&mut index, &["paths", &path, "serverRelativeURL"], documents.openapi.as_str());
        }
        index
    }

    /// What others add to the OpenAPI v2 document of these kinds, those of the highest priority first. Takes a while.
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
