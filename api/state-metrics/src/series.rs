//! Writes the samples of one family for one object: the family's name, the labels that identify the object, further
//! labels and a value, one sample a line, in Prometheus text format 0.0.4.

use api_model::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::number;

/// The name and the value of a label.
pub(crate) type Label<'a> = (&'a str, &'a str);

/// The values of a condition's status, as stored and as in labels.
const CONDITION_STATUSES: [(&str, &str); 3] = [("True", "true"), ("False", "false"), ("Unknown", "unknown")];

/// The highest number of samples of a family for one object.
pub(crate) const SAMPLES_MAX: usize = 1_024;

/// The samples of one family for one object.
pub(crate) struct Series<'a> {
    name: &'static str,
    /// The labels of every sample of the object, as text without braces.
    identity: &'a [u8],
    out: &'a mut Vec<u8>,
    /// The number of samples.
    len: usize,
}

impl<'a> Series<'a> {
    /// Appends to `out`; `identity` comes from [`label_text`].
    pub(crate) fn new(name: &'static str, identity: &'a [u8], out: &'a mut Vec<u8>) -> Self {
        Self { name, identity, out, len: 0 }
    }

    /// One sample with further labels. What an object has beyond [`SAMPLES_MAX`] is left out: Prometheus stores each series, and whoever
    /// may write an object chooses how many it has.
    pub(crate) fn sample(&mut self, labels: &[Label<'_>], value: f64) {
        if self.len == SAMPLES_MAX {
            return;
        }
        self.len += 1;
        self.out.extend_from_slice(self.name.as_bytes());
        self.out.push(b'{');
        self.out.extend_from_slice(self.identity);
        write_labels(self.out, labels);
        self.out.extend_from_slice(b"} ");
        number::write(self.out, value);
        self.out.push(b'\n');
    }

    /// A sample without further labels.
    pub(crate) fn value(&mut self, value: f64) {
        self.sample(&[], value);
    }

    /// A sample that states the labels: its value is 1.
    pub(crate) fn info(&mut self, labels: &[Label<'_>]) {
        self.sample(labels, 1.0);
    }

    /// 1 for true and 0 for false.
    pub(crate) fn flag(&mut self, flag: bool) {
        self.value(f64::from(u8::from(flag)));
    }

    /// A whole number. Beyond 2^53 the nearest number that a sample can have.
    pub(crate) fn integer(&mut self, value: impl Into<i64>) {
        self.value(value.into() as f64);
    }

    /// A whole number that is 0 when it is absent.
    pub(crate) fn count(&mut self, value: Option<impl Into<i64>>) {
        self.integer(value.map_or(0, Into::into));
    }

    /// A whole number; no sample when it is absent.
    pub(crate) fn present(&mut self, value: Option<impl Into<i64>>) {
        if let Some(value) = value {
            self.integer(value);
        }
    }

    /// The length of a list.
    pub(crate) fn len(&mut self, len: usize) {
        self.value(len as f64);
    }

    /// Unix time in seconds; no sample when the time is absent.
    pub(crate) fn time(&mut self, time: Option<&Time>) {
        self.present(time.map(|time| time.0.as_second()));
    }

    /// One sample for each possible value of a label: 1 for the current one, 0 for the others.
    pub(crate) fn states(&mut self, label: &str, values: &[&str], current: &str) {
        for value in values {
            self.sample(&[(label, value)], f64::from(u8::from(*value == current)));
        }
    }

    /// The three samples of a condition. `label` comes after `labels` and has the status in lower case.
    pub(crate) fn condition(&mut self, labels: &[Label<'_>], label: &str, status: &str) {
        let mut all = labels.to_vec();
        for (stored, text) in CONDITION_STATUSES {
            all.push((label, text));
            self.sample(&all, f64::from(u8::from(status == stored)));
            all.pop();
        }
    }
}

/// The text of labels without braces.
pub(crate) fn label_text(labels: &[Label<'_>]) -> Vec<u8> {
    let mut text = Vec::new();
    write_labels(&mut text, labels);
    text
}

/// Appends labels. A comma comes before each of them, unless nothing or an opening brace is before the first one.
fn write_labels(out: &mut Vec<u8>, labels: &[Label<'_>]) {
    for (name, value) in labels {
        if !matches!(out.last(), None | Some(b'{')) {
            out.push(b',');
        }
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"=\"");
        write_escaped(out, value);
        out.push(b'"');
    }
}

fn write_escaped(out: &mut Vec<u8>, value: &str) {
    for byte in value.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'"' => out.extend_from_slice(b"\\\""),
            b'\n' => out.extend_from_slice(b"\\n"),
            other => out.push(other),
        }
    }
}
