use serde_json::json;

use super::*;
use crate::record::Resizing;

const HOST: crate::machine::Host =
    crate::machine::Host { ip: std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), recursive_read_only: true };

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("in range")
}

fn pod() -> Pod {
    let spec = json!({"containers": [{"name": "c", "image": "web:1"}]});
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec})).expect("a pod")
}

fn alive(attempt: u32) -> RunningInstance {
    RunningInstance {
        id: runtimes_contract::ContainerId(format!("id{attempt}")),
        handler: "runc".to_owned(),
        attempt,
        started_at: at(0),
        image_id: "sha256:1".to_owned(),
        hash: String::new(),
        resources: InstanceResources::default(),
        user: Default::default(),
        startup_ok: true,
        readiness_ok: false,
        hooked: true,
        condemned: None,
        stopping: false,
        replaced: false,
    }
}

fn exit(attempt: u32, code: i32, when: i64) -> Report {
    let exit = runtimes_contract::Exit { code, signal: None, oom_killed: false, finished_at_ms: 0, message: String::new() };
    let mut ended =
        ExitedInstance::from_exit(&runtimes_contract::ContainerId(format!("id{attempt}")), "sha256:1", None, &exit, String::new());
    ended.finished_at = at(when);
    Report::Exited("c".to_owned(), attempt, ended)
}

/// Starts attempt `attempt` and lets it end at `when`; the wait that follows, in seconds.
fn crash(pod_record: &mut PodRecord, attempt: u32, when: i64) -> i64 {
    let pod = pod();
    let record = pod_record.containers.get_mut("c").expect("record");
    record.run = InstanceState::Starting { before: record.ended().cloned() };
    pod_record.learn(&pod, Report::Started("c".to_owned(), Ok(alive(attempt))), at(when));
    pod_record.learn(&pod, exit(attempt, 1, when), at(when));
    let waiting = &pod_record.containers["c"].waiting;
    waiting.as_ref().map_or(0, |waiting| waiting.until.duration_since(at(when)).as_secs())
}

#[test]
fn crashes_wait_longer_and_longer() {
    let mut pod_record = PodRecord::new(&pod(), at(0));
    let mut now = 0;
    let mut waits = Vec::new();
    for attempt in 0..8 {
        let wait = crash(&mut pod_record, attempt, now);
        waits.push(wait);
        now += wait + 1;
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
    assert_eq!(pod_record.containers["c"].restarts(), 7);
    let quiet = crash(&mut pod_record, 8, now + 700);
    assert_eq!(quiet, 0, "after ten quiet minutes all is forgotten");
}

#[test]
fn reports_of_an_earlier_instance_come_to_nothing() {
    let mut pod_record = PodRecord::new(&pod(), at(0));
    pod_record.containers.get_mut("c").expect("record").run = InstanceState::Starting { before: None };
    pod_record.learn(&pod(), Report::Started("c".to_owned(), Ok(alive(2))), at(0));
    pod_record.learn(&pod(), exit(1, 0, 1), at(1));
    let probed = Report::Probed { name: "c".to_owned(), attempt: 1, kind: ProbeKind::Readiness, success: true };
    pod_record.learn(&pod(), probed, at(1));
    let record = &pod_record.containers["c"];
    assert!(record.alive().is_some_and(|alive| !alive.ready()));
    let probed = Report::Probed { name: "c".to_owned(), attempt: 2, kind: ProbeKind::Readiness, success: true };
    pod_record.learn(&pod(), probed, at(1));
    assert!(pod_record.containers["c"].alive().is_some_and(RunningInstance::ready));
}

#[test]
fn a_failed_pull_says_so_and_turns_into_back_off() {
    let mut pod_record = PodRecord::new(&pod(), at(0));
    let mut texts = |report: Option<Report>| {
        let notes = match report {
            Some(report) => pod_record.learn(&pod(), report, at(0)),
            None => pod_record.back_off_pull(&pod(), "c"),
        };
        let waiting = pod_record.containers["c"].waiting.clone().expect("a hold");
        let mut lines: Vec<String> = notes.iter().map(|note| format!("{} {}: {}", note.warning, note.reason, note.message)).collect();
        lines.push(format!("{}: {} ({} s)", waiting.reason, waiting.message, waiting.until.duration_since(at(0)).as_secs()));
        lines.join("\n")
    };
    let failed = || Some(Report::Pulled("c".to_owned(), Err(Reason::new("ErrImagePull", "not found"))));
    let all = [texts(failed()), texts(None), texts(failed())].join("\n\n");
    insta::assert_snapshot!(all);
}

#[test]
fn faults_of_the_node_are_tried_again_soon() {
    let mut pod_record = PodRecord::new(&pod(), at(0));
    let mut waits = Vec::new();
    for _ in 0..6 {
        pod_record.learn(&pod(), Report::Prepared(Err(Reason::new("FailedMount", "no"))), at(0));
        let SandboxState::Failed { until } = pod_record.sandbox else { panic!("{:?}", pod_record.sandbox) };
        waits.push(until.duration_since(at(0)).as_millis());
    }
    assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 15_000]);
}

