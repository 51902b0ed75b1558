//! The types of kinds, from the OpenAPI documents of the API server.

use std::collections::{BTreeMap, BTreeSet};

use api_cel::{Type, type_of_kind};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::kinds::Gvk;
use crate::failure::{During, Failure};

/// The parts of an OpenAPI document that are read.
#[derive(Default, Deserialize)]
struct Document {
    #[serde(default)]
    components: Components,
}

#[derive(Default, Deserialize)]
struct Components {
    #[serde(default)]
    schemas: Map<String, Value>,
}

/// The types of these kinds. Kinds that no document describes are left out: their policies have no warnings.
pub async fn types(client: &kube::Client, kinds: &BTreeSet<Gvk>) -> Result<BTreeMap<Gvk, Type>, Failure> {
    let mut types = BTreeMap::new();
    let mut at_hand: Option<(String, Document)> = None;
    for kind in kinds {
        let path = path(kind);
        let document = match at_hand.take() {
            Some((known, document)) if known == path => document,
            _ => fetch(client, &path).await?,
        };
        types.extend(type_of_kind(&document.components.schemas, &kind.group, &kind.version, &kind.kind).map(|of| (kind.clone(), of)));
        at_hand = Some((path, document));
    }
    Ok(types)
}

fn path(Gvk { group, version, .. }: &Gvk) -> String {
    if group.is_empty() { format!("/openapi/v3/api/{version}") } else { format!("/openapi/v3/apis/{group}/{version}") }
}

async fn fetch(client: &kube::Client, path: &str) -> Result<Document, Failure> {
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError).during("reading", path)?;
    match client.request(request).await.during("reading", path) {
        Err(failure) if failure.code().is_some_and(|code| code == 404 || code >= 500) => {
            tracing::info!(path, error = failure.chain(), "expressions cannot be held against these kinds");
            Ok(Document::default())
        }
        document => document,
    }
}
