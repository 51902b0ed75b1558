//! The metrics of scheduler plugins at `/metrics`.

use std::time::Duration;

use api_metrics::{Counters, Families, Histograms};

/// From the cost of a call that does little to the longest cycle that is sensible.
const SECONDS: &[f64] = &[0.000_003, 0.000_01, 0.000_03, 0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0];

static CALL_SECONDS: Histograms<3> = Histograms::new(
    "scheduler_plugin_execution_duration_seconds",
    "Duration of the calls of plugins that are WebAssembly components, by extension point and status.",
    ["plugin", "extension_point", "status"],
    SECONDS,
);
static LOADS: Counters<2> = Counters::new(
    "skiff_scheduler_wasm_plugin_loads_total",
    "Versions of a scheduler plugin that were loaded, by their result: loaded, or failed when the version is not used.",
    ["plugin", "result"],
);
static FAILURES: Counters<1> = Counters::new(
    "skiff_scheduler_wasm_plugin_failures_total",
    "Failures of a scheduler plugin at work: traps, used up limits, malformed results. Each ended the plugin's instance.",
    ["plugin"],
);

/// Adds the plugins to the metrics of the process.
pub(crate) fn publish() {
    api_metrics::publish(|families: &mut Families| {
        CALL_SECONDS.add_to(families);
        LOADS.add_to(families);
        FAILURES.add_to(families);
    });
}

/// Counts a call.
pub(crate) fn called(plugin: &str, extension_point: &str, is_success: bool, took: Duration) {
    let status = if is_success { "Success" } else { "Error" };
    CALL_SECONDS.observe([plugin, extension_point, status], took.as_secs_f64());
    if !is_success {
        FAILURES.count([plugin]);
    }
}

/// Counts a version that was loaded, or could not be.
pub(crate) fn loaded(plugin: &str, is_success: bool) {
    LOADS.count([plugin, if is_success { "loaded" } else { "failed" }]);
}
