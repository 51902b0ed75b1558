//! Processes that may not be our children, identified by pid, start time and boot id together, so that a reused pid is never
//! mistaken for them. Waiting is by pidfd, so it works for adopted processes, and never polls.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The identity of one process: no later process of any boot equals it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRef {
    /// Its pid in the node's pid namespace.
    pub pid: i32,
    /// When it started, in clock ticks since boot (`/proc/<pid>/stat`, field 22).
    pub start_ticks: u64,
    /// The boot it belongs to (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
}

impl ProcessRef {
    /// The process that has `pid` now.
    pub fn read(pid: i32) -> io::Result<Self> {
        let stat = read_stat(pid)?;
        Ok(Self { pid, start_ticks: stat.start_ticks, boot_id: boot_id()?.to_owned() })
    }

    /// This process, by its pid in the namespace whose `/proc` is mounted: the node's.
    pub fn current() -> io::Result<Self> {
        let pid = fs::read_link("/proc/self")?;
        let pid = pid.to_str().and_then(|pid| pid.parse().ok()).ok_or_else(|| io::Error::other("/proc/self is not a number"))?;
        Self::read(pid)
    }

    /// As text without a line break, for [`ProcessRef::decode`].
    pub fn encode(&self) -> String {
        self.joined(' ')
    }

    /// From the text of [`ProcessRef::encode`].
    pub fn decode(text: &str) -> Option<Self> {
        Self::split(text, ' ')
    }

    /// As a part of the name of a file or cgroup, for [`ProcessRef::is_alive_by_name`]: hexadecimal digits and hyphens.
    pub fn encode_name(&self) -> String {
        self.joined('-')
    }

    /// Whether the process of a name by [`ProcessRef::encode_name`] still runs. No pid alone is such a name: another process may have it.
    pub fn is_alive_by_name(name: &str) -> bool {
        Self::split(name, '-').is_some_and(|process| process.is_alive())
    }

    fn joined(&self, separator: char) -> String {
        format!("{}{separator}{}{separator}{}", self.pid, self.start_ticks, self.boot_id)
    }

    /// The separator may be in the boot id.
    fn split(text: &str, separator: char) -> Option<Self> {
        let (pid, rest) = text.split_once(separator)?;
        let (start_ticks, boot_id) = rest.split_once(separator)?;
        let pid = pid.parse().ok().filter(|&pid| pid > 0)?;
        Some(Self { pid, start_ticks: start_ticks.parse().ok()?, boot_id: boot_id.to_owned() })
    }

    /// Whether it still runs. A zombie does not.
    pub fn is_alive(&self) -> bool {
        self.state().is_some_and(|state| !matches!(state, 'Z' | 'X' | 'x'))
    }

    /// The state in `/proc` of this very process; `None` when it is gone, whichever process has its pid now.
    fn state(&self) -> Option<char> {
        let same_boot = boot_id().is_ok_and(|boot| boot == self.boot_id);
        let stat = same_boot.then(|| read_stat(self.pid)).and_then(Result::ok)?;
        (stat.start_ticks == self.start_ticks).then_some(stat.state)
    }

