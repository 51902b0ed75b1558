//! Upstream's table of cases (`replica_calculator_test.go`): Pods of two containers that request one CPU each.

use serde_json::{Value, json};

use super::*;
use jiff::SignedDuration;

const NOW: i64 = 1_000_000;
/// Pods that start "now" and "before": within the period of initialization and after it.
const BEFORE: i64 = NOW - 180;
const TENTH: Tolerances = Tolerances { scale_down: 0.1, scale_up: 0.1 };

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

fn settings() -> Autoscaling {
    Autoscaling {
        cpu_initialization_period: SignedDuration::from_mins(2),
        initial_readiness_delay: SignedDuration::from_secs(10),
        ..Autoscaling::default()
    }
}

/// Pods, and what the metrics say of them.
#[derive(Clone)]
struct Scene {
    current: i32,
    pods: Vec<PodRow>,
    /// The metric of each container.
    levels: Vec<Vec<i64>>,
    container: Option<&'static str>,
    tolerances: Tolerances,
}

#[derive(Clone)]
struct PodRow {
    requests: Option<&'static str>,
    phase: &'static str,
    is_ready: bool,
    is_deleted: bool,
    started: i64,
}

/// That number of replicas, and of ready Pods.
fn scene(current: usize) -> Scene {
    let row = PodRow { requests: Some("1"), phase: "Running", is_ready: true, is_deleted: false, started: 0 };
    let pods = vec![row; current];
    Scene { current: i32::try_from(current).expect("few"), pods, levels: Vec::new(), container: None, tolerances: TENTH }
}

impl Scene {
    fn each(mut self, pods: &[usize], change: impl Fn(&mut PodRow)) -> Self {
        pods.iter().for_each(|at| change(&mut self.pods[*at]));
        self
    }

    /// Both containers of each Pod use this much.
    fn uses(mut self, levels: &[i64]) -> Self {
        self.levels = levels.iter().map(|level| vec![*level, *level]).collect();
        self
    }

    fn container(mut self, name: &'static str, levels: &[&[i64]]) -> Self {
        self.container = Some(name);
        self.levels = levels.iter().map(|levels| levels.to_vec()).collect();
        self
    }

    fn unready(self, pods: &[usize]) -> Self {
        self.each(pods, |pod| pod.is_ready = false)
    }

    /// These Pods start now, the others started before.
    fn hot(self, pods: &[usize]) -> Self {
        let all: Vec<usize> = (0..self.pods.len()).collect();
        self.each(&all, |pod| pod.started = BEFORE).each(pods, |pod| pod.started = NOW)
    }

    /// Two more Pods, which have ended, or are being deleted.
    fn with_ended(mut self, phase: &'static str, is_deleted: bool) -> Self {
        let row = PodRow { phase, is_deleted, is_ready: false, ..self.pods[0].clone() };
        self.pods.extend([row.clone(), row]);
        self
    }

