//! Bad content, too much of everything, further processes.

use tokio::io::AsyncReadExt as _;

use crate::*;
use runtimes_contract::ExecSpec;

/// The image or the command is at fault, and is named; nothing is left behind.
pub async fn broken_content_is_rejected_and_leaves_nothing(harness: &dyn Harness) {
    let runtime = harness.runtime();
    let spec = spec_of(harness, "broken", Program::Broken);
    let made = within(runtime.create(&spec)).await;
    let result = match made {
        Ok(()) => within(runtime.start(&spec.id)).await,
        failed => failed,
    };
    let error = result.expect_err("it cannot run");
    assert!(matches!(error, RuntimeError::BadContent(_) | RuntimeError::Start(_)), "{error:?}");
    assert!(error.to_string().len() > 20, "it says why: {error}");
    within(runtime.remove(&spec.id)).await.expect("remove");
    assert!(within(runtime.list()).await.expect("list").is_empty());
    if harness.abilities().real {
        let group = runtimes_host::cgroup::Cgroups::detect().and_then(|cgroups| cgroups.group(&spec.cgroup)).expect("cgroup");
        assert!(!group.exists(), "no cgroup is left");
    }
}

/// Memory is limited, and the exit tells when the kernel had to kill.
pub async fn a_memory_hog_is_stopped(harness: &dyn Harness) {
    let mut spec = spec_of(harness, "hog", Program::Hog);
    spec.resources.memory_limit_bytes = Some(48 << 20);
    let hog = start_spec(harness, spec).await;
    let exit = hog.end().await;
    assert_eq!(exit.oom_killed, harness.abilities().hog_is_killed, "{exit:?}");
    if exit.oom_killed {
        assert_eq!(exit.code, 137, "{exit:?}");
    }
    hog.remove().await;
}

/// A rush.
pub async fn many_start_at_once(harness: &dyn Harness) {
    let mut starts = tokio::task::JoinSet::new();
    for number in 0..12 {
        let spec = spec_of(harness, &format!("many-{number}"), Program::ExitWith(number));
        let runtime = harness.runtime();
        starts.spawn(async move {
            runtime.create(&spec).await?;
            runtime.start(&spec.id).await?;
            let exit = runtime.wait(&spec.id).await?;
            runtime.remove(&spec.id).await?;
            Ok::<_, RuntimeError>((i32::from(number), exit.code))
        });
    }
    while let Some(ended) = within(starts.join_next()).await {
        let (wanted, code) = ended.expect("no panic").expect("no error");
        assert_eq!(code, wanted);
    }
    assert!(within(harness.runtime().list()).await.expect("list").is_empty());
}

/// A further process in a container.
pub async fn a_further_process_runs(harness: &dyn Harness) {
    let mut spec = spec_of(harness, "entered", Program::Sleep);
    let args = harness.further(&mut spec);
    let sleeper = start_spec(harness, spec).await;
    let mut session = within(sleeper.runtime.exec(sleeper.id(), ExecSpec { args, ..ExecSpec::default() })).await.expect("started");
    let mut said = String::new();
    within(session.stdout.read_to_string(&mut said)).await.expect("read");
    assert_eq!(within(session.exit).await.expect("exit"), 7);
    if harness.abilities().real {
        assert_eq!(said, "inside\n");
        assert!(sleeper.log().is_empty(), "its output is the client's alone");
    }
    sleeper.remove().await;
}

/// All attached clients get a container's output, as does the log, until its end.
pub async fn output_reaches_everyone_who_is_attached(harness: &dyn Harness) {
    let ticks = start(harness, "heard", Program::Ticks).await;
    let mut sessions = Vec::new();
    for _ in 0..2 {
        sessions.push(within(ticks.runtime.attach(ticks.id(), false)).await.expect("attached"));
    }
    if harness.abilities().real {
        for session in &mut sessions {
            let mut said = [0; 10];
            within(session.stdout.read_exact(&mut said)).await.expect("read");
            assert_eq!(&said, b"tick\ntick\n");
        }
        // A client that leaves does not disturb the others.
        drop(sessions.remove(0));
    }
    within(ticks.runtime.signal(ticks.id(), 9)).await.expect("signal");
    ticks.end().await;
    for mut session in sessions {
        let mut rest = Vec::new();
        within(session.stdout.read_to_end(&mut rest)).await.expect("an end");
    }
    ticks.remove().await;
}

/// Attaching fails before the start and after the end.
pub async fn who_has_ended_or_not_begun_is_not_attached_to(harness: &dyn Harness) {
    let runtime = harness.runtime();
    let spec = spec_of(harness, "mute", Program::Hello);
    within(runtime.create(&spec)).await.expect("create");
    assert!(within(runtime.attach(&spec.id, true)).await.is_err());
    within(runtime.start(&spec.id)).await.expect("start");
    let mute = Running { runtime, spec };
    mute.end().await;
    assert!(within(mute.runtime.attach(mute.id(), true)).await.is_err());
    mute.remove().await;
    assert!(matches!(within(mute.runtime.attach(mute.id(), true)).await, Err(RuntimeError::NotFound(_))));
}
