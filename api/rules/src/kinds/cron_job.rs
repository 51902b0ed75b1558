//! CronJob.

use api_model::cron::{self, Schedule};
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
    validate(object, None, checks);
}

fn validate(object: &At<'_>, old: Option<&At<'_>>, checks: &mut Checks) {
    let spec = object.get("spec");
    validate_schedule(&spec, old, checks);
    checks.not_negative(&spec.get("startingDeadlineSeconds"));
    let old_zone = old.map(|old| old.find("spec.timeZone"));
    if old_zone.is_none_or(|old| old.value() != spec.get("timeZone").value()) {
        time_zone(&spec.get("timeZone"), checks);
    }
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

/// Checks the schedule. A prefix with a time zone may only stay where the old object has one.
fn validate_schedule(spec: &At<'_>, old: Option<&At<'_>>, checks: &mut Checks) {
    let schedule = spec.get("schedule");
    let text = schedule.text();
    if text.is_empty() {
        return checks.required(&schedule, "");
    }
    if let Err(problem) = Schedule::parse(text) {
        checks.invalid(&schedule, problem);
    }
    let may_stay = old.is_some_and(|old| old.find("spec.schedule").text().contains("TZ"));
    if text.contains("TZ") && !may_stay {
        checks.invalid(&schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    } else if text.contains("TZ") && spec.get("timeZone").exists() {
        checks.invalid(&schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
    }
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
    } else if !jiff::tz::db().is_definitively_empty() && cron::time_zone(name).is_none() {
        checks.invalid(zone, format!("unknown time zone {name}"));
    }
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if sub != Some("status") {
        validate(new, Some(old), checks);
    }
}

/// Warnings about the template, and about a time zone in the schedule, which only an update can store.
fn warnings(object: &At<'_>) -> Vec<String> {
    let mut warnings = pod::warnings::for_pod(&object.find("spec.jobTemplate.spec.template"));
    if object.find("spec.schedule").text().contains("TZ") {
        // The path is upstream's own.
        let words = "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
            https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";
        warnings.push(words.to_owned());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The messages about a change of schedule and time zone.
    fn problems(old: Value, new: Value) -> Vec<String> {
        let whole = |spec: Value| json!({"spec": spec});
        let (old, new, mut checks) = (whole(old), whole(new), Checks::default());
        validate_schedule(&At::root(&new).get("spec"), Some(&At::root(&old)), &mut checks);
        checks.into_errors().iter().map(|error| format!("{error:?}")).collect()
    }

    #[test]
    fn a_time_zone_in_the_schedule_may_only_stay() {
        let with = "TZ=UTC 0 * * * *";
        assert_eq!(problems(json!({"schedule": with}), json!({"schedule": "CRON_TZ=UTC 5 * * * *"})), Vec::<String>::new());
        let [new] = &problems(json!({"schedule": "0 * * * *"}), json!({"schedule": with}))[..] else { panic!("one problem") };
        assert!(new.contains("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"), "{new}");
        let [both] = &problems(json!({"schedule": with}), json!({"schedule": with, "timeZone": "UTC"}))[..] else { panic!("one problem") };
        assert!(both.contains("cannot use both timeZone field and TZ or CRON_TZ in schedule"), "{both}");
    }

    #[test]
    fn a_time_zone_that_stays_in_the_schedule_is_warned_of() {
        for (schedule, expected) in [("0 * * * *", 0), ("TZ=UTC 0 * * * *", 1), ("CRON_TZ=UTC 0 * * * *", 1)] {
            let object = json!({"spec": {"schedule": schedule}});
            let warnings = warnings(&At::root(&object));
            assert_eq!(warnings.len(), expected, "{schedule}: {warnings:?}");
            assert!(warnings.iter().all(|warning| warning.starts_with("cannot use TZ or CRON_TZ in ")), "{warnings:?}");
        }
    }
}
