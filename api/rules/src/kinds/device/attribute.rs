//! Attributes that a driver publishes of a device; each has exactly one value or one list of values.

use std::sync::LazyLock;

use regex::Regex;

use crate::at::At;
use crate::checks::Checks;

/// The longest text of an attribute.
const TEXT_LEN_MAX: usize = 64;

/// A version in the form of semver.org (2.0.0).
static VERSION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let (number, build) = (r"(0|[1-9]\d*)", "[0-9A-Za-z-]+");
    let release = r"(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)";
    Regex::new(&format!(r"^{number}\.{number}\.{number}(-{release}(\.{release})*)?(\+{build}(\.{build})*)?$")).ok()
});

/// Checks an attribute.
pub(super) fn validate(attribute: &At<'_>, checks: &mut Checks) {
    text(&attribute.get("string"), checks);
    version(&attribute.get("version"), checks);
    for field in ["bools", "ints", "strings", "versions"] {
        let list = attribute.get(field);
        if list.exists() && list.len() == 0 {
            checks.invalid(&list, "must not be empty if specified");
        }
        for item in list.items() {
            match field {
                "strings" => text(&item, checks),
                "versions" => version(&item, checks),
                _ => {}
            }
        }
    }
    match attribute.fields().count() {
        0 => checks.invalid_value(&attribute.path, "", "exactly one value must be specified"),
        1 => {}
        _ => checks.invalid(attribute, "exactly one value must be specified"),
    }
}

/// The number of values of an attribute; a list counts each of its values.
pub(super) fn values(attribute: &At<'_>) -> usize {
    let listed: usize = ["bools", "ints", "strings", "versions"].iter().map(|field| attribute.get(field).len()).sum();
    listed.max(1)
}

/// Whether an attribute is a list.
pub(super) fn is_list(attribute: &At<'_>) -> bool {
    ["bools", "ints", "strings", "versions"].iter().any(|field| attribute.get(field).exists())
}

fn text(at: &At<'_>, checks: &mut Checks) {
    if at.text().len() > TEXT_LEN_MAX {
        checks.too_long(at, TEXT_LEN_MAX);
    }
}

fn version(at: &At<'_>, checks: &mut Checks) {
    if at.exists() && VERSION.as_ref().is_some_and(|version| !version.is_match(at.text())) {
        checks.invalid(at, "must be a string compatible with semver.org spec 2.0.0");
    }
    text(at, checks);
}

#[cfg(test)]
mod tests {
    use super::VERSION;

    #[test]
    fn versions_are_semvers() {
        let version = VERSION.as_ref().expect("the expression is good");
        for (text, good) in [("1.2.3", true), ("1.2.3-rc.1+b.5", true), ("01.2.3", false), ("1.2", false), ("v1.2.3", false)] {
            assert_eq!(version.is_match(text), good, "{text}");
        }
    }
}
