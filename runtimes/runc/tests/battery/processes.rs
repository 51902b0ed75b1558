//! Containers that share processes: with another container, and with the node.

use runtimes_battery::{Harness, Program, spec_of};
use runtimes_contract::{ContainerId, ContainerSpec, ContainerState, Exit, Processes, RuntimeError};
use runtimes_host::process::ProcessRef;

use crate::harness::Runc;

fn script(harness: &Runc, id: &str, text: &str, processes: Processes) -> ContainerSpec {
    let mut spec = spec_of(harness, id, Program::Hello);
    spec.args = ["/bin/sh", "-c", text].map(str::to_owned).to_vec();
    spec.processes = processes;
    spec
}

async fn start(harness: &Runc, spec: &ContainerSpec) {
    harness.runtime().create(spec).await.unwrap();
    harness.runtime().start(&spec.id).await.unwrap();
}

async fn target(harness: &Runc) -> (ContainerSpec, Processes) {
    let spec = spec_of(harness, "app", Program::Sleep);
    start(harness, &spec).await;
    let processes = Processes::OfContainer(spec.id.clone());
    (spec, processes)
}

async fn end(harness: &Runc, spec: &ContainerSpec) -> (Exit, String) {
    let exit = harness.runtime().wait(&spec.id).await.unwrap();
    let log = std::fs::read_to_string(&spec.log_path).unwrap();
    (exit, log.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap()).collect::<Vec<_>>().join("\n"))
}

#[tokio::test]
async fn a_container_sees_and_signals_the_processes_of_its_target() {
    let harness = Runc::new();
    let (app, processes) = target(&harness).await;
    let spec = script(&harness, "debugger", "tr '\\0' ' ' < /proc/1/cmdline; echo; kill -TERM 1; sleep 100", processes);
    start(&harness, &spec).await;
    let (ended, said) = end(&harness, &spec).await;
    assert!(said.contains("sleep 1000"), "the command of the target: {said}");
    // The first process of the namespace is the target's: with it everything in the namespace ends.
    assert_eq!(ended.signal, Some(9));
    assert_eq!(end(&harness, &app).await.0.code, 143);
    for id in [&spec.id, &app.id] {
        harness.runtime().remove(id).await.unwrap();
    }
}

/// The kernel ends the processes of a namespace with its first process, which is another container's here.
#[tokio::test]
async fn nothing_of_a_container_survives_its_first_process() {
    let harness = Runc::new();
    let (app, processes) = target(&harness).await;
    for processes in [processes, Processes::OfNode] {
        let spec = script(&harness, "debugger", "sleep 1000 & sleep 1000 & echo $!; exit 3", processes.clone());
        start(&harness, &spec).await;
        let (ended, said) = end(&harness, &spec).await;
        assert_eq!((ended.code, ended.message.as_str()), (3, ""), "{processes:?}");
        assert!(said.parse::<u32>().is_ok(), "{said}");
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
        while harness.runtime().stats(&spec.id).await.unwrap().pids != 0 {
            assert!(tokio::time::Instant::now() < deadline, "{processes:?}: processes are left");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        harness.runtime().remove(&spec.id).await.unwrap();
        std::fs::remove_file(&spec.log_path).unwrap();
    }
    let statuses = harness.runtime().list().await.unwrap();
    assert!(matches!(statuses[0].state, ContainerState::Running { .. }), "the target runs on: {statuses:?}");
    harness.runtime().remove(&app.id).await.unwrap();
}

#[tokio::test]
async fn a_container_of_the_nodes_processes_sees_this_one() {
    let harness = Runc::new();
    let text = format!("ls -d /proc/{}", std::process::id());
    let spec = script(&harness, "watcher", &text, Processes::OfNode);
    start(&harness, &spec).await;
    let (ended, said) = end(&harness, &spec).await;
    assert_eq!((ended.code, said), (0, format!("/proc/{}", std::process::id())));
    harness.runtime().remove(&spec.id).await.unwrap();
}

/// Its pid may be another process' by then, even one of the node.
#[tokio::test]
async fn a_target_that_does_not_run_is_not_joined() {
    let harness = Runc::new();
    let of = |id: &str| Processes::OfContainer(ContainerId(id.into()));
    let stranger = script(&harness, "debugger", "true", of("nobody"));
    assert!(matches!(harness.runtime().create(&stranger).await, Err(RuntimeError::NotFound(_))));
    let (app, processes) = target(&harness).await;
    let early = script(&harness, "early", "echo ran", processes.clone());
    harness.runtime().create(&early).await.unwrap();
    // What it would join if nobody looked: a namespace of the node behind a pid that was the target's.
    let dir = harness.scratch().join("state/containers/early/config.json");
    let config = std::fs::read_to_string(&dir).unwrap();
    let status = harness.runtime().list().await.unwrap().into_iter().find(|one| one.id == app.id).unwrap();
    let ContainerState::Running { pid } = status.state else { panic!("{status:?}") };
    let own = ProcessRef::current().unwrap().pid;
    let reused = config.replace(&format!("/proc/{pid}/ns/pid"), &format!("/proc/{own}/ns/pid"));
    assert_ne!(reused, config);
    std::fs::write(&dir, reused).unwrap();
    harness.runtime().signal(&app.id, 9).await.unwrap();
    harness.runtime().wait(&app.id).await.unwrap();
    let refused = harness.runtime().start(&early.id).await.unwrap_err();
    assert!(refused.to_string().contains("has ended"), "{refused}");
    assert_eq!(std::fs::read_to_string(&early.log_path).unwrap(), "");
    let late = script(&harness, "late", "true", processes);
    let refused = harness.runtime().create(&late).await.unwrap_err();
    assert!(refused.to_string().contains("is not running"), "{refused}");
    harness.runtime().remove(&early.id).await.unwrap();
    harness.runtime().remove(&app.id).await.unwrap();
}
