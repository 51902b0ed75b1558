//! The traffic of the node's network interfaces, from `/proc`. They are those of this process' network namespace.

use std::collections::HashMap;

use procfs_core::FromRead as _;
use procfs_core::net::{DeviceStatus, InterfaceDeviceStatus, RouteEntries};

/// The name of the interface within a Pod.
pub(crate) const POD_INTERFACE: &str = "eth0";

/// What an interface has received and sent since it exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) received: Direction,
    pub(crate) sent: Direction,
}

/// The traffic in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Direction {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) errors: u64,
    pub(crate) dropped: u64,
}

impl Traffic {
    /// The same traffic as the other end of a pair of interfaces counts it.
    pub(crate) fn of_other_end(&self) -> Self {
        Self { received: self.sent.clone(), sent: self.received.clone() }
    }
}

impl From<DeviceStatus> for Traffic {
    fn from(status: DeviceStatus) -> Self {
        let received =
            Direction { bytes: status.recv_bytes, packets: status.recv_packets, errors: status.recv_errs, dropped: status.recv_drop };
        let sent =
            Direction { bytes: status.sent_bytes, packets: status.sent_packets, errors: status.sent_errs, dropped: status.sent_drop };
        Self { received, sent }
    }
}

/// The traffic of each interface by name; none when it cannot be read.
pub(crate) fn interfaces() -> HashMap<String, Traffic> {
    match InterfaceDeviceStatus::from_file("/proc/self/net/dev") {
        Ok(found) => found.0.into_iter().map(|(name, status)| (name, status.into())).collect(),
        Err(error) => {
            tracing::debug!(%error, "no traffic of interfaces");
            HashMap::new()
        }
    }
}

/// The interface of the default route, if there is one.
pub(crate) fn default_interface() -> Option<String> {
    let routes = RouteEntries::from_file("/proc/self/net/route").ok()?;
    let defaults = routes.0.into_iter().filter(|route| route.destination.is_unspecified() && route.mask.is_unspecified());
    // A route that rejects has no interface.
    defaults.filter(|route| route.iface != "*").min_by_key(|route| route.metrics).map(|route| route.iface)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_receives_what_this_one_sends() {
        let direction = |bytes| Direction { bytes, ..Direction::default() };
        let traffic = Traffic { received: direction(1), sent: direction(2) };
        assert_eq!(traffic.of_other_end(), Traffic { received: direction(2), sent: direction(1) });
        assert!(interfaces().contains_key("lo"));
    }
}
