//! Connections to Services that scale with them, as the nodes report them.
//!
//! The controller of ScaledObjects marks such a Service ([`ACTIVATED_BY`]). The proxy of each node counts the Service's new
//! connections, and lets connections wait while there is no endpoint. It reports both in an annotation of its node's Lease
//! ([`CONNECTIONS`]): a node may write that object and no other, the Lease is small, and the controllers watch it already.
//! The controllers sum the reports of all nodes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use serde::{Deserialize, Serialize};

use crate::informer::ObjectKey;

/// The annotation of a Service whose connections count, and wait while there is no endpoint. The value is the name of a
/// ScaledObject of the same namespace.
pub const ACTIVATED_BY: &str = "skiff.internal/activated-by";
/// The annotation of a node's Lease with the node's [`Report`].
pub const CONNECTIONS: &str = "skiff.internal/connections";
/// Services in one report. A node reports those with the most demand.
const SERVICES_MAX: usize = 256;

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

    /// The demand of both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            waiting: self.waiting.saturating_add(other.waiting),
            milli_per_second: self.milli_per_second.saturating_add(other.milli_per_second),
        }
    }
}

/// The demand on one node, by `namespace/name` of the Service. Services without demand are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Report(BTreeMap<String, Demand>);

impl Report {
    /// A report of these Services. Beyond 256, those with the least demand are left out.
    pub fn new(services: impl IntoIterator<Item = (ObjectKey, Demand)>) -> Self {
        let mut services: Vec<(String, Demand)> =
            services.into_iter().filter(|(_, demand)| demand.is_some()).map(|(key, demand)| (key.to_string(), demand)).collect();
        services.sort_unstable_by_key(|(_, demand)| Reverse(*demand));
        services.truncate(SERVICES_MAX);
        Self(services.into_iter().collect())
    }

    /// The report in a node's Lease. A Lease without a report, or with one that cannot be read, reports no demand.
    pub fn of(lease: &Lease) -> Self {
        let Some(text) = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(CONNECTIONS)) else {
            return Self::default();
        };
        serde_json::from_str(text).unwrap_or_else(|error| {
            tracing::warn!(lease = lease.metadata.name, %error, "report of connections not readable");
            Self::default()
        })
    }

    /// The value of the annotation; none without demand.
    pub fn annotation(&self) -> Option<String> {
        if self.0.is_empty() { None } else { serde_json::to_string(self).ok() }
    }

    /// The demand for a Service.
    pub fn demand(&self, service: &ObjectKey) -> Demand {
        self.0.get(&service.to_string()).copied().unwrap_or_default()
    }

    /// Whether nothing is reported.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The Services that have connections, or waiting connections, which they did not have in an earlier report.
    pub fn awakened(&self, before: &Self) -> Vec<ObjectKey> {
        let is_awake = |(name, demand): &(&String, &Demand)| {
            let before = before.0.get(*name).copied().unwrap_or_default();
            (before.waiting == 0 && demand.waiting > 0) || (before.milli_per_second == 0 && demand.milli_per_second > 0)
        };
        let key = |(name, _): (&String, &Demand)| name.split_once('/').map(|(namespace, name)| ObjectKey::new(namespace, name));
        self.0.iter().filter(is_awake).filter_map(key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(waiting: u32, milli_per_second: u64) -> Demand {
        Demand { waiting, milli_per_second }
    }

    fn report(services: &[(&str, Demand)]) -> Report {
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
        assert_eq!(written.demand(&ObjectKey::new("default", "web")), demand(2, 1500));
        assert_eq!(written.demand(&ObjectKey::new("other", "web")), demand(0, 0));
        assert_eq!(report(&[("quiet", demand(0, 0))]).annotation(), None);
    }

    #[test]
    fn what_is_no_report_is_no_demand() {
        for text in ["", "{", "[]", r#"{"default/web":{"waiting":-1}}"#, r#"{"default/web":3}"#] {
            assert!(Report::of(&lease(text)).is_empty(), "{text}");
        }
        assert!(Report::of(&Lease::default()).is_empty());
    }

    #[test]
    fn a_report_is_bounded_and_has_the_services_with_the_most_demand() {
        let many: Vec<(ObjectKey, Demand)> =
            (0..300_u32).map(|number| (ObjectKey::new("default", format!("s{number}")), demand(number, 0))).collect();
        let report = Report::new(many);
        assert_eq!(report.0.len(), SERVICES_MAX);
        assert_eq!(report.demand(&ObjectKey::new("default", "s299")), demand(299, 0));
        assert_eq!(report.demand(&ObjectKey::new("default", "s44")), demand(44, 0));
        assert_eq!(report.demand(&ObjectKey::new("default", "s43")), demand(0, 0));
    }

    #[test]
    fn a_service_awakes_once() {
        let (none, waiting, running) = (report(&[]), report(&[("web", demand(1, 0))]), report(&[("web", demand(0, 10))]));
        let both = report(&[("web", demand(3, 20))]);
        let keys = |now: &Report, before: &Report| now.awakened(before).len();
        assert_eq!(waiting.awakened(&none), [ObjectKey::new("default", "web")]);
        assert_eq!([keys(&running, &none), keys(&both, &waiting), keys(&both, &running), keys(&both, &both)], [1, 1, 1, 0]);
        assert_eq!([keys(&none, &both), keys(&running, &both)], [0, 0]);
    }
}
