//! The number of failed tasks of the process.

use std::collections::BTreeMap;

use api_metrics::{Families, number};
use parking_lot::Mutex;

/// By task and reason. The names are constants of the code, so there are few.
static COUNTS: Mutex<BTreeMap<(String, &'static str), u64>> = Mutex::new(BTreeMap::new());

/// Counts one failure.
pub(crate) fn add(task: &str, reason: &'static str) {
    api_metrics::publish(metrics);
    *COUNTS.lock().entry((task.to_owned(), reason)).or_default() += 1;
}

fn metrics(families: &mut Families) {
    let counts = COUNTS.lock().clone();
    families.counter(
        "skiff_task_failures_total",
        "Tasks that panicked, returned an error, or ended before they were stopped.",
        counts.into_iter().map(|((task, reason), count)| ([("task", task), ("reason", reason.to_owned())], number(count))),
    );
}