    /// A handle to it; `None` when it has ended.
    pub fn open(&self) -> io::Result<Option<Pidfd>> {
        // Checked first: a thread may have the pid by now, and threads have no handle.
        if !self.is_alive() {
            return Ok(None);
        }
        match Pidfd::open(self.pid) {
            // The handle pins the process; afterwards the identity is checked.
            Ok(handle) => Ok(self.is_alive().then_some(handle)),
            Err(_) if !self.is_alive() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reaps the process if it has ended and is our child (as its parent, or as PID 1). A process that merely has the same pid
    /// is left to its own parent.
    pub fn reap(&self) {
        if self.pid <= 0 || self.state() != Some('Z') {
            return;
        }
        // Any result is fine: not ours, or reaped already.
        let _reaped = waitpid(Pid::from_raw(self.pid), Some(WaitPidFlag::WNOHANG));
    }

    /// Waits until it has ended, then reaps it if it is ours. Cancel-safe.
    pub async fn ended(&self) -> io::Result<()> {
        if let Some(handle) = self.open()? {
            handle.ended().await?;
        }
        self.reap();
        Ok(())
    }
}

/// Closes all descriptors but the three standard streams, so that a process keeps nothing that its starter left open by mistake.
/// Call it before the process opens anything.
pub fn close_inherited() -> io::Result<()> {
    // SAFETY: no value of this process owns a descriptor from 3 on yet.
    let closed = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    Errno::result(closed)?;
    Ok(())
}

/// The kernel's name of the present boot, which is read once.
pub fn boot_id() -> io::Result<&'static str> {
    static BOOT_ID: OnceLock<String> = OnceLock::new();
    if let Some(id) = BOOT_ID.get() {
        return Ok(id);
    }
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
    Ok(BOOT_ID.get_or_init(|| id))
}

/// A pidfd: signals and waits reach this process or no process.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Pidfd {
    /// Opens the process that has `pid` now.
    pub fn open(pid: i32) -> io::Result<Self> {
        // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = i32::try_from(Errno::result(fd)?).map_err(io::Error::other)?;
        // SAFETY: the kernel just made this descriptor for us; nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends a signal. To a process that has ended it is no error.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        // SAFETY: a valid descriptor, an integer, no siginfo, no flags.
        let sent =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, std::ptr::null::<libc::siginfo_t>(), 0) };
        match Errno::result(sent) {
            Ok(_) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the process has ended (also as a zombie). Cancel-safe.
    pub async fn ended(&self) -> io::Result<()> {
        // SAFETY: the descriptor is borrowed from `self`, which outlives the registration, and stays the same.
        let registered = unsafe { AsyncFd::register_with_interest(self.0.as_fd(), Interest::READABLE) };
        let readable = registered.map_err(|error| error.into_parts().1)?;
        readable.readable().await?.retain_ready();
        Ok(())
    }

    /// Blocks until the process has ended or the time is over; whether it has ended.
    pub fn ended_within(&self, timeout_ms: u16) -> io::Result<bool> {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(timeout_ms)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

struct Stat {
    state: char,
    start_ticks: u64,
}

fn read_stat(pid: i32) -> io::Result<Stat> {
    let line = fs::read(format!("/proc/{pid}/stat"))?;
    parse_stat(&line).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat is not as expected")))
}

/// The command name is the process' own choice: any bytes, spaces and parentheses too. Fields are counted from the last `)`.
fn parse_stat(line: &[u8]) -> Option<Stat> {
    let end_of_name = line.iter().rposition(|byte| *byte == b')')?;
    let rest = line.get(end_of_name + 1..)?;
    let mut fields = str::from_utf8(rest).ok()?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // `state` is field 3, the start time is field 22.
    let start_ticks = fields.nth(18)?.parse().ok()?;
    Some(Stat { state, start_ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_parentheses_does_not_confuse_the_fields() {
        let line = "42 (a) b (c) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 1 2";
        let stat = parse_stat(line.as_bytes()).unwrap();
        assert_eq!((stat.state, stat.start_ticks), ('S', 98765));
        let without_name = line.replace(')', "");
        assert!(parse_stat(without_name.as_bytes()).is_none(), "a line without a name is none");
    }

    /// A container's process names itself: that must not make it look gone, so that nobody can signal or adopt it.
    #[test]
    fn a_command_name_that_is_not_utf8_hides_no_process() {
        use std::os::unix::ffi::OsStrExt;
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(std::ffi::OsStr::from_bytes(b"\xff\xfe) Z"));
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("100").spawn().unwrap();
        let process = ProcessRef::read(child.id().cast_signed());
        let is_alive = process.as_ref().is_ok_and(ProcessRef::is_alive);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_alive, "{process:?}");
    }

    #[test]
    fn a_process_is_the_same_after_it_was_text() {
        let own = ProcessRef::current().unwrap();
        assert_eq!(ProcessRef::decode(&own.encode()), Some(own.clone()));
        let name = own.encode_name();
        assert!(name.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'), "{name}");
        assert_eq!(ProcessRef::split(&name, '-'), Some(own));
        assert!(ProcessRef::is_alive_by_name(&name) && !ProcessRef::is_alive_by_name(&std::process::id().to_string()));
        for nonsense in ["", "1", "1 2", "x 2 b", "-1 2 b", "0 2 b"] {
            assert_eq!(ProcessRef::decode(nonsense), None, "{nonsense:?}");
            assert_eq!(ProcessRef::split(&nonsense.replace(' ', "-"), '-'), None, "{nonsense:?}");
        }
    }

    #[test]
    fn another_process_with_the_same_pid_is_not_it() {
        let own = ProcessRef::read(std::process::id().cast_signed()).unwrap();
        assert!(own.is_alive());
        assert!(!ProcessRef { start_ticks: own.start_ticks + 1, ..own.clone() }.is_alive());
        assert!(!ProcessRef { boot_id: "earlier".into(), ..own }.is_alive());
    }

    /// The pid of a container from before a power cut may be anything now.
    #[test]
    fn a_pid_that_was_given_to_somebody_else_is_nobody() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            sender.send(nix::unistd::gettid().as_raw()).unwrap();
            let _ended = ended.recv();
        });
        let thread_id = receiver.recv().unwrap();
        let boot_id = boot_id().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let reused = child.id().cast_signed();
        for pid in [thread_id, reused, 0, -1, i32::MAX] {
            for boot_id in ["earlier", boot_id] {
                let gone = ProcessRef { pid, start_ticks: 1, boot_id: boot_id.into() };
                assert!(gone.open().unwrap().is_none(), "{gone:?}");
                gone.reap();
            }
        }
        assert!(child.wait().unwrap().success(), "the child's end is its parent's to learn");
        drop(end);
        thread.join().unwrap();
    }

    #[tokio::test]
    #[expect(clippy::zombie_processes, reason = "taking the zombie is what is tested")]
    async fn waits_for_a_child_and_takes_its_zombie() {
        let child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let child = ProcessRef::read(child.id().cast_signed()).unwrap();
        child.open().unwrap().unwrap().signal(libc::SIGKILL).unwrap();
        child.ended().await.unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{}", child.pid)).exists());
        assert!(child.open().unwrap().is_none());
    }
}
