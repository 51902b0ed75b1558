//! The controller with a server in memory, a cache that the test fills, and a clock that the test moves.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use api_tasks::Tasks;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;

/// The stored Jobs and CronJobs by their path.
type Stored = Arc<Mutex<BTreeMap<String, Value>>>;

const CRON_JOB: &str = "/apis/batch/v1/namespaces/ns/cronjobs/tick";
const JOBS: &str = "/apis/batch/v1/namespaces/ns/jobs";

fn status(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code}))
}

/// What an API server answers, as far as the controller asks.
fn answer(stored: &Stored, method: &Method, path: &str, body: Value) -> (u16, Value) {
    let mut stored = stored.lock();
    let revision = stored.len() + 1;
    match *method {
        Method::GET => stored.get(path).map_or_else(|| status(404, "NotFound"), |object| (200, object.clone())),
        Method::DELETE => stored.remove(path).map_or_else(|| status(404, "NotFound"), |object| (200, object)),
        Method::POST if path.ends_with("/events") => (201, body),
        Method::POST => {
            let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap_or_default());
            if stored.contains_key(&path) {
                return status(409, "AlreadyExists");
            }
            let mut object = body;
            object["metadata"]["uid"] = json!(format!("uid-{revision}"));
            stored.insert(path, object.clone());
            (201, object)
        }
        _ => {
            let Some(object) = stored.get_mut(path.trim_end_matches("/status")) else { return status(404, "NotFound") };
            let version = |value: &Value| value["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
            if version(&body).is_some_and(|wanted| Some(wanted) != version(object)) {
                return status(409, "Conflict");
            }
            let next = version(object).unwrap_or(0) + 1;
            meta::overlay(object, &body);
            object["metadata"]["resourceVersion"] = json!(next.to_string());
            (200, object.clone())
        }
    }
}

fn server(stored: &Stored) -> kube::Client {
    let stored = Arc::clone(stored);
    let service = tower::service_fn(move |request: Request<Body>| {
        let stored = Arc::clone(&stored);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or_else(|_| json!({}));
            let (code, object) = answer(&stored, &parts.method, parts.uri.path(), body);
            Ok::<_, kube::Error>(Response::builder().status(code).body(Body::from(object.to_string().into_bytes())).expect("a response"))
        }
    });
    kube::Client::new(service, "default")
}

struct Bench {
    stored: Stored,
    controller: Arc<CronJobs>,
}

impl Bench {
    /// A controller and a CronJob that was created at ten o'clock.
    fn new(spec: Value) -> Self {
        let stored = Stored::default();
        let mut spec = spec;
        meta::overlay(&mut spec, &json!({"jobTemplate": {"spec": {"template": {}}}}));
        let metadata =
            json!({"name": "tick", "namespace": "ns", "uid": "tick", "resourceVersion": "1", "creationTimestamp": "2024-06-01T10:00:00Z"});
        stored.lock().insert(CRON_JOB.to_owned(), json!({"metadata": metadata, "spec": spec, "status": {}}));
        let bench = Self { controller: Arc::new(controller(&stored)), stored };
        bench.deliver();
        bench
    }

    /// Fills the caches as a watch does.
    fn deliver(&self) {
        deliver(&self.controller, &self.stored);
    }

    async fn pass(&self, now: &str) -> Result<Next, Failure> {
        pass(&self.controller, &self.stored, now).await
    }

    fn jobs(&self) -> Vec<String> {
        self.stored.lock().keys().filter_map(|path| path.strip_prefix(JOBS)).map(|name| name.trim_start_matches('/').to_owned()).collect()
    }

