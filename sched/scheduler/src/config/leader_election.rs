//! `leaderElection`: whether the scheduler waits until it holds a Lease, and the times of the Lease. Without other servers on the store
//! there is no Lease, and nobody to wait for.

use std::time::Duration;

use api_client::lease::Election;
use api_model::field::{FieldError, Path};
use api_model::go::parse_duration;

use super::document;

/// What the configuration changes in an election; `None` leaves it as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LeaderElection {
    is_off: bool,
    lease_duration: Option<Duration>,
    renew_deadline: Option<Duration>,
    retry_period: Option<Duration>,
    name: Option<String>,
    namespace: Option<String>,
}

impl LeaderElection {
    /// Checks the fields.
    pub(super) fn new(given: &document::LeaderElection, errors: &mut Vec<FieldError>) -> Self {
        let path = Path::new("leaderElection");
        let mut time = |text: &Option<String>, field: &str| duration(text.as_deref(), &path.child(field), errors);
        let filled = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let election = Self {
            is_off: given.leader_elect == Some(false),
            lease_duration: time(&given.lease_duration, "leaseDuration"),
            renew_deadline: time(&given.renew_deadline, "renewDeadline"),
            retry_period: time(&given.retry_period, "retryPeriod"),
            name: filled(&given.resource_name),
            namespace: filled(&given.resource_namespace),
        };
        election.check(given, &path, errors);
        election
    }

    /// The election with what the configuration says; `None` when the scheduler does not wait for a Lease.
    pub(crate) fn of(&self, election: Option<Election>) -> Option<Election> {
        let election = election.filter(|_| !self.is_off)?;
        Some(Election {
            namespace: self.namespace.clone().unwrap_or(election.namespace),
            name: self.name.clone().unwrap_or(election.name),
            identity: election.identity,
            lease_duration: self.lease_duration.unwrap_or(election.lease_duration),
            renew_deadline: self.renew_deadline.unwrap_or(election.renew_deadline),
            retry_period: self.retry_period.unwrap_or(election.retry_period),
        })
    }

    fn check(&self, given: &document::LeaderElection, path: &Path, errors: &mut Vec<FieldError>) {
        let Some(Election { lease_duration, renew_deadline, retry_period, .. }) = self.of(Some(Election::new("", ""))) else { return };
        let mut invalid = |field: &str, value: Duration, detail: &str| {
            errors.push(FieldError::invalid(&path.child(field), format!("{value:?}"), detail));
        };
        if lease_duration <= renew_deadline {
            invalid("leaseDuration", lease_duration, "must be greater than `RenewDeadline`");
        }
        // client-go waits up to 1.2 times the period between two attempts.
        if renew_deadline * 5 <= retry_period * 6 {
            invalid("renewDeadline", renew_deadline, "must be greater than retryPeriod*JitterFactor");
        }
        if !matches!(given.resource_lock.as_str(), "" | "leases") {
            let detail = "resourceLock value must be \"leases\"";
            errors.push(FieldError::invalid(&path.child("resourceLock"), given.resource_lock.as_str(), detail));
        }
    }
}

/// A duration of Go; `None` without one, and for 0, which stands for the default.
fn duration(text: Option<&str>, path: &Path, errors: &mut Vec<FieldError>) -> Option<Duration> {
    let text = text?;
    let nanoseconds = match parse_duration(text) {
        Ok(nanoseconds) if nanoseconds >= 0 => nanoseconds,
        Ok(_) => {
            errors.push(FieldError::invalid(path, text, "must be greater than zero"));
            return None;
        }
        Err(error) => {
            errors.push(FieldError::invalid(path, text, error.to_string()));
            return None;
        }
    };
    u64::try_from(nanoseconds).ok().filter(|nanoseconds| *nanoseconds > 0).map(Duration::from_nanos)
}
