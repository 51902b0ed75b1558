//! Clusters: skiff processes in a story's namespaces.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::disk::Disk;
use crate::kubectl::Kubectl;
use crate::net::Net;
pub use crate::project::project;
use crate::run::{Ran, eventually, eventually_within, run};
use crate::supervisor::Supervisor;
use crate::trace::{self, Trace};

/// How long skiff may take until it is ready: a debug build on a busy machine.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// The directory of the programs that `cargo xtask test` built.
pub fn programs() -> PathBuf {
    std::env::var_os("SKIFF_PROGRAMS").map_or_else(|| project().join("target/debug"), PathBuf::from)
}

/// A guest or image that `cargo xtask samples` built.
pub fn sample(file: &str) -> String {
    let dir = std::env::var_os("SKIFF_SAMPLES").map_or_else(|| project().join("target/samples"), PathBuf::from);
    let path = dir.join(file);
    assert!(path.exists(), "{} is missing: run `cargo xtask samples`", path.display());
    path.display().to_string()
}

/// Python with the official client, which `cargo xtask test` installed.
pub fn python() -> PathBuf {
    let path = std::env::var_os("SKIFF_PYTHON").map_or_else(|| project().join("target/venv/kubernetes/bin/python"), PathBuf::from);
    assert!(path.exists(), "{} is missing: run `cargo xtask test python`", path.display());
    path
}

/// A program that `cargo xtask test` fetched: Helm, or a kubectl newer than the system's.
pub fn tool(name: &str) -> PathBuf {
    let dir = std::env::var_os("SKIFF_TOOLS").map_or_else(|| project().join("target/tools/clients"), PathBuf::from);
    let path = dir.join(name);
    assert!(path.exists(), "{} is missing: run `cargo xtask test helm`", path.display());
    path
}

/// The directory of the toolchains of guests that `cargo xtask test` installed.
pub fn toolchains() -> PathBuf {
    let dir = std::env::var_os("SKIFF_TOOLCHAINS").map_or_else(|| project().join("target/venv/toolchains/bin"), PathBuf::from);
    assert!(dir.exists(), "{} is missing: run `cargo xtask test toolchains`", dir.display());
    dir
}

/// One skiff process and its data directory.
pub struct Cluster {
    /// The namespace of the process.
    pub net: Net,
    /// The disk of the images, if they have one of their own. It is unmounted before that of the data directory.
    image_disk: Option<Disk>,
    /// The disk of the data directory, if it has one of its own. It is unmounted before the directory is removed.
    disk: Option<Disk>,
    dir: Option<tempfile::TempDir>,
    args: Vec<String>,
    env: Vec<(String, PathBuf)>,
    supervisor: Option<Supervisor>,
    child: Option<Child>,
    prefix: Option<String>,
}

impl Cluster {
    /// `skiff up` in its own namespace, ready, with the sample images loaded.
    pub fn up() -> Self {
        Self::up_with(&[])
    }

    /// [`Cluster::up`] with further flags.
    pub fn up_with(flags: &[&str]) -> Self {
        let mut args = vec!["up"];
        args.extend(flags);
        let mut cluster = Self::prepared(Net::alone(), &args);
        cluster.start();
        cluster.load_samples();
        cluster
    }

    /// A process that is not started yet.
    pub fn prepared(net: Net, args: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("skiff-it-").tempdir().expect("a directory");
        Self {
            net,
            image_disk: None,
            disk: None,
            dir: Some(dir),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            env: Vec::new(),
            supervisor: None,
            child: None,
            prefix: None,
        }
    }

    /// [`Cluster::prepared`] with the data directory on its own disk of that size.
    pub fn prepared_on_disk(net: Net, args: &[&str], megabytes: u32) -> Self {
        let mut cluster = Self::prepared(net, args);
        cluster.disk = Some(Disk::mounted(cluster.data_dir(), megabytes));
        cluster
    }

    /// Mounts a disk of that size for the images, before the first start.
    pub fn mount_image_disk(&mut self, megabytes: u32) {
        let images = self.data_dir().join("images");
        std::fs::create_dir(&images).expect("a directory");
        self.image_disk = Some(Disk::mounted(&images, megabytes));
    }

    /// The disk of the data directory.
    pub fn disk(&self) -> &Disk {
        self.disk.as_ref().expect("a cluster that was prepared on a disk")
    }

