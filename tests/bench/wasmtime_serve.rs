//! `wasmtime serve` of the version that Skiff is built on, to measure beside Skiff: the same component, compiled before as Skiff has it,
//! and a network of the same kind: a bridge, and a veth to a namespace of its own.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tests::cluster::sample;
use tests::project::project;
use tests::run::run;
use tests::{Net, eventually};

/// How long one attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const PORT: u16 = 8_080;
/// Accepts code that was compiled before, and offers the interfaces beyond `wasi:http/proxy` that the sample imports.
const NEEDED: &[&str] = &["--allow-precompiled", "-Scli"];

/// The variables that a container of a Pod `web` has, which the guest reads.
const VARIABLES: &[&str] = &[
    "HOSTNAME=web",
    "KUBERNETES_PORT=tcp://10.96.0.1:443",
    "KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443",
    "KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1",
    "KUBERNETES_PORT_443_TCP_PORT=443",
    "KUBERNETES_PORT_443_TCP_PROTO=tcp",
    "KUBERNETES_SERVICE_HOST=10.96.0.1",
    "KUBERNETES_SERVICE_PORT=443",
    "KUBERNETES_SERVICE_PORT_HTTPS=443",
];

/// The program with a compiled component, and the namespace of its servers.
pub struct WasmtimeServe {
    program: PathBuf,
    code: TempDir,
    net: Net,
}

/// One server; it ends when it is dropped.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl WasmtimeServe {
    /// Compiles a sample, and makes the namespace behind a bridge in the present one.
    pub fn prepare(file: &str) -> Self {
        let built = || project().join("target/tools/wasmtime/bin/wasmtime");
        let program = std::env::var_os("SKIFF_WASMTIME").map_or_else(built, PathBuf::from);
        assert!(program.exists(), "{} is missing: run `cargo xtask bench guests`", program.display());
        let code = tempfile::tempdir().expect("a directory");
        let serve = Self { program, code, net: Net::behind_bridge() };
        run(Command::new(&serve.program).arg("compile").arg("-o").arg(serve.code()).arg(sample(file)), None).ok();
        serve
    }

    /// The program and its version, for the row of a table.
    pub fn name(&self) -> String {
        let version = run(Command::new(&self.program).arg("--version"), None).ok();
        format!("wasmtime serve {}", version.trim().trim_start_matches("wasmtime "))
    }

    /// A server with further options, which accepts connections. Only one may run at a time.
    pub fn start(&self, options: &[&str]) -> Server {
        let ip: IpAddr = self.net.ip.parse().expect("an address");
        let address = SocketAddr::new(ip, PORT);
        let mut command = self.net.command(&self.program.display().to_string());
        command.arg("serve").args(NEEDED).args(VARIABLES.iter().map(|variable| format!("--env={variable}"))).args(options);
        command.arg(format!("--addr={address}")).arg(self.code());
        // Else it collects a backtrace for each error, also for those that it handles itself.
        command.env("RUST_BACKTRACE", "0");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("wasmtime starts");
        let mut server = Server { child, address };
        eventually("a connection to wasmtime serve", || {
            let ended = server.child.try_wait().expect("a child");
            assert!(ended.is_none(), "wasmtime serve ended: {ended:?}");
            TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(|error| error.to_string())
        });
        server
    }

    fn code(&self) -> PathBuf {
        self.code.path().join("component.cwasm")
    }
}

impl Server {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
