//! Kinds that extend or configure the API server: webhooks, admission policies, flow control, custom resources,
//! aggregated APIs. Also devices.

use jiff::Timestamp;
use serde_json::Value;

use crate::printer::{AGE, CREATED_AT, Column, NAME, Printer, integer, text as column};
use crate::read::{age, at, condition, created_at, list, name, number, plain, text, text_or};
use crate::selector;

const ADMISSION: &str = "admissionregistration.k8s.io";
const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const WEBHOOKS: &[Column<'static>] =
    &[NAME, integer("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration"), AGE];
const PARAM_KIND: Column<'static> = column("ParamKind", "Kind of the objects that hold the policy's parameters.");
const BINDING: &[Column<'static>] = &[NAME, column("PolicyName", "The policy that is bound."), column("ParamRef", "Its parameters."), AGE];

pub(crate) const PRINTERS: &[Printer] = &[
    Printer { group: ADMISSION, kind: "MutatingWebhookConfiguration", columns: WEBHOOKS, cells: webhooks },
    Printer { group: ADMISSION, kind: "ValidatingWebhookConfiguration", columns: WEBHOOKS, cells: webhooks },
    Printer {
        group: ADMISSION,
        kind: "ValidatingAdmissionPolicy",
        columns: &[NAME, integer("Validations", "How many rules it has."), PARAM_KIND, AGE],
        cells: |object, now| policy(object, "spec.validations", now),
    },
    Printer {
        group: ADMISSION,
        kind: "MutatingAdmissionPolicy",
        columns: &[NAME, integer("Mutations", "How many changes it makes."), PARAM_KIND, AGE],
        cells: |object, now| policy(object, "spec.mutations", now),
    },
    Printer { group: ADMISSION, kind: "ValidatingAdmissionPolicyBinding", columns: BINDING, cells: policy_binding },
    Printer { group: ADMISSION, kind: "MutatingAdmissionPolicyBinding", columns: BINDING, cells: policy_binding },
    Printer {
        group: FLOW_CONTROL,
        kind: "FlowSchema",
        columns: &[
            NAME,
            column("PriorityLevel", "The priority level of its requests."),
            column("MatchingPrecedence", "Which schema is tried first; smaller goes first."),
            column("DistinguisherMethod", "What makes a flow: user or namespace."),
            AGE,
            column("MissingPL", "references a broken or non-existent PriorityLevelConfiguration"),
        ],
        cells: flow_schema,
    },
    Printer {
        group: FLOW_CONTROL,
        kind: "PriorityLevelConfiguration",
        columns: &[
            NAME,
            column("Type", "Limited or Exempt."),
            column("NominalConcurrencyShares", "Its share of requests at once."),
            column("Queues", "How many queues it has."),
            column("HandSize", "How many queues a flow may use."),
            column("QueueLengthLimit", "How many requests may wait in a queue."),
            AGE,
        ],
        cells: priority_level,
    },
    Printer {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        columns: &[NAME, CREATED_AT],
        cells: |object, _| vec![name(object), created_at(object)],
    },
    Printer {
        group: "apiregistration.k8s.io",
        kind: "APIService",
        columns: &[NAME, column("Service", "The Service that answers, or Local."), column("Available", "Whether it answers."), AGE],
        cells: api_service,
    },
    Printer {
        group: RESOURCE,
        kind: "ResourceClaim",
        columns: &[NAME, column("State", "A summary of the current state (allocated, pending, reserved, etc.)."), AGE],
        cells: |object, now| vec![name(object), claim_state(object).into(), age(object, now)],
    },
    Printer {
        group: RESOURCE,
        kind: "ResourceSlice",
        columns: &[
            NAME,
            column("Node", "The node that has the devices."),
            column("Driver", "The driver of the devices."),
            column("Pool", "The pool they belong to."),
            AGE,
        ],
        cells: resource_slice,
    },
    Printer {
        group: "storagemigration.k8s.io",
        kind: "StorageVersionMigration",
        columns: &[NAME, column("Resource", "Fully qualified resource to migrate")],
        cells: migration,
    },
];

fn webhooks(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), list(object, "webhooks").len().into(), age(object, now)]
}

fn policy(object: &Value, rules: &str, now: Timestamp) -> Vec<Value> {
    let parameters = at(object, "spec.paramKind");
    let parameters = parameters.map_or_else(|| "<unset>".to_owned(), |kind| format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")));
    vec![name(object), list(object, rules).len().into(), parameters.into(), age(object, now)]
}

fn policy_binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = match (text(object, "spec.paramRef.name"), text(object, "spec.paramRef.namespace")) {
        ("", _) => at(object, "spec.paramRef.selector").map_or_else(|| "<unset>".to_owned(), |s| selector::label_selector(Some(s))),
        (name, "") => format!("*/{name}"),
        (name, namespace) => format!("{namespace}/{name}"),
    };
    vec![name(object), text(object, "spec.policyName").into(), parameters.into(), age(object, now)]
}

fn flow_schema(object: &Value, now: Timestamp) -> Vec<Value> {
    let dangling = condition(object, "status.conditions", "Dangling").map_or("?", |condition| text(condition, "status"));
    vec![
        name(object),
        text(object, "spec.priorityLevelConfiguration.name").into(),
        number(object, "spec.matchingPrecedence").into(),
        text_or(object, "spec.distinguisherMethod.type", "<none>"),
        age(object, now),
        dangling.into(),
    ]
}

fn priority_level(object: &Value, now: Timestamp) -> Vec<Value> {
    let limit = |field: &str| at(object, &format!("spec.limited.{field}")).cloned().unwrap_or_else(|| "<none>".into());
    vec![
        name(object),
        text(object, "spec.type").into(),
        limit("nominalConcurrencyShares"),
        limit("limitResponse.queuing.queues"),
        limit("limitResponse.queuing.handSize"),
        limit("limitResponse.queuing.queueLengthLimit"),
        age(object, now),
    ]
}

fn api_service(object: &Value, now: Timestamp) -> Vec<Value> {
    let service = at(object, "spec.service");
    let service = service.map_or_else(|| "Local".to_owned(), |service| format!("{}/{}", text(service, "namespace"), text(service, "name")));
    let available = match condition(object, "status.conditions", "Available") {
        None => "Unknown".to_owned(),
        Some(available) if text(available, "status") == "True" => "True".to_owned(),
        Some(available) => format!("{} ({})", text(available, "status"), text(available, "reason")),
    };
    vec![name(object), service.into(), available.into(), age(object, now)]
}

fn claim_state(object: &Value) -> String {
    let deleting = api_model::meta::is_deleting(object);
    let allocated = at(object, "status.allocation").is_some();
    let reserved = allocated && !list(object, "status.reservedFor").is_empty();
    let states = [(deleting, "deleted"), (!allocated && !deleting, "pending"), (allocated, "allocated"), (reserved, "reserved")];
    states.iter().filter(|(is, _)| *is).map(|(_, state)| *state).collect::<Vec<_>>().join(",")
}

fn resource_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        plain(at(object, "spec.nodeName"), "").into(),
        text(object, "spec.driver").into(),
        text(object, "spec.pool.name").into(),
        age(object, now),
    ]
}

fn migration(object: &Value, _: Timestamp) -> Vec<Value> {
    let part = |field: &str| text(object, &format!("spec.resource.{field}")).to_owned();
    let resource = match part("group").as_str() {
        "" => part("resource"),
        group => format!("{}.{group}", part("resource")),
    };
    vec![name(object), resource.into()]
}

#[cfg(test)]
mod tests;
