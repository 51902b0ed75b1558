//! A whole machine in a test: QEMU without KVM. It runs Debian's kernel with the host's programs (its root is the
//! host's root, read-only, by 9p), its own disk and its own cgroup v2 tree, or a fresh Debian ([`Machine::debian`]).
//! Killing QEMU is a power cut: what the guest had not written to its disk is lost.
//!
//! The machine reaches no other host. Its one network device leads only to QEMU's own network. One port there is
//! forwarded to the machine's API server, and QEMU itself runs in a story's network namespace.

mod debian;

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::cluster::{programs, project, sample};
use crate::kubectl::Kubectl;
use crate::net::Net;
use crate::run::{Ran, eventually_within, patiently, run};

/// Where the machine's disk is mounted.
pub const DISK: &str = "/mnt";
/// The node's data directory.
pub const DATA: &str = "/mnt/skiff";

/// The machine's address and the host's address in QEMU's network.
const ADDRESS: &str = "10.0.2.15/24";
const GATEWAY: &str = "10.0.2.2";
/// The API server's port, in the machine and on the story's loopback.
const PORT: u16 = 6443;
const SETTINGS: [&str; 4] = ["-accel", "tcg,thread=multi", "-smp", "2"];
/// The CPU of a new machine: all that the emulator can do, AVX2 included. Without ERMS, the kernel clears memory by eight bytes a step
/// instead of one, which takes the emulator a fifth of the time.
const CPU: &str = "max,-erms";
/// A CPU with the first 64-bit processors' instructions: no SSSE3, no SSE4, no AVX, no AES.
pub const OLD_CPU: &str = "qemu64";
/// All processors' time-stamp counters are the host's one counter, so the kernel may use them as its clock. A processor
/// that spins in the kernel for a minute causes a panic, which ends QEMU. So does a kernel whose RCU makes no progress for
/// a minute. A processor that lost an interrupt while it was idle goes on at its next tick (`nohz=off`).
const KERNEL: &str = "console=ttyS0 quiet panic=-1 tsc=reliable nohz=off softlockup_panic=1 sysctl.kernel.watchdog_thresh=30 \
    rcupdate.rcu_cpu_stall_timeout=60 sysctl.kernel.panic_on_rcu_stall=1";
/// The kernel's messages before such a panic.
const HANGS: [&str; 2] = ["softlockup: hung tasks", "RCU Stall"];
/// How often a story is repeated because the emulator hung.
const HANGS_MAX: u32 = 2;

/// How long the boot and the first script may take, emulated and on two busy cores.
const BOOT_LIMIT: Duration = Duration::from_secs(240);
/// How long a command in the machine may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(240);
/// How long skiff may take in the machine until it is ready.
const READY_LIMIT: Duration = Duration::from_secs(300);

/// Runs a story of machines, whose waits may take that many times longer than in other stories. A story that failed
/// because the emulated kernel hung runs again.
///
/// One run ended with both processors spinning in Debian's kernel; 40 further boots on a busy host did not. In another run
/// the kernel's RCU thread was ready to run from the boot on and never ran. The likely cause of both is QEMU's emulation on
/// several threads. With one processor the stories take twice as long.
pub fn on_machines(times: u32, story: impl Fn()) {
    for hangs in 0..=HANGS_MAX {
        HUNG.set(false);
        match std::panic::catch_unwind(AssertUnwindSafe(|| patiently(times, &story))) {
            Ok(()) => return,
            Err(_) if HUNG.get() && hangs < HANGS_MAX => eprintln!("--- the emulated kernel hung: the story is told again"),
            Err(failure) => std::panic::resume_unwind(failure),
        }
    }
}

thread_local! {
    /// A machine of this thread's story hung when the story failed.
    static HUNG: Cell<bool> = const { Cell::new(false) };
}

/// A machine, switched on or off.
pub struct Machine {
    /// The namespace of QEMU and of kubectl.
    pub net: Net,
    dir: tempfile::TempDir,
    root: Root,
    cpu: &'static str,
    disk_limits: String,
    running: Option<Running>,
}

/// The root file system of a machine.
enum Root {
    /// The host's root. The machine's disk holds what its programs write.
    Host,
    /// A fresh Debian on a disk whose changes are lost when the machine is off. A second disk brings files.
    Debian,
}