    fn active(&self) -> Vec<String> {
        let stored = self.stored.lock();
        let active = stored[CRON_JOB]["status"]["active"].as_array().cloned().unwrap_or_default();
        active.iter().map(|job| job["name"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

fn controller(stored: &Stored) -> CronJobs {
    let client = server(stored);
    let recorder = Recorder::new(client.clone(), "test", None, &Tasks::new(CancellationToken::new()));
    CronJobs { client, recorder, cron_jobs: Informer::detached(), jobs: Informer::detached(), local: TimeZone::UTC }
}

fn deliver(controller: &CronJobs, stored: &Stored) {
    for (path, object) in stored.lock().iter() {
        if path == CRON_JOB {
            controller.cron_jobs.put(serde_json::from_value(object.clone()).expect("a CronJob"));
        } else {
            controller.jobs.put(serde_json::from_value(object.clone()).expect("a Job"));
        }
    }
    for job in controller.jobs.list() {
        let key = ObjectKey::from(&job.metadata);
        if !stored.lock().contains_key(&format!("{JOBS}/{}", key.name)) {
            controller.jobs.remove(&key);
        }
    }
}

/// One pass; the status that it writes is delivered at once.
async fn pass(controller: &CronJobs, stored: &Stored, now: &str) -> Result<Next, Failure> {
    let key = ObjectKey::new("ns", "tick");
    let delivering = async {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let newest = stored.lock()[CRON_JOB].clone();
            controller.cron_jobs.put(serde_json::from_value(newest).expect("a CronJob"));
        }
    };
    tokio::select! {
        next = controller.pass(&key, now.parse().expect("a time")) => next,
        () = delivering => unreachable!("it never ends"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_starts_once_although_the_status_is_lost() {
    let bench = Bench::new(json!({"schedule": "0 * * * *"}));
    let before = bench.stored.lock()[CRON_JOB].clone();
    let next = bench.pass("2024-06-01T11:00:00.1Z").await.expect("a pass");
    assert_eq!(next, Next::After(Duration::from_secs(3600)));
    assert_eq!((bench.jobs(), bench.active()), (vec!["tick-28620660".to_owned()], vec!["tick-28620660".to_owned()]));
    // The server forgets the status, as if the controller had ended before it wrote it; another controller takes over.
    let mut lost = before;
    lost["metadata"]["resourceVersion"] = json!("7");
    bench.stored.lock().insert(CRON_JOB.to_owned(), lost);
    let other = controller(&bench.stored);
    other.cron_jobs.put(serde_json::from_value(bench.stored.lock()[CRON_JOB].clone()).expect("a CronJob"));
    pass(&other, &bench.stored, "2024-06-01T11:00:01Z").await.expect("a pass");
    assert_eq!((bench.jobs(), bench.active()), (vec!["tick-28620660".to_owned()], vec!["tick-28620660".to_owned()]));
    let last = bench.stored.lock()[CRON_JOB]["status"]["lastScheduleTime"].clone();
    assert_eq!(last, json!("2024-06-01T11:00:00Z"));
}

#[tokio::test(start_paused = true)]
async fn two_controllers_with_old_caches_start_one_job() {
    let bench = Bench::new(json!({"schedule": "0 * * * *"}));
    let other = controller(&bench.stored);
    deliver(&other, &bench.stored);
    bench.pass("2024-06-01T11:00:00Z").await.expect("a pass");
    let second = other.pass(&ObjectKey::new("ns", "tick"), "2024-06-01T11:00:00Z".parse().expect("a time")).await;
    assert!(second.is_err_and(|failure| failure.is_conflict()), "its status is older");
    assert_eq!((bench.jobs().len(), bench.active().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_job_of_somebody_else_takes_the_time() {
    let bench = Bench::new(json!({"schedule": "0 * * * *"}));
    let foreign = json!({"metadata": {"name": "tick-28620660", "namespace": "ns", "uid": "foreign"}});
    bench.stored.lock().insert(format!("{JOBS}/tick-28620660"), foreign);
    let next = bench.pass("2024-06-01T11:00:00.1Z").await.expect("a pass");
    assert_eq!(next, Next::After(Duration::from_secs(3600)), "the next time is not forgotten");
    assert_eq!((bench.jobs().len(), bench.active().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_leaves_the_list_and_then_the_history() {
    let bench = Bench::new(json!({"schedule": "0 * * * *", "successfulJobsHistoryLimit": 1}));
    for hour in ["11", "12", "13"] {
        bench.pass(&format!("2024-06-01T{hour}:00:00Z")).await.expect("a pass");
        let newest = bench.jobs().pop().expect("a Job");
        let conditions = json!([{"type": "Complete", "status": "True"}]);
        let time = format!("2024-06-01T{hour}:00:05Z");
        let finished = json!({"startTime": time, "completionTime": time, "conditions": conditions});
        bench.stored.lock().get_mut(&format!("{JOBS}/{newest}")).expect("the Job")["status"] = finished;
        bench.deliver();
        bench.pass(&format!("2024-06-01T{hour}:00:06Z")).await.expect("a pass");
        assert_eq!((bench.active(), bench.jobs().len()), (vec![], 1), "after {hour}");
        bench.deliver();
    }
    assert_eq!(bench.stored.lock()[CRON_JOB]["status"]["lastSuccessfulTime"], json!("2024-06-01T13:00:05Z"));
    bench.stored.lock().retain(|path, _| path == CRON_JOB);
    bench.deliver();
    bench.pass("2024-06-01T13:10:00Z").await.expect("a pass");
    assert_eq!(bench.jobs(), Vec::<String>::new(), "a Job that is gone is not started again");
}

#[tokio::test(start_paused = true)]
async fn a_running_job_is_replaced() {
    let bench = Bench::new(json!({"schedule": "0 * * * *", "concurrencyPolicy": "Replace"}));
    bench.pass("2024-06-01T11:00:00Z").await.expect("a pass");
    bench.deliver();
    bench.pass("2024-06-01T12:00:00Z").await.expect("a pass");
    assert_eq!((bench.jobs(), bench.active()), (vec!["tick-28620720".to_owned()], vec!["tick-28620720".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_lags_does_not_lose_a_job() {
    let bench = Bench::new(json!({"schedule": "0 * * * *"}));
    bench.pass("2024-06-01T11:00:00Z").await.expect("a pass");
    // The cache has the status, but not the Job yet.
    bench.pass("2024-06-01T11:00:01Z").await.expect("a pass");
    assert_eq!(bench.active(), ["tick-28620660"]);
    // Now the cache has the Job, but an older CronJob: the pass reads the CronJob again.
    bench.deliver();
    let mut old: CronJob = CronJob::clone(&bench.controller.cron_jobs.get(&ObjectKey::new("ns", "tick")).expect("the CronJob"));
    old.status = None;
    bench.controller.cron_jobs.put(old);
    bench.pass("2024-06-01T11:00:02Z").await.expect("a pass");
    assert_eq!((bench.active(), bench.jobs()), (vec!["tick-28620660".to_owned()], vec!["tick-28620660".to_owned()]));
    bench.stored.lock().retain(|path, _| path == CRON_JOB);
    bench.deliver();
    bench.pass("2024-06-01T11:00:03Z").await.expect("a pass");
    assert_eq!(bench.active(), Vec::<String>::new(), "the Job went missing");
}

#[tokio::test(start_paused = true)]
async fn a_new_schedule_begins_with_its_next_time() {
    let bench = Bench::new(json!({"schedule": "0 0 1 1 *"}));
    let old = bench.controller.cron_jobs.get(&ObjectKey::new("ns", "tick")).expect("the CronJob");
    let mut new = CronJob::clone(&old);
    new.spec.schedule = "* * * * *".to_owned();
    let change = |old: &Arc<CronJob>, new: CronJob| Change { old: Some(Arc::clone(old)), new: Some(Arc::new(new)) };
    let wait = delay(&change(&old, new.clone()), &TimeZone::UTC);
    assert!(!wait.is_zero() && wait <= Duration::from_millis(60_100), "{wait:?}");
    new.spec.schedule.clone_from(&old.spec.schedule);
    new.spec.suspend = Some(true);
    assert_eq!(delay(&change(&old, new), &TimeZone::UTC), Duration::ZERO);
}

/// The wall clock as tokio's clock, which a test moves.
struct Moved {
    start: Timestamp,
    since: tokio::time::Instant,
}

impl api_clock::Source for Moved {
    fn now(&self) -> Timestamp {
        self.start.checked_add(self.since.elapsed()).expect("in range")
    }

    fn boottime(&self) -> Duration {
        self.since.elapsed()
    }

    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

#[tokio::test(start_paused = true)]
async fn the_loop_starts_a_job_at_each_time() {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    let start: Timestamp = "2024-06-01T10:58:30Z".parse().expect("a time");
    let moved = Moved { start, since: tokio::time::Instant::now() };
    // With nextest each test is a process of its own. A second test in one process would have the real clock here.
    if !INSTALLED.get_or_init(|| api_clock::install(moved)) {
        return;
    }
    let bench = Bench::new(json!({"schedule": "*/5 11 * * *"}));
    let queue = Arc::new(WorkQueue::new("cronjob"));
    queue.add(ObjectKey::new("ns", "tick"));
    let cancel = CancellationToken::new();
    let working = tokio::spawn(crate::work::work(Arc::clone(&bench.controller), Arc::clone(&queue), cancel.clone()));
    let mut started = Vec::new();
    for _ in 0..(20 * 60) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.deliver();
        for job in bench.jobs() {
            if !started.contains(&job) {
                let second = api_clock::now().duration_since(start).as_secs();
                assert!(matches!(second % 300, 90..=92), "{job} after {second} s");
                started.push(job);
            }
        }
    }
    assert_eq!(started, ["tick-28620660", "tick-28620665", "tick-28620670", "tick-28620675"]);
    cancel.cancel();
    working.await.expect("it ends");
}
