//! What is rejected, and what may be repeated.

use crate::*;

/// One id, one container.
pub async fn ids_are_unique(harness: &dyn Harness) {
    let runtime = harness.runtime();
    let spec = spec_of(harness, "twice", Program::Hello);
    within(runtime.create(&spec)).await.expect("create");
    let again = within(runtime.create(&spec)).await;
    assert!(matches!(again, Err(RuntimeError::Exists(_))), "{again:?}");
    // The first container is not affected.
    let first = Running { runtime, spec };
    within(first.runtime.start(first.id())).await.expect("start");
    assert_eq!(first.end().await.code, 0);
    first.remove().await;
    within(first.runtime.create(&first.spec)).await.expect("a removed container's id is free");
    first.remove().await;
}

/// All calls for a container that does not exist fail; removing it succeeds.
pub async fn unknown_ids_are_not_found(harness: &dyn Harness) {
    let runtime = harness.runtime();
    for name in ["nobody", "../nobody", ""] {
        let id = ContainerId(name.into());
        assert!(is_not_found(within(runtime.start(&id)).await));
        assert!(is_not_found(within(runtime.signal(&id, 15)).await));
        assert!(is_not_found(within(runtime.wait(&id)).await));
        assert!(is_not_found(within(runtime.stats(&id)).await));
        assert!(is_not_found(within(runtime.http_requests(&id)).await));
        assert!(is_not_found(within(runtime.reopen_log(&id)).await));
        assert!(is_not_found(within(runtime.set_cpus(&id, "0")).await));
        assert!(is_not_found(within(runtime.exec(&id, Default::default())).await));
        within(runtime.remove(&id)).await.expect("removing nothing");
    }
    assert!(within(runtime.list()).await.expect("list").is_empty());
}

/// A second start, while it runs and after it has ended.
pub async fn a_container_starts_once(harness: &dyn Harness) {
    let sleeper = start(harness, "once", Program::Sleep).await;
    assert!(within(sleeper.runtime.start(sleeper.id())).await.is_err());
    let status = sleeper.status().await;
    assert!(pid(&status) > 0, "the first start still runs");
    within(sleeper.runtime.signal(sleeper.id(), 9)).await.expect("signal");
    sleeper.end().await;
    assert!(within(sleeper.runtime.start(sleeper.id())).await.is_err());
    sleeper.remove().await;
}

/// Waiting for a container that was never started would take for ever.
pub async fn wait_wants_a_started_container(harness: &dyn Harness) {
    let runtime = harness.runtime();
    let spec = spec_of(harness, "unstarted", Program::Hello);
    within(runtime.create(&spec)).await.expect("create");
    assert!(within(runtime.wait(&spec.id)).await.is_err());
    assert!(within(runtime.signal(&spec.id, 15)).await.is_err());
    within(runtime.remove(&spec.id)).await.expect("remove");
}

/// Waiters do not steal from each other.
pub async fn several_wait_and_some_give_up(harness: &dyn Harness) {
    let sleeper = start(harness, "awaited", Program::Sleep).await;
    let gave_up = tokio::time::timeout(Duration::from_millis(30), sleeper.runtime.wait(sleeper.id())).await;
    assert!(gave_up.is_err(), "{gave_up:?}");
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let (runtime, id) = (sleeper.runtime.clone(), sleeper.id().clone());
            tokio::spawn(async move { runtime.wait(&id).await })
        })
        .collect();
    within(sleeper.runtime.signal(sleeper.id(), 9)).await.expect("signal");
    for waiter in waiters {
        let exit = within(waiter).await.expect("the waiter did not panic").expect("wait");
        assert_eq!(exit.code, 137);
    }
    sleeper.remove().await;
}

/// Removal of a running container frees everything but the log.
pub async fn removal_kills_and_frees_and_may_be_repeated(harness: &dyn Harness) {
    let ticks = start(harness, "removed", Program::Ticks).await;
    let process = pid(&ticks.status().await);
    if harness.abilities().real {
        until("it ticks", || !ticks.log().is_empty()).await;
    }
    ticks.remove().await;
    ticks.remove().await;
    assert!(find(&*ticks.runtime, ticks.id()).await.is_none());
    assert!(is_not_found(within(ticks.runtime.wait(ticks.id())).await));
    if harness.abilities().real {
        assert!(!Path::new(&format!("/proc/{process}")).exists(), "no process and no zombie is left");
        let group = runtimes_host::cgroup::Cgroups::detect().and_then(|cgroups| cgroups.group(&ticks.spec.cgroup)).expect("cgroup");
        assert!(!group.exists(), "no cgroup is left");
        assert!(!ticks.log().is_empty(), "the log stays");
    }
}

/// Removal does not need a start.
pub async fn a_created_container_can_be_removed(harness: &dyn Harness) {
    let runtime = harness.runtime();
    let spec = spec_of(harness, "unused", Program::Sleep);
    within(runtime.create(&spec)).await.expect("create");
    within(runtime.remove(&spec.id)).await.expect("remove");
    assert!(within(runtime.list()).await.expect("list").is_empty());
}