struct Running {
    qemu: Child,
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Machine {
    /// A machine with an empty disk, switched off.
    pub fn new(disk_megabytes: u32) -> Self {
        assert!(!project().starts_with("/tmp"), "the machine has a /tmp of its own: clone the project elsewhere");
        let machine = Self::off(Root::Host);
        let disk = File::create(machine.dir.path().join("disk")).expect("a file");
        disk.set_len(u64::from(disk_megabytes) << 20).expect("a size");
        let mut format = Command::new("mkfs.ext4");
        run(format.args(["-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1"]).arg(machine.dir.path().join("disk")), None).ok();
        std::fs::write(machine.dir.path().join("init.sh"), include_str!("machine/init.sh")).expect("written");
        machine
    }

    fn off(root: Root) -> Self {
        // The directory is under the project, because the machine has its own /tmp and sees other files of the host.
        let parent = project().join("target");
        let dir = tempfile::Builder::new().prefix("skiff-machine-").tempdir_in(parent).expect("a directory");
        Self { net: Net::alone(), dir, root, cpu: CPU, disk_limits: String::new(), running: None }
    }

    /// From the next start on, the disk does at most that many operations and bytes a second.
    pub fn limit_disk(&mut self, iops: u32, bytes_per_second: u32) {
        self.disk_limits = format!(",throttling.iops-total={iops},throttling.bps-total={bytes_per_second}");
    }

    /// From the next start on, the machine has another CPU, with its name in QEMU.
    pub fn set_cpu(&mut self, cpu: &'static str) {
        self.cpu = cpu;
    }

    /// Switches the machine on, and waits until it can run commands.
    #[track_caller]
    pub fn boot(&mut self) {
        assert!(self.running.is_none(), "it is on");
        let socket = self.dir.path().join("commands");
        let _old = std::fs::remove_file(&socket);
        let log = File::options().create(true).append(true).open(self.console_path()).expect("a file");
        let mut command = self.net.command("qemu-system-x86_64");
        command.args(SETTINGS).args(["-cpu", self.cpu, "-m", "1536", "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio"]);
        let made = made();
        command.arg("-kernel").arg(made.join("vmlinuz")).arg("-initrd").arg(made.join("initramfs"));
        command.arg("-append").arg(format!("{KERNEL} {}", self.command_line(&made)));
        command.args(self.disks(&made));
        command.arg("-netdev").arg(format!("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{PORT}-:{PORT}"));
        command.args(["-device", "virtio-net-pci,netdev=net,romfile="]);
        command.args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=commands"]);
        command.arg("-chardev").arg(format!("socket,id=commands,path={},server=on,wait=off", socket.display()));
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
        let mut qemu = command.spawn().expect("QEMU starts");
        let to = eventually_within(BOOT_LIMIT, "QEMU listens", || {
            assert!(qemu.try_wait().expect("a child").is_none(), "QEMU ended:\n{}", self.console());
            UnixStream::connect(&socket).map_err(|error| error.to_string())
        });
        to.set_read_timeout(Some(BOOT_LIMIT)).expect("a time limit");
        let from = BufReader::new(to.try_clone().expect("a socket"));
        self.running = Some(Running { qemu, to, from });
        self.run("true").ok();
        self.running.as_ref().expect("it is on").to.set_read_timeout(Some(COMMAND_LIMIT)).expect("a time limit");
    }

    fn command_line(&self, made: &Path) -> String {
        match self.root {
            Root::Host => {
                let (init, made) = (self.dir.path().join("init.sh"), made.display());
                format!("skiff.init={} skiff.machine={made} skiff.address={ADDRESS} skiff.gateway={GATEWAY}", init.display())
            }
            Root::Debian => "skiff.disk=/dev/vda".to_owned(),
        }
    }

    /// QEMU does not sync the disks' files (`cache=unsafe`): the host's memory outlives QEMU.
    fn disks(&self, made: &Path) -> Vec<String> {
        let drive =
            |file: &Path, more: &str| ["-drive".to_owned(), format!("file={},if=virtio,format=raw,cache=unsafe{more}", file.display())];
        let dir = self.dir.path();
        match self.root {
            Root::Host => {
                let root = "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap".to_owned();
                [["-virtfs".to_owned(), root], drive(&dir.join("disk"), &self.disk_limits)].concat()
            }
            Root::Debian => [drive(&made.join("debian.img"), ",snapshot=on"), drive(&dir.join("files"), ",readonly=on")].concat(),
        }
    }

    /// Runs a shell script in the machine.
    #[track_caller]
    pub fn run(&mut self, script: &str) -> Ran {
        let answer = self.tell(script);
        let (code, output) = answer.unwrap_or_else(|error| panic!("$ {script}\nthe machine does not answer: {error}\n{}", self.console()));
        Ran { line: script.to_owned(), code, stdout: output, stderr: String::new() }
    }

    fn tell(&mut self, script: &str) -> std::io::Result<(i32, String)> {
        let running = self.running.as_mut().expect("it is on");
        running.to.write_all(format!("{}\n", STANDARD.encode(script)).as_bytes())?;
        let mut line = String::new();
        running.from.read_line(&mut line)?;
        let (code, output) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        let malformed = || std::io::Error::other(format!("{line:?}"));
        let output = STANDARD.decode(output).map_err(|_| malformed())?;
        Ok((code.parse().map_err(|_| malformed())?, String::from_utf8_lossy(&output).into_owned()))
    }

    /// Cuts the power now.
    pub fn cut_power(&mut self) {
        let mut running = self.running.take().expect("it is on");
        running.qemu.kill().expect("it is ours");
        running.qemu.wait().expect("it ends");
    }

    /// Shuts the machine down as an init system does: ends the processes and unmounts the disk.
    #[track_caller]
    pub fn shut_down(&mut self) {
        self.run("pkill -TERM -x skiff; for i in $(seq 600); do pgrep -x skiff > /dev/null || break; sleep 0.1; done").ok();
        let off = "(sleep 1; kill -9 -1; sleep 1; umount -a -r; echo o > /proc/sysrq-trigger) > /dev/null 2>&1 &";
        self.run(&format!("setsid sh -c '{off}'")).ok();
        let mut running = self.running.take().expect("it is on");
        eventually_within(COMMAND_LIMIT, "the machine is off", || match running.qemu.try_wait().expect("a child") {
            Some(_) => Ok(()),
            None => Err(self.console()),
        });
    }

    /// Starts `skiff up` with further flags and waits for its ready line. Then kubectl works.
    #[track_caller]
    pub fn start_skiff(&mut self, flags: &str) {
        let skiff = programs().join("skiff");
        let thresholds = if flags.contains("--eviction-hard") { "" } else { "--eviction-hard=" };
        let limits = format!("{thresholds} --image-gc-high-threshold=100");
        let log = "--log=info,hickory_server=warn";
        let start = format!(
            "mkdir -p {DATA}; : > {DATA}/out; setsid {} up --data-dir {DATA} {limits} {log} {flags} > {DATA}/out 2>> {DATA}/log < /dev/null &",
            skiff.display()
        );
        self.run(&start).ok();
        eventually_within(READY_LIMIT, "skiff is ready in the machine", || {
            let out = self.run(&format!("cat {DATA}/out; pgrep -x skiff > /dev/null || echo ENDED")).stdout;
            assert!(!out.contains("ENDED"), "skiff ended:\n{out}\n{}", self.log());
            if out.contains("skiff is ready") { Ok(()) } else { Err(self.log()) }
        });
        self.take_kubeconfig(&format!("{DATA}/admin.kubeconfig"));
    }

    /// Loads samples as `samples/NAME:latest`.
    #[track_caller]
    pub fn load_samples(&mut self, files: &[&str]) {
        let skiff = programs().join("skiff").display().to_string();
        for file in files {
            let name = file.split('.').next().expect("a name");
            self.run(&format!("{skiff} image import samples/{name}:latest {} --data-dir {DATA}", sample(file))).ok();
        }
    }

    /// The administrator's kubeconfig, for clients in [`Machine::net`].
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("admin.kubeconfig")
    }

