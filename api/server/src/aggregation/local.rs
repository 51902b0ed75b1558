//! APIServices of this server's own kinds: those of built-in kinds are created at the start, those of custom resources
//! are created and deleted with their definitions. This is upstream's autoregistration, with its labels and priorities.
//! An APIService that a user created or changed stays as it is. Those of the metrics of resources and of external metrics come back when
//! they are deleted, since the manifest of a metrics server or an adapter, which takes one over, deletes it in the end.

use std::collections::BTreeSet;

use api_model::kind::METRICS;
use api_model::meta;
use http::StatusCode;
use serde_json::{Value, json};

use super::discovery::{CUSTOM_GROUP_PRIORITY, CUSTOM_VERSION_PRIORITY};
use super::{GROUP, PLURAL};
use crate::call::Call;
use crate::external_metrics;
use crate::loopback::{Loopback, user};
use crate::verbs::WritePath;
use crate::verbs::delete::delete_object;
use api_cache::Filter;
use api_wire::options::DeleteOptions;

/// The label that says how an APIService is maintained: `onstart`, or `true` for the loop.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Priorities of built-in groups and their versions.
const PRIORITIES: &[(&str, i64, i64)] = &[
    ("", 18_000, 1),
    ("apps", 17_800, 15),
    ("events.k8s.io", 17_750, 15),
    ("authentication.k8s.io", 17_700, 15),
    ("authorization.k8s.io", 17_600, 15),
    ("autoscaling", 17_500, 30),
    ("batch", 17_400, 15),
    ("certificates.k8s.io", 17_300, 15),
    ("networking.k8s.io", 17_200, 15),
    ("policy", 17_100, 15),
    ("rbac.authorization.k8s.io", 17_000, 15),
    ("storage.k8s.io", 16_800, 15),
    ("admissionregistration.k8s.io", 16_700, 15),
    ("apiextensions.k8s.io", 16_700, 15),
    ("scheduling.k8s.io", 16_600, 15),
    ("coordination.k8s.io", 16_500, 15),
    ("node.k8s.io", 16_300, 15),
    ("discovery.k8s.io", 16_200, 12),
    ("flowcontrol.apiserver.k8s.io", 16_100, 21),
    ("resource.k8s.io", 15_900, 15),
    // The metrics server's.
    (METRICS, 100, 100),
    // KEDA's.
    (external_metrics::GROUP, 100, 100),
];
/// Priority of a version that is not its group's preferred one.
const OLDER_VERSION_PRIORITY: i64 = 15;
/// Priorities of built-in groups that are not in the table.
const OTHER_PRIORITY: (i64, i64) = (15_000, 15);

/// The APIServices of built-in kinds. As in upstream, the group of APIServices itself has none.
pub(crate) fn builtin() -> Vec<Value> {
    let versions: BTreeSet<(&str, &str)> = api_model::kind::builtin()
        .iter()
        .map(|kind| (kind.group.as_str(), kind.version.as_str()))
        .filter(|(group, _)| *group != GROUP)
        .collect();
    let service = |(group, version): (&str, &str)| {
        let (of_group, of_version) = priorities(group);
        let preferred = api_model::kind::builtin().iter().find(|kind| kind.group == group);
        let is_preferred = preferred.is_some_and(|kind| kind.version == version);
        api_service(group, version, (of_group, if is_preferred { of_version } else { OLDER_VERSION_PRIORITY }), "onstart")
    };
    versions.into_iter().map(service).collect()
}

fn priorities(group: &str) -> (i64, i64) {
    let known = PRIORITIES.iter().find(|(known, ..)| *known == group);
    known.map_or(OTHER_PRIORITY, |(_, of_group, of_version)| (*of_group, *of_version))
}

fn api_service(group: &str, version: &str, (of_group, of_version): (i64, i64), managed: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "APIService",
        "metadata": {"name": format!("{version}.{group}"), "labels": {MANAGED: managed}},
        "spec": {"group": group, "version": version, "groupPriorityMinimum": of_group, "versionPriority": of_version},
    })
}

/// Creates and deletes the APIServices of custom resources as needed, and creates those of metrics; returns false if a write failed.
pub(super) async fn register(loopback: &Loopback, writes: &WritePath) -> bool {
    let core = &loopback.core;
    let table = core.registry.table();
    let versions = table.custom.iter().map(|served| (served.kind.group.as_str(), served.kind.version.as_str()));
    let wanted: BTreeSet<(&str, &str)> = versions.collect();
    let of_custom = (CUSTOM_GROUP_PRIORITY, CUSTOM_VERSION_PRIORITY);
    let mut wanted: Vec<Value> = wanted.into_iter().map(|(group, version)| api_service(group, version, of_custom, "true")).collect();
    let Some(served) = core.registry.find(GROUP, "v1", PLURAL) else { return true };
    let mut is_done = true;
    for object in served.resource.list(&Filter::default(), 0).items {
        let value = object.value();
        let is_ours = meta::labels(&value).and_then(|labels| labels.get(MANAGED)).and_then(Value::as_str) == Some("true");
        if !is_ours || wanted.iter().any(|wanted| meta::name(wanted) == &*object.name) {
            continue;
        }
        let mut call = Call::internal(core, &served, "", user());
        if let Err(error) = delete_object(&writes.admission, &mut call, &object.name, &DeleteOptions::default()).await
            && error.code() != StatusCode::NOT_FOUND
        {
            tracing::warn!(apiservice = &*object.name, error = error.message(), "an APIService without a definition was not deleted");
            is_done = false;
        }
    }
    wanted.extend(builtin().into_iter().filter(|service| service.pointer("/spec/group").and_then(Value::as_str) == Some(METRICS)));
    if core.config.external_metrics.is_some() {
        wanted.push(api_service(external_metrics::GROUP, external_metrics::VERSION, priorities(external_metrics::GROUP), "onstart"));
    }
    if let Err(error) = loopback.ensure(wanted).await {
        tracing::warn!(%error, "an APIService was not made");
        is_done = false;
    }
    is_done
}
