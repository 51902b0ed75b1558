//! The marks on Services whose connections or requests are triggers. The proxies count the connections to a Service with the first mark,
//! and let them wait while there is no Pod; the agents count the requests to one with the second mark.

use api_client::demand::{ACTIVATED_BY, REQUESTS_COUNTED_BY};
use api_client::informer::ObjectKey;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Map, Value, json};

use super::ScaledObjects;
use crate::failure::{Failure, gone_is_fine};
use crate::keda::kinds::ScaledObject;
use crate::keda::spec::{ScaledObjectSpec, TriggerSpec};
use crate::keda::triggers::scaled_service::names;
use crate::keda::triggers::{ACTIVATING, COUNTING};
use crate::{meta, writes};

/// What happens to a mark.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// The Service gets the mark of this object.
    Mark,
    /// The Service loses it.
    Unmark,
}

/// Decides about the mark of a Service: `by` is the object that it names, `exists` says whether that object exists. A Service that
/// several objects name has the mark of one of them.
pub fn change(own: &str, by: Option<&str>, exists: bool, is_wanted: bool) -> Option<Change> {
    match (is_wanted, by) {
        (true, None) => Some(Change::Mark),
        (true, Some(by)) if by != own && !exists => Some(Change::Mark),
        (false, Some(by)) if by == own => Some(Change::Unmark),
        _ => None,
    }
}

/// The marks, each with the types of triggers that need it.
const MARKS: [(&str, &[&str]); 2] = [(ACTIVATED_BY, &ACTIVATING), (REQUESTS_COUNTED_BY, &COUNTING)];

/// Whether connections or requests to a Service are a trigger of an object.
pub fn is_triggered(object: &ScaledObject, service: &ObjectKey) -> bool {
    let spec = serde_json::from_value::<ScaledObjectSpec>(object.spec.clone());
    spec.is_ok_and(|spec| names(&spec.triggers, &ACTIVATING).contains(service.name.as_str()))
}

impl ScaledObjects {
    /// Marks the Services of these triggers, and takes the marks of this object from all others in the namespace.
    pub(super) async fn mark_services(&self, key: &ObjectKey, triggers: &[TriggerSpec]) -> Result<(), Failure> {
        let wanted = MARKS.map(|(mark, types)| (mark, names(triggers, types)));
        for service in self.sources.reports.services.in_namespace(&key.namespace) {
            let mut annotations = Map::new();
            for (mark, services) in &wanted {
                let by = service.metadata.annotations.as_ref().and_then(|annotations| annotations.get(*mark)).map(String::as_str);
                let exists = by.is_some_and(|by| self.objects.get(&ObjectKey::new(&key.namespace, by)).is_some());
                match change(&key.name, by, exists, services.contains(meta::name(&service.metadata))) {
                    Some(Change::Mark) => annotations.insert((*mark).to_owned(), json!(key.name)),
                    Some(Change::Unmark) => annotations.insert((*mark).to_owned(), Value::Null),
                    None => None,
                };
            }
            if !annotations.is_empty() {
                let patch = json!({"metadata": {"annotations": annotations}});
                gone_is_fine(writes::patch::<Service>(&self.client, &service, patch).await.map(drop))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_the_mark_of_one_object_that_exists() {
        for (by, exists, is_wanted, wanted) in [
            (None, false, false, None),
            (None, false, true, Some(Change::Mark)),
            (Some("web"), true, true, None),
            (Some("web"), true, false, Some(Change::Unmark)),
            (Some("other"), true, true, None),
            (Some("other"), false, true, Some(Change::Mark)),
            (Some("other"), false, false, None),
        ] {
            assert_eq!(change("web", by, exists, is_wanted), wanted, "{by:?} {exists} {is_wanted}");
        }
    }
}
