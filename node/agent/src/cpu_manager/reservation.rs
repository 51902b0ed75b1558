//! What the node keeps for itself: `--kube-reserved`, `--system-reserved` and `--reserved-cpus`. Pure.

use std::str::FromStr;

use api_model::quantity;
use thiserror::Error;

use super::cpu_set::CpuSet;

/// CPU and memory that Pods do not get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Thousandths of a CPU.
    pub cpu_milli: i64,
    /// Bytes.
    pub memory_bytes: i64,
}

/// A text that is no reservation; upstream's words where it has them.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReservationError {
    /// Not of the form `resource=quantity`.
    #[error("malformed pair, expect string=string: {0:?}")]
    Malformed(String),
    /// Only CPU and memory can be reserved.
    #[error("cannot reserve {0:?} resource")]
    Resource(String),
    /// Not a quantity that is at least zero.
    #[error("failed to parse quantity {text:?} for {resource:?} resource: it must be a quantity that is not negative")]
    Quantity {
        /// The resource.
        resource: String,
        /// The text.
        text: String,
    },
}

impl Reservation {
    /// What two reservations keep together. A list of reserved CPUs counts instead of amounts of CPU.
    #[must_use]
    pub fn with(self, other: Self, reserved_cpus: &CpuSet) -> Self {
        let cpus = i64::try_from(reserved_cpus.len()).unwrap_or(i64::MAX).saturating_mul(1_000);
        Self {
            cpu_milli: if cpus > 0 { cpus } else { self.cpu_milli.saturating_add(other.cpu_milli) },
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }
}

/// `cpu=500m,memory=1Gi`
impl FromStr for Reservation {
    type Err = ReservationError;

    fn from_str(text: &str) -> Result<Self, ReservationError> {
        let mut reservation = Self::default();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (resource, amount) = pair.split_once('=').ok_or_else(|| ReservationError::Malformed(pair.to_owned()))?;
            let (resource, amount) = (resource.trim(), amount.trim());
            let error = || ReservationError::Quantity { resource: resource.to_owned(), text: amount.to_owned() };
            let valid = |parsed: Option<i64>| parsed.filter(|amount| *amount >= 0).ok_or_else(error);
            match resource {
                "cpu" => reservation.cpu_milli = valid(quantity::milli(amount).ok().and_then(|milli| i64::try_from(milli).ok()))?,
                "memory" => reservation.memory_bytes = valid(quantity::value(amount).ok())?,
                _ => return Err(ReservationError::Resource(resource.to_owned())),
            }
        }
        Ok(reservation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_amounts_of_cpu_and_memory() {
        let parse =
            |text: &str| text.parse::<Reservation>().map(|one| (one.cpu_milli, one.memory_bytes)).map_err(|error| error.to_string());
        assert_eq!(parse(""), Ok((0, 0)));
        assert_eq!(parse("cpu=500m, memory=1Gi"), Ok((500, 1 << 30)));
        for (text, wanted) in [
            ("cpu", "malformed pair, expect string=string: \"cpu\""),
            ("pid=100", "cannot reserve \"pid\" resource"),
            ("cpu=-1", "failed to parse quantity \"-1\" for \"cpu\" resource: it must be a quantity that is not negative"),
            ("memory=much", "failed to parse quantity \"much\" for \"memory\" resource: it must be a quantity that is not negative"),
        ] {
            assert_eq!(parse(text), Err(wanted.to_owned()));
        }
    }

    #[test]
    fn a_list_of_cpus_counts_instead_of_amounts() {
        let of = |cpu_milli: i64| Reservation { cpu_milli, memory_bytes: 1 };
        assert_eq!(of(500).with(of(700), &CpuSet::default()), Reservation { cpu_milli: 1_200, memory_bytes: 2 });
        assert_eq!(of(500).with(of(700), &"0,2-3".parse().expect("a list")), Reservation { cpu_milli: 3_000, memory_bytes: 2 });
    }
}
