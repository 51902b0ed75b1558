//! Metrics of the process: the number of failed tasks, and the metrics of other parts.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// By task and reason. The names are constants of the code, so there are few.
static COUNTS: Mutex<BTreeMap<(String, &'static str), u64>> = Mutex::new(BTreeMap::new());

pub(crate) fn add(task: &str, reason: &'static str) {
    *COUNTS.lock().entry((task.to_owned(), reason)).or_default() += 1;
}

/// Metrics of other parts of the process.
static SOURCES: Mutex<Vec<fn() -> String>> = Mutex::new(Vec::new());

/// Adds metrics in Prometheus' text format to what [`metrics`] returns, for the rest of the process.
pub fn publish_metrics(source: fn() -> String) {
    SOURCES.lock().push(source);
}

/// The counters in Prometheus' text format, and the figures of [`publish_metrics`].
pub fn metrics() -> String {
    let mut text = "# HELP skiff_task_failures_total Tasks that panicked, returned an error, or ended before they were stopped.\n\
                    # TYPE skiff_task_failures_total counter\n"
        .to_owned();
    for ((task, reason), count) in COUNTS.lock().iter() {
        let task = task.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        text.push_str(&format!("skiff_task_failures_total{{task=\"{task}\",reason=\"{reason}\"}} {count}\n"));
    }
    let sources = SOURCES.lock().clone();
    sources.iter().for_each(|source| text.push_str(&source()));
    text
}