    /// Whether the process runs.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().expect("a child").is_none())
    }

    /// The exit code of a process that has ended.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().expect("a child"));
        ended.map(|status| status.code().unwrap_or(-1))
    }

    /// Starts a process again that has ended.
    #[track_caller]
    pub fn start_again(&mut self) {
        assert!(self.exit_code().is_some(), "it runs");
        self.forget();
        self.start();
    }

    /// Forgets a process that has ended, so that another can be started.
    pub(crate) fn forget(&mut self) {
        self.child = None;
        self.forget_ready_line();
    }

    /// Sets an environment variable of the process. The next start uses it.
    pub fn set_env(&mut self, name: &str, value: PathBuf) {
        self.env.push((name.to_owned(), value));
    }

    /// Has the process supervised, from its next start on.
    pub fn supervise(&mut self) -> Supervisor {
        self.supervisor.get_or_insert_default().clone()
    }

    /// The flags of an agent that joins this server.
    pub fn join_flags(&self) -> [String; 2] {
        let token = std::fs::read_to_string(self.data_dir().join("node-token")).expect("the join token");
        [format!("--server=https://{}:6443", self.net.ip), format!("--token={}", token.trim())]
    }

    /// Its data directory.
    pub fn data_dir(&self) -> &Path {
        self.dir.as_ref().expect("there until dropped").path()
    }

    /// The directory of its device plugins.
    pub fn device_plugin_dir(&self) -> PathBuf {
        self.data_dir().join("device-plugins")
    }

    /// Starts the process and waits for its ready line; returns how long that took.
    #[track_caller]
    pub fn start(&mut self) -> Duration {
        let began = Instant::now();
        self.spawn();
        eventually_within(READY_LIMIT, "the ready line of skiff", || {
            let out = self.out();
            let ended = self.child.as_mut().and_then(|child| child.try_wait().expect("a child")).is_some();
            assert!(!ended, "skiff ended:\n{out}\n{}", self.log());
            if out.contains("ready") { Ok(()) } else { Err(self.log()) }
        });
        let took = began.elapsed();
        self.prefix = self.prefix.take().or_else(|| self.seen_prefix());
        took
    }

    /// Starts the process and does not wait.
    pub fn spawn(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let (out, log) = (self.file("out"), self.file("log"));
        let mut command = self.skiff_command();
        command.args(&self.args);
        if matches!(self.args.first().map(String::as_str), Some("up" | "agent")) {
            // The result of a story must not depend on how full the machine's disk is.
            let has_thresholds = self.args.iter().any(|arg| arg.starts_with("--eviction-hard"));
            command.args((!has_thresholds).then_some("--eviction-hard=")).arg("--image-gc-high-threshold=100");
            // Device plugins of this agent alone; the machine has one directory by default.
            command.arg("--device-plugin-dir").arg(self.device_plugin_dir());
        }
        if !self.args.iter().any(|arg| arg.starts_with("--log=")) {
            command.arg("--log=info,hickory_server=warn");
        }
        command.arg("--data-dir").arg(self.data_dir()).env("RUST_BACKTRACE", "0");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(out).stderr(log);
        self.child = Some(match &self.supervisor {
            Some(supervisor) => supervisor.spawn(&mut command),
            None => command.spawn().expect("skiff starts"),
        });
    }

    fn file(&self, name: &str) -> File {
        File::options().create(true).append(true).open(self.data_dir().join(name)).expect("a file")
    }

    fn out(&self) -> String {
        std::fs::read_to_string(self.data_dir().join("out")).unwrap_or_default()
    }

    /// The log of the process.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.data_dir().join("log")).unwrap_or_default()
    }

    /// Kills the process by `SIGKILL`, as a crash would.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
        self.forget_ready_line();
    }

    /// Removes what a power cut removes, on a machine that stays on: the process, its containers, mounts and
    /// namespaces. Files stay.
    pub fn lose_power(&mut self) {
        self.kill();
        let run_dir = std::fs::read_link(self.data_dir().join("run")).expect("it has run");
        let prefix = run_dir.file_name().expect("a name").to_string_lossy().into_owned();
        let script = format!(
            "for round in 1 2 3 4 5; do \
               find /sys/fs/cgroup -path '*/skiff/{prefix}/*' -name cgroup.procs -exec cat {{}} + | sort -u | xargs -r kill -9; \
               for shim in $(pgrep skiff-shim); do grep -q '{dir}' /proc/$shim/cmdline && kill -9 $shim; done; \
               sleep 0.1; \
             done; \
             find /sys/fs/cgroup -depth -type d -path '*/skiff/{prefix}*' -exec rmdir {{}} +; \
             awk '{{print $5}}' /proc/self/mountinfo | grep -e '{dir}' -e 'skiff/{prefix}/' | tac | xargs -r umount -l",
            dir = self.data_dir().display(),
        );
        let ran = run(Command::new("sh").args(["-c", &script]), None);
        assert!(self.shims().is_empty(), "{ran}");
        self.net.run("sh", &["-c", &format!("ip -o link | grep -o '{prefix}-br[0-9a-f]*' | xargs -rn1 ip link del")]);
        self.net.run("nft", &["flush", "ruleset"]);
    }

    /// Stops the process with `SIGTERM`; returns its exit code.
    pub fn stop(&mut self) -> i32 {
        let mut child = self.child.take().expect("it runs");
        run(Command::new("kill").args(["-TERM", &child.id().to_string()]), None).ok();
        let code = eventually("the end of skiff after SIGTERM", || {
            child.try_wait().expect("a child").map(|status| status.code().unwrap_or(-1)).ok_or_else(|| self.log())
        });
        self.forget_ready_line();
        code
    }

    /// Prints what helps to find why a story failed.
    fn tell(&self) {
        let log = self.log();
        let tail: Vec<&str> = log.lines().rev().take(60).collect();
        eprintln!("--- end of skiff's log ({})", self.args.join(" "));
        tail.iter().rev().for_each(|line| eprintln!("{line}"));
        let kubeconfig = self.data_dir().join("admin.kubeconfig");
        if self.child.is_some() && kubeconfig.exists() {
            let kubectl = Kubectl::new(&self.net, kubeconfig);
            for args in [&["describe", "pods,nodes", "-A"][..], &["get", "endpointslices", "-A", "-o", "yaml"]] {
                eprintln!("{}", kubectl.run(&[args, &["--request-timeout=5s"]].concat()));
            }
        }
        for (program, args) in [("nft", &["list", "ruleset"][..]), ("ip", &["addr"]), ("ip", &["route"]), ("ss", &["-tlnp"])] {
            eprintln!("{}", self.net.run(program, args));
        }
    }

    fn forget_ready_line(&self) {
        std::fs::write(self.data_dir().join("out"), "").expect("writes");
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    fn skiff_command(&self) -> Command {
        self.net.command(&programs().join("skiff").display().to_string())
    }

    /// Runs another skiff command on the same data directory.
    #[track_caller]
    pub fn skiff(&self, args: &[&str]) -> Ran {
        run(self.skiff_command().args(args).arg("--data-dir").arg(self.data_dir()), None)
    }

    /// Loads every sample as `samples/NAME:latest`.
    #[track_caller]
    pub fn load_samples(&self) {
        self.load(&["hello.wasm", "job.wasm", "web.wasm", "lookup.wasm", "echo.wasm", "tools.tar"]);
    }

    /// Loads samples as `samples/NAME:latest`.
    #[track_caller]
    pub fn load(&self, files: &[&str]) {
        for file in files {
            let name = file.split('.').next().expect("a name");
            self.skiff(&["image", "import", &format!("samples/{name}:latest"), &sample(file)]).ok();
        }
    }

    /// kubectl as the administrator.
    pub fn kubectl(&self) -> Kubectl<'_> {
        Kubectl::new(&self.net, self.data_dir().join("admin.kubeconfig"))
    }

    /// kubectl as another user; `credentials` is the kubeconfig's `user`.
    pub fn kubectl_as(&self, name: &str, credentials: &Value) -> Kubectl<'_> {
        let admin = std::fs::read_to_string(self.data_dir().join("admin.kubeconfig")).expect("the administrator's kubeconfig");
        let mut kubeconfig: Value = serde_json::from_str(&admin).expect("JSON");
        kubeconfig["users"][0]["user"] = credentials.clone();
        let path = self.data_dir().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, kubeconfig.to_string()).expect("writes");
        Kubectl::new(&self.net, path)
    }

    /// What the cluster has on the machine now: see [`Trace`].
    pub fn trace(&self) -> Trace {
        let dir = self.data_dir().display().to_string();
        let mut marks = vec![dir.as_str()];
        marks.extend(self.prefix.as_deref());
        Trace::take(&self.net, &marks)
    }

    /// Process ids of its containers' shims.
    pub fn shims(&self) -> BTreeSet<String> {
        let dir = self.data_dir().display().to_string();
        trace::shims(&|line| line.contains(&dir))
    }

    /// The prefix in the names of its links, tables and cgroups, read from the name of its DNS link.
    fn seen_prefix(&self) -> Option<String> {
        let links = self.net.run("ip", &["-o", "link"]).ok();
        links.lines().find_map(|line| Some(line.split(": ").nth(1)?.strip_suffix("-dns")?.to_owned()))
    }

    /// Removes everything with `skiff down`; the process must have ended.
    #[track_caller]
    pub fn down(&self) {
        self.skiff(&["down"]).ok();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tell();
        }
        if let Some(mut child) = self.child.take() {
            // The kill fails if the process has ended already. Wait for its end in both cases.
            let _ended = child.kill();
            let _status = child.wait();
        }
        let down = self.skiff(&["down"]);
        if !down.succeeded() {
            eprintln!("{down}");
        }
    }
}
