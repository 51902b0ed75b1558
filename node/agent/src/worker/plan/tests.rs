use std::sync::Arc;

use runtimes_contract::{ContainerId, Sandbox};
use serde_json::{Value, json};

use super::*;
use crate::container::processes::PauseContainer;
use crate::container::resources::InstanceResources;
use crate::reason::Reason;
use crate::record::{Cause, ExitedInstance, Failure, PodSandbox, Waiting};
use crate::worker::learn::{Report, StartFault};

const NOW: i64 = 1_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

/// A Pod with containers `a` and `b`, and whatever the case adds to spec and metadata.
fn pod(spec: Value, metadata: Value) -> Pod {
    let mut whole = json!({"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]});
    merge(&mut whole, spec);
    let mut named = json!({"name": "p", "uid": "u"});
    merge(&mut named, metadata);
    serde_json::from_value(json!({"metadata": named, "spec": whole})).expect("a pod")
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

fn ready_sandbox() -> SandboxState {
    let sandbox = Sandbox { network: None, ipc: None, uts: None, user: None, hostname: "p".to_owned() };
    let ip = "10.0.0.2".parse().expect("an address");
    SandboxState::Ready(PodSandbox { sandbox, ip, volumes_due: None, pause: None, class: None })
}

fn image() -> ImageState {
    let config = json!({"entrypoint": [], "cmd": [], "env": [], "working_dir": "", "user": "", "stop_signal": ""});
    let image = json!({
        "id": "sha256:1", "references": [], "digests": [], "kind": "Linux", "size_bytes": 1, "config": config, "layers": [], "blobs": [], "used_at_s": 0,
    });
    ImageState::Ready(Arc::new(serde_json::from_value(image).expect("an image")))
}

fn ended(code: i32, replaced: bool) -> InstanceState {
    InstanceState::Ended(ExitedInstance {
        id: None,
        image_id: String::new(),
        exit_code: code,
        signal: None,
        reason: String::new(),
        message: String::new(),
        user: None,
        started_at: None,
        finished_at: at(NOW),
        replaced,
    })
}

/// PodRecord in a short script: `base`, `name=state`, `failed`, `gone`, `clean` (all freed; with `logs` all
/// but those), `refreshing`, `sent`.
///
/// States: `ready` (image there), `pull`, `hold` (until 5 s from now), `turn` (`ErrImagePull` due to
/// turn), `start`, `run`, `slow` (startup probe not through), `sick` (failed its liveness probe), `unhooked`
/// (failed its postStart hook), `stop` (being ended), `old` (of another definition), a number (ended with that code; with
/// `!`, ended to be replaced).
fn pod_record(pod: &Pod, script: &str) -> PodRecord {
    let mut pod_record = PodRecord::new(pod, at(NOW - 100));
    for word in script.split_whitespace() {
        match word {
            "base" => pod_record.sandbox = ready_sandbox(),
            "lost" => pod_record.sandbox = SandboxState::Lost,
            "making" => pod_record.sandbox = SandboxState::Making,
            "faulty" => pod_record.sandbox = SandboxState::Failed { until: at(NOW + 3) },
            "gone" => pod_record.gone = true,
            "clean" => (pod_record.clean, pod_record.logs_forgotten) = (Clean::Done, true),
            "logs" => pod_record.logs_forgotten = false,
            "refreshing" => pod_record.refreshing = true,
            "busy" => pod_record.clean = Clean::Busy,
            "sent" => pod_record.delete_sent = true,
            "failed" => pod_record.failure = Some(Failure { reason: String::new(), message: String::new(), cause: Cause::Deadline }),
            other => {
                let (name, state) = other.split_once('=').expect("name=state");
                set(pod, pod_record.containers.get_mut(name).expect("a container"), name, state);
            }
        }
    }
    pod_record
}

fn set(pod: &Pod, record: &mut ContainerRecord, name: &str, state: &str) {
    let waiting = |backs_off_at: Option<Timestamp>| {
        Some(Waiting { reason: "ErrImagePull".to_owned(), message: String::new(), until: at(NOW + 5), backs_off_at })
    };
    let (_, container) = container::find_any(pod, name).expect("a container");
    let alive = RunningInstance {
        id: ContainerId(name.to_owned()),
        handler: "runc".to_owned(),
        attempt: 0,
        started_at: at(NOW - 50),
        image_id: String::new(),
        hash: if state == "old" { "0".to_owned() } else { spec_hash(&container) },
        resources: InstanceResources::of(pod.spec.as_ref().expect("a spec"), &container),
        user: Default::default(),
        startup_ok: state != "slow",
        readiness_ok: true,
        hooked: true,
        condemned: match state {
            "sick" => Some(Condemned::Probe(ProbeKind::Liveness)),
            "unhooked" => Some(Condemned::PostStartHook),
            _ => None,
        },
        stopping: state == "stop",
        replaced: false,
    };
    match state {
        "ready" => record.image = image(),
        "pull" => record.image = ImageState::Pulling,
        "hold" => record.waiting = waiting(None),
        "turn" => record.waiting = waiting(Some(at(NOW))),
        "start" => record.run = InstanceState::Starting { before: None },
        "run" | "slow" | "sick" | "unhooked" | "stop" | "old" => (record.run, record.attempts) = (InstanceState::Running(alive), 1),
        code => {
            record.run = ended(code.trim_end_matches('!').parse().expect("an exit code"), code.ends_with('!'));
            record.attempts = 1;
        }
    }
}

fn table(pod: &Pod, scripts: &[&str]) -> String {
    let line = |script: &&str| {
        let step = match plan(pod, &pod_record(pod, script), at(NOW)) {
            Step::Wait(None) => "wait".to_owned(),
            Step::Wait(Some(until)) => format!("wait {} s", until.as_second() - NOW),
            Step::Kill { name, message, replaced } => format!("{} {name}: {message}", if replaced { "replace" } else { "kill" }),
            Step::Pull(name) => format!("pull {name}"),
            Step::Start(name) => format!("start {name}"),
            Step::BackOffPull(name) => format!("back off {name}"),
            other => format!("{other:?}").to_lowercase(),
        };
        format!("{script:<40} {step}")
    };
    scripts.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_pod_that_is_to_run() {
    let scripts = [
        "",
        "making",
        "faulty",
        "faulty a=pull b=pull",
        "making a=pull",
        "making a=ready b=ready",
        "base a=ready b=pull",
        "base a=start b=ready",
        "base a=run b=run",
        "base a=sick b=run",
        "base a=old b=run",
        "base a=stop b=run",
        "base a=hold b=run",
        "base a=turn b=run",
        "base a=1 b=run",
        "base a=0 b=run",
    ];
    insta::assert_snapshot!(table(&pod(json!({}), json!({})), &scripts));
}

#[test]
fn restart_policies() {
    let scripts = [
        "base a=0 b=run",
        "base a=1 b=run",
        "base a=0 b=0",
        "base a=1 b=0",
        "base a=1 b=1 clean",
        "base a=sick b=run",
        "base a=unhooked b=run",
        "base a=0! b=0",
    ];
    let of = |policy: &str| format!("{policy}\n{}", table(&pod(json!({"restartPolicy": policy}), json!({})), &scripts));
    insta::assert_snapshot!([of("Always"), of("OnFailure"), of("Never")].join("\n\n"));
}

#[test]
fn init_containers_and_sidecars() {
    let init = json!([{"name": "i", "image": "i:1"}, {"name": "s", "image": "s:1", "restartPolicy": "Always"}]);
    let pod = pod(json!({"initContainers": init, "restartPolicy": "OnFailure"}), json!({}));
    let scripts = [
        "base",
        "base i=run",
        "base i=1",
        "base i=0",
        "base i=0! i=pull",
        "base i=0 s=slow",
        "base i=0 s=run",
        "base i=0 s=run a=run b=run",
        "base i=0 s=1 a=run b=run",
        "base i=0 s=sick a=run b=run",
        "base i=0 s=run a=0 b=0",
        "base i=0 s=stop a=0 b=0",
        "base i=0 s=0 a=0 b=0",
        "base i=0 s=0 a=0 b=0 clean",
    ];
    insta::assert_snapshot!(table(&pod, &scripts));
}

/// A Pod that never restarts, with an init container `i`, a container `a` without rules, and `b`, which restarts alone after 7
/// and with all others after 42.
fn ruled() -> Pod {
    let rule = |action: &str, code: i32| json!({"action": action, "exitCodes": {"operator": "In", "values": [code]}});
    let rules = json!([rule("Restart", 7), rule("RestartAllContainers", 42)]);
    let containers = json!([
        {"name": "a", "image": "a:1"},
        {"name": "b", "image": "b:1", "restartPolicy": "Never", "restartPolicyRules": rules},
    ]);
    let init = json!([{"name": "i", "image": "i:1"}]);
    pod(json!({"restartPolicy": "Never", "initContainers": init, "containers": containers}), json!({}))
}

#[test]
fn restart_rules() {
    let scripts = [
        "base i=0 a=run b=7",
        "base i=0 a=run b=1",
        "base i=0 a=0 b=1",
        "base i=0 a=0 b=7",
        "base i=0 a=run b=sick",
        "base i=0 a=run b=42",
        "base i=0 a=run b=42!",
        "base i=0 a=stop b=42",
        "base i=0 a=start b=42",
        "base i=0 a=0 b=42",
        "i=0 a=0 b=42",
        "gone base i=0 a=run b=42",
        "failed base i=0 a=0 b=42",
    ];
    insta::assert_snapshot!(table(&ruled(), &scripts));
}

#[test]
fn after_a_restart_of_all_the_pod_begins_again() {
    let pod = ruled();
    let spec = pod.spec.as_ref().expect("a spec");
    let mut pod_record = pod_record(&pod, "base i=0 a=0 b=42");
    assert!(pod_record.restarts_all(spec) && pod_record.main_begun());
    pod_record.reset(at(NOW));
    assert!(!pod_record.restarts_all(spec) && !pod_record.main_begun() && !pod_record.finished(spec));
    let mut step = |name: Option<&str>, state: &str| {
        if let Some(name) = name {
            let record = pod_record.containers.get_mut(name).expect("a container");
            set(&pod, record, name, state);
            record.reset &= state != "run" && state != "0";
        }
        plan(&pod, &pod_record, at(NOW))
    };
    assert_eq!(step(None, ""), Step::Pull("i".to_owned()));
    assert_eq!(step(Some("i"), "run"), Step::Wait(None), "the others wait for the init container again");
    assert_eq!(step(Some("i"), "0"), Step::Pull("a".to_owned()));
    assert_eq!(step(Some("a"), "run"), Step::Pull("b".to_owned()));
    assert_eq!(step(Some("b"), "run"), Step::Wait(None));
}

/// They start whatever the others do, once, and hold nothing up.
#[test]
fn ephemeral_containers() {
    let init = json!([{"name": "i", "image": "i:1"}]);
    let ephemeral = json!([{"name": "d", "image": "d:1", "targetContainerName": "a"}, {"name": "e", "image": "e:1"}]);
    let pod = pod(json!({"initContainers": init, "ephemeralContainers": ephemeral, "restartPolicy": "Always"}), json!({}));
    let scripts = [
        "",
        "making",
        "making d=pull e=pull i=pull",
        "base i=run",
        "base i=run d=ready e=pull",
        "base i=run d=hold e=ready",
        "base i=0 d=start e=start",
        "base i=0 d=run e=run a=run b=ready",
        "base i=0 d=0 e=1 a=run b=run",
        "base i=0 d=0! e=1! a=run b=run",
        "base i=0 d=137 e=128 a=run b=1",
        "gone base i=0 d=run e=0 a=run b=0",
        "gone base i=0 d=stop e=0 a=0 b=0",
        "gone base i=0 d=0 e=0 a=0 b=0",
    ];
    insta::assert_snapshot!(table(&pod, &scripts));
}

#[test]
fn the_target_of_an_ephemeral_container_runs_or_upstreams_error_says_that_it_does_not() {
    let ephemeral = json!([{"name": "d", "image": "d:1", "targetContainerName": "a"}, {"name": "e", "image": "e:1"}]);
    let pod = pod(json!({"ephemeralContainers": ephemeral}), json!({}));
    let target = |script: &str, name: &str| pod_record(&pod, script).target(&pod, name);
    assert_eq!(target("base", "e"), Ok(None));
    let running = target("base a=run", "d").expect("it runs").expect("a target");
    assert_eq!((running.container.as_str(), running.id.0.as_str(), running.handler.as_str()), ("a", "a", "runc"));
    for script in ["base", "base a=start"] {
        let wanted = Reason::new("CreateContainerConfigError", "unable to find target container a");
        assert_eq!(target(script, "d"), Err(wanted), "{script}");
    }
    let ended = "invalid target container: container \"\" is not running - in state CONTAINER_EXITED";
    assert_eq!(target("base a=1", "d"), Err(Reason::new("CreateContainerError", ended)));
}

#[test]
fn a_pod_that_is_to_end() {
    let deleted = pod(json!({}), json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5}));
    let scripts = [
        "",
        "making",
        "base a=start b=run",
        "base a=run b=run",
        "base a=stop b=run",
        "base a=stop b=stop",
        "base a=0 b=137",
        "a=0 b=0 busy",
        "a=0 b=0 clean",
        "a=0 b=0 clean sent",
        "a=0 b=0 clean gone",
        "base a=0 b=0 refreshing",
        "a=0 b=0 clean logs",
    ];
    let failed = pod(json!({}), json!({}));
    let more = [
        "failed base a=run",
        "failed a=0 b=0",
        "failed clean",
        "gone base a=run",
        "gone a=0",
        "gone clean",
        "failed clean logs",
        "gone clean logs",
    ];
    insta::assert_snapshot!(format!("deleted\n{}\n\nnot deleted\n{}", table(&deleted, &scripts), table(&failed, &more)));
}

#[test]
fn deadlines() {
    let late = pod(json!({"activeDeadlineSeconds": 100}), json!({}));
    let soon = pod(json!({"activeDeadlineSeconds": 107, "terminationGracePeriodSeconds": 7}), json!({}));
    assert_eq!(plan(&late, &pod_record(&late, "base a=run b=run"), at(NOW)), Step::Expire);
    assert_eq!(plan(&soon, &pod_record(&soon, "base a=run b=run"), at(NOW)), Step::Wait(Some(at(NOW + 7))));
    // The wall clock went back by an hour before the Pod began.
    let set_back = PodRecord { started_at: at(NOW - 3_700), ..pod_record(&soon, "base a=run b=run") };
    assert_eq!(plan(&soon, &set_back, at(NOW)), Step::Wait(Some(at(NOW + 7))));
    let mut ending = pod_record(&soon, "base a=run b=run");
    ending.ending_since = Some(at(NOW - 2));
    assert_eq!(kill_deadline(&soon, &ending, at(NOW)), at(NOW + 5));
    let hurried = pod(json!({}), json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}));
    assert_eq!(kill_deadline(&hurried, &ending, at(NOW)), at(NOW - 1));
    ending.shutdown_at = Some(at(NOW + 3));
    assert_eq!(kill_deadline(&soon, &ending, at(NOW)), at(NOW + 3), "the node shuts down before its time is over");
    ending.shutdown_at = Some(at(NOW + 30));
    assert_eq!(kill_deadline(&soon, &ending, at(NOW)), at(NOW + 5));
    for (most, seconds) in [(i64::MAX, 7), (600, 7), (4, 4), (1, 1), (0, 1)] {
        ending.grace_seconds_max = most;
        assert_eq!(kill_deadline(&soon, &ending, at(NOW)), at(NOW - 2 + seconds), "of an eviction, {most}");
    }
    ending.grace_seconds_max = 4;
    assert_eq!(kill_deadline(&hurried, &ending, at(NOW)), at(NOW - 1), "a user may be less patient");
}

