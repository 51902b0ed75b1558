//! Roles, their bindings, and certificates.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::duration;
use crate::printer::{AGE, CREATED_AT, Column, NAME, Printer, text as column, wide};
use crate::read::{age, at, created_at, list, name, text, text_or};

const GROUP: &str = "rbac.authorization.k8s.io";
const BINDING: &[Column<'static>] = &[
    NAME,
    column("Role", "The role that is granted."),
    AGE,
    wide("Users", "Users it is granted to."),
    wide("Groups", "Groups it is granted to."),
    wide("ServiceAccounts", "ServiceAccounts it is granted to."),
];

pub(crate) const PRINTERS: &[Printer] = &[
    Printer { group: GROUP, kind: "Role", columns: &[NAME, CREATED_AT], cells: role },
    Printer { group: GROUP, kind: "ClusterRole", columns: &[NAME, CREATED_AT], cells: role },
    Printer { group: GROUP, kind: "RoleBinding", columns: BINDING, cells: binding },
    Printer { group: GROUP, kind: "ClusterRoleBinding", columns: BINDING, cells: binding },
    Printer {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        columns: &[
            NAME,
            AGE,
            column("SignerName", "Who is asked to sign."),
            column("Requestor", "Who asks."),
            column("RequestedDuration", "How long the certificate shall be valid."),
            column("Condition", "What became of the request."),
        ],
        cells: signing_request,
    },
    Printer {
        group: "certificates.k8s.io",
        kind: "ClusterTrustBundle",
        columns: &[NAME, column("SignerName", "The signer whose roots these are.")],
        cells: |object, _| vec![name(object), text_or(object, "spec.signerName", "<none>")],
    },
];

fn role(object: &Value, _: Timestamp) -> Vec<Value> {
    vec![name(object), created_at(object)]
}

fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| -> Value {
        let of_kind = list(object, "subjects").iter().filter(|subject| text(subject, "kind") == kind);
        let described = |subject: &Value| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
            _ => text(subject, "name").to_owned(),
        };
        of_kind.map(described).collect::<Vec<_>>().join(", ").into()
    };
    vec![
        name(object),
        format!("{}/{}", text(object, "roleRef.kind"), text(object, "roleRef.name")).into(),
        age(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn signing_request(object: &Value, now: Timestamp) -> Vec<Value> {
    let requested = at(object, "spec.expirationSeconds").and_then(Value::as_i64);
    vec![
        name(object),
        age(object, now),
        text_or(object, "spec.signerName", "<none>"),
        text(object, "spec.username").into(),
        requested.map_or_else(|| "<none>".to_owned(), |seconds| duration::human(SignedDuration::from_secs(seconds))).into(),
        request_condition(object).into(),
    ]
}

/// Denied has priority over approved. The status of the conditions is ignored, because it can only be true.
fn request_condition(object: &Value) -> String {
    let has = |kind: &str| list(object, "status.conditions").iter().any(|condition| text(condition, "type") == kind);
    let mut words = vec![match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }];
    words.extend(has("Failed").then_some("Failed"));
    words.extend((!text(object, "status.certificate").is_empty()).then_some("Issued"));
    words.join(",")
}

#[cfg(test)]
mod tests;
