//! Namespaces, and their objects other than workloads: configuration, identities, quotas.

use jiff::Timestamp;
use serde_json::Value;

use crate::printer::{AGE, CREATED_AT, NAME, Printer, text as column};
use crate::read::{age, created_at, len, list, map, name, plain, text};

pub(crate) const PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "Namespace",
        columns: &[NAME, column("Status", "The status of the namespace"), AGE],
        cells: |object, now| vec![name(object), text(object, "status.phase").into(), age(object, now)],
    },
    Printer {
        group: "",
        kind: "ConfigMap",
        columns: &[NAME, column("Data", "How many entries it has."), AGE],
        cells: |object, now| vec![name(object), (len(object, "data") + len(object, "binaryData")).into(), age(object, now)],
    },
    Printer {
        group: "",
        kind: "Secret",
        columns: &[NAME, column("Type", "What the entries are for."), column("Data", "How many entries it has."), AGE],
        cells: |object, now| vec![name(object), text(object, "type").into(), len(object, "data").into(), age(object, now)],
    },
    Printer {
        group: "",
        kind: "ServiceAccount",
        columns: &[NAME, column("Secrets", "How many Secrets its Pods may use."), AGE],
        cells: |object, now| vec![name(object), list(object, "secrets").len().into(), age(object, now)],
    },
    Printer {
        group: "",
        kind: "ResourceQuota",
        columns: &[
            NAME,
            column("Request", "What is used and allowed of requests and counts."),
            column("Limit", "What is used and allowed of limits."),
            AGE,
        ],
        cells: resource_quota,
    },
    Printer { group: "", kind: "LimitRange", columns: &[NAME, CREATED_AT], cells: |object, _| vec![name(object), created_at(object)] },
    Printer {
        group: "",
        kind: "ComponentStatus",
        columns: &[
            NAME,
            column("Status", "Status of the component conditions"),
            column("Message", "Message of the component conditions"),
            column("Error", "Error of the component conditions"),
        ],
        cells: component_status,
    },
];

fn resource_quota(object: &Value, now: Timestamp) -> Vec<Value> {
    let (hard, used) = (map(object, "status.hard"), map(object, "status.used"));
    let mut hard: Vec<(&String, &Value)> = hard.into_iter().flatten().collect();
    hard.sort_unstable_by_key(|(resource, _)| *resource);
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in hard {
        let used = plain(used.and_then(|used| used.get(resource)), "0");
        let column = if resource.starts_with("limits.") { &mut limits } else { &mut requests };
        column.push(format!("{resource}: {used}/{}", plain(Some(hard), "0")));
    }
    vec![name(object), requests.join(", ").into(), limits.join(", ").into(), age(object, now)]
}

fn component_status(object: &Value, _: Timestamp) -> Vec<Value> {
    let healthy = list(object, "conditions").iter().find(|condition| text(condition, "type") == "Healthy");
    let status = healthy.map_or("Unknown", |healthy| if text(healthy, "status") == "True" { "Healthy" } else { "Unhealthy" });
    let words = |field: &str| Value::from(healthy.map_or("", |healthy| text(healthy, field)));
    vec![name(object), status.into(), words("message"), words("error")]
}

#[cfg(test)]
mod tests;
