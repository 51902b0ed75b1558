//! The metrics of controllers, under upstream's names, at `/metrics` of the process. Those of work queues are in
//! [`work`](crate::work).
//!
//! A controller observes what it did; nothing reads the values back.

use std::collections::BTreeMap;
use std::time::Duration;

use api_metrics::{Counters, Families, Histograms, number};
use parking_lot::Mutex;

/// Upper bounds in seconds of passes over Jobs: 16 powers of two from 4 ms on, upstream's.
const JOB_SYNC: &[f64] = &[0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384, 32.768, 65.536];
/// Upper bounds in seconds of the lateness of a CronJob's Jobs.
const SKEW: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
/// Upper bounds in seconds of the lateness of the deletion of finished Jobs.
const JOB_DELETION: &[f64] = &[0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2];
/// Upper bounds of endpoints in a pass.
const ENDPOINTS: &[f64] = &[2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0];
/// Upper bounds in seconds of the lateness of evictions by taints.
const EVICTION: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0];
/// Upper bounds in seconds of passes of the publisher of the root certificate.
const ROOT_CA: &[f64] = &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];
/// Upper bounds of the ages of deleted Pods by the age of the youngest.
const AGE_RATIO: &[f64] = &[0.25, 0.5, 1.0, 2.0, 4.0, 8.0];
/// Prometheus' default upper bounds.
const DEFAULT: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Passes over Jobs.
pub static JOB_SYNCS: Counters<3> =
    Counters::new("job_controller_job_syncs_total", "Passes over Jobs.", ["completion_mode", "result", "action"]);
/// How long passes over Jobs took.
pub static JOB_SYNC_DURATION: Histograms<3> = Histograms::new(
    "job_controller_job_sync_duration_seconds",
    "How long passes over Jobs took.",
    ["completion_mode", "result", "action"],
    JOB_SYNC,
);
/// Jobs that ended.
pub static JOBS_FINISHED: Counters<3> =
    Counters::new("job_controller_jobs_finished_total", "Jobs that ended.", ["completion_mode", "result", "reason"]);
/// Pods of Jobs whose end was counted.
pub static JOB_PODS_FINISHED: Counters<2> =
    Counters::new("job_controller_job_pods_finished_total", "Pods of Jobs whose end was counted.", ["completion_mode", "result"]);
/// Indexes of Jobs that ended.
pub static JOB_FINISHED_INDEXES: Counters<2> =
    Counters::new("job_controller_job_finished_indexes_total", "Indexes of Jobs that ended.", ["status", "backoffLimit"]);
/// Pods of Jobs that were created.
pub static JOB_PODS_CREATION: Counters<2> =
    Counters::new("job_controller_job_pods_creation_total", "Creations of Pods of Jobs.", ["reason", "status"]);
/// Ended Pods that got or lost the finalizer of their Job.
pub static TERMINATED_PODS_TRACKED: Counters<1> = Counters::new(
    "job_controller_terminated_pods_tracking_finalizer_total",
    "Pods that ended with their Job's finalizer (add), and those that lost it or are gone (delete).",
    ["event"],
);
/// How late Jobs of CronJobs were created.
pub static CRONJOB_SKEW: Histograms<0> = Histograms::new(
    "cronjob_controller_job_creation_skew_duration_seconds",
    "How long after its time a CronJob's Job was created.",
    [],
    SKEW,
);
/// How late finished Jobs were deleted.
pub static JOB_DELETION_DURATION: Histograms<0> = Histograms::new(
    "ttl_after_finished_controller_job_deletion_duration_seconds",
    "How long after its time a finished Job was deleted.",
    [],
    JOB_DELETION,
);
/// Writes of EndpointSlices.
pub static SLICE_CHANGES: Counters<1> = Counters::new("endpoint_slice_controller_changes", "Writes of EndpointSlices.", ["operation"]);
/// Passes over Services.
pub static SLICE_SYNCS: Counters<1> = Counters::new("endpoint_slice_controller_syncs", "Passes over Services.", ["result"]);
/// EndpointSlices written in a pass.
pub static SLICES_CHANGED: Histograms<2> = Histograms::new(
    "endpoint_slice_controller_endpointslices_changed_per_sync",
    "EndpointSlices written in a pass over a Service.",
    ["topology", "traffic_distribution"],
    DEFAULT,
);
/// Endpoints added in a pass.
pub static ENDPOINTS_ADDED: Histograms<0> =
    Histograms::new("endpoint_slice_controller_endpoints_added_per_sync", "Endpoints added in a pass over a Service.", [], ENDPOINTS);
/// Endpoints removed in a pass.
pub static ENDPOINTS_REMOVED: Histograms<0> =
    Histograms::new("endpoint_slice_controller_endpoints_removed_per_sync", "Endpoints removed in a pass over a Service.", [], ENDPOINTS);