#[test]
fn an_ephemeral_container_that_ends_stays_ended() {
    let mut pod_record = PodRecord::new(&pod(), at(0));
    let mut debugged = pod();
    let ephemeral = json!([{"name": "debugger", "image": "busybox"}]);
    debugged.spec.as_mut().expect("a spec").ephemeral_containers = serde_json::from_value(ephemeral).expect("containers");
    assert_eq!(pod_record.look(&debugged), []);
    let record = pod_record.containers.get_mut("debugger").expect("a record of the new container");
    record.run = InstanceState::Starting { before: None };
    pod_record.learn(&debugged, Report::Started("debugger".to_owned(), Ok(alive(0))), at(0));
    assert_eq!(pod_record.look(&debugged), [], "what it knows of the container stays");
    assert!(pod_record.containers["debugger"].alive().is_some());
    let Report::Exited(_, attempt, ended) = exit(0, 1, 1) else { panic!("an exit") };
    let notes = pod_record.learn(&debugged, Report::Exited("debugger".to_owned(), attempt, ended), at(1));
    assert_eq!((notes, pod_record.containers["debugger"].waiting.clone()), (Vec::new(), None), "no back-off");
    assert!(!pod_record.ends(&debugged), "the Pod lives on");
    let status = crate::status::compute(&debugged, &pod_record, HOST, at(1));
    let of_debugger = serde_json::to_value(status.ephemeral_container_statuses).expect("JSON");
    assert_eq!(of_debugger[0]["state"]["terminated"]["exitCode"], 1);
    let said = ["ready", "started", "restartCount"].map(|field| of_debugger[0][field].clone());
    assert_eq!(said, [json!(false), json!(null), json!(0)]);
}

#[test]
fn an_instance_that_was_ended_for_another_is_followed_whatever_its_exit_code() {
    let mut once = pod();
    once.spec.as_mut().expect("a spec").restart_policy = Some("OnFailure".to_owned());
    for (replaced, wanted) in [(false, (true, "Succeeded")), (true, (false, "Running"))] {
        let mut pod_record = PodRecord::new(&once, at(0));
        pod_record.containers.get_mut("c").expect("record").run =
            InstanceState::Running(RunningInstance { stopping: true, replaced, ..alive(0) });
        pod_record.learn(&once, exit(0, 0, 1), at(1));
        let phase = crate::status::compute(&once, &pod_record, HOST, at(1)).phase;
        assert_eq!((pod_record.ends(&once), phase.as_deref()), (wanted.0, Some(wanted.1)), "replaced: {replaced}");
    }
}

#[test]
fn a_resize_is_complete_when_its_restarts_are_over() {
    let resources = |memory: &str| json!({"limits": {"memory": memory}});
    let mut wanted = pod();
    wanted.spec.as_mut().expect("a spec").containers[0].resources = serde_json::from_value(resources("64Mi")).expect("resources");
    let has = |memory: &str| InstanceResources::new(serde_json::from_value(resources(memory)).expect("resources"), None);
    let mut pod_record = PodRecord::new(&wanted, at(0));
    let running = |attempt: u32, memory: &str| RunningInstance { resources: has(memory), ..alive(attempt) };
    pod_record.containers.get_mut("c").expect("record").run =
        InstanceState::Running(RunningInstance { stopping: true, replaced: true, ..running(0, "32Mi") });
    (pod_record.resizing, pod_record.resize) = (Some(Resizing::Here), Resize::Busy { again: false });
    let said = |pod_record: &mut PodRecord, report: Report| {
        let mut notes = pod_record.learn(&wanted, report, at(1));
        notes.extend(pod_record.look(&wanted));
        notes.iter().map(|note| note.reason).collect::<Vec<_>>()
    };
    assert_eq!(said(&mut pod_record, Report::Resized(Resized::default())), [""; 0], "it is to be restarted");
    assert_eq!(said(&mut pod_record, exit(0, 0, 1)), [""; 0], "it is about to start again");
    let record = pod_record.containers.get_mut("c").expect("record");
    record.run = InstanceState::Starting { before: record.ended().cloned() };
    assert!(pod_record.lags(&wanted));
    assert_eq!(said(&mut pod_record, Report::Started("c".to_owned(), Ok(running(1, "64Mi")))), ["ResizeCompleted"]);
    assert_eq!(pod_record.look(&wanted), [], "once");
}

