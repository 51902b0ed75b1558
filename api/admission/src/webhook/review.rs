//! The request of a webhook: an `admission.k8s.io` AdmissionReview.

use api_model::kind::Kind;
use serde_json::{Map, Value, json};

use crate::request::{Operation, Request};

/// Group, version and kind of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gvk {
    /// API group; empty for core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

impl Gvk {
    /// The group, version and kind of the bodies of a kind or of one of its subresources.
    pub fn of_body(kind: &Kind, subresource: &str) -> Self {
        if subresource == "proxy" {
            return Self { group: String::new(), version: "v1".to_owned(), kind: format!("{}ProxyOptions", kind.kind) };
        }
        let body = kind.subresource(subresource).and_then(|sub| sub.kind.clone());
        let (group, version, kind) = body.unwrap_or_else(|| (kind.group.clone(), kind.version.clone(), kind.kind.clone()));
        Self { group, version, kind }
    }

    fn to_value(&self) -> Value {
        json!({"group": self.group, "version": self.version, "kind": self.kind})
    }
}

/// One AdmissionReview.
#[derive(Debug)]
pub struct Review<'a> {
    /// The uid of the request.
    pub uid: &'a str,
    /// Version of AdmissionReview.
    pub version: &'a str,
    /// The admission request.
    pub request: &'a Request<'a>,
    /// The form of the objects for the webhook.
    pub form: &'a Kind,
    /// The form of the client's request.
    pub requested: &'a Kind,
    /// The new object in the webhook's form.
    pub object: Option<Value>,
    /// The stored object in the webhook's form.
    pub old: Option<Value>,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`; none on connect.
    pub options: Option<Value>,
}

impl Review<'_> {
    /// The AdmissionReview.
    pub fn into_value(self) -> Value {
        let (request, sub) = (self.request, self.request.subresource);
        let resource = |kind: &Kind| json!({"group": kind.group, "version": kind.version, "resource": kind.plural});
        let mut fields = Map::new();
        let mut set = |field: &str, value: Value| fields.insert(field.to_owned(), value);
        set("uid", self.uid.into());
        set("kind", Gvk::of_body(self.form, sub).to_value());
        set("resource", resource(self.form));
        set("requestKind", Gvk::of_body(self.requested, sub).to_value());
        set("requestResource", resource(self.requested));
        let texts = [("subResource", sub), ("requestSubResource", sub), ("name", request.object_name()), ("namespace", namespace(request))];
        for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            set(field, text.into());
        }
        set("operation", request.operation.as_str().into());
        set("userInfo", json!(request.user));
        set("object", self.object.unwrap_or_default());
        set("oldObject", self.old.unwrap_or_default());
        set("dryRun", request.dry_run.into());
        set("options", self.options.unwrap_or_default());
        json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{}", self.version), "request": fields})
    }
}

/// As upstream: the namespace of a new Namespace is its own name.
fn namespace<'a>(request: &'a Request<'_>) -> &'a str {
    let is_new_namespace = request.operation == Operation::Create && request.is("", "namespaces");
    if is_new_namespace { request.object_name() } else { request.namespace }
}