#[test]
fn a_resize_that_wants_a_restart_waits_for_the_pods_bounds_and_for_no_other_container() {
    let resources = |memory: &str| json!({"limits": {"memory": memory}});
    let container = |name: &str, memory: &str| {
        let policy = json!([{"resourceName": "memory", "restartPolicy": if name == "a" { "RestartContainer" } else { "NotRequired" }}]);
        json!({"name": name, "image": "a:1", "resizePolicy": policy, "resources": resources(memory)})
    };
    let pod = pod(json!({"containers": [container("a", "64Mi"), container("b", "8Mi")]}), json!({}));
    let mut pod_record = pod_record(&pod, "base a=run b=run");
    let has = InstanceResources::new(serde_json::from_value(resources("32Mi")).expect("resources"), None);
    for name in ["a", "b"] {
        let InstanceState::Running(alive) = &mut pod_record.containers.get_mut(name).expect("record").run else { panic!("it runs") };
        alive.resources = has.clone();
    }
    let restart = Step::Kill { name: "a".to_owned(), message: "Container a resize requires restart".to_owned(), replaced: true };
    let due = |seconds: i64, fault: Option<&str>| Resize::Due { until: at(NOW + seconds), fault: fault.map(str::to_owned) };
    for (resize, wanted) in [
        (due(0, None), Step::Resize),
        (Resize::Busy { again: false }, Step::Wait(None)),
        (due(10, Some("container b uses more")), restart.clone()),
        (Resize::Settled, restart),
    ] {
        pod_record.resize = resize.clone();
        assert_eq!(plan(&pod, &pod_record, at(NOW)), wanted, "{resize:?}");
    }
}

