//! The topology spread constraints of Pods that have none: the Pods of a Service and of a workload are spread over nodes and
//! zones where that is possible, or as the profile says. Upstream's `defaultConstraints` of `PodTopologySpread`.

mod services;

use std::sync::Arc;

use api_client::informer::{Informer, Informers, ObjectKey};
use api_model::selector::Selector;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{ReplicationController, Service};
use sched_framework::{PodController, PodInfo, TopologySpread};

use self::services::ServiceSelectors;
use crate::config::DefaultConstraints;

/// The objects whose selectors find the Pods that are spread together.
#[derive(Default)]
pub(crate) struct DefaultSpread {
    services: ServiceSelectors,
    controllers: Option<Controllers>,
}

struct Controllers {
    replica_sets: Informer<ReplicaSet>,
    stateful_sets: Informer<StatefulSet>,
    replication_controllers: Informer<ReplicationController>,
}

impl DefaultSpread {
    /// Reads the controllers of Pods from their informers.
    pub fn new(informers: &Informers) -> Self {
        let controllers = Controllers {
            replica_sets: informers.informer(),
            stateful_sets: informers.informer(),
            replication_controllers: informers.informer(),
        };
        Self { services: ServiceSelectors::default(), controllers: Some(controllers) }
    }

    /// Stores the selector of a Service, or removes that of a Service that is gone.
    pub fn set_service(&mut self, key: &ObjectKey, service: Option<&Service>) {
        let selector = service.and_then(|service| service.spec.as_ref()?.selector.clone());
        self.services.set(key, selector.unwrap_or_default());
    }

    /// The Pod with the default constraints, if it has none and belongs to a Service or to a controller.
    pub fn apply(&self, pod: Arc<PodInfo>, defaults: &DefaultConstraints) -> Arc<PodInfo> {
        if !pod.topology_spread.is_empty() || *defaults == DefaultConstraints::List(Vec::new()) {
            return pod;
        }
        let selector = self.selector(&pod);
        if selector.is_everything() {
            return pod;
        }
        let topology_spread = match defaults {
            DefaultConstraints::System => TopologySpread::system_defaults(&selector),
            DefaultConstraints::List(constraints) => constraints.iter().map(|c| TopologySpread::with_selector(c, &selector)).collect(),
        };
        Arc::new(PodInfo { topology_spread, ..PodInfo::clone(&pod) })
    }

    /// The requirements of the Services that select the Pod and of its controller; everything without them (upstream's
    /// `DefaultSelector`).
    fn selector(&self, pod: &PodInfo) -> Selector {
        let of_services = self.services.of_pod(&pod.namespace, &pod.labels);
        let of_controller =
            pod.controller.as_deref().and_then(|controller| self.controllers.as_ref()?.selector(&pod.namespace, controller));
        of_controller.into_iter().fold(Selector::from_labels(&of_services), Selector::and_all)
    }
}

impl Controllers {
    /// The selector of the controller, if it is of a kind whose Pods are spread.
    fn selector(&self, namespace: &str, controller: &PodController) -> Option<Selector> {
        let key = ObjectKey::new(namespace, &controller.name);
        match (controller.api_version.as_str(), controller.kind.as_str()) {
            ("apps/v1", "ReplicaSet") => Some(Selector::typed(Some(&self.replica_sets.get(&key)?.spec.selector))),
            ("apps/v1", "StatefulSet") => Some(Selector::typed(Some(&self.stateful_sets.get(&key)?.spec.selector))),
            ("v1", "ReplicationController") => {
                let one = self.replication_controllers.get(&key)?;
                Some(Selector::from_labels(one.spec.as_ref()?.selector.as_ref()?))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceSpec;
    use serde_json::json;

    use super::*;
    use crate::plugins::fixtures::{arguments, labelled};

    fn service(selector: &[(&str, &str)]) -> Service {
        let selector = selector.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Service { spec: Some(ServiceSpec { selector: Some(selector), ..ServiceSpec::default() }), ..Service::default() }
    }

    fn controllers() -> Controllers {
        let controllers = Controllers {
            replica_sets: Informer::detached(),
            stateful_sets: Informer::detached(),
            replication_controllers: Informer::detached(),
        };
        let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "hash", "operator": "Exists"}]});
        let set = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": selector, "template": {}}});
        controllers.replica_sets.put(serde_json::from_value(set).expect("a ReplicaSet"));
        controllers
    }

    #[test]
    fn pods_of_services_and_controllers_are_spread_unless_they_say_how() {
        let mut defaults = DefaultSpread { services: ServiceSelectors::default(), controllers: Some(controllers()) };
        defaults.set_service(&ObjectKey::new("default", "front"), Some(&service(&[("tier", "front")])));
        defaults.set_service(&ObjectKey::new("default", "none"), Some(&service(&[])));
        defaults.set_service(&ObjectKey::new("other", "all"), Some(&service(&[("app", "web")])));
        let of_set = |pod: PodInfo, name: &str| {
            let controller = PodController { api_version: "apps/v1".to_owned(), kind: "ReplicaSet".to_owned(), name: name.to_owned() };
            PodInfo { controller: Some(Box::new(controller)), ..pod }
        };
        let pod = |labels| labelled("p", labels, json!({}));
        let own = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]});
        for (what, pod, wanted) in [
            ("no Service", pod(json!({"app": "web"})), None),
            ("a Service", pod(json!({"tier": "front"})), Some("tier=front")),
            ("a controller", of_set(pod(json!({"app": "web"})), "web"), Some("app=web,hash")),
            ("both", of_set(pod(json!({"app": "web", "tier": "front"})), "web"), Some("tier=front,app=web,hash")),
            ("a controller that is gone", of_set(pod(json!({})), "gone"), None),
            ("constraints of its own", labelled("p", json!({"tier": "front"}), own), None),
        ] {
            let before = pod.topology_spread.clone();
            let wanted = wanted.map_or(before, |text| TopologySpread::system_defaults(&Selector::parse(text).expect("a selector")));
            assert_eq!(defaults.apply(Arc::new(pod), &DefaultConstraints::System).topology_spread, wanted, "{what}");
        }
    }

    #[test]
    fn the_profile_sets_the_default_constraints() {
        let mut defaults = DefaultSpread::default();
        defaults.set_service(&ObjectKey::new("default", "front"), Some(&service(&[("tier", "front")])));
        let constraint = json!({"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"});
        let spread = |constraints: serde_json::Value| {
            let args = arguments("PodTopologySpread", &json!({"defaultingType": "List", "defaultConstraints": constraints}));
            let pod = Arc::new(labelled("p", json!({"tier": "front"}), json!({})));
            defaults.apply(pod, &args.pod_topology_spread.default_constraints()).topology_spread.clone()
        };
        assert_eq!(spread(json!([])), []);
        let list = spread(json!([constraint]));
        let [one] = list.as_slice() else { panic!("{list:?}") };
        assert_eq!((one.topology_key.as_str(), one.max_skew, one.is_required, one.requires_label), ("rack", 2, true, true));
        assert!(one.selects(&[("tier".to_owned(), "front".to_owned())].into()) && !one.selects(&[].into()));
    }
}
