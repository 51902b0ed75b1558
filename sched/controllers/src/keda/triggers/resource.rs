//! `cpu` and `memory`: the autoscaler reads them from the metrics server.

use api_model::message::Message;
use api_model::quantity;
use k8s_openapi::api::autoscaling::v2::{ContainerResourceMetricSource, MetricSpec, MetricTarget, ResourceMetricSource};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::Config;
use crate::keda::params::Params;

/// The two types.
pub struct Resource;

impl Resource {
    /// The metric of the settings.
    pub fn parse(config: &Config<'_>) -> Result<MetricSpec, Message> {
        let name = config.spec.type_.clone();
        let problem = |why: String| Message::from(format!("error parsing {name} metadata: {why}"));
        let mut params = Params::new(&config.spec.metadata);
        let value = params.required("value");
        if params.get("type").is_some() {
            params
                .fail(format!("scaler {name} info: The 'type' setting is DEPRECATED and is removed in v2.18 - Use 'metricType' instead."));
        }
        let container = params.get("containerName").map(str::to_owned);
        params.finish().map_err(|why| problem(why.into()))?;
        let mut target = MetricTarget { type_: config.spec.metric_type.clone(), ..MetricTarget::default() };
        match target.type_.as_str() {
            "AverageValue" => {
                let nano = quantity::nano(value).map_err(|_| problem(format!("value {value:?} is no quantity")))?;
                let text = if value.ends_with('i') { quantity::binary_text(nano) } else { quantity::decimal_text(nano, false) };
                target.average_value = Some(Quantity(text));
            }
            "Utilization" => {
                let percent = value.parse().map_err(|_| problem(format!("strconv.ParseInt: parsing {value:?}: invalid syntax")))?;
                target.average_utilization = Some(percent);
            }
            other => return Err(problem(format!("unknown metric type: {other}, allowed values are 'Utilization' or 'AverageValue'"))),
        }
        Ok(match container {
            Some(container) => MetricSpec {
                type_: "ContainerResource".to_owned(),
                container_resource: Some(ContainerResourceMetricSource { name, container, target }),
                ..MetricSpec::default()
            },
            None => {
                MetricSpec { type_: "Resource".to_owned(), resource: Some(ResourceMetricSource { name, target }), ..MetricSpec::default() }
            }
        })
    }
}
