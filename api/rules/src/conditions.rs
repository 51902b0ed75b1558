//! Lists of `metav1.Condition`: upstream's checks, which are the same in every kind.

use std::collections::HashSet;

use jiff::Timestamp;

use crate::at::At;
use crate::checks::Checks;
use crate::format;

/// Longest reason and message, in bytes.
const REASON_LEN_MAX: usize = 1024;
const MESSAGE_LEN_MAX: usize = 32 * 1024;

/// Checks every condition of a list, and that types are unique.
pub fn validate(conditions: &At<'_>, checks: &mut Checks) {
    let mut seen = HashSet::new();
    for condition in conditions.items() {
        if !seen.insert(condition.get("type").text()) {
            checks.duplicate(&condition.get("type"));
        }
        each(&condition, checks);
    }
}

fn each(condition: &At<'_>, checks: &mut Checks) {
    checks.qualified_name(&condition.get("type"));
    if !["False", "True", "Unknown"].contains(&condition.get("status").text()) {
        checks.not_supported(&condition.get("status"), &["False", "True", "Unknown"]);
    }
    checks.not_negative(&condition.get("observedGeneration"));
    if condition.get("lastTransitionTime").text().parse::<Timestamp>().is_err() {
        checks.required(&condition.get("lastTransitionTime"), "");
    }
    let reason = condition.get("reason");
    if reason.text().is_empty() {
        checks.required(&reason, "");
    } else {
        checks.format(&reason, self::reason(reason.text()));
        if reason.text().len() > REASON_LEN_MAX {
            checks.too_long(&reason, REASON_LEN_MAX);
        }
    }
    if condition.get("message").text().len() > MESSAGE_LEN_MAX {
        checks.too_long(&condition.get("message"), MESSAGE_LEN_MAX);
    }
}

/// A reason: letters and digits, and between them also `_`, `,` and `:`.
fn reason(text: &str) -> Vec<String> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let ends = text.bytes().last().is_some_and(word);
    if starts && ends && text.bytes().all(|b| word(b) || b == b',' || b == b':') {
        return Vec::new();
    }
    let words = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
    vec![format::mismatch(
        words,
        "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
        &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
    )]
}

/// Whether the condition of that type is true.
pub fn is_true(conditions: &At<'_>, kind: &str) -> bool {
    conditions.items().any(|condition| condition.get("type").text() == kind && condition.get("status").text() == "True")
}
