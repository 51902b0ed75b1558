//! Containers that share processes: with another container, with the node, and with each other by a pause container.

use runtimes_battery::{Harness, Program, pid_of, plain_spec, spec_of, until};
use runtimes_contract::{ContainerId, ContainerSpec, ContainerState, Content, Exit, Processes, RuntimeError};
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
    let pid = pid_of(&*harness.runtime(), &app.id).await.unwrap();
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

fn pause(harness: &Runc) -> (ContainerSpec, Processes) {
    let id = "pause";
    let spec = ContainerSpec { content: Content::Pause, cgroup: harness.cgroup(id), oom_score_adj: 900, ..plain_spec(id) };
    let processes = Processes::OfContainer(spec.id.clone());
    (spec, processes)
}

#[tokio::test]
async fn containers_come_and_go_in_the_namespace_of_a_pause_container() {
    let harness = Runc::new();
    let (pause, processes) = pause(&harness);
    start(&harness, &pause).await;
    let other = script(&harness, "other", "echo $$; sleep 7654321", processes.clone());
    start(&harness, &other).await;
    // It sees the others, cannot end the first process, and leaves an orphan to it.
    let text = "cat /proc/1/comm; kill -9 1; kill -TERM 1; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo; (sleep 0 &); exit 5";
    let looker = script(&harness, "looker", text, processes.clone());
    start(&harness, &looker).await;
    let (ended, said) = end(&harness, &looker).await;
    assert_eq!((ended.code, ended.message.as_str()), (5, ""));
    assert!(said.starts_with("pause\n") && said.contains("sleep 7654321") && said.contains("/pause "), "{said}");
    assert!(!said.contains(harness.scratch().to_str().unwrap()), "no path of the node: {said}");
    let log = std::fs::read_to_string(&other.log_path).unwrap();
    let number = log.split_whitespace().last().unwrap().to_owned();
    assert_ne!(number, "1");
    let again = script(&harness, "again", &format!("kill -9 {number}"), processes);
    start(&harness, &again).await;
    assert_eq!(end(&harness, &again).await.0.code, 0);
    assert_eq!(end(&harness, &other).await.0.signal, Some(9), "one container signals another");
    assert!(pid_of(&*harness.runtime(), &pause.id).await.is_some());
    for spec in [&other, &looker, &again, &pause] {
        harness.runtime().remove(&spec.id).await.unwrap();
    }
    assert_eq!(harness.runtime().list().await.unwrap(), []);
}

#[tokio::test]
async fn everything_ends_with_a_pause_container_and_it_is_found_again() {
    let harness = Runc::new();
    let (pause, processes) = pause(&harness);
    start(&harness, &pause).await;
    assert!(matches!(harness.runtime().create(&pause).await, Err(RuntimeError::Exists(_))));
    let app = script(&harness, "app", "trap '' TERM; sleep 1000 & sleep 1000", processes.clone());
    start(&harness, &app).await;
    let reopened = harness.reopened();
    let found = reopened.list().await.unwrap();
    assert!(found.iter().all(|one| matches!(one.state, ContainerState::Running { .. })) && found.len() == 2, "{found:?}");
    // The agent's stop signal is for containers; this one ends by SIGKILL alone.
    reopened.signal(&pause.id, 15).await.unwrap();
    assert!(pid_of(&*harness.runtime(), &pause.id).await.is_some());
    reopened.signal(&pause.id, 9).await.unwrap();
    assert_eq!(reopened.wait(&pause.id).await.unwrap().code, 137);
    assert_eq!(end(&harness, &app).await.0.signal, Some(9));
    let late = script(&harness, "late", "true", processes);
    assert!(harness.runtime().create(&late).await.unwrap_err().to_string().contains("is not running"));
    harness.runtime().remove(&app.id).await.unwrap();
    harness.runtime().remove(&pause.id).await.unwrap();
}

/// A tenant with many rights is its neighbour.
#[tokio::test]
async fn a_pause_container_has_nothing_of_the_node() {
    let harness = Runc::new();
    let (pause, processes) = pause(&harness);
    start(&harness, &pause).await;
    let pid = pid_of(&*harness.runtime(), &pause.id).await.unwrap();
    let of = |name: &str| format!("/proc/{pid}/{name}");
    let status = std::fs::read_to_string(of("status")).unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().split_whitespace().collect::<Vec<_>>();
    for (name, wanted) in [("Uid:", vec!["65535"; 4]), ("Gid:", vec!["65535"; 4]), ("Groups:", vec![]), ("NoNewPrivs:", vec!["1"])] {
        assert_eq!(field(name), wanted, "{name}");
    }
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(field("Seccomp:"), ["2"]);
    assert_eq!(std::fs::read_to_string(of("oom_score_adj")).unwrap().trim(), "900");
    assert_eq!(std::fs::read_dir(of("root")).unwrap().count(), 0);
    assert_eq!(std::fs::read(of("environ")).unwrap(), b"");
    assert_eq!(std::fs::read(of("cmdline")).unwrap(), b"/pause\0");
    let descriptors = std::fs::read_dir(of("fd")).unwrap().map(|fd| std::fs::read_link(fd.unwrap().path()).unwrap());
    let descriptors: Vec<_> = descriptors.collect();
    assert!(descriptors.iter().all(|file| file == std::path::Path::new("/dev/null")), "{descriptors:?}");
    assert!(std::fs::OpenOptions::new().write(true).open(of("exe")).is_err());
    // Without the right to trace, a neighbour that is root cannot look into it; with it, there is nothing and nothing to write.
    let plain = script(&harness, "plain", "ls /proc/1/root/ /proc/1/cwd/ 2>&1; echo x > /proc/1/exe", processes.clone());
    start(&harness, &plain).await;
    let (_, said) = end(&harness, &plain).await;
    assert_eq!(said.matches("Permission denied").count(), 3, "{said}");
    let mut tracer = script(&harness, "tracer", "ls -A /proc/1/root; echo x > /proc/1/exe", processes);
    tracer.security.capabilities_add = vec!["SYS_PTRACE".to_owned()];
    start(&harness, &tracer).await;
    let (_, said) = end(&harness, &tracer).await;
    assert!(said.contains("Read-only file system") && said.lines().count() == 1, "{said}");
    for spec in [&plain, &tracer, &pause] {
        harness.runtime().remove(&spec.id).await.unwrap();
    }
}

/// Many orphans: without somebody who reaps them the Pod would run out of process ids.
#[tokio::test]
async fn a_pause_container_reaps_orphans() {
    let harness = Runc::new();
    let (pause, processes) = pause(&harness);
    start(&harness, &pause).await;
    let text = "for i in $(seq 200); do (sleep 0 & ) ; done; echo made; sleep 1000";
    let app = script(&harness, "app", text, processes);
    start(&harness, &app).await;
    until("orphans were made", || std::fs::read_to_string(&app.log_path).is_ok_and(|log| log.contains("made"))).await;
    let first = pid_of(&*harness.runtime(), &pause.id).await.unwrap().to_string();
    let is_child = |entry: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(entry.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)) == Some(first.as_str())
    };
    until("all are reaped", || std::fs::read_dir("/proc").unwrap().filter_map(|entry| is_child(entry).then_some(())).count() == 0).await;
    for spec in [&app, &pause] {
        harness.runtime().remove(&spec.id).await.unwrap();
    }
}
