//! The battery that every runtime passes: the promises of [`Runtime`] as functions over
//! `&dyn Runtime`. A runtime's tests implement [`Harness`] and call [`battery!`](crate::battery!),
//! which makes each function a test of its own.
#![expect(clippy::expect_used, clippy::panic, reason = "these functions are tests; a failed expectation is their result")]

mod cpus;
mod life;
mod logs;
mod recovery;
mod rules;
mod trouble;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runtimes_contract::{
    ContainerId, ContainerSpec, ContainerState, ContainerStatus, Content, Exit, Processes, Resources, Sandbox, Security, User,
};
use runtimes_contract::{Runtime, RuntimeError};

pub use cpus::*;
pub use life::*;
pub use logs::*;
pub use recovery::*;
pub use rules::*;
pub use trouble::*;

/// No call takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program of a test. Each runtime has its own content for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Writes the line `hello` to stdout and `warned` to stderr, ends with 0.
    Hello,
    /// Writes its arguments after the first, joined by spaces, and a newline, ends with 0.
    Echo,
    /// Ends with this code.
    ExitWith(u8),
    /// Waits for ever without using CPU, and ends at SIGTERM.
    Sleep,
    /// Computes for ever.
    Spin,
    /// Writes the line `tick` to stdout every few ms, for ever.
    Ticks,
    /// Writes 40,000 times `x`, a newline, and `end` without one; ends with 0.
    LongLine,
    /// Allocates memory until the allocation fails or the process is killed.
    Hog,
    /// Content that cannot be started, or not even created.
    Broken,
}

/// A runtime under test, in scratch directories of its own.
pub trait Harness: Send + Sync {
    /// Whether the guest of that process has started so far that SIGTERM reaches it. The kernel drops signals without a handler
    /// for the first process of a pid namespace, and a shell needs a moment to install one.
    fn hears_signals(&self, _pid: i32) -> bool {
        true
    }

    /// The runtime.
    fn runtime(&self) -> Arc<dyn Runtime>;

    /// A new runtime over the same directories, as after a crash.
    fn reopened(&self) -> Arc<dyn Runtime>;

    /// A directory for logs.
    fn scratch(&self) -> &Path;

    /// A cgroup for the container of that id alone.
    fn cgroup(&self, id: &str) -> String;

    /// Content and arguments.
    fn program(&self, program: Program) -> (Content, Vec<String>);

    /// The runtime's abilities.
    fn abilities(&self) -> Abilities;

    /// The arguments of a further process that writes `inside` and ends with 7. What the process needs is added to the container's spec.
    fn further(&self, _spec: &mut ContainerSpec) -> Vec<String> {
        ["/bin/sh", "-c", "echo inside; exit 7"].map(str::to_owned).to_vec()
    }
}

/// The differences between runtimes.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// Containers are processes of this machine, in cgroups, with log files.
    pub real: bool,
    /// Code of a [`Program::Sleep`] after SIGTERM.
    pub terminated_code: i32,
    /// The kernel kills [`Program::Hog`] (otherwise its allocation fails and it ends by itself).
    pub hog_is_killed: bool,
}

/// A spec with nothing special in it.
pub fn plain_spec(id: &str) -> ContainerSpec {
    ContainerSpec {
        id: ContainerId(id.into()),
        labels: [("name".to_owned(), id.to_owned())].into(),
        sandbox: Sandbox { network: None, ipc: None, uts: None, user: None, hostname: "pod".into() },
        processes: Processes::Own,
        cgroup: format!("skiff-test/{id}"),
        content: Content::Linux { rootfs: "/".into() },
        args: vec!["run".into()],
        env: Vec::new(),
        working_dir: "/".into(),
        mounts: Vec::new(),
        devices: Vec::new(),
        annotations: Default::default(),
        user: User::default(),
        resources: Resources::default(),
        oom_score_adj: 0,
        probe_token: String::new(),
        http: Default::default(),
        proposals: Default::default(),
        fuel: None,
        outbound_hosts: None,
        keyvalue_redis: None,
        security: Security::default(),
        log_path: "/dev/null".into(),
        ports: Vec::new(),
        stdin: false,
        stdin_once: false,
        tty: false,
    }
}