    /// kubectl as the administrator, on the host.
    pub fn kubectl(&self) -> Kubectl<'_> {
        Kubectl::new(&self.net, self.kubeconfig())
    }

    /// The end of skiff's log.
    pub fn log(&mut self) -> String {
        self.run(&format!("tail -n 60 {DATA}/log")).stdout
    }

    /// The end of the output of the kernel and the first script.
    pub fn console(&self) -> String {
        let text = self.whole_console();
        let lines: Vec<&str> = text.lines().rev().take(40).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    fn whole_console(&self) -> String {
        let text = std::fs::read(self.console_path()).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn console_path(&self) -> PathBuf {
        self.dir.path().join("console")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        if failed && self.running.is_some() {
            let console = self.whole_console();
            HUNG.set(HUNG.get() || HANGS.iter().any(|message| console.contains(message)));
            eprintln!("--- the machine's console\n{}", self.console());
            if let Ok((_, log)) = self
                .tell(&format!("tail -n 80 {DISK}/*/log; mount; find /run/skiff | head -n 100; journalctl -q -u skiff -n 80 --no-pager"))
            {
                eprintln!("--- the end of skiff's log\n{log}");
            }
        }
        if let Some(mut running) = self.running.take() {
            // The kill fails if QEMU has ended already. Wait for its end in both cases.
            let _ended = running.qemu.kill();
            let _status = running.qemu.wait();
        }
    }
}

/// The directory with the kernel that `cargo xtask test` unpacked.
fn made() -> PathBuf {
    let dir = std::env::var_os("SKIFF_MACHINE").map_or_else(|| project().join("target/machine"), PathBuf::from);
    assert!(dir.join("made").exists(), "{} is missing: run `cargo xtask test power`", dir.display());
    dir
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(hangs: u32, failures: u32) -> (bool, u32) {
        let calls = Cell::new(0);
        let story = || {
            calls.set(calls.get() + 1);
            HUNG.set(calls.get() <= hangs);
            assert!(calls.get() > hangs.max(failures), "the story fails");
        };
        let ended = std::panic::catch_unwind(AssertUnwindSafe(|| on_machines(1, story)));
        (ended.is_ok(), calls.get())
    }

    #[test]
    fn a_story_is_repeated_for_a_hang_alone_and_twice_at_most() {
        assert_eq!(attempts(0, 0), (true, 1));
        assert_eq!(attempts(0, 1), (false, 1), "a failure without a hang");
        assert_eq!(attempts(1, 0), (true, 2));
        assert_eq!(attempts(1, 2), (false, 2), "a failure after a hang");
        assert_eq!(attempts(2, 0), (true, 3));
        assert_eq!(attempts(3, 0), (false, 3), "too many hangs");
    }
}
