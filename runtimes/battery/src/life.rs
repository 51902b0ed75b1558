//! From create to the end.

use std::time::Duration;

use crate::*;

/// Hello is run, heard and remembered.
pub async fn a_container_says_hello_and_ends(harness: &dyn Harness) {
    let hello = start(harness, "hello", Program::Hello).await;
    let exit = hello.end().await;
    assert_eq!((exit.code, exit.signal, exit.oom_killed), (0, None, false), "{exit:?}");
    if harness.abilities().real {
        let mut said = hello.said();
        said.sort();
        assert_eq!(said, ["stderr F warned", "stdout F hello"]);
    }
    let status = hello.status().await;
    assert_eq!(status.state, ContainerState::Exited(exit.clone()));
    assert_eq!(status.labels, hello.spec.labels);
    let (created, started) = (status.created_at_ms, status.started_at_ms.expect("it was started"));
    assert!(0 < created && created <= started && started <= exit.finished_at_ms, "{created} {started} {exit:?}");
    assert_eq!(hello.end().await, exit, "wait tells the same again");
    hello.remove().await;
}

/// Codes other than 0 and 1.
pub async fn exit_codes_are_learned(harness: &dyn Harness) {
    for code in [42, 1, 0] {
        let ended = start(harness, &format!("exit-{code}"), Program::ExitWith(code)).await;
        let exit = ended.end().await;
        assert_eq!((exit.code, exit.signal), (i32::from(code), None), "{exit:?}");
        ended.remove().await;
    }
}

/// Arguments arrive as they are.
pub async fn arguments_are_passed(harness: &dyn Harness) {
    let mut spec = spec_of(harness, "echo", Program::Echo);
    spec.args.extend(["one", "two  words", "$HOME"].map(str::to_owned));
    let echo = start_spec(harness, spec).await;
    assert_eq!(echo.end().await.code, 0);
    if harness.abilities().real {
        assert_eq!(echo.said(), ["stdout F one two  words $HOME"]);
    }
    echo.remove().await;
}

/// `create` runs nothing of the guest.
pub async fn nothing_runs_before_start(harness: &dyn Harness) {
    let runtime = harness.runtime();
    let spec = spec_of(harness, "later", Program::Hello);
    within(runtime.create(&spec)).await.expect("create");
    let status = find(&*runtime, &spec.id).await.expect("it is listed");
    assert_eq!((&status.state, status.started_at_ms), (&ContainerState::Created, None));
    assert_eq!(status.log_path, spec.log_path);
    let later = Running { runtime, spec };
    assert_eq!(later.log(), [""; 0]);
    within(later.runtime.start(later.id())).await.expect("start");
    assert_eq!(later.end().await.code, 0);
    later.remove().await;
}

/// SIGTERM reaches a guest that waits.
pub async fn a_sleeper_runs_until_terminated(harness: &dyn Harness) {
    let sleeper = start(harness, "sleeper", Program::Sleep).await;
    let pid = pid(&sleeper.status().await);
    assert!(pid > 0);
    until("the guest hears signals", || harness.hears_signals(pid)).await;
    within(sleeper.runtime.signal(sleeper.id(), 15)).await.expect("signal");
    let exit = sleeper.end().await;
    assert_eq!(exit.code, harness.abilities().terminated_code, "{exit:?}");
    sleeper.remove().await;
}

/// SIGKILL reaches a guest that computes.
pub async fn a_spinner_is_killed(harness: &dyn Harness) {
    let spinner = start(harness, "spinner", Program::Spin).await;
    within(spinner.runtime.signal(spinner.id(), 9)).await.expect("signal");
    let exit = spinner.end().await;
    assert_eq!((exit.code, exit.signal, exit.oom_killed), (137, Some(9), false), "{exit:?}");
    spinner.remove().await;
}

/// A signal that comes too late.
pub async fn signals_after_the_end_are_no_error(harness: &dyn Harness) {
    let hello = start(harness, "late-signal", Program::Hello).await;
    hello.end().await;
    within(hello.runtime.signal(hello.id(), 15)).await.expect("no error");
    within(hello.runtime.signal(hello.id(), 9)).await.expect("no error");
    hello.remove().await;
}

/// Statistics are the container's own.
pub async fn a_spinner_uses_cpu(harness: &dyn Harness) {
    let spinner = start(harness, "busy", Program::Spin).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let stats = within(spinner.runtime.stats(spinner.id())).await.expect("stats");
        if stats.cpu_ns > 20_000_000 {
            assert!(stats.pids >= 1 && stats.memory_bytes >= stats.working_set_bytes, "{stats:?}");
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{stats:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    spinner.remove().await;
}
