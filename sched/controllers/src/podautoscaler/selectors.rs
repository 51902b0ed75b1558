//! The Pods that each autoscaler scales, by the selectors of their targets.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_client::informer::ObjectKey;
use api_model::selector::Selector;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use crate::meta;

/// Selectors by autoscaler, as last read.
#[derive(Debug, Default)]
pub struct Selectors {
    selectors: Mutex<BTreeMap<ObjectKey, Selector>>,
}

impl Selectors {
    /// The selector of an autoscaler's target.
    pub fn put(&self, autoscaler: &ObjectKey, selector: Selector) {
        self.selectors.lock().insert(autoscaler.clone(), selector);
    }

    /// The autoscaler is gone.
    pub fn remove(&self, autoscaler: &ObjectKey) {
        self.selectors.lock().remove(autoscaler);
    }

    /// The first two autoscalers of a namespace that select one of these Pods.
    pub fn selecting(&self, namespace: &str, pods: &[Arc<Pod>]) -> Vec<ObjectKey> {
        let selectors = self.selectors.lock();
        let selects = |selector: &Selector| pods.iter().any(|pod| meta::matches(selector, pod.metadata.labels.as_ref()));
        let selecting = selectors.iter().filter(|(key, selector)| key.namespace == namespace && selects(selector));
        selecting.map(|(key, _)| key.clone()).take(2).collect()
    }
}
