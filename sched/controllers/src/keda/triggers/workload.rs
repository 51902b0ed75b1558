//! `kubernetes-workload`: the number of Pods that a selector selects.

use std::collections::BTreeSet;

use api_client::informer::Informer;
use api_model::message::Message;
use api_model::selector::Selector;
use k8s_openapi::api::core::v1::Pod;

use super::{Config, Sample};
use crate::keda::params::Params;
use crate::meta;

/// The settings.
pub struct Workload {
    namespace: String,
    selector: Selector,
    activation: f64,
    is_by_node: bool,
    /// The Pods of one replica.
    pub target: f64,
}

impl Workload {
    /// Reads the settings.
    pub fn parse(config: &Config<'_>) -> Result<Self, Message> {
        let problem = |why: String| Message::from(format!("error parsing kubernetes workload metadata: {why}"));
        let mut params = Params::new(&config.spec.metadata);
        let selector = params.required("podSelector");
        let (target, activation) = (params.number_or("value", 0.0), params.number_or("activationValue", 0.0));
        let is_by_node = params.boolean("groupByNode", false);
        if target <= 0.0 {
            params.fail("value must be a float greater than 0");
        }
        params.finish().map_err(|why| problem(format!("error parsing kubernetes workload metadata: {why}")))?;
        let selector = Selector::parse(selector).map_err(|why| problem(format!("error parsing pod selector: {why}")))?;
        Ok(Self { namespace: config.namespace.to_owned(), selector, activation, is_by_node, target })
    }

    /// The name of the metric.
    pub fn metric_name(&self) -> String {
        format!("workload-{}", self.namespace)
    }

    /// The number of Pods that have not ended, or of their nodes.
    pub fn read(&self, pods: &Informer<Pod>) -> Sample {
        let mut pods = pods.in_namespace(&self.namespace);
        pods.retain(|pod| counts(pod) && meta::matches(&self.selector, pod.metadata.labels.as_ref()));
        let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|name| !name.is_empty());
        let count = match self.is_by_node {
            true => pods.iter().filter_map(|pod| node(pod)).collect::<BTreeSet<_>>().len(),
            false => pods.len(),
        };
        Sample::new(u32::try_from(count).unwrap_or(u32::MAX).into(), self.activation)
    }
}

fn counts(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}
