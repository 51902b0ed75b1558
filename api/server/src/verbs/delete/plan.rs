//! The next step of a deletion, as a pure function of the object, the options and the time.

use std::time::Duration;

use api_model::meta;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::registry::Served;
use crate::verbs::delete::definition;
use crate::verbs::write::spec_finalizers;
use api_wire::json;
use api_wire::options::{DeleteOptions, Propagation};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
/// Upstream's `DefaultTerminationGracePeriodSeconds`.
const POD_GRACE_SECONDS: i64 = 30;
/// No grace is longer than this: a century.
const GRACE_SECONDS_MAX: i64 = 100 * 366 * 24 * 3600;

/// The next step.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// Nothing holds the object: it is removed now.
    Remove,
    /// The object is marked as being deleted, or its mark changes.
    Change(Value),
    /// The object is being deleted, and this request changes nothing.
    Keep,
}

/// The next step of a deletion.
pub(super) fn plan(served: &Served, object: &Value, options: &DeleteOptions, now: Timestamp) -> Plan {
    let Some(grace) = grace(served, object, options) else { return Plan::Keep };
    let mut new = object.clone();
    set_finalizers(&mut new, options.propagation.or_else(|| default_propagation(served, object)));
    if served.is("apiextensions.k8s.io", "customresourcedefinitions") && !meta::is_deleting(object) {
        definition::hold_for_cleanup(&mut new, now);
    }
    let has_finalizers = !meta::finalizers(&new).is_empty() || spec_finalizers(&new) > 0;
    if !has_finalizers && grace == 0 {
        return Plan::Remove;
    }
    if meta::is_deleting(object) {
        shorten_grace(&mut new, object, grace);
    } else {
        mark(&mut new, grace, now);
    }
    if new == *object { Plan::Keep } else { Plan::Change(new) }
}

/// The grace period of the object; `None`: a Pod is being deleted already, and the request does not shorten its grace period.
fn grace(served: &Served, object: &Value, options: &DeleteOptions) -> Option<i64> {
    if !served.is("", "pods") {
        return Some(0);
    }
    if !meta::is_deleting(object) {
        return Some(pod_grace(object, options));
    }
    match (granted(object), options.grace_period_seconds) {
        (None, _) => Some(0),
        (Some(granted), Some(wanted)) if wanted < granted => Some(if wanted < 0 { 1 } else { wanted }),
        (Some(_), _) => None,
    }
}

/// The grace period of an earlier deletion.
fn granted(object: &Value) -> Option<i64> {
    object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64)
}

/// The propagation where the request names none. For these kinds upstream orphans dependents, unless a finalizer on the object says
/// otherwise.
fn default_propagation(served: &Served, object: &Value) -> Option<Propagation> {
    let chosen = meta::finalizers(object).iter().any(|finalizer| matches!(*finalizer, FOREGROUND | ORPHAN));
    let orphans = served.is("batch", "jobs") || served.is("", "replicationcontrollers");
    (orphans && !chosen).then_some(Propagation::Orphan)
}

/// The grace period of a Pod: none when none of its containers can run.
fn pod_grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let at = |path: &str| pod.pointer(path);
    let is_bound = at("/spec/nodeName").and_then(Value::as_str).is_some_and(|node| !node.is_empty());
    let is_done = matches!(at("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed"));
    if !is_bound || is_done {
        return 0;
    }
    let own = || at("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(POD_GRACE_SECONDS);
    match options.grace_period_seconds.unwrap_or_else(own) {
        negative if negative < 0 => 1,
        seconds => seconds.min(GRACE_SECONDS_MAX),
    }
}

fn set_finalizers(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let mut finalizers: Vec<String> =
        meta::finalizers(object).into_iter().filter(|f| *f != FOREGROUND && *f != ORPHAN).map(str::to_owned).collect();
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
        Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
    }
    if finalizers.is_empty() {
        meta::unset(object, "finalizers");
    } else {
        meta::set(object, "finalizers", finalizers);
    }
}

