//! The settings of a trigger: texts in its metadata, read as upstream reads them. All problems are reported together.

use std::collections::BTreeMap;
use std::time::Duration;

use api_model::go;
use api_model::message::Message;

/// Reads the metadata of one trigger, and collects what is wrong with it.
pub struct Params<'a> {
    metadata: &'a BTreeMap<String, String>,
    problems: Vec<String>,
}

impl<'a> Params<'a> {
    /// A reader of this metadata.
    pub fn new(metadata: &'a BTreeMap<String, String>) -> Self {
        Self { metadata, problems: Vec::new() }
    }

    /// Adds a problem.
    pub fn fail(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }

    /// A setting; none if it is empty.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.metadata.get(name).map(|text| text.trim()).filter(|text| !text.is_empty())
    }

    /// A setting that must be there.
    pub fn required(&mut self, name: &str) -> &'a str {
        let text = self.get(name);
        if text.is_none() {
            self.missing(name);
        }
        text.unwrap_or_default()
    }

    /// A number that must be there.
    pub fn number(&mut self, name: &str) -> f64 {
        match self.get(name) {
            Some(text) => self.parse_number(name, text),
            None => {
                self.missing(name);
                0.0
            }
        }
    }

    /// A number; `default` without one.
    pub fn number_or(&mut self, name: &str, default: f64) -> f64 {
        self.get(name).map_or(default, |text| self.parse_number(name, text))
    }

    /// A whole number that must be there.
    pub fn integer(&mut self, name: &str) -> i64 {
        let Some(text) = self.get(name) else {
            self.missing(name);
            return 0;
        };
        text.parse().unwrap_or_else(|_| {
            self.fail(unparseable(name, text, "unable to unmarshal to field type int64"));
            0
        })
    }

    /// Adds a problem for each setting that is not one of these.
    pub fn fail_unknown(&mut self, names: &[&str]) {
        for unknown in self.metadata.keys().filter(|name| !names.contains(&name.as_str())) {
            self.problems.push(format!("parameter {unknown:?} does not exist"));
        }
    }

    /// A truth value; `default` without one.
    pub fn boolean(&mut self, name: &str, default: bool) -> bool {
        let Some(text) = self.get(name) else { return default };
        go::parse_bool(text).unwrap_or_else(|| {
            self.fail(unparseable(name, text, &format!("unable to parse boolean value {text:?}: invalid syntax")));
            default
        })
    }

    /// Pairs of a name and a value, in the form `a=b,c=d`.
    pub fn pairs(&mut self, name: &str) -> Vec<(String, String)> {
        let text = self.get(name);
        let mut pairs = Vec::new();
        for part in text.iter().flat_map(|text| text.split(',')).map(str::trim) {
            match part.split('=').collect::<Vec<_>>().as_slice() {
                [key, value] => pairs.push((key.trim().to_owned(), value.trim().to_owned())),
                _ => self.fail(unparseable(name, text.unwrap_or_default(), &format!("expected format key=value, got {part:?}"))),
            }
        }
        pairs
    }

    /// One of several words; the first one without a word.
    pub fn word(&mut self, name: &str, words: &[&'static str]) -> &'static str {
        let first = words.first().copied().unwrap_or_default();
        let Some(text) = self.get(name) else { return first };
        words.iter().copied().find(|word| *word == text).unwrap_or_else(|| {
            self.fail(format!("parameter {name:?} value {text:?} must be one of [{}]", words.join(" ")));
            first
        })
    }

    /// A time as Go writes durations, or in milliseconds.
    pub fn duration(&mut self, name: &str) -> Option<Duration> {
        let text = self.get(name)?;
        let nanos = go::parse_duration(text).ok().or_else(|| text.parse::<i64>().ok()?.checked_mul(1_000_000));
        let Some(nanos) = nanos else {
            let why = format!(
                "unable to parse duration value {text:?}: must be either a duration string (e.g. '30s', '5m') or a number of milliseconds"
            );
            self.fail(unparseable(name, text, &why));
            return None;
        };
        let duration = u64::try_from(nanos).ok().map(Duration::from_nanos);
        if duration.is_none() {
            self.fail(unparseable(name, text, &format!("duration cannot be negative: {text:?}")));
        }
        duration
    }

    /// Ends the reading: an error if anything was wrong.
    pub fn finish(self) -> Result<(), Message> {
        if self.problems.is_empty() { Ok(()) } else { Err(self.problems.join("\n").into()) }
    }

    fn parse_number(&mut self, name: &str, text: &str) -> f64 {
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => number,
            _ => {
                self.fail(unparseable(name, text, "unable to unmarshal to field type float64"));
                0.0
            }
        }
    }

    fn missing(&mut self, name: &str) {
        self.fail(format!("missing required parameter {name:?} in [triggerMetadata]"));
    }
}

fn unparseable(name: &str, text: &str, why: &str) -> String {
    format!("unable to set param {name:?} value {text:?}: {why}")
}
