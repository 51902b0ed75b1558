//! Workloads and kinds that scale or protect them: Deployments and similar kinds, Jobs, autoscalers, disruption
//! budgets.

use jiff::Timestamp;
use serde_json::Value;

use crate::printer::{AGE, CONTAINERS, IMAGES, NAME, Printer, SELECTOR, boolean, integer, text as column};
use crate::read::{age, at, containers, is_true, list, map, name, number, plain, since, some_of, text, text_or, time};
use crate::{duration, selector};

const DESIRED: crate::Column = integer("Desired", "How many Pods there should be.");
const CURRENT: crate::Column = integer("Current", "How many Pods there are.");
const READY: crate::Column = integer("Ready", "How many Pods are ready.");
const TEMPLATE: &str = "spec.template.spec.containers";

pub(crate) const PRINTERS: &[Printer] = &[
    Printer {
        group: "apps",
        kind: "Deployment",
        columns: &[
            NAME,
            column("Ready", "Number of the pod with ready state"),
            column("Up-to-date", "How many Pods have the present template."),
            column("Available", "How many Pods have been ready for at least minReadySeconds."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: deployment,
    },
    Printer {
        group: "apps",
        kind: "ReplicaSet",
        columns: &[NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR],
        cells: |object, now| replicas(object, now, selector::label_selector(at(object, "spec.selector"))),
    },
    Printer {
        group: "",
        kind: "ReplicationController",
        columns: &[NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR],
        cells: |object, now| replicas(object, now, selector::labels(map(object, "spec.selector"))),
    },
    Printer {
        group: "apps",
        kind: "StatefulSet",
        columns: &[NAME, column("Ready", "Number of the pod with ready state"), AGE, CONTAINERS, IMAGES],
        cells: stateful_set,
    },
    Printer {
        group: "apps",
        kind: "DaemonSet",
        columns: &[
            NAME,
            integer("Desired", "How many nodes should run the Pod."),
            integer("Current", "How many nodes that should run the Pod do."),
            READY,
            integer("Up-to-date", "How many nodes run the present template."),
            integer("Available", "How many nodes have a Pod ready for at least minReadySeconds."),
            column("Node Selector", "Labels of the nodes that run the Pod."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: daemon_set,
    },
    Printer {
        group: "apps",
        kind: "ControllerRevision",
        columns: &[
            NAME,
            column("Controller", "Controller of the object"),
            column("Revision", "Number of the revision; greater is newer."),
            AGE,
        ],
        cells: controller_revision,
    },
    Printer {
        group: "batch",
        kind: "Job",
        columns: &[
            NAME,
            column("Status", "Status of the job."),
            column("Completions", "How many Pods succeeded, of how many that must."),
            column("Duration", "Time required to complete the job."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: job,
    },
    Printer {
        group: "batch",
        kind: "CronJob",
        columns: &[
            NAME,
            column("Schedule", "When Jobs are made, in cron format."),
            column("Timezone", "Time zone of the schedule."),
            boolean("Suspend", "Whether no more Jobs are made."),
            integer("Active", "How many Jobs run."),
            column("Last Schedule", "Time since the last Job was made."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: cron_job,
    },
    Printer {
        group: "autoscaling",
        kind: "HorizontalPodAutoscaler",
        columns: &[
            NAME,
            column("Reference", "What is scaled."),
            column("Targets", "Present and wanted values of the metrics."),
            column("MinPods", "The fewest Pods."),
            column("MaxPods", "The most Pods."),
            column("Replicas", "How many Pods there are."),
            AGE,
        ],
        cells: autoscaler,
    },
    Printer {
        group: "autoscaling",
        kind: "Scale",
        columns: &[NAME, DESIRED, integer("Available", "How many Pods there are."), AGE],
        cells: |object, now| {
            vec![name(object), number(object, "spec.replicas").into(), number(object, "status.replicas").into(), age(object, now)]
        },
    },
    Printer {
        group: "policy",
        kind: "PodDisruptionBudget",
        columns: &[
            NAME,
            column("Min Available", "The minimum number of pods that must be available."),
            column("Max Unavailable", "The maximum number of pods that may be unavailable."),
            integer("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time."),
            AGE,
        ],
        cells: disruption_budget,
    },
];

fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(object, TEMPLATE);
    vec![
        name(object),
        ready_of_desired(object),
        number(object, "status.updatedReplicas").into(),
        number(object, "status.availableReplicas").into(),
        age(object, now),
        names,
        images,
        selector::requirements(at(object, "spec.selector")).unwrap_or_else(|| "<invalid>".to_owned()).into(),
    ]
}

fn ready_of_desired(object: &Value) -> Value {
    format!("{}/{}", number(object, "status.readyReplicas"), number(object, "spec.replicas")).into()
}

fn replicas(object: &Value, now: Timestamp, selector: String) -> Vec<Value> {
    let (names, images) = containers(object, TEMPLATE);
    vec![
        name(object),
        number(object, "spec.replicas").into(),
        number(object, "status.replicas").into(),
        number(object, "status.readyReplicas").into(),
        age(object, now),
        names,
        images,
        selector.into(),
    ]
}

fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(object, TEMPLATE);
    vec![name(object), ready_of_desired(object), age(object, now), names, images]
}

fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(object, TEMPLATE);
    let count = |field: &str| Value::from(number(object, field));
    vec![
        name(object),
        count("status.desiredNumberScheduled"),
        count("status.currentNumberScheduled"),
        count("status.numberReady"),
        count("status.updatedNumberScheduled"),
        count("status.numberAvailable"),
        selector::labels(map(object, "spec.template.spec.nodeSelector")).into(),
        age(object, now),
        names,
        images,
        selector::label_selector(at(object, "spec.selector")).into(),
    ]
}

fn controller_revision(object: &Value, now: Timestamp) -> Vec<Value> {
    let owner = list(object, "metadata.ownerReferences").iter().find(|owner| at(owner, "controller") == Some(&Value::Bool(true)));
    let controller = owner.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let group = text(owner, "apiVersion").split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
            format!("{}/{}", format!("{}{group}", text(owner, "kind")).to_lowercase(), text(owner, "name"))
        },
    );
    vec![name(object), controller.into(), number(object, "revision").into(), age(object, now)]
}

fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let succeeded = number(object, "status.succeeded");
    let completions = match (at(object, "spec.completions").and_then(Value::as_i64), number(object, "spec.parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism @ 2..) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let started = time(object, "status.startTime");
    let ended = time(object, "status.completionTime").unwrap_or(now);
    let took = started.map_or_else(String::new, |started| duration::human(ended.duration_since(started)));
    let (names, images) = containers(object, TEMPLATE);
    vec![
        name(object),
        job_status(object).into(),
        completions.into(),
        took.into(),
        age(object, now),
        names,
        images,
        selector::label_selector(at(object, "spec.selector")).into(),
    ]
}

fn job_status(object: &Value) -> &'static str {
    if is_true(object, "Complete") {
        "Complete"
    } else if is_true(object, "Failed") {
        "Failed"
    } else if api_model::meta::is_deleting(object) {
        "Terminating"
    } else if is_true(object, "Suspended") {
        "Suspended"
    } else if is_true(object, "FailureTarget") {
        "FailureTarget"
    } else {
        "Running"
    }
}

fn cron_job(object: &Value, now: Timestamp) -> Vec<Value> {
    let last = at(object, "status.lastScheduleTime").map_or_else(|| "<none>".to_owned(), |_| since(object, "status.lastScheduleTime", now));
    let suspend = at(object, "spec.suspend").and_then(Value::as_bool).map_or("<unset>", |suspend| if suspend { "True" } else { "False" });
    let (names, images) = containers(object, "spec.jobTemplate.spec.template.spec.containers");
    vec![
        name(object),
        text(object, "spec.schedule").into(),
        text_or(object, "spec.timeZone", "<none>"),
        suspend.into(),
        list(object, "status.active").len().into(),
        last.into(),
        age(object, now),
        names,
        images,
        selector::label_selector(at(object, "spec.jobTemplate.spec.selector")).into(),
    ]
}

fn autoscaler(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        format!("{}/{}", text(object, "spec.scaleTargetRef.kind"), text(object, "spec.scaleTargetRef.name")).into(),
        metrics(object).into(),
        plain(at(object, "spec.minReplicas"), "<unset>").into(),
        number(object, "spec.maxReplicas").into(),
        number(object, "status.currentReplicas").into(),
        age(object, now),
    ]
}

/// The first two metrics as `PRESENT/WANTED`, and the number of the others. `autoscaling/v1` has only CPU.
fn metrics(object: &Value) -> String {
    if let Some(wanted) = at(object, "spec.targetCPUUtilizationPercentage").and_then(Value::as_i64) {
        let present = at(object, "status.currentCPUUtilizationPercentage").and_then(Value::as_i64);
        return format!("cpu: {}/{wanted}%", present.map_or_else(|| "<unknown>".to_owned(), |p| format!("{p}%")));
    }
    let specs = list(object, "spec.metrics");
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let statuses = list(object, "status.currentMetrics");
    let all: Vec<String> = specs.iter().enumerate().map(|(at, spec)| metric(spec, statuses.get(at))).collect();
    some_of(&all, 2, ", ")
}

/// One metric of `autoscaling/v2`.
fn metric(spec: &Value, status: Option<&Value>) -> String {
    let (source, resource) = match text(spec, "type") {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let target = |field: &str| at(spec, &format!("{source}.target.{field}"));
    let current = |field: &str| status.and_then(|status| at(status, &format!("{source}.current.{field}")));
    let pair = |field: &str| format!("{}/{}", plain(current(field), "<unknown>"), plain(target(field), "0"));
    let average = target("averageValue").is_some();
    if !resource {
        return match (source, average) {
            ("pods", _) => pair("averageValue"),
            (_, true) => format!("{} (avg)", pair("averageValue")),
            (_, false) => pair("value"),
        };
    }
    let what = text(spec, &format!("{source}.name"));
    if average {
        return format!("{what}: {}", pair("averageValue"));
    }
    let percent =
        |value: Option<&Value>, absent: &str| value.and_then(Value::as_i64).map_or_else(|| absent.to_owned(), |p| format!("{p}%"));
    format!("{what}: {}/{}", percent(current("averageUtilization"), "<unknown>"), percent(target("averageUtilization"), "<auto>"))
}

fn disruption_budget(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        plain(at(object, "spec.minAvailable"), "N/A").into(),
        plain(at(object, "spec.maxUnavailable"), "N/A").into(),
        number(object, "status.disruptionsAllowed").into(),
        age(object, now),
    ]
}

#[cfg(test)]
mod tests;