#[test]
fn what_is_left_of_a_sandbox_ends_before_the_next_one() {
    let pod = pod(json!({"initContainers": [{"name": "i", "image": "i:1"}], "shareProcessNamespace": true}), json!({}));
    let next = |script: &str| plan(&pod, &pod_record(&pod, script), at(NOW));
    assert_eq!(next("lost i=0 a=run b=137"), stop("a"));
    assert_eq!(next("lost i=0 a=stop b=137"), Step::Wait(None));
    assert_eq!(next("lost i=0 a=start b=137"), Step::Wait(None));
    assert_eq!(next("lost i=0 a=137 b=137"), Step::Recreate);
    assert_eq!(next("failed lost i=0 a=137 b=137"), Step::Clean, "a Pod that ends gets no other sandbox");
}

/// A container's exit may be reported before that of the pause container, whose end was its cause.
#[test]
fn a_container_that_finds_no_pause_container_waits_for_the_report_of_its_end() {
    let pod = pod(json!({"shareProcessNamespace": true}), json!({}));
    let mut pod_record = pod_record(&pod, "base a=start b=137");
    let SandboxState::Ready(sandbox) = &mut pod_record.sandbox else { panic!("a sandbox") };
    sandbox.pause = Some(PauseContainer { id: ContainerId("pause".to_owned()), handler: "runc".to_owned() });
    let notes = pod_record.learn(&pod, Report::Started("a".to_owned(), Err(StartFault::NoSandbox)), at(NOW));
    assert_eq!((notes, &pod_record.containers["a"].waiting), (Vec::new(), &None), "no event, no back-off");
    assert_eq!(plan(&pod, &pod_record, at(NOW)), Step::Wait(None));
    pod_record.learn(&pod, Report::SandboxEnded, at(NOW));
    assert_eq!(plan(&pod, &pod_record, at(NOW)), Step::Recreate);
    pod_record.containers.get_mut("a").expect("a container").run = InstanceState::Starting { before: None };
    pod_record.learn(&pod, Report::Started("a".to_owned(), Err(StartFault::NoSandbox)), at(NOW));
    assert_eq!(plan(&pod, &pod_record, at(NOW)), Step::Recreate, "a report that comes after it");
}

