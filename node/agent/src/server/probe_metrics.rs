//! `/metrics/probes`: the attempts of each Pod's probes under the kubelet's names, as long as the Pod is on the node.

use std::sync::Arc;

use api_metrics::{Families, number};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::container::probes::ProbeKind;
use crate::layout::PodName;
use crate::node::Node;
use crate::probe_results::ProbeSeries;

/// A probe of a Pod, and its attempts.
struct Measured {
    pod: PodName,
    container: String,
    kind: ProbeKind,
    series: ProbeSeries,
}

impl Measured {
    /// The labels that both families have.
    fn labels(&self) -> Vec<(&'static str, String)> {
        vec![
            ("container", self.container.clone()),
            ("namespace", self.pod.namespace.clone()),
            ("pod", self.pod.name.clone()),
            ("probe_type", self.kind.as_str().to_owned()),
        ]
    }

    fn counts(&self) -> impl Iterator<Item = (Vec<(&'static str, String)>, f64)> {
        let results = [("failed", self.series.failed), ("successful", self.series.successful)];
        results.into_iter().filter(|(_, count)| *count > 0).map(|(result, count)| {
            let mut labels = self.labels();
            labels.extend([("pod_uid", self.pod.uid.clone()), ("result", result.to_owned())]);
            (labels, number(count))
        })
    }
}

/// Answers the path.
pub(super) async fn metrics(State(node): State<Arc<Node>>) -> Response {
    let mut all = Vec::new();
    for entry in node.directory.all() {
        let measured = |((container, kind), series)| Measured { pod: PodName::of(&entry.pod), container, kind, series };
        all.extend(entry.probe_results.series().into_iter().map(measured));
    }
    ([(header::CONTENT_TYPE, api_metrics::TEXT_FORMAT)], families(&all).text()).into_response()
}

fn families(all: &[Measured]) -> Families {
    let mut families = Families::default();
    let durations = all.iter().filter(|one| one.series.successful > 0);
    families.histogram(
        "prober_probe_duration_seconds",
        "Duration in seconds for a probe response.",
        durations.map(|one| (one.labels(), one.series.durations.clone())),
    );
    families.counter(
        "prober_probe_total",
        "Cumulative number of a liveness, readiness or startup probe for a container by result.",
        all.iter().flat_map(Measured::counts),
    );
    families
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::probe_results::ProbeResults;

    #[test]
    fn attempts_are_counted_by_result_and_successful_ones_are_timed() {
        let results = ProbeResults::default();
        for (success, took_ms) in [(false, 900), (true, 3), (true, 30)] {
            results.count("c", ProbeKind::Readiness, success, Duration::from_millis(took_ms));
        }
        results.count("c", ProbeKind::Liveness, false, Duration::ZERO);
        let pod = PodName { namespace: "ns".to_owned(), name: "p".to_owned(), uid: "u".to_owned() };
        let measured = |((container, kind), series)| Measured { pod: pod.clone(), container, kind, series };
        let text = families(&results.series().into_iter().map(measured).collect::<Vec<_>>()).text();
        for line in [
            r#"prober_probe_total{container="c",namespace="ns",pod="p",pod_uid="u",probe_type="Readiness",result="successful"} 2"#,
            r#"prober_probe_total{container="c",namespace="ns",pod="p",pod_uid="u",probe_type="Readiness",result="failed"} 1"#,
            r#"prober_probe_total{container="c",namespace="ns",pod="p",pod_uid="u",probe_type="Liveness",result="failed"} 1"#,
            r#"prober_probe_duration_seconds_bucket{container="c",namespace="ns",pod="p",probe_type="Readiness",le="0.005"} 1"#,
            r#"prober_probe_duration_seconds_count{container="c",namespace="ns",pod="p",probe_type="Readiness"} 2"#,
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is missing:\n{text}");
        }
        assert_eq!(text.lines().filter(|line| line.starts_with("prober_probe_total{")).count(), 3, "{text}");
        assert!(!text.contains(r#"duration_seconds_count{container="c",namespace="ns",pod="p",probe_type="Liveness""#), "{text}");
    }
}
