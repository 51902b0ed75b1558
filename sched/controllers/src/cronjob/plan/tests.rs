use super::*;
use serde_json::{Value, json};

const LOCAL: TimeZone = TimeZone::UTC;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// A CronJob that was created at 10:00:30 on 1 June 2024, with more in its spec and status.
fn cron_job(schedule: &str, spec: Value, status: Value) -> CronJob {
    let mut value = json!({
        "metadata": {"name": "tick", "namespace": "ns", "uid": "u", "creationTimestamp": "2024-06-01T10:00:30Z"},
        "spec": {"schedule": schedule, "jobTemplate": {
            "metadata": {"labels": {"app": "tick"}, "annotations": {"note": "x"}},
            "spec": {"backoffLimit": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
        }},
        "status": status,
    });
    meta::overlay(&mut value["spec"], &spec);
    serde_json::from_value(value).expect("a CronJob")
}

fn job(name: &str, start: Option<&str>, condition: Option<&str>) -> Arc<Job> {
    let conditions: Vec<Value> = condition.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
    let completed = condition.filter(|kind| *kind == "Complete").and(start);
    let status = json!({"startTime": start, "completionTime": completed, "conditions": conditions});
    Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "status": status})).expect("a Job"))
}

fn listed(name: &str) -> Value {
    json!({"kind": "Job", "apiVersion": "batch/v1", "namespace": "ns", "name": name, "uid": name})
}

/// The decision with the reasons of the events.
fn decided(cron_job: &CronJob, now: &str) -> (Decision, Vec<&'static str>) {
    let (decision, notes) = decide(cron_job, at(now), &LOCAL);
    (decision, notes.iter().map(|note| note.reason).collect())
}

fn start(time: &str) -> Decision {
    Decision::Start(at(time))
}

fn wait(seconds: u64) -> Decision {
    Decision::Wait(Some(Duration::from_millis(seconds * 1000 + 100)))
}

#[test]
fn a_job_starts_at_its_time_and_once() {
    let hourly = |status: Value| cron_job("0 * * * *", json!({}), status);
    let cases = [
        (hourly(json!({})), "2024-06-01T10:59:00Z", wait(60)),
        (hourly(json!({})), "2024-06-01T11:00:00Z", start("2024-06-01T11:00:00Z")),
        (hourly(json!({})), "2024-06-01T11:00:00.1Z", start("2024-06-01T11:00:00Z")),
        (hourly(json!({"lastScheduleTime": "2024-06-01T11:00:00Z"})), "2024-06-01T11:20:00Z", wait(40 * 60)),
        (hourly(json!({"lastScheduleTime": "2024-06-01T11:00:00Z"})), "2024-06-01T12:00:00Z", start("2024-06-01T12:00:00Z")),
        // The Job is listed, but the time was not written.
        (hourly(json!({"active": [listed("tick-28620660")]})), "2024-06-01T11:00:00.1Z", Decision::Wait(Some(Duration::from_secs(3600)))),
        // Of several missed times only the newest counts.
        (hourly(json!({"lastScheduleTime": "2024-06-01T11:00:00Z"})), "2024-06-01T17:30:00Z", start("2024-06-01T17:00:00Z")),
    ];
    for (number, (cron_job, now, wanted)) in cases.into_iter().enumerate() {
        assert_eq!(decided(&cron_job, now), (wanted, vec![]), "case {number}");
    }
}

#[test]
fn nothing_starts_before_the_cronjob_changes() {
    let now = "2024-06-01T11:00:00Z";
    let mut deleting = cron_job("0 * * * *", json!({}), json!({}));
    deleting.metadata.deletion_timestamp = Some(meta::whole_seconds(at(now)));
    let cases: [(CronJob, Vec<&str>); 6] = [
        (cron_job("0 * * * *", json!({"suspend": true}), json!({})), vec![]),
        (deleting, vec![]),
        (cron_job("0 * * * *", json!({"timeZone": "Moon/Base", "suspend": true}), json!({})), vec!["UnknownTimeZone"]),
        (cron_job("every hour", json!({}), json!({})), vec!["UnparseableSchedule"]),
        (cron_job("TZ=Moon 0 * * * *", json!({}), json!({})), vec!["UnsupportedSchedule", "UnparseableSchedule"]),
        (cron_job("0 0 31 2 *", json!({}), json!({})), vec!["InvalidSchedule"]),
    ];
    for (cron_job, reasons) in cases {
        assert_eq!(decided(&cron_job, now), (Decision::Idle, reasons), "{}", cron_job.spec.schedule);
    }
}

