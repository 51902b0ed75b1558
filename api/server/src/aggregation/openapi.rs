//! OpenAPI documents of aggregated servers. Those of version 3 stay where they are and have their place in the index;
//! of version 2 there is one for all, so the part that is about an APIService's version is fetched and kept. A server
//! whose document is away, too large or nonsense is left out.

use std::cmp::Reverse;
use std::sync::Arc;

use api_model::kind::Kind;
use api_schema::openapi::{self, Others};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;

use super::ask::{Question, ask};
use super::{Aggregation, Remote, discovery};
use crate::app::App;
use crate::wire::body::BODY_BYTES_MAX;

/// Who asks: upstream's name.
const READER: &str = "system:aggregator";
/// The longest document of version 2: twice that of a whole Kubernetes.
const V2_BYTES_MAX: usize = 8 << 20;

/// What is kept of a server's OpenAPI v2 document.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    /// Of the whole document, with which it is asked for again.
    etag: Option<HeaderValue>,
    /// Paths, definitions and parameters.
    part: Arc<Value>,
}

/// Where a server's OpenAPI v3 document of a version is; empty where it has none.
pub(super) async fn v3(app: &Arc<App>, remote: &Remote) -> String {
    let question = Question { path: "/openapi/v3", user: READER, etag: None, answer_bytes_max: BODY_BYTES_MAX };
    let index = ask(app, remote, question).await.ok().filter(|answer| answer.status.is_success());
    let index = index.and_then(|answer| serde_json::from_slice(&answer.body).ok());
    index.map(|index: Value| discovery::openapi_of(&index, remote)).unwrap_or_default()
}

/// A version's part of a server's OpenAPI v2 document: the one that is known, where that is the present one.
pub(super) async fn v2(app: &Arc<App>, remote: &Remote, known: Option<Part>) -> Option<Part> {
    let etag = known.as_ref().and_then(|known| known.etag.as_ref());
    let question = Question { path: "/openapi/v2", user: READER, etag, answer_bytes_max: V2_BYTES_MAX };
    let answer = match ask(app, remote, question).await {
        Ok(answer) => answer,
        Err(why) => {
            tracing::info!(apiservice = remote.name, why, "an aggregated server's openapi v2 document was not read");
            return None;
        }
    };
    if answer.status == StatusCode::NOT_MODIFIED {
        return known;
    }
    if !answer.status.is_success() {
        return None;
    }
    let etag = answer.headers.get(header::ETAG).cloned();
    let prefix = format!("/apis/{}/", remote.group_version());
    // Megabytes take a while.
    let part = tokio::task::spawn_blocking(move || part_of(&answer.body, &prefix)).await.ok().flatten();
    if part.is_none() {
        tracing::info!(apiservice = remote.name, "an aggregated server's openapi v2 document has nothing that could be used");
    }
    Some(Part { etag, part: Arc::new(part?) })
}

fn part_of(body: &Bytes, prefix: &str) -> Option<Value> {
    openapi::v2_part(&serde_json::from_slice(body).ok()?, prefix)
}

impl Aggregation {
    /// The index of OpenAPI v3.
    pub(crate) fn with_openapi(&self, mut index: Value) -> Value {
        for remote in self.remotes().iter() {
            let Some(documents) = self.documents_of(remote).filter(|documents| !documents.openapi.is_empty()) else { continue };
            let path = format!("apis/{}", remote.group_version());
            crate::json::set(&mut index, &["paths", &path, "serverRelativeURL"], documents.openapi.as_str());
        }
        index
    }

    /// What others add to the OpenAPI v2 document of these kinds, those of the highest priority first.
    pub(crate) fn with_openapi_v2(&self, kinds: &[Arc<Kind>]) -> Others {
        let mut remotes: Vec<Arc<Remote>> = self.remotes().iter().filter(|remote| remote.is_available).cloned().collect();
        remotes.sort_by_key(|remote| (Reverse(remote.group_priority), Reverse(remote.version_priority), remote.name.clone()));
        let parts = remotes.iter().filter_map(|remote| Some(Arc::clone(&self.documents_of(remote)?.openapi_v2.as_ref()?.part)));
        let parts: Vec<Arc<Value>> = parts.collect();
        openapi::v2_others(kinds, parts.iter().map(|part| &**part))
    }
}
