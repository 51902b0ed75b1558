//! What a new runtime over the same directories knows.

use crate::*;

/// Another runtime finds running containers, waits for them and stops them.
pub async fn a_running_container_is_adopted(harness: &dyn Harness) {
    let sleeper = start(harness, "adopted", Program::Sleep).await;
    let before = sleeper.status().await;
    let heir = harness.reopened();
    let after = find(&*heir, sleeper.id()).await.expect("it is listed");
    assert_eq!(after, before);
    let waiting = tokio::spawn({
        let (heir, id) = (heir.clone(), sleeper.id().clone());
        async move { heir.wait(&id).await }
    });
    within(heir.signal(sleeper.id(), 9)).await.expect("signal");
    let exit = within(waiting).await.expect("the waiter did not panic").expect("wait");
    assert_eq!((exit.code, exit.signal), (137, Some(9)), "{exit:?}");
    within(heir.remove(sleeper.id())).await.expect("remove");
    assert!(find(&*sleeper.runtime, sleeper.id()).await.is_none());
}

/// The exit code waits for the process that asks for it.
pub async fn an_end_that_nobody_watched_is_learned(harness: &dyn Harness) {
    let ended = start(harness, "unwatched", Program::ExitWith(42)).await;
    let first = ended.end().await;
    let heir = harness.reopened();
    let status = find(&*heir, ended.id()).await.expect("it is listed");
    assert_eq!(status.state, ContainerState::Exited(first.clone()));
    assert_eq!(within(heir.wait(ended.id())).await.expect("wait"), first);
    within(heir.remove(ended.id())).await.expect("remove");
}

/// `kill -9` of the process is 137 and no more.
pub async fn a_killed_shim_differs_from_an_end(harness: &dyn Harness) {
    if !harness.abilities().real {
        return;
    }
    let sleeper = start(harness, "shot", Program::Sleep).await;
    let process = runtimes_host::process::ProcessRef::read(pid(&sleeper.status().await)).expect("it runs");
    process.open().expect("open").expect("it runs").signal(9).expect("kill");
    let exit = sleeper.end().await;
    assert_eq!((exit.code, exit.signal, exit.oom_killed), (137, Some(9), false), "{exit:?}");
    assert_eq!(sleeper.end().await, exit, "the verdict stays");
    sleeper.remove().await;
}

/// A file that the node left open by mistake reaches neither a container nor its shim.
pub async fn no_descriptor_of_the_starter_is_inherited(harness: &dyn Harness) {
    if !harness.abilities().real {
        return;
    }
    let path = harness.scratch().join("left-open");
    let left_open = std::fs::File::create(&path).expect("create");
    // A duplicate does not close at exec.
    let _inherited = nix::unistd::dup(&left_open).expect("dup");
    let sleeper = start(harness, "heirless", Program::Sleep).await;
    let container = pid(&sleeper.status().await);
    let shim = parent(container);
    for process in [container, shim].into_iter().filter(|pid| pid.cast_unsigned() != std::process::id()) {
        let open = std::fs::read_dir(format!("/proc/{process}/fd")).expect("it runs");
        let links: Vec<_> = open.map(|entry| std::fs::read_link(entry.expect("entry").path()).expect("a link")).collect();
        assert!(!links.contains(&path), "process {process}: {links:?}");
    }
    within(sleeper.runtime.signal(sleeper.id(), 9)).await.expect("signal");
    sleeper.end().await;
    sleeper.remove().await;
}

fn parent(pid: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    status.lines().find_map(|line| line.strip_prefix("PPid:")).and_then(|pid| pid.trim().parse().ok()).expect("a parent")
}

/// Created, not started; another runtime finds and starts it.
pub async fn a_created_container_is_found_again(harness: &dyn Harness) {
    let spec = spec_of(harness, "inherited", Program::Hello);
    within(harness.runtime().create(&spec)).await.expect("create");
    let runtime = harness.reopened();
    let status = find(&*runtime, &spec.id).await.expect("it is listed");
    assert_eq!((status.state, status.labels), (ContainerState::Created, spec.labels.clone()));
    let heir = Running { runtime, spec };
    within(heir.runtime.start(heir.id())).await.expect("start");
    assert_eq!(heir.end().await.code, 0);
    heir.remove().await;
}
