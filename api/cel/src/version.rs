//! Semantic versions (semver.org, 2.0.0).

use std::cmp::Ordering;

/// A version.
#[derive(Debug, PartialEq, Eq)]
pub struct Semver {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    prerelease: Vec<Part>,
}

/// A part of a pre-release: numbers are less than texts.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Text(String),
}

impl Semver {
    /// Reads a version. With `normalizes`, a `v` before it, missing minor and patch, and zeros before
    /// numbers are put right.
    pub(crate) fn parse(text: &str, normalizes: bool) -> Option<Self> {
        let text = if normalizes { text.trim_start_matches(['v', 'V']) } else { text };
        let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
        if build.is_some_and(|build| !build.split('.').all(is_identifier)) {
            return None;
        }
        let (core, prerelease) = rest.split_once('-').map_or((rest, None), |(core, prerelease)| (core, Some(prerelease)));
        let mut numbers = core.split('.').map(|digits| number(digits, normalizes)).collect::<Option<Vec<_>>>()?;
        if normalizes && numbers.len() < 3 && prerelease.is_none() {
            numbers.resize(3, 0);
        }
        let [major, minor, patch] = *numbers.as_slice() else { return None };
        let parts = prerelease.map(|text| text.split('.').map(Part::read).collect::<Option<Vec<_>>>());
        let prerelease = match parts {
            Some(parts) => parts?,
            None => Vec::new(),
        };
        Some(Self { major, minor, patch, prerelease })
    }

    /// Which comes first; a pre-release comes before its release.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        numbers(self).cmp(&numbers(other)).then_with(|| match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.prerelease.cmp(&other.prerelease),
        })
    }
}

impl Part {
    fn read(text: &str) -> Option<Self> {
        if !is_identifier(text) {
            return None;
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            number(text, false).map(Self::Number)
        } else {
            Some(Self::Text(text.to_owned()))
        }
    }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn number(digits: &str, normalizes: bool) -> Option<u64> {
    let is_good = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let is_padded = digits.len() > 1 && digits.starts_with('0');
    if is_good && (normalizes || !is_padded) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
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
        let parsed: Vec<Semver> = ordered.iter().map(|text| Semver::parse(text, false).expect(text)).collect();
        for pair in parsed.windows(2) {
            assert_eq!(pair[0].order(&pair[1]), Ordering::Less, "{pair:?}");
        }
        for text in ["1.0", "v1.0.0", "01.0.0", "1.0.0-", "1.0.0+", "", "a.b.c"] {
            assert_eq!(Semver::parse(text, false), None, "{text}");
        }
        for text in ["v1.0", "1", "v01.0.0"] {
            assert_eq!(Semver::parse(text, true).map(|version| version.major), Some(1), "{text}");
        }
    }
}
