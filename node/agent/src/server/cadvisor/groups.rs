//! The families of disks and of pressure. Transfers and pressure are the kernel's numbers of cgroups of the unified hierarchy. The use of
//! file systems is that of the machine, as with a kubelet over CRI: what Pods have on them is in `/stats/summary`.

use std::time::Duration;

use api_metrics::{Families, number};
use runtimes_host::cgroup::{DeviceIo, Pressure, Pressures, Stall};

use super::Measured;
use crate::machine::FileSystem;
use crate::server::disks;

/// File systems, and what groups have read and written.
pub(super) fn add_disks(families: &mut Families, all: &[Measured]) {
    type OfFileSystem = fn(&FileSystem) -> u64;
    let gauges: [(&str, &str, OfFileSystem); 4] = [
        ("container_fs_inodes_free", "Number of available Inodes", |fs| fs.free_inodes),
        ("container_fs_inodes_total", "Number of Inodes", |fs| fs.inodes),
        ("container_fs_limit_bytes", "Number of bytes that can be consumed by the container on this filesystem.", |fs| fs.bytes),
        ("container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.", |fs| disks::whole(fs).bytes),
    ];
    for (name, help, value) in gauges {
        families.gauge(name, help, by_device(all, |one| &one.file_systems, value));
        families.stamp(all.iter().flat_map(|one| one.file_systems.iter().map(|_| one.read_ms)));
    }
    type OfDevice = fn(&DeviceIo) -> u64;
    let counters: [(&str, &str, OfDevice); 4] = [
        ("container_fs_reads_bytes_total", "Cumulative count of bytes read", |io| io.read_bytes),
        ("container_fs_reads_total", "Cumulative count of reads completed", |io| io.reads),
        ("container_fs_writes_bytes_total", "Cumulative count of bytes written", |io| io.written_bytes),
        ("container_fs_writes_total", "Cumulative count of writes completed", |io| io.writes),
    ];
    for (name, help, value) in counters {
        families.counter(name, help, by_device(all, |one| &one.group.io, value));
        families.stamp(all.iter().flat_map(|one| one.group.io.iter().map(|_| one.read_ms)));
    }
}

/// A value of each device, with its labels.
fn by_device<T>(all: &[Measured], of: fn(&Measured) -> &Vec<(String, T)>, value: fn(&T) -> u64) -> Vec<(Vec<(&'static str, String)>, f64)> {
    let devices = all.iter().flat_map(|one| of(one).iter().map(move |device| (one, device)));
    let series = devices.map(|(one, (device, numbers))| {
        let labels = one.labels().into_iter().chain([("device", device.clone())]);
        (labels.collect(), number(value(numbers)))
    });
    series.collect()
}

/// How long tasks waited.
pub(super) fn add_pressure(families: &mut Families, all: &[Measured]) {
    type OfResource = fn(&Pressures) -> Option<Pressure>;
    type Part = fn(&Pressure) -> Stall;
    let resources: [(&str, &str, OfResource); 3] = [
        ("cpu", "CPU", |pressures| pressures.cpu),
        ("memory", "memory", |pressures| pressures.memory),
        ("io", "IO", |pressures| pressures.io),
    ];
    let parts: [(&str, &str, Part); 2] = [
        ("stalled", "no tasks in the container could make progress", |pressure| pressure.full),
        ("waiting", "tasks in the container have waited", |pressure| pressure.some),
    ];
    for (resource, congested, pressure) in resources {
        let measured: Vec<(&Measured, Pressure)> = all.iter().filter_map(|one| Some((one, pressure(&one.group.pressures)?))).collect();
        for (name, effect, part) in parts {
            let seconds = |pressure: &Pressure| Duration::from_micros(part(pressure).total_us).as_secs_f64();
            let help = format!("Total time duration {effect} due to {congested} congestion.");
            let series = measured.iter().map(|(one, pressure)| (one.labels(), seconds(pressure)));
            families.counter(&format!("container_pressure_{resource}_{name}_seconds_total"), &help, series);
            families.stamp(measured.iter().map(|(one, _)| one.read_ms));
        }
    }
}
