//! Events of both groups: one object whose fields have two sets of names. The server stores the core
//! form and converts between the forms.

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::format;

/// The rules of core Events.
pub const CORE: Rules = Rules::new(|_| {}, validate_core, |_, new, _, checks| validate_core(new, checks));
/// The rules of `events.k8s.io` Events, which are stricter.
pub const EVENTS: Rules = Rules::new(|_| {}, validate_create, validate_update);

const INSTANCE_LEN_MAX: usize = 128;
const WORD_LEN_MAX: usize = 128;
const NOTE_LEN_MAX: usize = 1024;

fn validate_core(event: &At<'_>, checks: &mut Checks) {
    check(event, &event.get("involvedObject"), &event.get("reportingComponent"), &event.get("message"), checks);
}

/// The checks of both forms. An Event with an `eventTime` has the new form.
fn check(event: &At<'_>, involved: &At<'_>, controller: &At<'_>, note: &At<'_>, checks: &mut Checks) {
    let own = event.find("metadata.namespace").text();
    let theirs = At::new(involved.get("namespace").value(), event.get("involvedObject").get("namespace").path);
    let is_new = event.get("eventTime").exists();
    let fits = match theirs.text() {
        "" => own.is_empty() || own == "default" || (is_new && own == "kube-system"),
        namespace => is_new || namespace == own,
    };
    if !fits {
        checks.invalid_value(&theirs.path, theirs.text(), "does not match event.namespace");
    }
    if !is_new {
        return;
    }
    let controller = At::new(controller.value(), event.get("reportingController").path);
    if controller.text().is_empty() {
        checks.required(&controller, "");
    }
    for message in format::qualified_name(controller.text()) {
        checks.invalid_value(&controller.path, controller.text(), message);
    }
    for (field, max) in [("reportingInstance", INSTANCE_LEN_MAX), ("action", WORD_LEN_MAX), ("reason", WORD_LEN_MAX)] {
        let at = event.get(field);
        if at.text().is_empty() {
            checks.required(&at, "");
        }
        if at.text().len() > max {
            checks.invalid_value(&at.path, "", format!("can have at most {max} characters"));
        }
    }
    if note.text().len() > NOTE_LEN_MAX {
        checks.invalid_value(&event.get("message").path, "", format!("can have at most {NOTE_LEN_MAX} characters"));
    }
}

fn validate_create(event: &At<'_>, checks: &mut Checks) {
    check(event, &event.get("regarding"), &event.get("reportingController"), &event.get("note"), checks);
    series(event, checks);
    if !event.get("eventTime").exists() {
        checks.required(&event.get("eventTime"), "");
    }
    let kind = event.get("type");
    if !["Normal", "Warning"].contains(&kind.text()) {
        checks.invalid_value(&kind.path, "", format!("has invalid value: {}", kind.text()));
    }
    for (old, now) in [
        ("firstTimestamp", "deprecatedFirstTimestamp"),
        ("lastTimestamp", "deprecatedLastTimestamp"),
        ("count", "deprecatedCount"),
        ("source", "deprecatedSource"),
    ] {
        if !event.get(now).is_zero() {
            checks.invalid_value(&event.get(old).path, "", "needs to be unset");
        }
    }
}

fn series(event: &At<'_>, checks: &mut Checks) {
    let series = event.get("series");
    if !series.exists() {
        return;
    }
    if series.get("count").int() < 2 {
        checks.invalid_value(&series.get("count").path, "", "should be at least 2");
    }
    if !series.get("lastObservedTime").exists() {
        checks.required(&series.get("lastObservedTime"), "");
    }
}

fn validate_update(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    check(new, &new.get("regarding"), &new.get("reportingController"), &new.get("note"), checks);
    if !new.get("series").same(&old.get("series")) {
        series(new, checks);
    }
    for (events, core) in [
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        let now = At::new(new.get(events).value(), new.get(core).path);
        checks.immutable(&now, &old.get(events));
    }
}
