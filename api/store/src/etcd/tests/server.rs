//! A real etcd with one member, on loopback, in its own directory.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use super::super::{EtcdConfig, EtcdTls};

const START_LIMIT: Duration = Duration::from_secs(30);

/// An etcd process, which is killed when the value is dropped.
pub(super) struct Etcd {
    dir: tempfile::TempDir,
    child: Option<Child>,
    url: String,
    peer: String,
    keys: Option<(PathBuf, EtcdTls)>,
}

impl Etcd {
    pub(super) fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts an etcd. With keys, it uses TLS and requires client certificates.
    pub(super) fn start_with(keys: Option<&Keys>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let scheme = if keys.is_some() { "https" } else { "http" };
        let (client, peer) = (free_port(), free_port());
        let keys = keys.map(|keys| (keys.dir.path().to_owned(), keys.tls()));
        let (url, peer) = (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let mut etcd = Self { dir, child: None, url, peer, keys };
        etcd.start_again();
        etcd
    }

    /// An etcd that runs until the test's process ends.
    pub(super) fn shared() -> &'static Self {
        let etcd = Box::leak(Box::new(Self::start()));
        // The value is never dropped, so the shell that ends etcd also removes its directory.
        let clear = etcd.child.as_mut().and_then(|shell| shell.stdin.as_mut()).expect("it runs");
        writeln!(clear, "{}", etcd.dir.path().display()).expect("the shell reads");
        etcd
    }

    pub(super) fn config(&self) -> EtcdConfig {
        let tls = self.keys.as_ref().map(|(_, tls)| tls.clone()).unwrap_or_default();
        EtcdConfig { tls, compaction_interval: Duration::ZERO, ..EtcdConfig::new([self.url.clone()]) }
    }

    pub(super) fn start_again(&mut self) {
        // The shell ends etcd when the test's process ends in any way, because the pipe closes. A line on the pipe is a
        // directory that the shell removes then.
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "etcd \"$@\" & pid=$!; dir=; while read -r line; do dir=$line; done; kill -9 $pid; wait $pid; rm -rf \"$dir\"",
            "sh",
        ]);
        shell.arg("--data-dir").arg(self.dir.path().join("data"));
        shell.args(["--listen-client-urls", &self.url, "--advertise-client-urls", &self.url]);
        shell.args(["--listen-peer-urls", &self.peer, "--initial-advertise-peer-urls", &self.peer]);
        shell.args(["--initial-cluster", &format!("default={}", self.peer)]);
        if let Some((dir, _)) = &self.keys {
            for (flag, file) in [("--cert-file", "server.pem"), ("--key-file", "server.key"), ("--trusted-ca-file", "ca.pem")] {
                shell.arg(flag).arg(dir.join(file));
            }
            shell.arg("--client-cert-auth");
        }
        let log = std::fs::File::create(self.dir.path().join("log")).expect("a file");
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        self.child = Some(shell.spawn().expect("sh starts"));
        self.await_ready();
    }

    fn await_ready(&mut self) {
        let address = self.url.split("//").nth(1).expect("an address").to_owned();
        let deadline = Instant::now() + START_LIMIT;
        while std::net::TcpStream::connect(&address).is_err() {
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline && !log.contains("not found"), "etcd (Debian's etcd-server) does not start:\n{log}");
            std::thread::yield_now();
        }
    }

    /// Kills etcd as by `kill -9`.
    pub(super) fn kill(&mut self) {
        let mut shell = self.child.take().expect("it runs");
        drop(shell.stdin.take());
        shell.wait().expect("it ends");
        let address = self.url.split("//").nth(1).expect("an address").to_owned();
        let deadline = Instant::now() + START_LIMIT;
        while std::net::TcpStream::connect(&address).is_ok() {
            assert!(Instant::now() < deadline, "etcd does not end");
            std::thread::yield_now();
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// A certificate authority with a server certificate and a client certificate.
pub(super) struct Keys {
    dir: tempfile::TempDir,
}

impl Keys {
    pub(super) fn make() -> Self {
        let keys = Self { dir: tempfile::tempdir().expect("a directory") };
        let save = |name: &str, pem: String| std::fs::write(keys.dir.path().join(name), pem).expect("writes");
        let (mut ca, ca_key) = (CertificateParams::default(), KeyPair::generate().expect("a key"));
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        save("ca.pem", ca.self_signed(&ca_key).expect("signs").pem());
        let issuer = Issuer::new(ca, ca_key);
        for name in ["server", "client"] {
            let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("an address");
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            let key = KeyPair::generate().expect("a key");
            save(&format!("{name}.pem"), params.signed_by(&key, &issuer).expect("signs").pem());
            save(&format!("{name}.key"), key.serialize_pem());
        }
        keys
    }

    pub(super) fn tls(&self) -> EtcdTls {
        let read = |name: &str| std::fs::read(self.dir.path().join(name)).expect("reads");
        EtcdTls { ca_pem: Some(read("ca.pem")), client_pem: Some((read("client.pem"), read("client.key"))) }
    }
}