#[test]
fn the_time_zone_of_the_cronjob_decides_then_that_of_the_machine() {
    let now = "2024-06-01T12:30:00Z";
    let paris = cron_job("0 14 * * *", json!({"timeZone": "Europe/Paris"}), json!({}));
    assert_eq!(decided(&paris, now), (start("2024-06-01T12:00:00Z"), vec![]));
    let plain = cron_job("0 14 * * *", json!({}), json!({}));
    assert_eq!(decided(&plain, now), (wait(90 * 60), vec![]));
    let local = api_model::cron::time_zone("Europe/Paris").expect("a time zone");
    assert_eq!(decide(&plain, at(now), &local).0, start("2024-06-01T12:00:00Z"));
    let prefixed = cron_job("CRON_TZ=Europe/Paris 0 14 * * *", json!({}), json!({}));
    assert_eq!(decided(&prefixed, now), (start("2024-06-01T12:00:00Z"), vec!["UnsupportedSchedule"]));
}

#[test]
fn a_job_may_start_late_by_the_deadline() {
    let with = |deadline: i64| cron_job("0 * * * *", json!({"startingDeadlineSeconds": deadline}), json!({}));
    assert_eq!(decided(&with(60), "2024-06-01T11:00:59Z"), (start("2024-06-01T11:00:00Z"), vec![]));
    let (decision, notes) = decide(&with(60), at("2024-06-01T11:01:01Z"), &LOCAL);
    assert_eq!(decision, wait(59 * 60 - 1));
    assert_eq!(notes, [warning("MissSchedule", "Missed scheduled time to start a job: Sat, 01 Jun 2024 11:00:00 +0000")]);
    assert_eq!(decided(&with(60), "2024-06-01T10:59:00Z"), (wait(60), vec![]), "nothing was missed yet");
    let huge = cron_job("0 * * * *", json!({"startingDeadlineSeconds": i64::MAX}), json!({}));
    assert_eq!(decided(&huge, "2024-06-01T11:30:00Z"), (start("2024-06-01T11:00:00Z"), vec![]));
}

#[test]
fn many_missed_times_are_reported() {
    let minutely = cron_job("* * * * *", json!({}), json!({"lastScheduleTime": "2024-06-01T10:00:00Z"}));
    assert_eq!(decided(&minutely, "2024-06-01T11:40:59Z"), (start("2024-06-01T11:40:00Z"), vec![]), "a hundred are not too many");
    assert_eq!(decided(&minutely, "2024-06-01T11:41:00Z"), (start("2024-06-01T11:41:00Z"), vec!["TooManyMissedTimes"]));
    let after_years = decided(&minutely, "2034-06-01T11:41:00Z");
    assert_eq!(after_years, (start("2034-06-01T11:41:00Z"), vec!["TooManyMissedTimes"]));
    let bounded = cron_job("* * * * *", json!({"startingDeadlineSeconds": 600}), json!({"lastScheduleTime": "2024-06-01T10:00:00Z"}));
    assert_eq!(decided(&bounded, "2024-06-01T11:41:00Z"), (start("2024-06-01T11:41:00Z"), vec![]));
}

#[test]
fn the_search_for_missed_times_is_upstreams() {
    // The first two times have a distance of four hours; on Sunday none of the last eight hours had a time.
    let working = cron_job("30 6-16/4 * * 1-5", json!({}), json!({"lastScheduleTime": "2024-05-31T06:30:00Z"}));
    assert_eq!(decided(&working, "2024-06-02T12:00:00Z"), (wait(18 * 3600 + 1800), vec![]));
    assert_eq!(decided(&working, "2024-05-31T15:00:00Z"), (start("2024-05-31T14:30:00Z"), vec![]));
    let every = cron_job("@every 90m", json!({}), json!({}));
    assert_eq!(decided(&every, "2024-06-01T20:00:00Z"), (start("2024-06-01T19:00:30Z"), vec![]));
}

#[test]
fn the_policy_forbids_a_second_job() {
    let with = |policy: &str| cron_job("0 * * * *", json!({"concurrencyPolicy": policy}), json!({"active": [listed("tick-1")]}));
    let now = "2024-06-01T11:00:00Z";
    assert_eq!(decided(&with("Forbid"), now), (wait(3600), vec!["JobAlreadyActive"]));
    for policy in ["Allow", "Replace"] {
        assert_eq!(decided(&with(policy), now), (start(now), vec![]), "{policy}");
    }
}

