//! HTTP requests to the Pods of a Service on one node.

use serde::{Deserialize, Serialize};

use super::Measurement;

/// The annotation of a Service whose requests count. The value is the name of a ScaledObject of the same namespace.
pub const REQUESTS_COUNTED_BY: &str = "skiff.internal/requests-counted-by";
/// The annotation of a node's Lease with the node's report of [`Requests`].
pub const REQUESTS: &str = "skiff.internal/requests";

/// The requests to the containers of one Service that count theirs. Probes of the node are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Requests {
    /// Requests a second, in thousandths.
    pub milli_per_second: u64,
    /// Requests that have begun and not ended, in thousandths: an average.
    pub milli_in_flight: u64,
    /// The containers whose requests these are.
    pub containers: u32,
}

impl Requests {
    /// Whether there were requests within the last seconds.
    pub fn is_some(self) -> bool {
        self.milli_per_second > 0 || self.milli_in_flight > 0
    }
}

impl Measurement for Requests {
    const ANNOTATION: &'static str = REQUESTS;

    fn plus(self, other: Self) -> Self {
        Self {
            milli_per_second: self.milli_per_second.saturating_add(other.milli_per_second),
            milli_in_flight: self.milli_in_flight.saturating_add(other.milli_in_flight),
            containers: self.containers.saturating_add(other.containers),
        }
    }

    fn awakens(self, before: Self) -> bool {
        self.is_some() && !before.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Report;
    use super::*;
    use crate::informer::ObjectKey;

    #[test]
    fn a_container_that_is_not_used_is_reported_and_wakes_nothing() {
        let web = ObjectKey::new("default", "web");
        let report = |requests: Requests| Report::new([(web.clone(), requests)]);
        let (none, idle) = (Report::default(), report(Requests { containers: 1, ..Requests::default() }));
        assert_eq!(idle.annotation().as_deref(), Some(r#"{"default/web":{"milliPerSecond":0,"milliInFlight":0,"containers":1}}"#));
        let rate = report(Requests { milli_per_second: 67, milli_in_flight: 0, containers: 1 });
        let long = report(Requests { milli_per_second: 0, milli_in_flight: 250, containers: 1 });
        for (now, before, awakened) in
            [(&idle, &none, 0), (&rate, &none, 1), (&rate, &idle, 1), (&long, &idle, 1), (&long, &rate, 0), (&idle, &rate, 0)]
        {
            assert_eq!(now.awakened(before).len(), awakened, "{now:?} after {before:?}");
        }
    }
}