    fn requests(self, requests: &[&'static str]) -> Self {
        requests.iter().enumerate().fold(self, |scene, (at, request)| scene.each(&[at], |pod| pod.requests = Some(*request)))
    }

    fn tolerances(mut self, scale_down: f64, scale_up: f64) -> Self {
        self.tolerances = Tolerances { scale_down, scale_up };
        self
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        let pods = self.pods.iter().enumerate().map(|(at, row)| {
            let requests = row.requests.map_or_else(|| json!({}), |cpu| json!({"requests": {"cpu": cpu}}));
            let containers = ["container1", "container2"].map(|name| json!({"name": name, "resources": requests}));
            let deleted = if row.is_deleted { json!("2026-01-01T00:00:00Z") } else { Value::Null };
            let ready = json!({"type": "Ready", "status": if row.is_ready { "True" } else { "False" }, "lastTransitionTime": at_text(0)});
            json!({"metadata": {"name": format!("pod-{at}"), "deletionTimestamp": deleted}, "spec": {"containers": containers},
                "status": {"phase": row.phase, "startTime": at_text(row.started), "conditions": [ready]}})
        });
        pods.map(|pod| Arc::new(serde_json::from_value(pod).expect("a Pod"))).collect()
    }

    /// The metrics of Pods: of the container, or the sum.
    fn metrics(&self) -> PodMetrics {
        let of = |levels: &Vec<i64>| match self.container {
            None => Some(levels.iter().sum()),
            Some("container1") => levels.first().copied(),
            Some(_) => levels.get(1).copied(),
        };
        let sample = |value| PodMetric { timestamp: at(0), window: SignedDuration::from_mins(1), value };
        let metrics = self.levels.iter().enumerate().filter_map(|(at, levels)| Some((format!("pod-{at}"), sample(of(levels)?))));
        metrics.collect()
    }

    fn calculate<T>(&self, with: impl FnOnce(&Calculator<'_>) -> T) -> T {
        let (pods, settings) = (self.pods(), settings());
        with(&Calculator { pods: &pods, tolerances: self.tolerances, settings: &settings, now: at(NOW) })
    }

    fn utilization(&self, target: i32) -> Result<(i32, i32, i64), CalculatorError> {
        let usage = self.calculate(|by| by.utilization(self.current, target, self.metrics(), "cpu", self.container));
        usage.map(|usage| (usage.replicas, usage.percent, usage.average))
    }
}

fn at_text(second: i64) -> String {
    at(second).to_string()
}

/// Name, scene, target in percent; replicas, percent and average.
type Row = (&'static str, Scene, i32, (i32, i32, i64));

fn check(rows: Vec<Row>) {
    for (name, scene, target, wanted) in rows {
        assert_eq!(scene.utilization(target), Ok(wanted), "{name}");
    }
}

#[test]
fn more_replicas_where_pods_use_more_than_the_target() {
    let three = || scene(3).uses(&[300, 500, 700]);
    let second: &[&[i64]] = &[&[1000, 300], &[1000, 500], &[1000, 700]];
    let half: &[&[i64]] = &[&[1000, 500], &[9000, 700], &[1000], &[9000]];
    check(vec![
        ("all", three(), 30, (5, 50, 1000)),
        ("a container", scene(3).container("container2", second), 30, (5, 50, 500)),
        ("an unready Pod", three().unready(&[0]), 30, (4, 60, 1200)),
        ("a container of a new Pod", scene(3).container("container2", second).hot(&[0]), 30, (4, 60, 600)),
        ("a new Pod", three().hot(&[0]), 30, (4, 60, 1200)),
        ("unready Pods", scene(3).uses(&[400, 500, 700]).unready(&[1, 2]), 30, (3, 40, 800)),
        ("new unready Pods", scene(3).uses(&[400, 500, 700]).unready(&[1, 2]).hot(&[1, 2]), 30, (3, 40, 800)),
        ("failed Pods", scene(2).uses(&[500, 700]).with_ended("Failed", false), 30, (4, 60, 1200)),
        ("containers of failed Pods", scene(2).container("container2", half).with_ended("Failed", false), 30, (4, 60, 600)),
        ("succeeded Pods", scene(2).uses(&[500, 700]).with_ended("Succeeded", false), 30, (4, 60, 1200)),
        ("deleted Pods", scene(2).uses(&[500, 700]).with_ended("Running", true), 30, (4, 60, 1200)),
    ]);
}

#[test]
fn fewer_replicas_where_pods_use_less_than_the_target() {
    let five = || scene(5).uses(&[100, 300, 500, 250, 250]);
    let second: &[&[i64]] = &[&[1000, 100], &[1000, 300], &[1000, 500], &[1000, 250], &[1000, 250]];
    let pending = |scene: Scene| scene.unready(&[1, 2, 3, 4]).each(&[1, 2, 3, 4], |pod| pod.phase = "Pending");
    check(vec![
        ("all", five(), 50, (3, 28, 560)),
        ("a container", scene(5).container("container2", second), 50, (3, 28, 280)),
        ("unready Pods", five().unready(&[3, 4]), 50, (2, 30, 600)),
        ("containers of unready Pods", scene(5).container("container2", second).unready(&[3, 4]), 50, (2, 30, 300)),
        ("pending Pods", pending(scene(5).uses(&[100])), 50, (1, 10, 200)),
        ("containers of pending Pods", pending(scene(5).container("container2", second)), 50, (1, 10, 100)),
        ("new Pods", five().hot(&[3, 4]), 50, (2, 30, 600)),
        ("containers of new Pods", scene(5).container("container2", second).hot(&[3, 4]), 50, (2, 30, 300)),
        ("failed Pods", five().with_ended("Failed", false), 50, (3, 28, 560)),
        ("succeeded Pods", five().with_ended("Succeeded", false), 50, (3, 28, 560)),
        ("deleted Pods", five().with_ended("Running", true), 50, (3, 28, 560)),
    ]);
}

#[test]
fn within_the_tolerance_nothing_changes() {
    let three = || scene(3).requests(&["0.9", "1", "1.1"]);
    check(vec![
        ("within a tenth", three().uses(&[1010, 1030, 1020]), 100, (3, 102, 2040)),
        ("no tolerance", three().uses(&[909, 1010, 1111]).tolerances(0.0, 0.0), 100, (4, 101, 2020)),
        ("within 200 % above", three().uses(&[1890, 1910, 1900]).tolerances(0.1, 2.0), 100, (3, 190, 3800)),
        ("beyond 8 % above", three().uses(&[1100, 1080, 1090]).tolerances(2.0, 0.08), 100, (4, 109, 2180)),
        ("within 36 % below", three().uses(&[660, 640, 650]).tolerances(0.36, 0.1), 100, (3, 65, 1300)),
        ("beyond 34 % below", three().uses(&[660, 640, 650]).tolerances(0.34, 0.1), 100, (2, 65, 1300)),
    ]);
    // Requests that differ, with the same use of all Pods: 50 % is just within a tenth of 55 %, and just beyond one of 56 %.
    let requests = ["400m", "200m", "310m", "290m", "302m", "298m", "301m", "299m", "300m", "300m"];
    let ten = || scene(10).requests(&requests).uses(&[150; 10]);
    check(vec![("56 %", ten(), 56, (9, 50, 300)), ("55 %", ten(), 55, (10, 50, 300))]);
}

#[test]
fn pods_without_a_metric_soften_a_proposal() {
    let sizes = ["1", "1", "2", "2"];
    let surge = scene(3).uses(&[100, 100]);
    check(vec![
        ("metrics of unknown Pods", scene(4).uses(&[4000, 9500, 3000, 7000, 3200, 2000]), 100, (24, 587, 11_750)),
        ("half of the Pods, below", scene(4).uses(&[400, 95]), 100, (3, 24, 495)),
        ("one of two, at the target", scene(2).uses(&[1000]), 100, (2, 100, 2000)),
        ("one of two, above", scene(2).uses(&[1900]), 100, (2, 190, 3800)),
        ("one of two, below", scene(2).uses(&[600]), 100, (2, 60, 1200)),
        ("one unready, one missing", scene(3).uses(&[100, 450]).unready(&[0]), 50, (3, 45, 900)),
        ("one new, one missing", scene(3).uses(&[100, 450]).hot(&[0]), 50, (3, 45, 900)),
        ("one unready, one missing, above", scene(3).uses(&[100, 2000]).unready(&[0]), 50, (4, 200, 4000)),
        ("one new, one missing, above", scene(3).uses(&[100, 2000]).unready(&[0]).hot(&[0]), 50, (4, 200, 4000)),
        ("one unready, one missing, below", scene(4).uses(&[100, 100, 100]).unready(&[0]), 50, (3, 10, 200)),
        ("a target above the requests", scene(4).uses(&[200, 100, 100]).unready(&[0]).requests(&sizes), 300, (2, 6, 200)),
        ("a rolling update", Scene { current: 2, ..surge }, 50, (2, 10, 200)),
    ]);
}

#[test]
fn without_usable_metrics_there_is_no_proposal() {
    let no_requests = scene(1).uses(&[200]).each(&[0], |pod| pod.requests = None);
    let (resource, container, pod) = ("cpu".to_owned(), "container1".to_owned(), "pod-0".to_owned());
    assert_eq!(no_requests.utilization(100), Err(CalculatorError::MissingRequest { resource, container, pod }));
    assert_eq!(scene(0).uses(&[100]).utilization(100), Err(CalculatorError::NoPods));
    assert_eq!(scene(1).uses(&[100]).unready(&[0]).utilization(100), Err(CalculatorError::NoMetrics));
    let strange = PodMetrics::from([("another".to_owned(), PodMetric { timestamp: at(0), window: SignedDuration::ZERO, value: 1 })]);
    let disjoint = scene(1).calculate(|by| by.utilization(1, 100, strange, "cpu", None));
    assert_eq!(disjoint, Err(CalculatorError::NoRequests));
}

#[test]
fn an_average_value_is_compared_without_requests() {
    let of = |scene: Scene, levels: &[i64], target: i64| {
        let scene = Scene { levels: levels.iter().map(|level| vec![*level]).collect(), ..scene };
        let usage = scene.calculate(|by| by.average(scene.current, target, scene.metrics(), None));
        usage.map(|usage| (usage.replicas, usage.average))
    };
    let surge = Scene { current: 2, ..scene(3) };
    for (name, scene, levels, target, wanted) in [
        ("above", scene(3), &[20_000, 10_000, 30_000][..], 15_000, (4, 20_000)),
        ("readiness does not count", scene(3).unready(&[2]).hot(&[2]), &[50_000, 10_000, 30_000], 15_000, (6, 30_000)),
        ("nor does it here", scene(3).unready(&[0, 2]).hot(&[0, 2]), &[50_000, 15_000, 30_000], 15_000, (7, 31_666)),
        ("below", scene(5), &[12_000; 5], 20_000, (3, 12_000)),
        ("within a tenth", scene(3), &[20_000, 21_000, 21_000], 20_000, (3, 20_666)),
        ("beyond a hundredth", scene(3).tolerances(0.1, 0.01), &[20_000, 21_000, 21_000], 20_000, (4, 20_666)),
        ("missing metrics", scene(5), &[20_000, 19_000, 21_000], 20_000, (5, 20_000)),
        ("a rolling update", surge, &[10_000, 10_000], 17_000, (2, 10_000)),
    ] {
        assert_eq!(of(scene, levels, target), Ok(wanted), "{name}");
    }
    assert_eq!(of(scene(0), &[1], 1), Err(CalculatorError::NoPods));
}

#[test]
fn a_value_is_compared_as_it_is_and_counts_for_the_ready_pods() {
    for (name, scene, usage, target, wanted) in [
        ("above", scene(3), 20_000, 15_000, 4),
        ("far above", scene(3), i64::MAX, 1, i32::MAX),
        ("unready Pods, above", scene(3).unready(&[0, 2]), 50_000, 10_000, 5),
        ("unready Pods, then below", scene(3).unready(&[0, 2]), 8_600, 4_400, 2),
        ("below", scene(5), 12_000, 20_000, 3),
        ("within a tenth", scene(3), 20_666, 20_000, 3),
        ("beyond a hundredth", scene(3).tolerances(0.1, 0.01), 20_666, 20_000, 4),
        ("as large as can be", scene(3), i64::MAX, i64::MAX, 3),
        ("nothing to do", scene(3), 0, 100, 0),
        ("from zero", scene(0), 500, 100, 5),
        ("from zero, a little", scene(0), 50, 100, 1),
        ("still zero", scene(0), 0, 100, 0),
    ] {
        assert_eq!(scene.calculate(|by| by.by_value(scene.current, usage, target)), Ok(wanted), "{name}");
    }
    assert_eq!(scene(0).calculate(|by| by.by_value(2, 500, 100)), Err(CalculatorError::NoPodsToBeReady));
}

#[test]
fn a_shared_value_is_divided_among_the_pods() {
    let hundredth = Tolerances { scale_up: 0.01, ..TENTH };
    for (tolerances, replicas, usage, target, wanted) in [
        (TENTH, 3, 8_600, 2_150, (4, 2_867)),
        (TENTH, 5, 8_600, 2_867, (3, 1_720)),
        (TENTH, 3, 8_600, 2_900, (3, 2_867)),
        (hundredth, 3, 8_600, 2_800, (4, 2_867)),
        (TENTH, 3, 20_000, 5_000, (4, 6_667)),
        (TENTH, 5, 6_000, 2_000, (3, 1_200)),
        (TENTH, 4, 20_166, 5_000, (4, 5_042)),
        (hundredth, 4, 20_208, 5_000, (5, 5_052)),
        (TENTH, 1, i64::MAX, 1, (i32::MAX, i64::MAX)),
        (TENTH, 1, i64::MAX, i64::MAX, (1, i64::MAX)),
        (TENTH, 0, 20_000, 5_000, (4, 0)),
        (TENTH, 0, 0, 5_000, (0, 0)),
    ] {
        let result = Scene { tolerances, ..scene(0) }.calculate(|by| by.by_share(replicas, usage, target));
        assert_eq!(result, wanted, "{usage}/{target} of {replicas}");
    }
}