/// Writes of mirrored EndpointSlices.
pub static MIRROR_CHANGES: Counters<1> =
    Counters::new("endpoint_slice_mirroring_controller_changes", "Writes of mirrored EndpointSlices.", ["operation"]);
/// How long passes over Endpoints took.
pub static MIRROR_DURATION: Histograms<0> = Histograms::new(
    "endpoint_slice_mirroring_controller_endpoints_sync_duration",
    "How many seconds passes over Endpoints took.",
    [],
    JOB_SYNC,
);
/// Nodes that were tainted so that their Pods leave.
pub static NODE_EVICTIONS: Counters<1> =
    Counters::new("node_collector_evictions_total", "Nodes that were tainted so that their Pods leave.", ["zone"]);
/// Pods deleted because of taints.
pub static TAINT_DELETIONS: Counters<0> =
    Counters::new("taint_eviction_controller_pod_deletions_total", "Pods deleted because of taints.", []);
/// How late Pods were deleted because of taints.
pub static TAINT_DELETION_DURATION: Histograms<0> = Histograms::new(
    "taint_eviction_controller_pod_deletion_duration_seconds",
    "How long after its time a Pod was deleted because of a taint.",
    [],
    EVICTION,
);
/// Pods deleted because of taints of devices.
pub static DEVICE_TAINT_DELETIONS: Counters<0> =
    Counters::new("device_taint_eviction_controller_pod_deletions_total", "Pods deleted because of taints of their devices.", []);
/// How late Pods were deleted because of taints of devices.
pub static DEVICE_TAINT_DELETION_DURATION: Histograms<0> = Histograms::new(
    "device_taint_eviction_controller_pod_deletion_duration_seconds",
    "How long after its time a Pod was deleted because of a taint of its device.",
    [],
    EVICTION,
);
/// Pods removed by the garbage collector of Pods.
pub static POD_GC_DELETIONS: Counters<2> =
    Counters::new("pod_gc_collector_force_delete_pods_total", "Pods removed without a grace period.", ["namespace", "reason"]);
/// Removals of Pods that failed.
pub static POD_GC_ERRORS: Counters<2> =
    Counters::new("pod_gc_collector_force_delete_pod_errors_total", "Removals of Pods that failed.", ["namespace", "reason"]);
/// Passes of the publisher of the root certificate.
pub static ROOT_CA_SYNCS: Counters<1> =
    Counters::new("root_ca_cert_publisher_sync_total", "Passes of the publisher of the root certificate.", ["code"]);
/// How long passes of the publisher of the root certificate took.
pub static ROOT_CA_SYNC_DURATION: Histograms<1> = Histograms::new(
    "root_ca_cert_publisher_sync_duration_seconds",
    "How long passes of the publisher of the root certificate took.",
    ["code"],
    ROOT_CA,
);
/// Ages of deleted Pods.
pub static DELETION_AGE_RATIO: Histograms<0> = Histograms::new(
    "replicaset_controller_sorting_deletion_age_ratio",
    "Ages of the Pods that a ReplicaSet deletes, by the age of its youngest ready Pod.",
    [],
    AGE_RATIO,
);

/// The Nodes of each zone, and how many of them are not ready.
static ZONES: Mutex<BTreeMap<String, (usize, usize)>> = Mutex::new(BTreeMap::new());
/// What the slices of each Service have: slices, the fewest slices that would do, and endpoints.
static SERVICES: Mutex<BTreeMap<(String, String), Service>> = Mutex::new(BTreeMap::new());

/// The slices of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Its slices.
    pub slices: usize,
    /// The fewest slices that would do.
    pub slices_desired: usize,
    /// Its endpoints.
    pub endpoints: usize,
    /// `spec.trafficDistribution`, where it is followed.
    pub traffic_distribution: Option<String>,
}

/// Shows the metrics at `/metrics` for the rest of the process.
pub fn publish() {
    api_metrics::publish(add_to);
}

/// The Nodes of each zone and how many are not ready, instead of those before.
pub fn set_zones(zones: BTreeMap<String, (usize, usize)>) {
    *ZONES.lock() = zones;
}

/// The slices of a Service, `None` when the Service is gone.
pub fn set_service(namespace: &str, name: &str, service: Option<Service>) {
    let key = (namespace.to_owned(), name.to_owned());
    let mut services = SERVICES.lock();
    match service {
        Some(service) => drop(services.insert(key, service)),
        None => drop(services.remove(&key)),
    }
}

/// A number of things as a value.
pub fn amount(count: usize) -> f64 {
    number(u64::try_from(count).unwrap_or(u64::MAX))
}

/// A time as a value; the time before is none.
pub fn seconds(duration: jiff::SignedDuration) -> f64 {
    Duration::try_from(duration).unwrap_or_default().as_secs_f64()
}