#[test]
fn the_oldest_finished_jobs_are_surplus() {
    let mut jobs = vec![
        job("c", Some("2024-06-01T03:00:00Z"), Some("Complete")),
        job("a", Some("2024-06-01T01:00:00Z"), Some("Complete")),
        job("b", Some("2024-06-01T02:00:00Z"), Some("Complete")),
        job("unstarted", None, Some("Failed")),
        job("failed", Some("2024-06-01T01:00:00Z"), Some("Failed")),
        job("running", Some("2024-06-01T01:00:00Z"), None),
    ];
    let surplus = |jobs: &[Arc<Job>], limits: Value| {
        let surplus = surplus(&cron_job("@daily", limits, json!({})), jobs);
        surplus.iter().map(|job| meta::name(&job.metadata).to_owned()).collect::<Vec<_>>()
    };
    let limits = |successful: i32, failed: i32| json!({"successfulJobsHistoryLimit": successful, "failedJobsHistoryLimit": failed});
    assert_eq!(surplus(&jobs, limits(1, 1)), ["a", "b", "failed"]);
    assert_eq!(surplus(&jobs, limits(3, 2)), Vec::<String>::new());
    assert_eq!(surplus(&jobs, limits(0, 0)), ["a", "b", "c", "failed", "unstarted"]);
    assert_eq!(surplus(&jobs, json!({})), Vec::<String>::new(), "without limits all stay");
    Arc::make_mut(&mut jobs[1]).metadata.deletion_timestamp = Some(meta::whole_seconds(at("2024-06-01T04:00:00Z")));
    assert_eq!(surplus(&jobs, limits(2, 2)), Vec::<String>::new(), "it is being deleted already");
}

#[test]
fn the_status_follows_the_jobs() {
    let status = json!({"active": [listed("done"), listed("failed"), listed("gone"), listed("running")],
        "lastSuccessfulTime": "2024-06-01T01:00:00Z"});
    let mut cron_job = cron_job("@daily", json!({}), status);
    let jobs = [
        job("done", Some("2024-06-01T02:00:00Z"), Some("Complete")),
        job("older", Some("2024-06-01T01:30:00Z"), Some("Complete")),
        job("failed", Some("2024-06-01T03:00:00Z"), Some("Failed")),
        job("running", Some("2024-06-01T03:00:00Z"), None),
        job("stranger", Some("2024-06-01T03:00:00Z"), None),
    ];
    let missing = absent(&cron_job, &jobs);
    assert_eq!(missing.iter().map(uid).collect::<Vec<_>>(), ["gone"]);
    let notes = observe(&mut cron_job, &jobs, &missing);
    insta::assert_debug_snapshot!(notes.iter().map(|note| (note.reason, note.message.as_str())).collect::<Vec<_>>(), @r#"
    [
        (
            "UnexpectedJob",
            "Saw a job that the controller did not create or forgot: stranger",
        ),
        (
            "SawCompletedJob",
            "Saw completed job: done, condition: Complete",
        ),
        (
            "SawCompletedJob",
            "Saw completed job: failed, condition: Failed",
        ),
        (
            "MissingJob",
            "Active job went missing: gone",
        ),
    ]
    "#);
    assert_eq!(active(&cron_job).map(uid).collect::<Vec<_>>(), ["running"]);
    let status = cron_job.status.clone().expect("a status");
    assert_eq!(meta::instant(status.last_successful_time.as_ref()), Some(at("2024-06-01T02:00:00Z")));
    assert_eq!(observe(&mut cron_job, &jobs, &[]).len(), 1, "only the stranger is reported again");
    assert_eq!(cron_job.status, Some(status));
}

#[test]
fn a_job_is_named_by_its_time() {
    let cron_job = cron_job("@daily", json!({"timeZone": "Europe/Paris"}), json!({}));
    insta::assert_json_snapshot!(super::job(&cron_job, at("2024-06-01T22:00:00Z")), @r#"
    {
      "apiVersion": "batch/v1",
      "kind": "Job",
      "metadata": {
        "annotations": {
          "batch.kubernetes.io/cronjob-scheduled-timestamp": "2024-06-02T00:00:00+02:00",
          "note": "x"
        },
        "labels": {
          "app": "tick"
        },
        "name": "tick-28621320",
        "namespace": "ns",
        "ownerReferences": [
          {
            "apiVersion": "batch/v1",
            "blockOwnerDeletion": true,
            "controller": true,
            "kind": "CronJob",
            "name": "tick",
            "uid": "u"
          }
        ]
      },
      "spec": {
        "backoffLimit": 2,
        "template": {
          "spec": {
            "containers": [
              {
                "image": "i",
                "name": "c"
              }
            ]
          }
        }
      }
    }
    "#);
    assert_eq!(rfc3339(at("2024-01-01T12:00:00Z"), &TimeZone::UTC), "2024-01-01T12:00:00Z");
}
