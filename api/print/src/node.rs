//! Nodes, and kinds that determine how Pods run on them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use crate::printer::{AGE, NAME, Printer, boolean, integer, text as column, wide};
use crate::read::{age, condition, flag_or, list, name, number, text, text_or};

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE_LABEL: &str = "kubernetes.io/role";

pub(crate) const PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "Node",
        columns: &[
            NAME,
            column("Status", "The status of the node"),
            column("Roles", "The roles of the node"),
            AGE,
            column("Version", "Version of the node agent."),
            wide("Internal-IP", "Address inside the cluster."),
            wide("External-IP", "Address outside the cluster."),
            wide("OS-Image", "Operating system."),
            wide("Kernel-Version", "Version of the kernel."),
            wide("Container-Runtime", "Name and version of what runs containers."),
        ],
        cells: node,
    },
    Printer {
        group: "node.k8s.io",
        kind: "RuntimeClass",
        columns: &[NAME, column("Handler", "The runtime that Pods of this class run in."), AGE],
        cells: |object, now| vec![name(object), text(object, "handler").into(), age(object, now)],
    },
    Printer {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        columns: &[
            NAME,
            integer("Value", "Priority of Pods of this class; greater goes first."),
            boolean("Global-Default", "Whether Pods without a class have this one."),
            AGE,
            column("PreemptionPolicy", "Whether Pods of this class may push out others."),
        ],
        cells: |object, now| {
            vec![
                name(object),
                number(object, "value").into(),
                flag_or(object, "globalDefault", false).into(),
                age(object, now),
                text(object, "preemptionPolicy").into(),
            ]
        },
    },
    Printer {
        group: "coordination.k8s.io",
        kind: "Lease",
        columns: &[NAME, column("Holder", "Who holds the lease."), AGE],
        cells: |object, now| vec![name(object), text(object, "spec.holderIdentity").into(), age(object, now)],
    },
];

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let roles = roles(object);
    let info = |field: &str| text_or(object, &format!("status.nodeInfo.{field}"), "<unknown>");
    vec![
        name(object),
        status(object).into(),
        if roles.is_empty() { "<none>".into() } else { roles.into_iter().collect::<Vec<_>>().join(",").into() },
        age(object, now),
        text(object, "status.nodeInfo.kubeletVersion").into(),
        address(object, "InternalIP"),
        address(object, "ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn status(object: &Value) -> String {
    let ready = match condition(object, "status.conditions", "Ready") {
        None => "Unknown",
        Some(ready) if text(ready, "status") == "True" => "Ready",
        Some(_) => "NotReady",
    };
    if flag_or(object, "spec.unschedulable", false) { format!("{ready},SchedulingDisabled") } else { ready.to_owned() }
}

/// Roles from the labels `node-role.kubernetes.io/ROLE` and `kubernetes.io/role=ROLE`.
fn roles(object: &Value) -> BTreeSet<&str> {
    let labels = api_model::meta::labels(object).into_iter().flatten();
    labels
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => Some(role),
            None if key == ROLE_LABEL => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect()
}

fn address(object: &Value, kind: &str) -> Value {
    let found = list(object, "status.addresses").iter().find(|address| text(address, "type") == kind);
    found.map_or("<none>", |address| text(address, "address")).into()
}

#[cfg(test)]
mod tests;