#[test]
fn after_another_sandbox_init_containers_run_again_before_the_others() {
    let spec = json!({"initContainers": [{"name": "i", "image": "i:1"}], "shareProcessNamespace": true, "restartPolicy": "OnFailure"});
    let pod = pod(spec, json!({}));
    let mut pod_record = pod_record(&pod, "lost i=0 a=0 b=137");
    pod_record.recreate_sandbox(at(NOW));
    assert_eq!(plan(&pod, &pod_record, at(NOW)), Step::Prepare);
    pod_record.sandbox = ready_sandbox();
    let mut step = |name: Option<&str>, state: &str| {
        if let Some(name) = name {
            set(&pod, pod_record.containers.get_mut(name).expect("a container"), name, state);
            pod_record.begins_again &= name == "i";
        }
        plan(&pod, &pod_record, at(NOW))
    };
    assert_eq!(step(None, ""), Step::Pull("i".to_owned()));
    assert_eq!(step(Some("i"), "run"), Step::Wait(None), "the others wait for it");
    assert_eq!(step(Some("i"), "0"), Step::Pull("b".to_owned()), "a container that succeeded stays ended");
    assert_eq!(step(Some("b"), "run"), Step::Wait(None));
}

#[test]
fn a_sandbox_that_ends_again_and_again_waits() {
    let pod = pod(json!({"shareProcessNamespace": true}), json!({}));
    let mut pod_record = pod_record(&pod, "lost a=137 b=137");
    let mut next = |second: i64| {
        pod_record.sandbox = SandboxState::Lost;
        pod_record.recreate_sandbox(at(second));
        pod_record.sandbox.clone()
    };
    assert_eq!(next(NOW), SandboxState::Absent);
    assert_eq!(next(NOW + 1), SandboxState::Failed { until: at(NOW + 11) });
    assert_eq!(next(NOW + 12), SandboxState::Failed { until: at(NOW + 32) });
    assert_eq!(next(NOW + 2_000), SandboxState::Absent, "after a quiet time it begins at once");
}

/// The files of an image that is a volume have ids of the user namespace, which comes with the sandbox.
#[test]
fn images_of_volumes_wait_for_the_user_namespace() {
    let volume = json!([{"name": "v", "image": {"reference": "i:1"}}]);
    for (spec, waits) in
        [(json!({"hostUsers": false, "volumes": volume}), true), (json!({"hostUsers": false}), false), (json!({"volumes": volume}), false)]
    {
        let pod = pod(spec.clone(), json!({}));
        let wanted = if waits { Step::Wait(None) } else { Step::Pull("a".to_owned()) };
        assert_eq!(plan(&pod, &pod_record(&pod, "making"), at(NOW)), wanted, "{spec}");
        assert_eq!(plan(&pod, &pod_record(&pod, "base"), at(NOW)), Step::Pull("a".to_owned()), "{spec}");
    }
}
