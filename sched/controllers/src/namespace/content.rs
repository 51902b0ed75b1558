//! Deletes everything in a namespace and reports what is left.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, ObjectMeta, Preconditions};

use crate::discovery::{Discovered, Served, api_resource};
use crate::failure::{During, Failure, gone_is_fine};
use crate::meta;

/// The expected time for objects with finalizers, upstream's `finalizerEstimateSeconds`.
const FINALIZER_ESTIMATE_SECONDS: i64 = 15;
/// Longest back-off after a fault, upstream's for namespaces.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// The number of objects of one kind whose finalizers are read; the rest is only counted.
const PAGE_LEN: u32 = 500;

/// The result of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Why not all kinds were discovered.
    pub discovery: Option<String>,
    /// The failures of deletions.
    pub failures: Vec<String>,
    /// Objects left, by `resource.group`.
    pub remaining: BTreeMap<String, usize>,
    /// Objects left, by the finalizer they have.
    pub finalizers: BTreeMap<String, usize>,
    /// The longest grace period of the remaining objects.
    pub estimate_seconds: i64,
}

impl Outcome {
    /// Whether the namespace is empty for certain.
    pub fn is_clean(&self) -> bool {
        self.discovery.is_none() && self.failures.is_empty() && self.remaining.is_empty()
    }

    /// The time after which to try again at the latest, as upstream: half the estimate and a second for objects that end by
    /// themselves. After failures, and for objects that remain for no visible reason, the time grows up to a minute.
    pub fn look_again_within(&self) -> Duration {
        let is_waiting = self.discovery.is_none() && self.failures.is_empty() && self.estimate_seconds > 0;
        match u64::try_from(self.estimate_seconds / 2) {
            Ok(half) if is_waiting => Duration::from_secs(half + 1),
            _ => BACKOFF_MAX,
        }
    }

    /// `pods. has 1 resource instances`, …
    pub fn remaining_text(&self) -> String {
        joined(&self.remaining, "has", "resource instances")
    }

    /// `example.com/hold in 2 resource instances`, …
    pub fn finalizers_text(&self) -> String {
        joined(&self.finalizers, "in", "resource instances")
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.remaining_text())?;
        for failure in self.discovery.iter().chain(&self.failures) {
            write!(f, "; {failure}")?;
        }
        Ok(())
    }
}

fn joined(counts: &BTreeMap<String, usize>, verb: &str, noun: &str) -> String {
    counts.iter().map(|(what, count)| format!("{what} {verb} {count} {noun}")).collect::<Vec<_>>().join(", ")
}

/// Deletes the Pods and, when none is left, everything else.
pub async fn delete_all(client: &kube::Client, namespace: &str, discovered: &Discovered) -> Outcome {
    let mut outcome = Outcome::default();
    if !discovered.stale.is_empty() {
        outcome.discovery = Some(format!("{:?}", discovered.stale));
    }
    let deletable = |served: &&Served| served.kind.namespaced && served.allows("delete") && served.allows("list");
    let is_pods = |served: &Served| served.kind.group.is_empty() && served.kind.plural == "pods";
    let (pods, others): (Vec<&Served>, Vec<&Served>) = discovered.kinds.iter().filter(deletable).partition(|served| is_pods(served));
    for served in pods {
        delete_kind(client, namespace, served, &mut outcome).await;
    }
    if !outcome.remaining.is_empty() || !outcome.failures.is_empty() {
        return outcome;
    }
    for served in others {
        delete_kind(client, namespace, served, &mut outcome).await;
    }
    outcome
}

async fn delete_kind(client: &kube::Client, namespace: &str, served: &Served, outcome: &mut Outcome) {
    let what = format!("{}.{}", served.kind.plural, served.kind.group);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &api_resource(&served.kind));
    match empty(&api, served, &what).await {
        Ok(left) => note(&what, &left, outcome),
        // The kind went away in the meantime, and its objects with it.
        Err(failure) if failure.is_not_found() => {}
        Err(failure) => outcome.failures.push(failure.chain()),
    }
}

/// Deletes all objects; returns those of the first page that are left and the number of the others.
async fn empty(api: &Api<DynamicObject>, served: &Served, what: &str) -> Result<Left, Failure> {
    let first = list(api, what).await?;
    if first.listed.is_empty() {
        return Ok(first);
    }
    if served.allows("deletecollection") {
        api.delete_collection(&DeleteParams::background(), &ListParams::default()).await.during("deleting all", what)?;
    } else {
        for object in &first.listed {
            let precondition = Preconditions { uid: object.uid.clone(), resource_version: None };
            let params = DeleteParams::background().preconditions(precondition);
            gone_is_fine(api.delete(meta::name(object), &params).await.during("deleting", what))?;
        }
    }
    list(api, what).await
}

struct Left {
    listed: Vec<ObjectMeta>,
    unlisted: usize,
}

async fn list(api: &Api<DynamicObject>, what: &str) -> Result<Left, Failure> {
    let page = api.list_metadata(&ListParams::default().limit(PAGE_LEN)).await.during("listing", what)?;
    let unlisted = page.metadata.remaining_item_count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    Ok(Left { listed: page.items.into_iter().map(|object| object.metadata).collect(), unlisted })
}

fn note(what: &str, left: &Left, outcome: &mut Outcome) {
    let count = left.listed.len() + left.unlisted;
    if count == 0 {
        return;
    }
    outcome.remaining.insert(what.to_owned(), count);
    for object in &left.listed {
        for finalizer in object.finalizers.iter().flatten() {
            *outcome.finalizers.entry(finalizer.clone()).or_default() += 1;
            outcome.estimate_seconds = outcome.estimate_seconds.max(FINALIZER_ESTIMATE_SECONDS);
        }
        outcome.estimate_seconds = outcome.estimate_seconds.max(object.deletion_grace_period_seconds.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_waited_for_is_looked_at_soon() {
        let remaining = |finalizers: &[&str], grace: i64| {
            let mut outcome = Outcome::default();
            let finalizers = Some(finalizers.iter().map(|&name| name.to_owned()).collect());
            let left = ObjectMeta { finalizers, deletion_grace_period_seconds: Some(grace), ..ObjectMeta::default() };
            note("pods.", &Left { listed: vec![left], unlisted: 0 }, &mut outcome);
            outcome
        };
        assert_eq!(remaining(&["example.com/hold"], 0).look_again_within(), Duration::from_secs(8), "half the estimate and a second");
        assert_eq!(remaining(&[], 30).look_again_within(), Duration::from_secs(16));
        // A fault is tried again later each time, up to upstream's minute.
        let minute = Duration::from_secs(60);
        assert_eq!(remaining(&[], 0).look_again_within(), minute, "nothing explains what is left");
        let discovery = Outcome { discovery: Some("metrics.k8s.io/v1beta1: stale".to_owned()), ..remaining(&[], 30) };
        assert_eq!(discovery.look_again_within(), minute);
        assert_eq!(Outcome { failures: vec!["deleting all pods.: …".to_owned()], ..remaining(&["a/b"], 0) }.look_again_within(), minute);
    }
}
