//! The use of Services that scale with it, as the nodes report it.
//!
//! The controller of ScaledObjects marks such a Service. The proxy of each node counts the new connections of a Service with the mark
//! [`ACTIVATED_BY`], and lets connections wait while there is no endpoint ([`Demand`]). The agent of each node counts the HTTP requests
//! to the Pods of a Service with the mark [`REQUESTS_COUNTED_BY`] ([`Requests`]). Each reports in an annotation of its node's Lease
//! ([`writer`]): a node may write that object and no other, the Lease is small, and the controllers watch it already. The controllers
//! sum the reports of all nodes.

pub mod rates;
mod requests;
pub mod writer;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::coordination::v1::Lease;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::informer::ObjectKey;
pub use requests::{REQUESTS, REQUESTS_COUNTED_BY, Requests};

/// The annotation of a Service whose connections count, and wait while there is no endpoint. The value is the name of a
/// ScaledObject of the same namespace.
pub const ACTIVATED_BY: &str = "skiff.internal/activated-by";
/// The annotation of a node's Lease with the node's [`Report`] of [`Demand`].
pub const CONNECTIONS: &str = "skiff.internal/connections";
/// Services in one report.
const SERVICES_MAX: usize = 256;

/// A measurement of one Service on one node. The order is by use: the greater one matters more.
pub trait Measurement: Copy + Default + Ord + Serialize + DeserializeOwned {
    /// The annotation of a node's Lease with the report.
    const ANNOTATION: &'static str;

    /// The use on both nodes together.
    #[must_use]
    fn plus(self, other: Self) -> Self;

    /// Whether there is a use now that there was not before.
    fn awakens(self, before: Self) -> bool;
}

/// The demand for one Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Demand {
    /// Connections that wait for an endpoint.
    pub waiting: u32,
    /// New connections a second, in thousandths.
    pub milli_per_second: u64,
}

impl Demand {
    /// Whether anybody wants the Service.
    pub fn is_some(self) -> bool {
        self != Self::default()
    }
}

impl Measurement for Demand {
    const ANNOTATION: &'static str = CONNECTIONS;

    fn plus(self, other: Self) -> Self {
        Self {
            waiting: self.waiting.saturating_add(other.waiting),
            milli_per_second: self.milli_per_second.saturating_add(other.milli_per_second),
        }
    }

    fn awakens(self, before: Self) -> bool {
        (before.waiting == 0 && self.waiting > 0) || (before.milli_per_second == 0 && self.milli_per_second > 0)
    }
}

/// The measurements of one node, by `namespace/name` of the Service. Services without use are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Report<M>(BTreeMap<String, M>);

impl<M: Measurement> Report<M> {
    /// A report of these Services. Beyond 256, the namespaces share the report: the most used Services of each namespace come first, so
    /// that one namespace cannot displace the others.
    pub fn new(services: impl IntoIterator<Item = (ObjectKey, M)>) -> Self {
        let used = services.into_iter().filter(|(_, measurement)| *measurement != M::default());
        let mut services: Vec<(ObjectKey, M)> = used.collect();
        if services.len() > SERVICES_MAX {
            services = most_used(services);
        }
        Self(services.into_iter().map(|(key, measurement)| (key.to_string(), measurement)).collect())
    }

    /// The report in a node's Lease. A Lease without a report, or with one that cannot be read, reports no use.
    pub fn of(lease: &Lease) -> Self {
        let Some(text) = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(M::ANNOTATION)) else {
            return Self(BTreeMap::new());
        };
        serde_json::from_str(text).unwrap_or_else(|error| {
            tracing::warn!(lease = lease.metadata.name, annotation = M::ANNOTATION, %error, "report of a node not readable");
            Self(BTreeMap::new())
        })
    }

    /// The value of the annotation; none without any use.
    pub fn annotation(&self) -> Option<String> {
        if self.0.is_empty() { None } else { serde_json::to_string(self).ok() }
    }

    /// The measurement of a Service.
    pub fn measurement(&self, service: &ObjectKey) -> M {
        self.0.get(&service.to_string()).copied().unwrap_or_default()
    }

    /// Whether nothing is reported.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The Services that are used and were not in an earlier report.
    pub fn awakened(&self, before: &Self) -> Vec<ObjectKey> {
        let is_awake = |(name, now): &(&String, &M)| now.awakens(before.0.get(*name).copied().unwrap_or_default());
        let key = |(name, _): (&String, &M)| name.split_once('/').map(|(namespace, name)| ObjectKey::new(namespace, name));
        self.0.iter().filter(is_awake).filter_map(key).collect()
    }
}

