//! The external metrics of ScaledObjects: for the autoscaler of Pods, which reads them in this process, and as of the last look for all
//! others.

use std::sync::Arc;

use api_client::informer::{Informer, ObjectKey};
use api_model::message::Message;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::fallback::{self, Present};
use super::{Draft, rules};
use crate::discovery::Resources;
use crate::external::{self, ExternalMetrics, LatestValues};
use crate::keda::SCALED_OBJECT_NAME;
use crate::keda::kinds::ScaledObject;
use crate::keda::spec::ScaledObjectSpec;
use crate::keda::triggers::{self, Sources, Trigger};
use crate::podautoscaler::target::Target;

/// Reads triggers when the autoscaler asks for their metrics.
pub struct Values {
    /// As which Secrets and targets are read.
    pub client: kube::Client,
    /// The served kinds.
    pub resources: Arc<Resources>,
    /// ScaledObjects.
    pub objects: Informer<ScaledObject>,
    /// What triggers read from.
    pub sources: Arc<Sources>,
    /// The values of the last look.
    pub latest: Arc<LatestValues>,
}

impl ExternalMetrics for Values {
    fn read<'a>(&'a self, namespace: &'a str, metric: &'a str, selector: Option<&'a LabelSelector>) -> external::Values<'a> {
        Box::pin(async move {
            let name = selector?.match_labels.as_ref()?.get(SCALED_OBJECT_NAME)?;
            let key = ObjectKey::new(namespace, name);
            let object = self.objects.get(&key)?;
            Some(self.value(&key, &object, metric).await.map(|milli| vec![milli]))
        })
    }
}

impl Values {
    async fn value(&self, key: &ObjectKey, object: &ScaledObject, metric: &str) -> Result<i64, Message> {
        let spec: ScaledObjectSpec = serde_json::from_value(object.spec.clone()).map_err(|error| error.to_string())?;
        let named = triggers::build_of(&self.client, &key.namespace, &spec.triggers, metric).await;
        let named = named.map_err(|why| format!("error getting scalers {why}"))?;
        let trigger = &named.ok_or_else(|| format!("no matching metrics found for {metric}"))?;
        let cached = self.latest.read(key, metric).filter(|_| trigger.is_cached);
        let read = match cached {
            Some(milli) => milli,
            None => trigger.read(&self.sources, api_clock::now()).await.ok().map(|sample| sample.milli),
        };
        match read {
            Some(milli) => Ok(milli),
            // As upstream, the words are without the reason, which the ScaledObject's events have.
            None => {
                let fallback = self.fallback(key, object, &spec, trigger).await;
                fallback.ok_or_else(|| format!("metric:{metric} encountered error").into())
            }
        }
    }

    /// The value of a metric that failed too often.
    async fn fallback(&self, key: &ObjectKey, object: &ScaledObject, spec: &ScaledObjectSpec, trigger: &Trigger) -> Option<i64> {
        let status = Draft::new(&object.status).status;
        let fallback = fallback::of(spec, &status, trigger.external_name()?)?;
        let (group, version, kind) = rules::target_kind(&spec.scale_target_ref).ok()?;
        let api_version = if group.is_empty() { version } else { format!("{group}/{version}") };
        let reference = CrossVersionObjectReference { api_version: Some(api_version), kind, name: spec.scale_target_ref.name.clone() };
        let target = Target::get(&self.client, &self.resources, &key.namespace, &reference).await.ok()?;
        let present = Present { replicas: target.replicas().spec, ready: self.sources.ready(&key.namespace, target.selector()) };
        fallback::value(fallback, present, trigger.target()?)
    }
}
