//! HorizontalPodAutoscalers: their bounds, the metrics that they follow, and how many Pods they want.

use api_model::k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, MetricSpec, MetricStatus};
use api_model::k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, deleted, generation, namespaced};
use crate::quantity::amount;
use crate::read::{list, or_empty};
use crate::series::{Label, Series};

impl Kind for HorizontalPodAutoscaler {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("horizontalpodautoscaler", self)
    }
}

const FAMILIES: &[Family<HorizontalPodAutoscaler>] = &[
    gauge("kube_horizontalpodautoscaler_info", "An autoscaler with what it scales.", info),
    gauge("kube_horizontalpodautoscaler_metadata_generation", "The generation of what is wanted of the autoscaler.", generation),
    gauge("kube_horizontalpodautoscaler_spec_max_replicas", "The most Pods that the autoscaler asks for.", |autoscaler, series| {
        series.integer(autoscaler.spec.max_replicas);
    }),
    gauge("kube_horizontalpodautoscaler_spec_min_replicas", "The fewest Pods that the autoscaler asks for.", |autoscaler, series| {
        series.present(autoscaler.spec.min_replicas);
    }),
    gauge("kube_horizontalpodautoscaler_spec_target_metric", "The value of a metric that the autoscaler aims at.", |autoscaler, series| {
        for metric in list(&autoscaler.spec.metrics) {
            if let Some(values) = target(metric) {
                values.write(series);
            }
        }
    }),
    gauge("kube_horizontalpodautoscaler_status_target_metric", "The current value of a metric.", |autoscaler, series| {
        for metric in list(&or_empty(&autoscaler.status).current_metrics) {
            if let Some(values) = current(metric) {
                values.write(series);
            }
        }
    }),
    gauge("kube_horizontalpodautoscaler_status_current_replicas", "How many Pods there are.", |autoscaler, series| {
        series.count(or_empty(&autoscaler.status).current_replicas);
    }),
    gauge("kube_horizontalpodautoscaler_status_desired_replicas", "How many Pods the autoscaler asks for.", |autoscaler, series| {
        series.integer(or_empty(&autoscaler.status).desired_replicas);
    }),
    gauge("kube_horizontalpodautoscaler_status_condition", "1 for the status of a condition of the autoscaler.", |autoscaler, series| {
        for condition in list(&or_empty(&autoscaler.status).conditions) {
            series.condition(&[("condition", &condition.type_)], "status", &condition.status);
        }
    }),
    gauge("kube_horizontalpodautoscaler_created", "When the autoscaler was created, in Unix seconds.", created),
    gauge("kube_horizontalpodautoscaler_deletion_timestamp", "When the deletion of the autoscaler began, in Unix seconds.", deleted),
];

fn info(autoscaler: &HorizontalPodAutoscaler, series: &mut Series<'_>) {
    let spec = &autoscaler.spec;
    let target = &spec.scale_target_ref;
    let version = target.api_version.as_deref().filter(|version| !version.is_empty());
    let mut labels: Vec<Label<'_>> = version.map(|version| ("scaletargetref_api_version", version)).into_iter().collect();
    labels.extend([("scaletargetref_kind", target.kind.as_str()), ("scaletargetref_name", &target.name)]);
    series.info(&labels);
}

/// The values of one metric, of which usually one or two are set.
struct Values<'a> {
    name: &'a str,
    value: Option<&'a Quantity>,
    average: Option<&'a Quantity>,
    /// Per cent of the requests.
    utilization: Option<i32>,
}

impl Values<'_> {
    fn write(&self, series: &mut Series<'_>) {
        let values = [
            ("value", self.value.and_then(amount)),
            ("utilization", self.utilization.map(f64::from)),
            ("average", self.average.and_then(amount)),
        ];
        for (kind, value) in values {
            if let Some(value) = value {
                series.sample(&[("metric_name", self.name), ("metric_target_type", kind)], value);
            }
        }
    }
}

/// What the autoscaler aims at; `None` for a type of metric that does not exist.
fn target(metric: &MetricSpec) -> Option<Values<'_>> {
    let (name, target) = match metric.type_.as_str() {
        "Object" => metric.object.as_ref().map(|object| (&object.metric.name, &object.target)),
        "Pods" => metric.pods.as_ref().map(|pods| (&pods.metric.name, &pods.target)),
        "Resource" => metric.resource.as_ref().map(|resource| (&resource.name, &resource.target)),
        "ContainerResource" => metric.container_resource.as_ref().map(|resource| (&resource.name, &resource.target)),
        "External" => metric.external.as_ref().map(|external| (&external.metric.name, &external.target)),
        _ => None,
    }?;
    let (value, average) = (target.value.as_ref(), target.average_value.as_ref());
    Some(Values { name, value, average, utilization: target.average_utilization })
}

/// What the autoscaler last measured.
fn current(metric: &MetricStatus) -> Option<Values<'_>> {
    let (name, current) = match metric.type_.as_str() {
        "Object" => metric.object.as_ref().map(|object| (&object.metric.name, &object.current)),
        "Pods" => metric.pods.as_ref().map(|pods| (&pods.metric.name, &pods.current)),
        "Resource" => metric.resource.as_ref().map(|resource| (&resource.name, &resource.current)),
        "ContainerResource" => metric.container_resource.as_ref().map(|resource| (&resource.name, &resource.current)),
        "External" => metric.external.as_ref().map(|external| (&external.metric.name, &external.current)),
        _ => None,
    }?;
    let (value, average) = (current.value.as_ref(), current.average_value.as_ref());
    Some(Values { name, value, average, utilization: current.average_utilization })
}
