//! The status of quotas: `status.hard` and `status.used`, which upstream's admission and its controller write. Here the
//! status is a copy of the [ledger](super::ledger)'s sums for readers. No decision uses it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api_admission::resource_quota::{self, Scopes};
use api_model::kind::GroupResource;
use api_model::meta;
use api_rules::apply::{self, Target, Writer};
use api_store::Expect;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::core::WriteError;
use crate::quota::Quotas;
use crate::quota::ledger::LedgerSums;
use crate::registry::Served;
use api_cache::{Cache, Filter, Object};
use api_wire::json;

/// Changes within this time are written together.
const PAUSE: Duration = Duration::from_millis(200);
/// All sums are counted anew after this time, upstream's `--resource-quota-sync-period`: time alone changes the usage of Pods
/// whose deletion does not end.
const RECOUNT: Duration = Duration::from_secs(5 * 60);
/// Pause before a failed write is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// The manager of the status in `managedFields`.
const MANAGER: &str = "kube-apiserver";

/// The revision up to which each quota's status was checked, by namespace and name.
type Counted = HashMap<(Arc<str>, Arc<str>), u64>;

/// Keeps the status of every quota up to date until the server stops.
pub(crate) async fn keep(quotas: Arc<Quotas>) {
    let core = &quotas.core;
    let mut applied = core.cache.follow();
    let mut counted = Counted::new();
    let mut recount_at = Instant::now() + RECOUNT;
    loop {
        applied.mark_unchanged();
        let all_written = pass(&quotas, &mut counted).await;
        tokio::select! {
            () = core.shutdown.cancelled() => return,
            changed = applied.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(RETRY), if !all_written => {}
            () = tokio::time::sleep_until(recount_at) => {
                quotas.ledger.forget();
                counted.clear();
                recount_at = Instant::now() + RECOUNT;
            }
        }
        let pause = tokio::time::sleep(PAUSE);
        tokio::pin!(pause);
        loop {
            // The cache does not keep events for long.
            quotas.ledger.follow(&core.cache);
            tokio::select! {
                () = core.shutdown.cancelled() => return,
                () = &mut pause => break,
                changed = applied.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// Checks the quotas for which something has changed. Returns whether every write succeeded.
async fn pass(quotas: &Quotas, counted: &mut Counted) -> bool {
    let Some(served) = quotas.core.registry.find("", "v1", "resourcequotas") else { return true };
    let stored = served.resource.list(&Filter::default(), 0).items;
    let mut fresh = Counted::new();
    let mut all_written = true;
    for quota in &stored {
        let (name, upto) = ((Arc::clone(&quota.namespace), Arc::clone(&quota.name)), latest(&quotas.core.cache, quota));
        if counted.get(&name) != Some(&upto) && !write(quotas, &served, quota).await {
            all_written = false;
            continue;
        }
        fresh.insert(name, upto);
    }
    quotas.ledger.keep(stored.iter().map(|quota| (&*quota.namespace, Scopes::from_quota(&quota.value()))));
    *counted = fresh;
    all_written
}

/// The revision of the last change to the quota or to any object that it may count.
fn latest(cache: &Cache, quota: &Object) -> u64 {
    let of = |resource: &GroupResource| cache.resource(resource).revision();
    resource_quota::sources(&quota.value()).iter().map(of).chain([quota.revision]).max().unwrap_or_default()
}

/// Writes the status if it is wrong. Returns false if that failed and has to be tried again.
async fn write(quotas: &Quotas, served: &Arc<Served>, quota: &Arc<Object>) -> bool {
    let old = quota.value();
    let hard = old.pointer("/spec/hard").cloned().unwrap_or_else(|| json!({}));
    let sums = LedgerSums { ledger: &quotas.ledger, cache: &quotas.core.cache };
    let status = json!({"hard": hard, "used": resource_quota::used(&old, &sums)});
    if old.get("status") == Some(&status) || meta::is_deleting(&old) {
        return true;
    }
    let mut new: Value = (*old).clone();
    json::set(&mut new, &["status"], status);
    let now = meta::time(api_clock::now());
    apply::record(&Target::new(&served.stored, Some("status")), Some(&old), &mut new, Writer { manager: MANAGER, now: &now });
    match quotas.core.put(served, (&quota.namespace, &quota.name), Expect::At(quota.revision), new, None).await {
        // Somebody was faster. That change will cause another pass.
        Ok(_) | Err(WriteError::Conflict) => true,
        Err(WriteError::Api(error)) => {
            tracing::warn!(namespace = %quota.namespace, quota = %quota.name, error = error.message(), "the status is not written");
            false
        }
    }
}
