//! What a deletion does to an object, as a pure function of the object, the options and the time.

use std::time::Duration;

use api_model::meta;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::definitions;
use crate::json;
use crate::registry::Served;
use crate::verbs::modify::spec_finalizers;
use crate::wire::options::{DeleteOptions, Propagation};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
/// Upstream's `DefaultTerminationGracePeriodSeconds`.
const POD_GRACE_SECONDS: i64 = 30;
/// No grace is longer than this: a century.
const GRACE_SECONDS_MAX: i64 = 100 * 366 * 24 * 3600;

/// The next step.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// Nothing holds it: it goes now.
    Remove,
    /// It is marked, or its mark changes.
    Change(Value),
    /// It is on its way out, and this request changes nothing about it.
    Keep,
}

/// The next step of a deletion.
pub(super) fn plan(served: &Served, object: &Value, options: &DeleteOptions, now: Timestamp) -> Plan {
    let mut new = object.clone();
    set_finalizers(&mut new, options.propagation);
    if served.is(definitions::GROUP, definitions::PLURAL) && !meta::is_deleting(object) {
        definitions::hold_for_cleanup(&mut new, now);
    }
    let grace = if served.is("", "pods") { pod_grace(object, options) } else { 0 };
    let held = !meta::finalizers(&new).is_empty() || spec_finalizers(&new) > 0;
    if !held && grace == 0 {
        return Plan::Remove;
    }
    if meta::is_deleting(object) {
        shorten_grace(&mut new, object, grace);
    } else {
        mark(&mut new, grace, now);
    }
    if new == *object { Plan::Keep } else { Plan::Change(new) }
}

/// How long a Pod may take to stop: not at all when nothing of it runs anywhere.
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
    meta::set(object, "deletionGracePeriodSeconds", grace);
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    if generation > 0 {
        meta::set(object, "generation", generation + 1);
    }
    if object.get("kind").and_then(Value::as_str) == Some("Namespace") {
        json::set(object, &["status", "phase"], "Terminating");
    }
}

/// A second deletion may only hurry.
fn shorten_grace(new: &mut Value, old: &Value, grace: i64) {
    let before = old.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default();
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