/// The Services that a full report has: each namespace's most used one, then each namespace's second, and so on.
fn most_used<M: Measurement>(mut services: Vec<(ObjectKey, M)>) -> Vec<(ObjectKey, M)> {
    services.sort_by_key(|(_, measurement)| Reverse(*measurement));
    let mut ranks: HashMap<String, usize> = HashMap::new();
    let rank = |service: (ObjectKey, M)| {
        let rank = ranks.entry(service.0.namespace.clone()).or_default();
        *rank += 1;
        (*rank, service)
    };
    let mut ranked: Vec<_> = services.into_iter().map(rank).collect();
    // The sort is stable: Services of one rank stay in the order of their use.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().take(SERVICES_MAX).map(|(_, service)| service).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(waiting: u32, milli_per_second: u64) -> Demand {
        Demand { waiting, milli_per_second }
    }

    fn report(services: &[(&str, Demand)]) -> Report<Demand> {
        Report::new(services.iter().map(|(name, demand)| (ObjectKey::new("default", *name), *demand)))
    }

    fn lease(annotation: &str) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.annotations = Some([(CONNECTIONS.to_owned(), annotation.to_owned())].into());
        lease
    }

    #[test]
    fn a_report_goes_through_a_lease() {
        let written = report(&[("web", demand(2, 1500)), ("quiet", demand(0, 0))]);
        let text = written.annotation().expect("demand");
        assert_eq!(text, r#"{"default/web":{"waiting":2,"milliPerSecond":1500}}"#);
        assert_eq!(Report::of(&lease(&text)), written);
        assert_eq!(written.measurement(&ObjectKey::new("default", "web")), demand(2, 1500));
        assert_eq!(written.measurement(&ObjectKey::new("other", "web")), demand(0, 0));
        assert_eq!(report(&[("quiet", demand(0, 0))]).annotation(), None);
    }

    #[test]
    fn what_is_no_report_is_no_demand() {
        for text in ["", "{", "[]", r#"{"default/web":{"waiting":-1}}"#, r#"{"default/web":3}"#] {
            assert!(Report::<Demand>::of(&lease(text)).is_empty(), "{text}");
        }
        assert!(Report::<Demand>::of(&Lease::default()).is_empty());
    }

    #[test]
    fn a_report_is_bounded_and_has_the_services_with_the_most_demand() {
        let many: Vec<(ObjectKey, Demand)> =
            (0..300_u32).map(|number| (ObjectKey::new("default", format!("s{number}")), demand(number, 0))).collect();
        let report = Report::new(many);
        assert_eq!(report.0.len(), SERVICES_MAX);
        assert_eq!(report.measurement(&ObjectKey::new("default", "s299")), demand(299, 0));
        assert_eq!(report.measurement(&ObjectKey::new("default", "s44")), demand(44, 0));
        assert_eq!(report.measurement(&ObjectKey::new("default", "s43")), demand(0, 0));
    }

    #[test]
    fn a_namespace_with_many_services_does_not_displace_the_others() {
        let many = (0..1_000_u32).map(|number| (ObjectKey::new("greedy", format!("s{number}")), demand(u32::MAX - number, u64::MAX)));
        let modest = ["a", "b"].map(|name| (ObjectKey::new("modest", name), demand(0, 1)));
        let report = Report::new(many.chain(modest));
        assert_eq!(report.0.len(), SERVICES_MAX);
        for (namespace, name, is_there) in
            [("modest", "a", true), ("modest", "b", true), ("greedy", "s253", true), ("greedy", "s254", false)]
        {
            assert_eq!(report.measurement(&ObjectKey::new(namespace, name)).is_some(), is_there, "{namespace}/{name}");
        }
    }

    #[test]
    fn a_service_awakes_once() {
        let (none, waiting, running) = (report(&[]), report(&[("web", demand(1, 0))]), report(&[("web", demand(0, 10))]));
        let both = report(&[("web", demand(3, 20))]);
        let keys = |now: &Report<Demand>, before: &Report<Demand>| now.awakened(before).len();
        assert_eq!(waiting.awakened(&none), [ObjectKey::new("default", "web")]);
        assert_eq!([keys(&running, &none), keys(&both, &waiting), keys(&both, &running), keys(&both, &both)], [1, 1, 1, 0]);
        assert_eq!([keys(&none, &both), keys(&running, &both)], [0, 0]);
    }
}
