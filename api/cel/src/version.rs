//! Semantic versions (semver.org, 2.0.0) as upstream's library (blang/semver) reads them.

use semver::Version;

/// Parses a version. `normalize` first removes a leading `v`, adds a missing minor and patch number, and removes leading
/// zeros of the three numbers.
pub(crate) fn parse(text: &str, normalize: bool) -> Option<Version> {
    let parsed = if normalize { Version::parse(&normalized(text)) } else { Version::parse(text) };
    parsed.ok().filter(|version| version.pre.split('.').all(has_room))
}

fn normalized(text: &str) -> String {
    let text = text.trim_start_matches(['v', 'V']);
    let (numbers, rest) = text.split_at(text.find(['-', '+']).unwrap_or(text.len()));
    let mut numbers: Vec<&str> = numbers.split('.').map(without_zeros).collect();
    // Upstream's library adds no missing numbers to a version with a pre-release.
    if numbers.len() < 3 && !rest.starts_with('-') {
        numbers.resize(3, "0");
    }
    numbers.join(".") + rest
}

fn without_zeros(digits: &str) -> &str {
    let trimmed = digits.trim_start_matches('0');
    if trimmed.is_empty() { digits.get(..1).unwrap_or_default() } else { trimmed }
}

/// Whether a part of a pre-release is no number, or fits upstream's integers.
fn has_room(part: &str) -> bool {
    part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) || part.parse::<u64>().is_ok()
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;

    #[test]
    fn versions_are_ordered_as_the_specification_orders_them() {
        let ordered = [
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.2.0",
            "2.0.0+b",
        ];
        let parsed: Vec<Version> = ordered.iter().map(|text| parse(text, false).expect(text)).collect();
        for pair in parsed.windows(2) {
            assert_eq!(pair[0].cmp_precedence(&pair[1]), Ordering::Less, "{pair:?}");
        }
        for text in ["1.0", "v1.0.0", "01.0.0", "1.0.0-", "1.0.0+", "", "a.b.c", "1.0.0-99999999999999999999"] {
            assert_eq!(parse(text, false), None, "{text}");
        }
        for text in ["v1.0", "1", "v01.0.0"] {
            assert_eq!(parse(text, true).map(|version| version.major), Some(1), "{text}");
        }
    }
}
