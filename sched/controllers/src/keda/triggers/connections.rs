//! `service-connections`: the new connections to a Service, which wait while there is no Pod. It is Skiff's own.

use api_client::informer::ObjectKey;
use api_model::message::Message;

use super::{Config, Sample, scaled_service};
use crate::keda::demand::Reports;
use crate::keda::params::Params;

/// The type.
pub const TYPE: &str = "service-connections";
const TARGET: &str = "targetConnectionRate";
/// The add-on's default for requests.
const TARGET_DEFAULT: f64 = 100.0;

/// The settings.
pub struct Connections {
    service: ObjectKey,
    /// New connections a second of one replica.
    pub target: f64,
}

impl Connections {
    /// Reads the settings.
    pub fn parse(config: &Config<'_>) -> Result<Self, Message> {
        let mut params = Params::new(&config.spec.metadata);
        let service = scaled_service::parse(&mut params, config.namespace);
        let target = params.number_or(TARGET, TARGET_DEFAULT);
        if target <= 0.0 {
            params.fail(format!("{TARGET} must be a float greater than 0"));
        }
        params.fail_unknown(&[scaled_service::SERVICE, TARGET]);
        params.finish().map_err(|why| Message::from(format!("error parsing service connections metadata: {why}")))?;
        Ok(Self { service, target })
    }

    /// The name of the metric.
    pub fn metric_name(&self) -> String {
        format!("connections-{}", self.service.name)
    }

    /// The new connections a second. A connection that waits makes the trigger active at once.
    pub fn read(&self, reports: &Reports) -> Result<Sample, Message> {
        scaled_service::find(&reports.services, &self.service, "connections are counted")?;
        let demand = reports.demand(&self.service);
        Ok(Sample { milli: i64::try_from(demand.milli_per_second).unwrap_or(i64::MAX), is_active: demand.is_some() })
    }
}

#[cfg(test)]
mod tests {
    use api_client::demand::CONNECTIONS;
    use api_client::informer::Informer;
    use serde_json::{Value, json};

    use super::*;
    use crate::keda::spec::TriggerSpec;

    fn parse(metadata: Value) -> Result<Connections, String> {
        let spec: TriggerSpec = serde_json::from_value(json!({"type": TYPE, "metadata": metadata})).expect("a trigger");
        let config = Config { index: 0, namespace: "default", spec: &spec, credentials: Default::default() };
        Connections::parse(&config).map_err(String::from)
    }

    #[test]
    fn wrong_settings_are_refused() {
        for (metadata, wanted) in [
            (json!({}), "missing required parameter \"service\" in [triggerMetadata]"),
            (json!({"service": "other/web"}), "service \"other/web\" must be the name of a Service in the same namespace"),
            (json!({"service": "web", "targetConnectionRate": "0"}), "targetConnectionRate must be a float greater than 0"),
            (json!({"service": "web", "targetRequestRate": "5"}), "parameter \"targetRequestRate\" does not exist"),
        ] {
            let problem = parse(metadata).err().unwrap_or_default();
            assert_eq!(problem, format!("error parsing service connections metadata: {wanted}"));
        }
        assert_eq!(parse(json!({"service": "web", "targetConnectionRate": "2.5"})).map(|one| one.target), Ok(2.5));
    }

    fn reports(nodes: &[(&str, &str, Value)], services: &[Value]) -> Reports {
        let reports = Reports { leases: Informer::detached(), nodes: Informer::detached(), services: Informer::detached() };
        for (name, ready, report) in nodes {
            let annotations = json!({CONNECTIONS: report.to_string()});
            let lease = json!({"metadata": {"name": name, "namespace": "kube-node-lease", "annotations": annotations}});
            reports.leases.put(serde_json::from_value(lease).expect("a Lease"));
            let conditions = json!([{"type": "Ready", "status": ready}]);
            let node = json!({"metadata": {"name": name}, "status": {"conditions": conditions}});
            reports.nodes.put(serde_json::from_value(node).expect("a Node"));
        }
        for spec in services {
            let service = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec});
            reports.services.put(serde_json::from_value(service).expect("a Service"));
        }
        reports
    }

    #[test]
    fn the_reports_of_all_living_nodes_count_together() {
        let trigger = parse(json!({"service": "web"})).expect("a trigger");
        let service = [json!({"clusterIP": "10.96.0.1"})];
        let of =
            |waiting: u32, milli: u64| json!({"default/web": {"waiting": waiting, "milliPerSecond": milli}, "other/web": {"waiting": 9}});
        let read = |nodes: &[(&str, &str, Value)]| trigger.read(&reports(nodes, &service)).expect("a sample");
        let nodes = [("a", "True", of(0, 1_500)), ("b", "True", of(0, 500)), ("lost", "Unknown", of(3, 9_000))];
        assert_eq!(read(&nodes), Sample { milli: 2_000, is_active: true });
        assert_eq!(read(&[("a", "True", of(1, 0))]), Sample { milli: 0, is_active: true });
        assert_eq!(read(&nodes[2..]), Sample { milli: 0, is_active: false }, "what a lost node has reported is old");
        let other = json!({"other/web": {"waiting": 9}});
        assert_eq!(read(&[("a", "True", other)]), Sample { milli: 0, is_active: false }, "the Service of another namespace");
    }

    #[test]
    fn a_service_must_have_an_address() {
        let trigger = parse(json!({"service": "web"})).expect("a trigger");
        let problem = |services: &[Value]| trigger.read(&reports(&[], services)).map(|_| String::new()).unwrap_or_else(String::from);
        assert_eq!(problem(&[]), "service default/web not found");
        for spec in [json!({"clusterIP": "None"}), json!({"type": "ExternalName"}), json!({})] {
            assert_eq!(problem(&[spec]), "service default/web has no cluster IP, through which connections are counted");
        }
    }
}
