//! Metrics of priority and fairness, with upstream's names.

use api_fairness::{Flow, LevelReport, Report, WAIT_BUCKETS};
use api_metrics::{Families, HistogramSample, number};

/// Adds the figures of all flow schemas and priority levels.
pub(super) fn add(families: &mut Families, report: &Report) {
    add_flows(families, report);
    add_durations(families, report);
    add_levels(families, report);
}

/// The series of each flow schema at its level.
fn each<'r, V>(report: &'r Report, value: impl Fn(&Flow) -> V + 'r) -> impl Iterator<Item = ([(&'static str, String); 2], V)> + 'r {
    report.flows.iter().map(move |(schema, level, flow)| (labels(schema, level), value(flow)))
}

fn labels(schema: &impl ToString, level: &impl ToString) -> [(&'static str, String); 2] {
    [("flow_schema", schema.to_string()), ("priority_level", level.to_string())]
}

fn add_flows(families: &mut Families, report: &Report) {
    families.counter(
        "apiserver_flowcontrol_dispatched_requests_total",
        "Number of requests executed by API Priority and Fairness subsystem",
        each(report, |flow| number(flow.dispatched)),
    );
    families.gauge(
        "apiserver_flowcontrol_current_inqueue_requests",
        "Number of requests currently pending in queues of the API Priority and Fairness subsystem",
        each(report, |flow| flow.inqueue.into()),
    );
    families.gauge(
        "apiserver_flowcontrol_current_executing_requests",
        "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem",
        each(report, |flow| flow.executing.into()),
    );
    families.gauge(
        "apiserver_flowcontrol_current_executing_seats",
        "Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem",
        each(report, |flow| flow.seats.into()),
    );
    let rejected = report.flows.iter().flat_map(|(schema, level, flow)| {
        let reasons = flow.rejected.iter().filter(|(_, count)| *count > 0);
        reasons.map(move |(reason, count)| {
            let [schema, level] = labels(schema, level);
            ([schema, level, ("reason", reason.to_string())], number(*count))
        })
    });
    families.counter(
        "apiserver_flowcontrol_rejected_requests_total",
        "Number of requests rejected by API Priority and Fairness subsystem",
        rejected,
    );
}

fn add_durations(families: &mut Families, report: &Report) {
    let waits = each(report, |flow| HistogramSample {
        buckets: WAIT_BUCKETS.into_iter().zip(flow.waits).collect(),
        count: flow.dispatched,
        sum: flow.wait_seconds,
    });
    families.histogram(
        "apiserver_flowcontrol_request_wait_duration_seconds",
        "Length of time a request spent waiting in its queue",
        waits.map(|([schema, level], sample)| ([schema, level, ("execute", "true".to_owned())], sample)),
    );
    families.histogram(
        "apiserver_flowcontrol_request_execution_seconds",
        "Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API Priority and Fairness subsystem",
        each(report, |flow| HistogramSample { buckets: Vec::new(), count: flow.ended, sum: flow.run_seconds }),
    );
}

fn add_levels(families: &mut Families, report: &Report) {
    let mut add = |name: &str, help: &str, value: &dyn Fn(&LevelReport) -> u32| {
        let series = report.levels.iter().map(|level| ([("priority_level", level.name.clone())], value(level).into()));
        families.gauge(name, help, series);
    };
    add("apiserver_flowcontrol_nominal_limit_seats", "Nominal number of execution seats configured for each priority level", &|level| {
        level.nominal
    });
    add(
        "apiserver_flowcontrol_lower_limit_seats",
        "Configured lower bound on number of execution seats available to each priority level",
        &|level| level.nominal.saturating_sub(level.lendable),
    );
    add(
        "apiserver_flowcontrol_upper_limit_seats",
        "Configured upper bound on number of execution seats available to each priority level",
        &|level| {
            let all = report.levels.iter().map(|level| level.nominal).sum();
            level.borrowing.map_or(all, |more| level.nominal.saturating_add(more))
        },
    );
    add(
        "apiserver_flowcontrol_current_limit_seats",
        "current derived number of execution seats available to each priority level",
        &|level| level.nominal.max(level.executing),
    );
}
