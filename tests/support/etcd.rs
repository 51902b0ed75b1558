//! etcd members in a story's namespace, on the namespace's loopback.

use std::fs::File;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::net::Net;
use crate::run::eventually_within;

const READY_LIMIT: Duration = Duration::from_secs(30);

/// One member. Dropping it kills its process.
pub struct Etcd {
    net: Net,
    dir: tempfile::TempDir,
    number: usize,
    initial: String,
    child: Option<Child>,
}

impl Etcd {
    /// A cluster of that many members, all ready.
    pub fn cluster(net: &Net, members: usize) -> Vec<Self> {
        let initial: Vec<String> = (0..members).map(|n| format!("m{n}={}", peer_url(n))).collect();
        let mut cluster: Vec<Self> = (0..members)
            .map(|number| Self {
                net: net.shared(),
                dir: tempfile::Builder::new().prefix("skiff-it-etcd-").tempdir().expect("a directory"),
                number,
                initial: initial.join(","),
                child: None,
            })
            .collect();
        cluster.iter_mut().for_each(Self::spawn);
        cluster.iter().for_each(Self::until_ready);
        cluster
    }

    /// The value of `--etcd-servers` for these members.
    pub fn urls(members: &[Self]) -> String {
        members.iter().map(|member| client_url(member.number)).collect::<Vec<_>>().join(",")
    }

    /// Starts the member with the data that it has.
    pub fn start(&mut self) {
        self.spawn();
        self.until_ready();
    }

    fn spawn(&mut self) {
        let (client, peer) = (client_url(self.number), peer_url(self.number));
        let log = File::create(self.dir.path().join("log")).expect("a file");
        let mut command = self.net.command("etcd");
        command.arg("--name").arg(format!("m{}", self.number)).arg("--data-dir").arg(self.dir.path().join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer, "--initial-cluster", &self.initial]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().expect("etcd (Debian's etcd-server) starts"));
    }

    fn until_ready(&self) {
        let url = format!("{}/health", client_url(self.number));
        eventually_within(READY_LIMIT, "etcd is healthy", || {
            let answer = self.net.run("curl", &["-s", "--max-time", "5", &url]);
            let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            if answer.stdout.contains("true") { Ok(()) } else { Err(format!("{answer}\n{}", log())) }
        });
    }

    /// Kills the member with `SIGKILL`.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

fn client_url(number: usize) -> String {
    format!("http://127.0.0.1:{}", 12_379 + number * 2)
}

fn peer_url(number: usize) -> String {
    format!("http://127.0.0.1:{}", 12_380 + number * 2)
}
