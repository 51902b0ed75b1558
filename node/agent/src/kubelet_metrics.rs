//! What the node counts and times, under the kubelet's names: the starts of Pods and containers, the operations of runtimes, images,
//! evictions, rejections, resizes, shutdowns and the requests to the node's server. The parts of the agent call it where something happens;
//! `/metrics` adds the values. Each label has a fixed set of values, so that no Pod leaves a series behind.

mod http;
mod operations;
mod pods;
mod resizes;
mod shutdowns;

use api_metrics::{Counters, Families, Histograms};

pub(crate) use http::{HttpMetrics, InflightRequest};
pub(crate) use operations::{Operation, RuntimeOperations};
pub(crate) use pods::{PodMetrics, SyncType};
pub(crate) use resizes::ResizeMetrics;
pub(crate) use shutdowns::ShutdownMetrics;

/// The buckets of Prometheus' Go client, which most of the kubelet's histograms have.
const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Upstream's `imagePullDurationBuckets`.
const PULL_BUCKETS: [f64; 18] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1_200.0, 1_800.0, 2_700.0, 3_600.0];

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Upstream's `imageSizeBuckets`: an image that is larger than the number of bytes has the label, unless a later one fits.
const IMAGE_SIZES: [(u64, &str); 12] = [
    (0, "0-10MB"),
    (10 * MIB, "10MB-100MB"),
    (100 * MIB, "100MB-500MB"),
    (500 * MIB, "500MB-1GB"),
    (GIB, "1GB-5GB"),
    (5 * GIB, "5GB-10GB"),
    (10 * GIB, "10GB-20GB"),
    (20 * GIB, "20GB-30GB"),
    (30 * GIB, "30GB-40GB"),
    (40 * GIB, "40GB-60GB"),
    (60 * GIB, "60GB-100GB"),
    (100 * GIB, "GT100GB"),
];

/// Upstream's `admissionRejectionReasons`, as far as this node has them. Every other reason is `Other`.
const REJECTION_REASONS: [&str; 11] = [
    "AppArmor",
    "Evicted",
    "NodeShutdown",
    "OutOfcpu",
    "OutOfephemeral-storage",
    "OutOfmemory",
    "OutOfpods",
    "PodOSNotSupported",
    "SysctlForbidden",
    "TopologyAffinityError",
    "UnexpectedAdmissionError",
];

/// The counters and histograms of one node.
pub(crate) struct KubeletMetrics {
    pub(crate) pods: PodMetrics,
    pub(crate) operations: RuntimeOperations,
    pub(crate) resizes: ResizeMetrics,
    pub(crate) shutdowns: ShutdownMetrics,
    pub(crate) http: HttpMetrics,
    pulls: Histograms<1>,
    collected_images: Counters<1>,
    evictions: Counters<1>,
    rejections: Counters<1>,
}

impl Default for KubeletMetrics {
    fn default() -> Self {
        let collected_images =
            Counters::new("kubelet_image_garbage_collected_total", "Number of images that the garbage collection removed.", ["reason"]);
        collected_images.add([SPACE], 0);
        Self {
            pods: PodMetrics::default(),
            operations: RuntimeOperations::default(),
            resizes: ResizeMetrics::default(),
            shutdowns: ShutdownMetrics::default(),
            http: HttpMetrics::default(),
            pulls: Histograms::new(
                "kubelet_image_pull_duration_seconds",
                "Duration in seconds of image pulls, with the wait for other pulls.",
                ["image_size_in_bytes"],
                &PULL_BUCKETS,
            ),
            collected_images,
            evictions: Counters::new("kubelet_evictions", "Number of evictions by eviction signal.", ["eviction_signal"]),
            rejections: Counters::new("kubelet_admission_rejections_total", "Number of Pods that the node rejected.", ["reason"]),
        }
    }
}

/// Why unused images are removed: the disk is full. Upstream can remove them by their age too.
const SPACE: &str = "space";

impl KubeletMetrics {
    /// An image of that size was pulled.
    pub(crate) fn pulled(&self, size_bytes: u64, took: std::time::Duration) {
        self.pulls.observe([image_size(size_bytes)], took.as_secs_f64());
    }

    /// Unused images were removed.
    pub(crate) fn images_collected(&self, number: usize) {
        self.collected_images.add([SPACE], number as u64);
    }

    /// A Pod is evicted.
    pub(crate) fn evicted(&self, signal: &'static str) {
        self.evictions.count([signal]);
    }

    /// A Pod was not admitted.
    pub(crate) fn rejected(&self, reason: &str) {
        self.rejections.count([REJECTION_REASONS.into_iter().find(|listed| *listed == reason).unwrap_or("Other")]);
    }

    /// Adds all families.
    pub(crate) fn add_to(&self, families: &mut Families) {
        self.pods.add_to(families);
        self.operations.add_to(families);
        self.pulls.add_to(families);
        self.collected_images.add_to(families);
        self.evictions.add_to(families);
        self.rejections.add_to(families);
        self.resizes.add_to(families);
        self.shutdowns.add_to(families);
        self.http.add_to(families);
    }
}

/// Upstream's label for the size of an image.
fn image_size(bytes: u64) -> &'static str {
    let largest_first = IMAGE_SIZES.iter().rev();
    largest_first.clone().find(|(more_than, _)| bytes > *more_than).map_or("N/A", |(_, label)| label)
}

#[cfg(test)]
mod tests;
