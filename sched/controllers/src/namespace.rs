//! Namespace: deletes the content of a namespace that is being deleted, and then removes its finalizer.
//!
//! Watches Namespaces, and Pods to learn when the last one is gone. Deletes every object of every kind in the namespace, found
//! by discovery: first Pods, and the rest only when they are gone (so that nothing that a running Pod uses is deleted before
//! it). Writes `status.conditions` while objects remain and removes the finalizer `kubernetes` when none does. Never touches a
//! namespace that is not being deleted.

mod content;
mod plan;

use std::sync::Arc;

use api_client::informer::{Change, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::PostParams;

use crate::context::ControllerContext;
use crate::discovery;
use crate::failure::{During, Failure, gone_is_fine};
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, writes};
use content::Outcome;

/// The finalizer in `spec.finalizers` that this controller serves.
const FINALIZER: &str = "kubernetes";

/// Whether things may be created in the namespace.
pub fn is_active(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    !meta::is_deleting(&namespace.metadata) && phase != Some("Terminating")
}

/// The controller; its keys are namespaces' names.
pub struct Namespaces {
    client: kube::Client,
    namespaces: Informer<Namespace>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("namespace"));
    let namespaces = context.feed(&queue, |change: &Change<Namespace>| {
        let deleting = change.new.iter().filter(|ns| meta::is_deleting(&ns.metadata));
        deleting.map(|ns| meta::name(&ns.metadata).to_owned()).collect()
    });
    let namespace_cache = namespaces.clone();
    context.feed(&queue, move |change: &Change<Pod>| {
        let removed = change.old.iter().filter(|_| change.new.is_none()).map(|pod| meta::namespace(&pod.metadata).to_owned());
        let deleting = |name: &String| namespace_cache.get(&ObjectKey::new("", name)).is_some_and(|ns| meta::is_deleting(&ns.metadata));
        removed.filter(deleting).collect()
    });
    context.run(Arc::new(Namespaces { client: context.client(), namespaces }), queue);
}

impl Controller for Namespaces {
    const NAME: &'static str = "namespace-controller";
    const WORKERS: usize = 10;
    type Key = String;

    async fn reconcile(&self, key: &String) -> Result<Next, Failure> {
        let Some(namespace) = self.namespaces.get(&ObjectKey::new("", key)) else { return Ok(Next::OnChange) };
        let has_finalizer = namespace.spec.iter().flat_map(|spec| spec.finalizers.iter().flatten()).any(|finalizer| finalizer == FINALIZER);
        if !meta::is_deleting(&namespace.metadata) || !has_finalizer {
            return Ok(Next::OnChange);
        }
        let outcome = match discovery::discover(&self.client).await {
            Ok(discovered) => content::delete_all(&self.client, key, &discovered).await,
            Err(failure) => Outcome { discovery: Some(failure.chain()), ..Outcome::default() },
        };
        if outcome.is_clean() {
            self.finalize(key, meta::uid(&namespace.metadata)).await?;
            return Ok(Next::OnChange);
        }
        let status = plan::status(&namespace, &outcome, api_clock::now());
        gone_is_fine(writes::set_status(&self.client, namespace.as_ref(), namespace.status.as_ref(), &status).await)?;
        Err(Failure::Unfinished {
            object: format!("Namespace {key}"),
            waiting_for: outcome.to_string(),
            at_most: outcome.look_again_within(),
        })
    }
}

impl Namespaces {
    /// Removes our finalizer, so that the server removes the namespace.
    async fn finalize(&self, name: &str, uid: &str) -> Result<(), Failure> {
        let Some(mut fresh) = writes::get::<Namespace>(&self.client, &ObjectKey::new("", name)).await? else { return Ok(()) };
        if meta::uid(&fresh.metadata) != uid {
            return Ok(());
        }
        if let Some(finalizers) = fresh.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        let api = writes::api::<Namespace>(&self.client, "");
        let written: Result<Namespace, Failure> = api
            .replace_subresource("finalize", name, &PostParams::default(), &fresh)
            .await
            .during("finalizing", format!("Namespace {name}"));
        gone_is_fine(written)
    }
}
