//! The objects of the summary API (k8s.io/kubelet, `stats/v1alpha1`), from numbers of the node. What is not known is left out.

use jiff::Timestamp;
use runtimes_contract::Stats;
use runtimes_host::cgroup::{Pressure, Stall, Swap};
use serde_json::{Value, json};

use crate::machine::FileSystem;
use crate::traffic::Traffic;
use runtimes_host::disk::Disk;

/// A file system, with what is used of it by whatever the object is about.
pub(super) fn used(at: Timestamp, fs: &FileSystem, used: Option<Disk>) -> Value {
    let room = json!({
        "time": at, "availableBytes": fs.free_bytes, "capacityBytes": fs.bytes, "inodesFree": fs.free_inodes, "inodes": fs.inodes,
    });
    match used {
        Some(Disk { bytes, inodes }) => with(room, [("usedBytes", json!(bytes)), ("inodesUsed", json!(inodes))]),
        None => room,
    }
}

/// What a limit leaves of the memory.
pub(super) fn left(limit: Option<u64>, stats: &Stats) -> Option<u64> {
    limit.map(|limit| limit.saturating_sub(stats.working_set_bytes))
}

/// Pressure on a resource. `total` is in microseconds: upstream documents nanoseconds, but the kubelet passes the kernel's number on, and
/// clients such as OpenTelemetry's receiver divide it by a million.
pub(super) fn psi(pressure: &Pressure) -> Value {
    let data = |stall: &Stall| json!({"total": stall.total_us, "avg10": stall.avg10, "avg60": stall.avg60, "avg300": stall.avg300});
    json!({"full": data(&pressure.full), "some": data(&pressure.some)})
}

/// The use of swap. Only a group with a limit of its own has swap available.
pub(super) fn swap(at: Timestamp, swap: Swap) -> Value {
    fields([
        ("time", Some(json!(at))),
        ("swapAvailableBytes", swap.limit_bytes.map(|limit| json!(limit.saturating_sub(swap.usage_bytes)))),
        ("swapUsageBytes", Some(json!(swap.usage_bytes))),
    ])
}

pub(super) fn interface((name, traffic): (&str, &Traffic)) -> Value {
    let Traffic { received, sent } = traffic;
    json!({"name": name, "rxBytes": received.bytes, "rxErrors": received.errors, "txBytes": sent.bytes, "txErrors": sent.errors})
}

pub(super) fn with<const N: usize>(mut object: Value, more: [(&str, Value); N]) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.extend(more.map(|(name, value)| (name.to_owned(), value)));
    }
    object
}

/// An object of the fields that have a value.
pub(super) fn fields<const N: usize>(all: [(&str, Option<Value>); N]) -> Value {
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<serde_json::Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_has_upstreams_fields_and_the_kernels_microseconds() {
        let some = Stall { total_us: 4_711, avg10: 1.5, avg60: 0.25, avg300: 0.01 };
        let wanted = json!({
            "full": {"total": 0, "avg10": 0.0, "avg60": 0.0, "avg300": 0.0},
            "some": {"total": 4_711, "avg10": 1.5, "avg60": 0.25, "avg300": 0.01},
        });
        assert_eq!(psi(&Pressure { some, full: Stall::default() }), wanted);
    }

    #[test]
    fn swap_is_available_up_to_a_limit() {
        let at = Timestamp::UNIX_EPOCH;
        let of_group = |usage_bytes, limit_bytes| swap(at, Swap { usage_bytes, limit_bytes });
        assert_eq!(of_group(5, None), json!({"time": at, "swapUsageBytes": 5}));
        assert_eq!(of_group(0, Some(0)), json!({"time": at, "swapAvailableBytes": 0, "swapUsageBytes": 0}));
        assert_eq!(of_group(30, Some(100)), json!({"time": at, "swapAvailableBytes": 70, "swapUsageBytes": 30}));
        assert_eq!(of_group(200, Some(100))["swapAvailableBytes"], 0, "the limit was lowered");
    }

    #[test]
    fn a_file_system_has_its_use_when_that_is_known() {
        let fs = FileSystem { bytes: 10, free_bytes: 4, all_free_bytes: 5, inodes: 9, free_inodes: 3 };
        let at = Timestamp::UNIX_EPOCH;
        let room = json!({"time": at, "availableBytes": 4, "capacityBytes": 10, "inodesFree": 3, "inodes": 9});
        assert_eq!(used(at, &fs, None), room);
        assert_eq!(used(at, &fs, Some(Disk { bytes: 2, inodes: 1 })), with(room, [("usedBytes", json!(2)), ("inodesUsed", json!(1))]));
    }
}
