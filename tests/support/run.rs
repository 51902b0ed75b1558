//! Running programs and waiting for conditions.

use std::fmt;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a story waits for a condition.
const DEADLINE: Duration = Duration::from_secs(60);
/// Pause between two checks of a condition: an eighth of the time so far, within these bounds. A check is often a kubectl,
/// which takes 60 ms of CPU that the awaited work needs.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The result of a program.
#[derive(Clone)]
pub struct Ran {
    /// Its command line.
    pub line: String,
    /// Its exit code; -1 when a signal ended it.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it printed to standard error.
    pub stderr: String,
}

impl Ran {
    /// The output of a program that succeeded; the test fails otherwise.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self}");
        self.stdout
    }

    /// The error output of a program that failed; the test fails otherwise.
    #[track_caller]
    pub fn fails(self) -> String {
        assert_ne!(self.code, 0, "{self}");
        self.stderr
    }

    /// Whether it succeeded.
    pub fn succeeded(&self) -> bool {
        self.code == 0
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "$ {}\n{}{}(code {})", self.line, self.stdout, self.stderr, self.code)
    }
}

/// Runs a program until it ends, with that text as its input.
#[track_caller]
pub fn run(command: &mut Command, input: Option<&str>) -> Ran {
    let line = format!("{command:?}");
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() }).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{line}: {error}"));
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        // A program may end before it has read all input. Its exit code decides.
        let _unread = stdin.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().expect("the program ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { line, code: output.status.code().unwrap_or(-1), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// Repeats the check until it returns a value. After the deadline the test fails with the last error.
#[track_caller]
pub fn eventually<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    eventually_within(DEADLINE * PATIENCE.get(), what, look)
}

thread_local! {
    static PATIENCE: std::cell::Cell<u32> = const { std::cell::Cell::new(1) };
}

/// Runs a story whose waits may take that many times longer than in other stories.
pub fn patiently<T>(times: u32, story: impl FnOnce() -> T) -> T {
    let before = PATIENCE.replace(times);
    let result = story();
    PATIENCE.set(before);
    result
}

/// [`eventually`] with its own deadline.
#[track_caller]
pub fn eventually_within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(last) if began.elapsed() > limit => panic!("{what} did not happen within {limit:?}; last seen:\n{last}"),
            Err(_) => {
                #[expect(clippy::disallowed_methods, reason = "the one place where stories poll, always with a deadline")]
                std::thread::sleep((began.elapsed() / 8).clamp(PAUSE_MIN, PAUSE_MAX));
            }
        }
    }
}
