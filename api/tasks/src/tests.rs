//! Tests of sets with failing tasks, and of pulses.

use std::time::Duration;

use super::*;

#[derive(Debug)]
struct NoDisk;

impl fmt::Display for NoDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no disk")
    }
}

impl Error for NoDisk {}

async fn forever() {
    std::future::pending::<()>().await;
}

/// The first failure. A failure must be reported within one second.
async fn failed(tasks: &Tasks) -> TaskFailure {
    tokio::time::timeout(Duration::from_secs(1), tasks.failed()).await.expect("a failure is seen within a second")
}

/// The metrics of the process as text.
fn metrics() -> String {
    let mut families = api_metrics::Families::default();
    api_metrics::add_process(&mut families);
    families.text()
}

#[tokio::test]
async fn the_first_failure_of_a_set_is_reported() {
    let tasks = Tasks::new(CancellationToken::new());
    tasks.own("steady", forever());
    tasks.own("fallible", async { Err::<(), _>(std::io::Error::other(NoDisk)) });
    let first = failed(&tasks).await;
    assert_eq!(first.to_string(), "task fallible failed");
    let source = first.source().expect("its source");
    assert!(source.is::<std::io::Error>(), "the error itself, with its type");
    assert_eq!(source.to_string(), "no disk");
    tasks.own("later", async {});
    tokio::time::timeout(Duration::from_secs(1), async {
        while !metrics().contains("{reason=\"early_end\",task=\"later\"} 1\n") {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the later failure is counted");
    assert_eq!(tasks.failure().map(|failure| failure.task()), Some("fallible"), "the first one stays");
    assert!(metrics().contains("{reason=\"error\",task=\"fallible\"} 1\n"), "{}", metrics());
}

#[tokio::test]
async fn panics_and_early_ends_are_failures() {
    panics::install_hook();
    for (name, fault, expected) in [
        ("panicking", fault::Fault::Panic, "task panicking panicked: a fault was injected\ninto panicking"),
        ("ending", fault::Fault::End, "task ending ended by itself"),
    ] {
        let tasks = Tasks::new(CancellationToken::new());
        tasks.own("other", forever());
        tasks.own(name, forever());
        tokio::task::yield_now().await;
        fault::inject(name, fault);
        assert_eq!(failed(&tasks).await.to_string(), expected);
        assert_eq!(tasks.len(), 1, "the other task goes on");
    }
    assert!(metrics().contains("skiff_task_failures_total{reason=\"panic\",task=\"panicking\"} 1\n"), "{}", metrics());
}

#[tokio::test]
async fn a_fault_waits_for_a_task_that_begins_later() {
    let tasks = Tasks::new(CancellationToken::new());
    fault::inject("late", fault::Fault::End);
    tasks.own("late", forever());
    assert_eq!(failed(&tasks).await.task(), "late");
}

#[tokio::test]
async fn tasks_end_as_they_should_once_their_set_is_stopped() {
    let stop = CancellationToken::new();
    let tasks = Tasks::new(stop.clone());
    tasks.own("until stopped", stop.clone().cancelled_owned());
    let answered = tasks.request("one request", async { 7 });
    assert_eq!(answered.await.ok(), Some(7));
    assert!(tasks.failure().is_none(), "a request ends when it likes");
    stop.cancel();
    tasks.wait().await;
    assert!(tasks.failure().is_none());
}

#[tokio::test]
async fn a_request_that_panics_is_counted_and_ends_nothing_else() {
    panics::install_hook();
    let tasks = Tasks::new(CancellationToken::new());
    tasks.own("steady", forever());
    let failing = async { std::panic::panic_any("a bug") };
    assert!(tasks.request::<_>("request", failing).await.is_err_and(|error: tokio::task::JoinError| error.is_panic()));
    assert!(blocking("call", || std::panic::panic_any("a bug")).await.is_err_and(|error: tokio::task::JoinError| error.is_panic()));
    let counted = metrics();
    for task in ["request", "call"] {
        assert!(counted.contains(&format!("skiff_task_failures_total{{reason=\"panic\",task=\"{task}\"}} 1\n")), "{counted}");
    }
    assert_eq!((tasks.failure().is_none(), tasks.len()), (true, 1));
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_stands_still_has_no_pulse_and_one_that_comes_back_has() {
    let (pulse, bound) = (Arc::new(Pulse::default()), Duration::from_secs(15));
    assert!(pulse.is_alive(bound).await);
    tokio::time::advance(Duration::from_secs(14)).await;
    assert!(pulse.is_alive(bound).await);
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert!(!pulse.is_alive(bound).await, "nothing beats");
    // As after a stopped process: the check comes before the loop's next iteration.
    let beating = Arc::clone(&pulse);
    let rotation = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        beating.beat();
    });
    assert!(pulse.is_alive(bound).await);
    rotation.await.expect("turned");
    assert_eq!(pulse.age(), Duration::ZERO);
}