fn mark(object: &mut Value, grace: i64, now: Timestamp) {
    meta::set(object, "deletionTimestamp", meta::time(after(now, grace)));
    let is_namespace = object.get("kind").and_then(Value::as_str) == Some("Namespace");
    // As upstream, namespaces have no grace period.
    if !is_namespace {
        meta::set(object, "deletionGracePeriodSeconds", grace);
    }
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    if generation > 0 {
        meta::set(object, "generation", generation + 1);
    }
    if is_namespace {
        json::set(object, &["status", "phase"], "Terminating");
    }
}

/// A second deletion may only shorten the grace period.
fn shorten_grace(new: &mut Value, old: &Value, grace: i64) {
    let before = granted(old).unwrap_or_default();
    let Ok(end) = meta::text(old, "deletionTimestamp").parse::<Timestamp>() else { return };
    if grace >= before {
        return;
    }
    let hurried = end - SignedDuration::from_secs(before - grace);
    meta::set(new, "deletionTimestamp", meta::time(hurried));
    meta::set(new, "deletionGracePeriodSeconds", grace);
}

fn after(now: Timestamp, seconds: i64) -> Timestamp {
    now.saturating_add(Duration::from_secs(seconds.unsigned_abs())).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AtRest;
    use crate::registry::Registry;
    use api_cache::Cache;
    use serde_json::json;
    use std::sync::Arc;

    fn served(group: &str, plural: &str) -> Arc<Served> {
        let registry = Registry::new(&Cache::new(0, AtRest::default()));
        registry.find(group, "v1", plural).expect("served")
    }

    fn running(deleting: bool) -> Value {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}});
        if deleting {
            pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:01:00Z".into();
            pod["metadata"]["deletionGracePeriodSeconds"] = 60.into();
        }
        pod
    }

    fn seconds(plan: &Plan) -> Option<i64> {
        match plan {
            Plan::Change(pod) => granted(pod),
            Plan::Remove | Plan::Keep => None,
        }
    }

    #[test]
    fn only_a_requested_shorter_grace_period_shortens_the_stored_one() {
        let pods = served("", "pods");
        let now: Timestamp = "2024-01-01T00:00:00Z".parse().expect("a time");
        let delete = |pod: &Value, grace| {
            let options = DeleteOptions { grace_period_seconds: grace, ..DeleteOptions::default() };
            plan(&pods, pod, &options, now)
        };
        assert_eq!(seconds(&delete(&running(false), None)), Some(30));
        assert_eq!(delete(&running(true), None), Plan::Keep, "its own 30 seconds are no wish of this request");
        assert_eq!(delete(&running(true), Some(90)), Plan::Keep);
        assert_eq!(seconds(&delete(&running(true), Some(5))), Some(5));
        assert_eq!(seconds(&delete(&running(true), Some(-1))), Some(1));
        assert_eq!(delete(&running(true), Some(0)), Plan::Remove);
        let mut done = running(true);
        done["status"]["phase"] = "Succeeded".into();
        assert_eq!(delete(&done, None), Plan::Keep, "its node still takes it apart");
    }

    #[test]
    fn jobs_let_their_pods_go_where_nobody_says_otherwise() {
        let jobs = served("batch", "jobs");
        let job = json!({"metadata": {"name": "j", "finalizers": ["example.com/hold"]}});
        let finalizers = |object: &Value, propagation| {
            let options = DeleteOptions { propagation, ..DeleteOptions::default() };
            match plan(&jobs, object, &options, Timestamp::UNIX_EPOCH) {
                Plan::Change(new) => new["metadata"]["finalizers"].clone(),
                Plan::Remove | Plan::Keep => Value::Null,
            }
        };
        assert_eq!(finalizers(&job, None), json!(["example.com/hold", "orphan"]));
        assert_eq!(finalizers(&job, Some(Propagation::Background)), json!(["example.com/hold"]));
        let mut chosen = job.clone();
        chosen["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        assert_eq!(finalizers(&chosen, None), json!(["foregroundDeletion"]));
    }
}