fn add_to(families: &mut Families) {
    for counters in [&JOB_SYNCS, &JOBS_FINISHED] {
        counters.add_to(families);
    }
    for counters in [&JOB_PODS_FINISHED, &JOB_FINISHED_INDEXES, &JOB_PODS_CREATION, &POD_GC_DELETIONS, &POD_GC_ERRORS] {
        counters.add_to(families);
    }
    for counters in [&TERMINATED_PODS_TRACKED, &SLICE_CHANGES, &SLICE_SYNCS, &MIRROR_CHANGES, &NODE_EVICTIONS, &ROOT_CA_SYNCS] {
        counters.add_to(families);
    }
    TAINT_DELETIONS.add_to(families);
    DEVICE_TAINT_DELETIONS.add_to(families);
    for histograms in [
        &CRONJOB_SKEW,
        &JOB_DELETION_DURATION,
        &ENDPOINTS_ADDED,
        &ENDPOINTS_REMOVED,
        &MIRROR_DURATION,
        &TAINT_DELETION_DURATION,
        &DEVICE_TAINT_DELETION_DURATION,
        &DELETION_AGE_RATIO,
    ] {
        histograms.add_to(families);
    }
    JOB_SYNC_DURATION.add_to(families);
    SLICES_CHANGED.add_to(families);
    ROOT_CA_SYNC_DURATION.add_to(families);
    add_zones(families);
    add_services(families);
}

fn add_zones(families: &mut Families) {
    let zones = ZONES.lock().clone();
    let series = |value: fn(usize, usize) -> f64| {
        zones.iter().map(move |(zone, (nodes, unhealthy))| ([("zone", zone.clone())], value(*nodes, *unhealthy)))
    };
    families.gauge("node_collector_zone_size", "Nodes of a zone.", series(|nodes, _| amount(nodes)));
    families.gauge(
        "node_collector_unhealthy_nodes_in_zone",
        "Nodes of a zone that are not ready.",
        series(|_, unhealthy| amount(unhealthy)),
    );
    families.gauge(
        "node_collector_zone_health",
        "Percentage of a zone's Nodes that are ready.",
        series(|nodes, unhealthy| (100.0 * amount(nodes.saturating_sub(unhealthy)) / amount(nodes.max(1))).trunc()),
    );
}

fn add_services(families: &mut Families) {
    let services = SERVICES.lock();
    let sum = |value: fn(&Service) -> usize| [([(); 0].map(|()| ("", String::new())), amount(services.values().map(value).sum()))];
    families.gauge("endpoint_slice_controller_num_endpoint_slices", "EndpointSlices of all Services.", sum(|service| service.slices));
    families.gauge(
        "endpoint_slice_controller_desired_endpoint_slices",
        "The fewest EndpointSlices that all Services would need.",
        sum(|service| service.slices_desired),
    );
    families.gauge("endpoint_slice_controller_endpoints_desired", "Endpoints of all Services.", sum(|service| service.endpoints));
    let mut distributions: BTreeMap<&String, usize> = BTreeMap::new();
    for distribution in services.values().filter_map(|service| service.traffic_distribution.as_ref()) {
        *distributions.entry(distribution).or_default() += 1;
    }
    let series = distributions.into_iter().map(|(name, count)| ([("traffic_distribution", name.clone())], amount(count)));
    families.gauge(
        "endpoint_slice_controller_services_count_by_traffic_distribution",
        "Services by the traffic distribution that is followed.",
        series,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_and_services_have_upstreams_names() {
        set_zones(BTreeMap::from([("r:z".to_owned(), (3, 1))]));
        let service = Service { slices: 2, slices_desired: 1, endpoints: 7, traffic_distribution: Some("PreferSameZone".to_owned()) };
        set_service("ns", "a", Some(service.clone()));
        set_service("ns", "b", Some(service));
        set_service("ns", "b", None);
        JOBS_FINISHED.count(["NonIndexed", "failed", "BackoffLimitExceeded"]);
        let mut families = Families::default();
        add_to(&mut families);
        let text = families.text();
        for line in [
            "node_collector_zone_size{zone=\"r:z\"} 3",
            "node_collector_unhealthy_nodes_in_zone{zone=\"r:z\"} 1",
            "node_collector_zone_health{zone=\"r:z\"} 66",
            "endpoint_slice_controller_num_endpoint_slices 2",
            "endpoint_slice_controller_desired_endpoint_slices 1",
            "endpoint_slice_controller_endpoints_desired 7",
            "endpoint_slice_controller_services_count_by_traffic_distribution{traffic_distribution=\"PreferSameZone\"} 1",
            "job_controller_jobs_finished_total{completion_mode=\"NonIndexed\",reason=\"BackoffLimitExceeded\",result=\"failed\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }
}