/// The spec of a program under a harness.
pub fn spec_of(harness: &dyn Harness, id: &str, program: Program) -> ContainerSpec {
    let (content, args) = harness.program(program);
    let log_path = harness.scratch().join(format!("{id}.log"));
    ContainerSpec { content, args, cgroup: harness.cgroup(id), log_path, ..plain_spec(id) }
}

/// Makes each function of the battery a test. `$make` returns a [`Harness`].
#[macro_export]
macro_rules! battery {
    ($make:expr) => {
        $crate::battery!(@tests $make,
            a_container_says_hello_and_ends, exit_codes_are_learned, arguments_are_passed, nothing_runs_before_start,
            a_sleeper_runs_until_terminated, a_spinner_is_killed, signals_after_the_end_are_no_error, a_spinner_uses_cpu,
            ids_are_unique, unknown_ids_are_not_found, a_container_starts_once, wait_wants_a_started_container,
            several_wait_and_some_give_up, removal_kills_and_frees_and_may_be_repeated, a_created_container_can_be_removed,
            log_lines_are_cri_lines, a_rotated_log_is_reopened, long_lines_are_cut_and_the_rest_is_partial,
            a_running_container_is_adopted, an_end_that_nobody_watched_is_learned, a_killed_shim_differs_from_an_end,
            no_descriptor_of_the_starter_is_inherited, a_created_container_is_found_again,
            broken_content_is_rejected_and_leaves_nothing, a_memory_hog_is_stopped, many_start_at_once, a_further_process_runs,
            a_container_runs_on_its_cpus_and_then_on_others,
            output_reaches_everyone_who_is_attached, who_has_ended_or_not_begun_is_not_attached_to,
        );
    };
    (@tests $make:expr, $($name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let harness = $make;
                $crate::$name(&harness).await;
            }
        )*
    };
}

/// A container that the test started.
struct Running {
    runtime: Arc<dyn Runtime>,
    spec: ContainerSpec,
}

impl Running {
    fn id(&self) -> &ContainerId {
        &self.spec.id
    }

    async fn status(&self) -> ContainerStatus {
        find(&*self.runtime, self.id()).await.expect("the container is listed")
    }

    async fn end(&self) -> Exit {
        within(self.runtime.wait(self.id())).await.expect("wait")
    }

    async fn remove(&self) {
        within(self.runtime.remove(self.id())).await.expect("remove");
    }

    fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.spec.log_path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The log without its times.
    fn said(&self) -> Vec<String> {
        self.log().iter().map(|line| line.split_once(' ').expect("a time, then the rest").1.to_owned()).collect()
    }
}

async fn start(harness: &dyn Harness, id: &str, program: Program) -> Running {
    start_spec(harness, spec_of(harness, id, program)).await
}

async fn start_spec(harness: &dyn Harness, spec: ContainerSpec) -> Running {
    let runtime = harness.runtime();
    within(runtime.create(&spec)).await.expect("create");
    within(runtime.start(&spec.id)).await.expect("start");
    Running { runtime, spec }
}

async fn find(runtime: &dyn Runtime, id: &ContainerId) -> Option<ContainerStatus> {
    within(runtime.list()).await.expect("list").into_iter().find(|status| status.id == *id)
}

/// The first process of a container, if it runs.
pub async fn pid_of(runtime: &dyn Runtime, id: &ContainerId) -> Option<i32> {
    match find(runtime, id).await?.state {
        ContainerState::Running { pid } => Some(pid),
        _ => None,
    }
}

fn pid(status: &ContainerStatus) -> i32 {
    match status.state {
        ContainerState::Running { pid } => pid,
        ref other => panic!("not running: {other:?}"),
    }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it hangs")
}

/// Polls a condition that has no notification.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn is_not_found<T>(result: Result<T, RuntimeError>) -> bool {
    matches!(result, Err(RuntimeError::NotFound(_)))
}
