//! CronJob.

mod schedule;

use serde_json::Value;

use super::{Rules, job};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, fill, fill_absent, make};
use crate::pod::{self, defaults};

/// The rules of CronJobs.
pub const RULES: Rules = Rules { warnings, ..Rules::new(default, validate_create, validate_update) };

fn default(object: &mut Value) {
    let Some(spec) = edit::spec(object) else {
        return;
    };
    fill(spec, "concurrencyPolicy", "Allow");
    fill_absent(spec, "suspend", false);
    fill_absent(spec, "successfulJobsHistoryLimit", 3);
    fill_absent(spec, "failedJobsHistoryLimit", 1);
    if let Some(template) = make(spec, "jobTemplate") {
        make(template, "metadata");
        if let Some(spec) = make(template, "spec") {
            job::failure_policy(spec);
            defaults::template(spec);
        }
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    let text = spec.get("schedule");
    if text.text().is_empty() {
        checks.required(&text, "");
    } else if text.text().contains("TZ") {
        checks.invalid(&text, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    } else if let Err(problem) = schedule::check(text.text()) {
        checks.invalid(&text, problem);
    }
    checks.not_negative(&spec.get("startingDeadlineSeconds"));
    time_zone(&spec.get("timeZone"), checks);
    checks.one_of(&spec.get("concurrencyPolicy"), &["Allow", "Forbid", "Replace"]);
    let template = spec.get("jobTemplate").get("spec");
    job::validate_spec(&template, checks);
    if template.get("selector").exists() {
        checks.invalid(&template.get("selector"), "`selector` will be auto-generated");
    }
    if template.get("manualSelector").flag() {
        checks.not_supported(&template.get("manualSelector"), &["nil", "false"]);
    }
    checks.not_negative(&spec.get("successfulJobsHistoryLimit"));
    checks.not_negative(&spec.get("failedJobsHistoryLimit"));
}

fn time_zone(zone: &At<'_>, checks: &mut Checks) {
    if !zone.exists() {
        return;
    }
    let name = zone.text();
    if name.is_empty() {
        checks.invalid(zone, "timeZone must be nil or non-empty string");
    } else if name.eq_ignore_ascii_case("local") {
        checks.invalid(zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    } else if !jiff::tz::db().is_definitively_empty() && jiff::tz::TimeZone::get(name).is_err() {
        checks.invalid(zone, format!("unknown time zone {name}"));
    }
}

fn validate_update(sub: Option<&str>, new: &At<'_>, _old: &At<'_>, checks: &mut Checks) {
    if sub != Some("status") {
        validate_create(new, checks);
    }
}

fn warnings(object: &At<'_>) -> Vec<String> {
    pod::warnings::for_pod(&object.find("spec.jobTemplate.spec.template"))
}
