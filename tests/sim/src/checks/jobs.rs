//! A Job never runs more Pods than its parallelism, never one index twice at a time, and counts each Pod once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Recent, are_controllers_steady, count, created_pod, lost_creations};
use crate::history::{Change, Check, View};
use crate::object::{controller, is_active, is_deleting, number, text};

/// The Pods of each Job that ever ended, by the Job's UID.
type Ended = BTreeMap<String, BTreeSet<String>>;

/// Looks at the counts in the status.
#[derive(Default)]
pub struct Counts {
    succeeded: Ended,
    /// With those that were deleted before they ended, which count as failed.
    failed: Ended,
}

impl Check for Counts {
    fn change(&mut self, _: &View, change: &Change) -> Result<(), String> {
        match change.key.resource.as_str() {
            "pods" => self.pod(change),
            "jobs" => return self.job(change),
            _ => {}
        }
        Ok(())
    }
}

impl Counts {
    fn pod(&mut self, change: &Change) {
        let Some(pod) = change.new.as_ref().or(change.old.as_ref()) else { return };
        let Some(job) = controller(pod).filter(|owner| owner["kind"] == "Job") else { return };
        let ended = match text(pod, "/status/phase") {
            "Succeeded" => &mut self.succeeded,
            "Failed" => &mut self.failed,
            _ if change.new.is_none() || is_deleting(pod) => &mut self.failed,
            _ => return,
        };
        ended.entry(text(job, "/uid").to_owned()).or_default().insert(text(pod, "/metadata/uid").to_owned());
    }

    fn job(&self, change: &Change) -> Result<(), String> {
        let (Some(old), Some(new)) = (&change.old, &change.new) else { return Ok(()) };
        let uid = text(new, "/metadata/uid");
        for (ended, field, pointer) in [(&self.succeeded, "succeeded", "/status/succeeded"), (&self.failed, "failed", "/status/failed")] {
            let (before, now) = (number(old, pointer).unwrap_or(0), number(new, pointer).unwrap_or(0));
            let ended = ended.get(uid).map_or(0, |pods| count(pods.iter()));
            if now < before && text(old, "/metadata/uid") == uid {
                return Err(format!("{} counts {field} {before}, then {now}", change.key));
            }
            if now > ended {
                return Err(format!("{} counts {field} {now}, and {ended} of its Pods did", change.key));
            }
        }
        Ok(())
    }
}

/// Looks at the Pods that a Job creates.
#[derive(Default)]
pub struct Creations {
    parallelism: Recent,
    /// The parallelism, and 0 while the Job is suspended.
    wanted: Recent,
    succeeded: Ended,
}

impl Check for Creations {
    fn change(&mut self, view: &View, change: &Change) -> Result<(), String> {
        if let (Some(job), "jobs") = (&change.new, change.key.resource.as_str()) {
            let (uid, parallelism) = (text(job, "/metadata/uid"), number(job, "/spec/parallelism").unwrap_or(1));
            self.parallelism.add(uid, parallelism, view.now);
            self.wanted.add(uid, if job["spec"]["suspend"] == true { 0 } else { parallelism }, view.now);
        }
        if let (Some(pod), "pods") = (&change.new, change.key.resource.as_str())
            && text(pod, "/status/phase") == "Succeeded"
            && !is_deleting(pod)
            && let Some(job) = controller(pod)
            && !self.is_given_up(view, change, text(job, "/uid"))
        {
            self.succeeded.entry(text(job, "/uid").to_owned()).or_default().insert(text(pod, "/metadata/uid").to_owned());
        }
        let Some((pod, job)) = created_pod(view, change, "jobs", "Job") else { return Ok(()) };
        if !are_controllers_steady(view) || lost_creations(view, &change.key.namespace) > 0 {
            return Ok(());
        }
        self.created(view, pod, job)
    }
}

impl Creations {
    /// Whether the Job may have given up a Pod that ends: it wants fewer Pods than lately, and the Pod has lost its finalizer.
    fn is_given_up(&self, view: &View, change: &Change, job: &str) -> bool {
        let was_tracked = change.old.as_ref().is_some_and(|old| old["metadata"]["finalizers"].is_array());
        !was_tracked && !self.wanted.is_steady(job, view.now)
    }

    fn created(&self, view: &View, pod: &Value, job: &Value) -> Result<(), String> {
        let (uid, name) = (text(job, "/metadata/uid"), text(pod, "/metadata/name"));
        let active: Vec<_> = view.controlled("pods", job).filter(|pod| is_active(pod)).collect();
        let running = count(active.iter());
        let limit = self.parallelism.max(uid, view.now);
        if running > limit {
            return Err(format!("{name} is the Job's active Pod number {running} of {limit}"));
        }
        if text(job, "/spec/completionMode") == "Indexed" {
            let index = |pod: &Value| pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].clone();
            let twins = count(active.iter().filter(|other| index(other) == index(pod)));
            if twins > 1 {
                return Err(format!("{name} is one of {twins} active Pods of index {}", index(pod)));
            }
        } else if let Some(completions) = number(job, "/spec/completions") {
            let succeeded = self.succeeded.get(uid).map_or(0, |pods| count(pods.iter()));
            if running + succeeded > completions {
                return Err(format!("{name}: {running} Pods are active and {succeeded} succeeded, of {completions} completions"));
            }
        }
        Ok(())
    }
}
