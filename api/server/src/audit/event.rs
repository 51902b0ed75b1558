//! One `audit.k8s.io/v1` Event, as a line of JSON.

use std::collections::BTreeMap;

use api_model::request::{Attributes, UserInfo};
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::policy::{Level, Stage};

/// The recorded data of a request; the fields are upstream's.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    kind: &'static str,
    api_version: &'static str,
    pub(super) level: Level,
    #[serde(rename = "auditID")]
    pub(super) audit_id: String,
    pub(super) stage: Stage,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: String,
    pub(super) verb: String,
    pub(super) user: UserInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<UserInfo>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub(super) source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<Value>,
    #[serde(serialize_with = "micro")]
    request_received_timestamp: Timestamp,
    #[serde(serialize_with = "micro")]
    pub(super) stage_timestamp: Timestamp,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// The object of a request.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectReference {
    pub(super) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_group: String,
    pub(super) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subresource: String,
}

impl Event {
    pub(super) fn new(level: Level, audit_id: &str, received: Timestamp) -> Self {
        Self {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level,
            audit_id: audit_id.to_owned(),
            stage: Stage::RequestReceived,
            request_uri: String::new(),
            verb: String::new(),
            user: UserInfo::default(),
            impersonated_user: None,
            source_ips: Vec::new(),
            user_agent: String::new(),
            object_ref: None,
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: received,
            stage_timestamp: received,
            annotations: BTreeMap::new(),
        }
    }

    /// The line in the log, with its line feed.
    pub(super) fn line(&self) -> Vec<u8> {
        // Serializing these fields to memory cannot fail.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

impl ObjectReference {
    pub(super) fn of(attributes: &Attributes) -> Option<Self> {
        attributes.is_resource().then(|| Self {
            resource: attributes.resource.clone(),
            namespace: attributes.namespace.clone(),
            name: attributes.name.clone(),
            api_group: attributes.group.clone(),
            api_version: attributes.version.clone(),
            subresource: attributes.subresource.clone(),
            ..Self::default()
        })
    }

    /// Fills in the fields that only the request's body has.
    pub(super) fn complete(&mut self, object: &Value) {
        let metadata = |field: &str| api_model::meta::text(object, field).to_owned();
        for (own, field) in [
            (&mut self.name, "name"),
            (&mut self.namespace, "namespace"),
            (&mut self.uid, "uid"),
            (&mut self.resource_version, "resourceVersion"),
        ] {
            if own.is_empty() {
                *own = metadata(field);
            }
        }
    }
}

/// The `responseStatus` of an answer: its Status, or only the code.
pub(super) fn status(code: u16, answered: Option<&Value>) -> Value {
    let mut status = json!({"metadata": {}, "code": code});
    let answered = answered.filter(|value| value.get("kind").and_then(Value::as_str) == Some("Status"));
    if let (Some(answered), Some(own)) = (answered, status.as_object_mut()) {
        for field in ["status", "message", "reason", "details"] {
            if let Some(value) = answered.get(field) {
                own.insert(field.to_owned(), value.clone());
            }
        }
    }
    status
}

/// An object, or each object of a list, without `metadata.managedFields`.
pub(super) fn without_managed_fields(mut object: Value) -> Value {
    let strip = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    strip(&mut object);
    object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(strip);
    object
}

fn micro<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
}
