//! One line of Prometheus' text format, as far as the metrics of resources have it.

use crate::error::AnswerError;

/// The metrics that are read; all others are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    NodeCpu,
    NodeMemory,
    ContainerCpu,
    ContainerMemory,
    ContainerStart,
}

const METRICS: [(&str, Metric); 5] = [
    ("container_cpu_usage_seconds_total", Metric::ContainerCpu),
    ("container_memory_working_set_bytes", Metric::ContainerMemory),
    ("container_start_time_seconds", Metric::ContainerStart),
    ("node_cpu_usage_seconds_total", Metric::NodeCpu),
    ("node_memory_working_set_bytes", Metric::NodeMemory),
];

/// A series that is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Series<'l> {
    pub(crate) metric: Metric,
    /// The text between the braces.
    labels: &'l str,
    /// Finite and not negative.
    pub(crate) value: f64,
    /// In ms since the epoch.
    pub(crate) at_ms: Option<i64>,
}

/// The latest time that a point may have: the end of the year 9999, in ms.
pub(crate) const TIME_MS_MAX: i64 = 253_402_300_799_999;

impl<'l> Series<'l> {
    /// A line without its end; `None` for comments and for other metrics.
    pub(crate) fn parse(line: &'l str) -> Result<Option<Self>, AnswerError> {
        let name_len = line.find(['{', ' ', '\t']).unwrap_or(line.len());
        let (name, rest) = line.split_at(name_len);
        let Some((name, metric)) = METRICS.iter().find(|(known, _)| *known == name).copied() else { return Ok(None) };
        // Names of Kubernetes' objects contain neither quotes nor braces.
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_once('}').ok_or(AnswerError::Malformed(name))?,
            None => ("", rest),
        };
        let mut words = rest.split_ascii_whitespace();
        let value = words.next().and_then(|word| word.parse::<f64>().ok()).ok_or(AnswerError::Malformed(name))?;
        let at_ms = words.next().map(str::parse::<i64>).transpose();
        let at_ms = at_ms.map_err(|_| AnswerError::Malformed(name))?;
        if words.next().is_some() {
            return Err(AnswerError::Malformed(name));
        }
        if !value.is_finite() || value < 0.0 {
            return Err(AnswerError::Impossible(name));
        }
        if at_ms.is_some_and(|at_ms| !(0..=TIME_MS_MAX).contains(&at_ms)) {
            return Err(AnswerError::Impossible(name));
        }
        Ok(Some(Self { metric, labels, value, at_ms }))
    }

    /// The value of a label.
    pub(crate) fn label(&self, name: &str) -> Option<&'l str> {
        let mut rest = self.labels;
        loop {
            let (key, after) = rest.split_once("=\"")?;
            let (value, after) = after.split_once('"')?;
            if key.trim() == name {
                return Some(value);
            }
            rest = after.strip_prefix(',').unwrap_or(after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_labels_a_value_and_a_time() {
        let line = "container_cpu_usage_seconds_total{container=\"c\",namespace=\"ns\", pod=\"web-0\"} 1.5e+01 1700000000123";
        let series = Series::parse(line).expect("parses").expect("is read");
        assert_eq!((series.metric, series.value, series.at_ms), (Metric::ContainerCpu, 15.0, Some(1_700_000_000_123)));
        assert_eq!(["pod", "namespace", "container", "od"].map(|name| series.label(name)), [Some("web-0"), Some("ns"), Some("c"), None]);
        let node = Series::parse("node_memory_working_set_bytes 7").expect("parses").expect("is read");
        assert_eq!((node.metric, node.value, node.at_ms, node.label("pod")), (Metric::NodeMemory, 7.0, None, None));
    }

    #[test]
    fn other_lines_are_skipped_and_faults_are_named() {
        for skipped in ["", "# HELP node_cpu_usage_seconds_total x", "go_goroutines 7", "node_cpu_usage_seconds_total_more 1", "<html>"] {
            assert_eq!(Series::parse(skipped), Ok(None), "{skipped}");
        }
        const CPU: &str = "node_cpu_usage_seconds_total";
        for fault in [
            CPU.to_owned(),
            format!("{CPU} x"),
            format!("{CPU} 1 x"),
            format!("{CPU} 1 2 3"),
            format!("{CPU}{{a=\"b\" 1"),
            format!("{CPU} 1 99999999999999999999"),
        ] {
            assert_eq!(Series::parse(&fault), Err(AnswerError::Malformed(CPU)), "{fault}");
        }
        for value in ["-1", "NaN", "+Inf", "-Inf", "1e999", "1 -1", "1 253402300800000"] {
            assert_eq!(Series::parse(&format!("{CPU} {value}")), Err(AnswerError::Impossible(CPU)), "{value}");
        }
    }
}
