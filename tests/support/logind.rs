//! systemd-logind on a system bus of its own, beside a systemd that records what it is asked for: a machine that announces that it
//! shuts down, and stays on.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use zbus::blocking::{Connection, connection};
use zbus::zvariant::{ObjectPath, OwnedObjectPath};

use crate::run::eventually;

const BUS_POLICY: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=SOCKET</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/>
  </policy>
</busconfig>
"#;
const PROGRAM: &str = "/lib/systemd/systemd-logind";
const LOGIN: (&str, &str, &str) = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager");
const SYSTEMD: &str = "/org/freedesktop/systemd1";
const JOB: &str = "/org/freedesktop/systemd1/job/1";

/// A running logind.
pub struct Logind {
    dir: tempfile::TempDir,
    logind: Process,
    _bus: Process,
    systemd: Systemd,
    connection: Connection,
}

/// The part of systemd that logind and a node call.
#[derive(Clone, Default)]
struct Systemd {
    started: Arc<Mutex<Vec<String>>>,
    logind: Arc<Mutex<Option<Pid>>>,
}

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Systemd {
    fn subscribe(&self) {}

    fn kill_unit(&self, name: &str, _who: &str, signal: i32) {
        assert_eq!(name, "systemd-logind.service");
        let signal = Signal::try_from(signal).expect("a signal");
        kill(self.logind.lock().expect("a lock").expect("it runs"), signal).expect("sent");
    }

    fn start_unit(&self, name: &str, _mode: &str) -> OwnedObjectPath {
        self.started.lock().expect("a lock").push(name.to_owned());
        ObjectPath::try_from(JOB).expect("a path").into()
    }
}

/// `poweroff.target`
struct Unit;

#[zbus::interface(name = "org.freedesktop.systemd1.Unit")]
impl Unit {
    #[zbus(property)]
    fn load_state(&self) -> &'static str {
        "loaded"
    }
}

impl Logind {
    /// A logind with settings and a state of its own, which only this thread and the processes that it starts see. A story calls this
    /// before it starts its cluster.
    pub fn start() -> Self {
        unshare(CloneFlags::CLONE_NEWNS).expect("root may");
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).expect("private");
        for dir in ["/run/systemd", "/etc/systemd"] {
            std::fs::create_dir_all(dir).expect("a directory");
            mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), None::<&str>).expect("mounted");
        }
        for dir in ["inhibit", "seats", "sessions", "users", "system"] {
            std::fs::create_dir(format!("/run/systemd/{dir}")).expect("a directory");
        }
        let dir = tempfile::Builder::new().prefix("skiff-it-bus-").tempdir().expect("a directory");
        let socket = dir.path().join("bus");
        std::fs::write(dir.path().join("bus.conf"), BUS_POLICY.replace("SOCKET", &socket.display().to_string())).expect("written");
        let mut bus = Command::new("dbus-daemon");
        bus.arg("--nofork").arg("--nopidfile").arg(format!("--config-file={}", dir.path().join("bus.conf").display()));
        let bus = Process(bus.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("dbus-daemon starts"));
        eventually("the socket of the bus", || if socket.exists() { Ok(()) } else { Err(String::new()) });
        let systemd = Systemd::default();
        let builder = connection::Builder::address(address(&socket).as_str()).expect("an address");
        let builder = builder.name("org.freedesktop.systemd1").expect("a name").serve_at(SYSTEMD, systemd.clone()).expect("served");
        let unit = format!("{SYSTEMD}/unit/poweroff_2etarget");
        let connection = builder.serve_at(unit, Unit).expect("served").build().expect("a connection");
        let logind = spawn(&socket);
        *systemd.logind.lock().expect("a lock") = Some(logind.id());
        let started = Self { dir, _bus: bus, logind, systemd, connection };
        started.until_there();
        started
    }

    /// The value of `DBUS_SYSTEM_BUS_ADDRESS`.
    pub fn bus_address(&self) -> PathBuf {
        PathBuf::from(address(&self.dir.path().join("bus")))
    }

    /// logind starts again, as after a boot of the machine.
    pub fn start_again(&mut self) {
        self.logind.end();
        for dir in ["inhibit", "seats", "sessions", "users"] {
            for entry in std::fs::read_dir(format!("/run/systemd/{dir}")).expect("a directory").flatten() {
                std::fs::remove_file(entry.path()).expect("removed");
            }
        }
        self.systemd.started.lock().expect("a lock").clear();
        self.logind = spawn(&self.dir.path().join("bus"));
        *self.systemd.logind.lock().expect("a lock") = Some(self.logind.id());
        self.until_there();
    }

    /// Has the machine powered off, as `systemctl poweroff` does.
    pub fn power_off(&self) {
        let (service, path, interface) = LOGIN;
        self.connection.call_method(Some(service), path, Some(interface), "PowerOff", &(false,)).expect("it shuts down");
    }

    /// The target that systemd was asked to start: the time of all locks is over.
    pub fn started(&self) -> Vec<String> {
        self.systemd.started.lock().expect("a lock").clone()
    }

    /// systemd did not reach the target.
    pub fn cancel(&self) {
        let job = ObjectPath::try_from(JOB).expect("a path");
        let (path, interface) = (SYSTEMD, "org.freedesktop.systemd1.Manager");
        let body = (1_u32, job, "poweroff.target", "canceled");
        self.connection.emit_signal(None::<&str>, path, interface, "JobRemoved", &body).expect("announced");
    }

    /// The locks that delay a shutdown: who holds each, and how.
    pub fn locks(&self) -> Vec<String> {
        let (service, path, interface) = LOGIN;
        let answer = self.connection.call_method(Some(service), path, Some(interface), "ListInhibitors", &()).expect("an answer");
        let locks: Vec<(String, String, String, String, u32, u32)> = answer.body().deserialize().expect("locks");
        locks.into_iter().map(|(what, who, _why, mode, ..)| format!("{who}: {what} {mode}")).collect()
    }

    /// For how many seconds locks may delay a shutdown.
    pub fn delay_max(&self) -> u64 {
        let (service, path, interface) = LOGIN;
        let properties = zbus::blocking::fdo::PropertiesProxy::new(&self.connection, service, path).expect("a proxy");
        let interface = interface.try_into().expect("a name");
        let value = properties.get(interface, "InhibitDelayMaxUSec").expect("a value");
        u64::try_from(value).expect("a number") / 1_000_000
    }

    fn until_there(&self) {
        let (service, path, interface) = LOGIN;
        eventually("logind", || {
            let answer = self.connection.call_method(Some(service), path, Some(interface), "ListInhibitors", &());
            answer.map(drop).map_err(|error| error.to_string())
        });
    }
}

/// A process that ends with its value.
struct Process(Child);

impl Process {
    fn id(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).expect("a process id"))
    }

    fn end(&mut self) {
        // The kill fails if the process has ended already. Wait for its end in both cases.
        let _ended = self.0.kill();
        self.0.wait().expect("it ends");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn address(socket: &std::path::Path) -> String {
    format!("unix:path={}", socket.display())
}

fn spawn(socket: &std::path::Path) -> Process {
    let mut logind = Command::new(PROGRAM);
    logind.env("DBUS_SYSTEM_BUS_ADDRESS", address(socket)).stdin(Stdio::null()).stderr(Stdio::null());
    Process(logind.spawn().expect("logind starts"))
}
