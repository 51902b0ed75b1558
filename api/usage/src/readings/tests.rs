use proptest::prelude::*;

use super::*;
use crate::PodReading;

const RESOLUTION_MS: i64 = 15_000;

fn point(started_s: i64, read_s: i64, cpu_ms: u64) -> Point {
    Point { started_ms: started_s * 1_000, read_ms: read_s * 1_000, cpu_ns: cpu_ms * 1_000_000, memory_bytes: 1 << 20 }
}

fn pass(node: &str, own: Option<Point>, containers: &[(&str, Point)]) -> Vec<NodeReading> {
    let containers: Vec<_> = containers.iter().map(|(name, point)| (Arc::from(*name), *point)).collect();
    let pods = match containers.is_empty() {
        true => Vec::new(),
        false => vec![PodReading { namespace: "ns".into(), name: "web".into(), containers }],
    };
    vec![NodeReading { node: node.into(), own, pods }]
}

fn after(passes: &[Vec<NodeReading>]) -> Readings {
    passes.iter().fold(Readings::default(), |readings, pass| readings.followed_by(pass.clone(), RESOLUTION_MS))
}

/// `name=millicores` of each container, then end and length of the window in s.
fn pod(readings: &Readings) -> Option<(Vec<String>, i64, i64)> {
    let used = readings.of_pod("ns", "web", "n1")?;
    let usage = used.usage.iter().map(|container| format!("{}={}m", container.name, container.usage.cpu_nano / 1_000_000));
    Some((usage.collect(), used.at_ms / 1_000, used.window_ms / 1_000))
}

fn some(usage: &[&str], at: i64, window: i64) -> Option<(Vec<String>, i64, i64)> {
    Some((usage.iter().map(|&usage| usage.to_owned()).collect(), at, window))
}

/// The points of one reading, by container.
type Reading<'a> = &'a [(&'a str, Point)];

#[test]
fn the_use_of_a_container_is_the_rate_between_its_last_two_points() {
    let of = |containers: &[Reading<'_>]| pod(&after(&containers.iter().map(|one| pass("n1", None, one)).collect::<Vec<_>>()));
    let table: &[(&str, &[Reading<'_>], _)] = &[
        ("one point is none", &[&[("a", point(0, 100, 50))]], None),
        ("two points", &[&[("a", point(0, 100, 50))], &[("a", point(0, 115, 3_050))]], some(&["a=200m"], 115, 15)),
        (
            "the last two count",
            &[&[("a", point(0, 100, 0))], &[("a", point(0, 115, 9_000))], &[("a", point(0, 130, 9_150))]],
            some(&["a=10m"], 130, 15),
        ),
        (
            "the same point again",
            &[&[("a", point(0, 100, 50))], &[("a", point(0, 115, 3_050))], &[("a", point(0, 115, 3_050))]],
            some(&["a=200m"], 115, 15),
        ),
        ("an older point than the one before", &[&[("a", point(0, 100, 5))], &[("a", point(0, 115, 9))], &[("a", point(0, 99, 4))]], None),
        ("it started again", &[&[("a", point(0, 100, 50))], &[("a", point(110, 115, 90))]], None),
        (
            "it started again and ran for long enough",
            &[&[("a", point(0, 100, 50))], &[("a", point(103, 115, 2_400))]],
            some(&["a=200m"], 115, 12),
        ),
        ("it has just started", &[&[("a", point(90, 100, 1_000))]], some(&["a=100m"], 100, 10)),
        ("its start is not one of this pass", &[&[("a", point(80, 100, 1_000))]], None),
        ("its counter fell", &[&[("a", point(0, 100, 50))], &[("a", point(0, 115, 40))]], None),
        ("it started before it started", &[&[("a", point(20, 100, 50))], &[("a", point(10, 115, 90))]], None),
        (
            "the window is of the container that was read first",
            &[&[("a", point(0, 101, 0)), ("b", point(0, 100, 0))], &[("a", point(0, 117, 1_600)), ("b", point(0, 115, 150))]],
            some(&["a=100m", "b=10m"], 115, 15),
        ),
        ("one of two containers is new", &[&[("a", point(0, 100, 0))], &[("a", point(0, 115, 150)), ("b", point(114, 115, 1))]], None),
        (
            "one of two containers has ended",
            &[&[("a", point(0, 100, 0)), ("b", point(0, 100, 0))], &[("a", point(0, 115, 150))]],
            some(&["a=10m"], 115, 15),
        ),
        ("a start in the future", &[&[("a", point(200, 100, 1))], &[("a", point(200, 115, 2))]], None),
    ];
    for (what, passes, wanted) in table {
        assert_eq!(of(passes), *wanted, "{what}");
    }
}

#[test]
fn what_the_last_pass_does_not_have_is_gone() {
    let (one, other) = ([("a", point(0, 100, 50))], [("a", point(0, 115, 65))]);
    let readings = after(&[pass("n1", Some(point(0, 100, 50)), &one), pass("n1", Some(point(0, 115, 65)), &other)]);
    assert_eq!(
        readings.of_node("n1"),
        Some(Used { usage: Use { cpu_nano: 1_000_000, memory_bytes: 1 << 20 }, at_ms: 115_000, window_ms: 15_000 })
    );
    assert!(pod(&readings).is_some() && !readings.is_empty());
    assert_eq!(readings.measured(), (1, 1));
    assert_eq!(readings.of_pod("ns", "web", "n2"), None, "a Pod of that name on another node");
    assert_eq!((readings.of_pod("other", "web", "n1"), readings.of_node("n2")), (None, None));
    let readings = readings.followed_by(Vec::new(), RESOLUTION_MS);
    assert!(pod(&readings).is_none() && readings.of_node("n1").is_none() && readings.is_empty());
    let back = readings.followed_by(pass("n1", Some(point(0, 130, 80)), &[("a", point(0, 130, 80))]), RESOLUTION_MS);
    assert!(pod(&back).is_none() && back.of_node("n1").is_none(), "the points before are too old");
}

#[test]
fn a_pod_that_moved_starts_anew() {
    let readings = after(&[pass("n2", None, &[("a", point(0, 100, 50))]), pass("n1", None, &[("a", point(0, 115, 65))])]);
    assert_eq!(pod(&readings), None);
}

proptest! {
    /// A node may answer any numbers.
    #[test]
    fn any_points_have_a_use_or_none(points in proptest::collection::vec((any::<i64>(), any::<i64>(), any::<u64>(), any::<u64>()), 1..6)) {
        let passes: Vec<_> = points.into_iter().map(|(started_ms, read_ms, cpu_ns, memory_bytes)| {
            let point = Point { started_ms, read_ms, cpu_ns, memory_bytes };
            pass("n1", Some(point), &[("a", point)])
        }).collect();
        let readings = after(&passes);
        if let Some(used) = readings.of_node("n1") {
            prop_assert!(used.window_ms > 0 && used.usage.cpu_nano <= i64::MAX.unsigned_abs());
        }
        let _ = pod(&readings);
    }
}

/// Without requests a pass comes later than the resolution.
#[test]
fn a_container_that_started_since_the_pass_before_counts_from_its_start() {
    let readings = after(&[pass("n1", None, &[("old", point(0, 100, 0))])]);
    let later = pass("n1", None, &[("old", point(0, 160, 6_000)), ("new", point(120, 160, 8_000))]);
    assert_eq!(pod(&readings.followed_by(later.clone(), 60_000)), some(&["old=100m", "new=200m"], 160, 60));
    // It is older than the pass before, which did not have it.
    assert_eq!(pod(&readings.followed_by(later, RESOLUTION_MS)), None);
}
