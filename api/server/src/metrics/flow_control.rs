//! What priority and fairness has done, under upstream's names.

use std::fmt::Write;

use api_fairness::{Report, WAIT_BUCKETS};

use super::header;

const PREFIX: &str = "apiserver_flowcontrol";

/// Appends the text for Prometheus.
pub(super) fn render(out: &mut String, report: &Report) {
    render_flows(out, report);
    render_waits(out, report);
    render_levels(out, report);
}

fn labels(schema: &str, level: &str) -> String {
    format!("flow_schema=\"{schema}\",priority_level=\"{level}\"")
}

fn render_flows(out: &mut String, report: &Report) {
    let mut each = |name: &str, kind: &str, help: &str, value: &dyn Fn(&api_fairness::Flow) -> u64| {
        header(out, &format!("{PREFIX}_{name}"), kind, help);
        for (schema, level, flow) in &report.flows {
            let _ = writeln!(out, "{PREFIX}_{name}{{{}}} {}", labels(schema, level), value(flow));
        }
    };
    each("dispatched_requests_total", "counter", "Number of requests executed by API Priority and Fairness subsystem", &|flow| {
        flow.dispatched
    });
    each(
        "current_inqueue_requests",
        "gauge",
        "Number of requests currently pending in queues of the API Priority and Fairness subsystem",
        &|flow| flow.inqueue.into(),
    );
    each(
        "current_executing_requests",
        "gauge",
        "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem",
        &|flow| flow.executing.into(),
    );
    each(
        "current_executing_seats",
        "gauge",
        "Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem",
        &|flow| flow.seats.into(),
    );
    header(
        out,
        &format!("{PREFIX}_rejected_requests_total"),
        "counter",
        "Number of requests rejected by API Priority and Fairness subsystem",
    );
    for (schema, level, flow) in &report.flows {
        for (why, count) in flow.rejected.iter().filter(|(_, count)| *count > 0) {
            let _ = writeln!(out, "{PREFIX}_rejected_requests_total{{{},reason=\"{why}\"}} {count}", labels(schema, level));
        }
    }
}

fn render_waits(out: &mut String, report: &Report) {
    let name = format!("{PREFIX}_request_wait_duration_seconds");
    header(out, &name, "histogram", "Length of time a request spent waiting in its queue");
    for (schema, level, flow) in &report.flows {
        let labels = format!("{},execute=\"true\"", labels(schema, level));
        for (bound, count) in WAIT_BUCKETS.iter().zip(flow.waits) {
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
        }
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", flow.dispatched);
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}", flow.wait_seconds);
        let _ = writeln!(out, "{name}_count{{{labels}}} {}", flow.dispatched);
    }
    let name = format!("{PREFIX}_request_execution_seconds");
    header(out, &name, "summary", "Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution");
    for (schema, level, flow) in &report.flows {
        let labels = labels(schema, level);
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}", flow.run_seconds);
        let _ = writeln!(out, "{name}_count{{{labels}}} {}", flow.ended);
    }
}

fn render_levels(out: &mut String, report: &Report) {
    let mut each = |name: &str, help: &str, value: &dyn Fn(&api_fairness::LevelReport) -> u32| {
        header(out, &format!("{PREFIX}_{name}"), "gauge", help);
        for level in &report.levels {
            let _ = writeln!(out, "{PREFIX}_{name}{{priority_level=\"{}\"}} {}", level.name, value(level));
        }
    };
    each("nominal_limit_seats", "Nominal number of execution seats configured for each priority level", &|level| level.nominal);
    each("lower_limit_seats", "Configured lower bound on number of execution seats available to each priority level", &|level| {
        level.nominal.saturating_sub(level.lendable)
    });
    each("upper_limit_seats", "Configured upper bound on number of execution seats available to each priority level", &|level| {
        let all = report.levels.iter().map(|level| level.nominal).sum();
        level.borrowing.map_or(all, |more| level.nominal.saturating_add(more))
    });
    each("current_limit_seats", "current derived number of execution seats available to each priority level", &|level| {
        level.nominal.max(level.executing)
    });
}