#[test]
fn a_resize_of_the_whole_pod_is_reported_when_its_restarts_are_over() {
    let whole =
        |memory: &str| -> ResourceRequirements { serde_json::from_value(json!({"limits": {"memory": memory}})).expect("resources") };
    let mut wanted = pod();
    wanted.spec.as_mut().expect("a spec").resources = Some(whole("64Mi"));
    let mut pod_record = PodRecord::new(&wanted, at(0));
    let before = Some(Box::new(whole("32Mi")));
    (pod_record.pod_level, pod_record.pod_level_in_use) = (before.clone(), before);
    let running = |attempt: u32, memory: &str| {
        let resources = InstanceResources::new(ResourceRequirements::default(), Some(&whole(memory)));
        InstanceState::Running(RunningInstance { resources, ..alive(attempt) })
    };
    pod_record.containers.get_mut("c").expect("record").run = running(0, "32Mi");
    (pod_record.resizing, pod_record.resize) = (Some(Resizing::Here), Resize::Busy { again: false });
    let limit = |pod_record: &PodRecord| pod_record.total(&wanted).and_then(|total| total.limits?.remove("memory")).map(|limit| limit.0);
    let resized = Resized { pod_level: Some(Box::new(whole("64Mi"))), ..Resized::default() };
    assert_eq!(pod_record.learn(&wanted, Report::Resized(resized), at(1)), []);
    assert_eq!(pod_record.look(&wanted), []);
    assert_eq!(limit(&pod_record).as_deref(), Some("32Mi"), "its container is to be restarted");
    pod_record.containers.get_mut("c").expect("record").run = running(1, "64Mi");
    assert_eq!(pod_record.look(&wanted).iter().map(|note| note.reason).collect::<Vec<_>>(), ["ResizeCompleted"]);
    assert_eq!(limit(&pod_record).as_deref(), Some("64Mi"));
}

#[test]
fn an_eviction_that_became_urgent_leaves_less_time_and_is_announced_once() {
    let mut pod_record = PodRecord::new(&pod(), at(0));
    pod_record.containers.get_mut("c").expect("record").run = InstanceState::Running(alive(0));
    let mut evict = |grace_seconds_max| {
        let cause = TerminationCause::Eviction { signal: "memory.available", disruption: true, grace_seconds_max };
        let notes = pod_record.terminate(&pod(), &Termination { uid: "u".to_owned(), message: "low".to_owned(), cause });
        (notes.len(), pod_record.grace_seconds_max)
    };
    assert_eq!([evict(60), evict(1), evict(60)], [(1, 60), (0, 1), (0, 1)]);
    // A shutdown of the node takes nothing back.
    let cause = TerminationCause::NodeShutdown { until: at(30) };
    let shutdown = Termination { uid: "u".to_owned(), message: String::new(), cause };
    assert_eq!(pod_record.terminate(&pod(), &shutdown).len(), 0);
    assert_eq!(pod_record.failure.as_ref().map(|failure| failure.reason.as_str()), Some("Evicted"));
    assert_eq!(pod_record.shutdown_at, Some(at(30)));
    // A Pod that ends for its deadline has no more time than others.
    let mut expired = PodRecord::new(&pod(), at(0));
    expired.expire();
    let cause = TerminationCause::Eviction { signal: "memory.available", disruption: true, grace_seconds_max: 1 };
    assert_eq!(expired.terminate(&pod(), &Termination { uid: "u".to_owned(), message: String::new(), cause }).len(), 0);
    assert_eq!((expired.grace_seconds_max, expired.failure.map(|failure| failure.cause)), (1, Some(Cause::Deadline)));
}
