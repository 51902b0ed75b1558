//! The shim of an OCI container, and the helper of an exec. Started by the node agent, never by hand.
//!
//! `run` is the container's subreaper: it mounts what runc cannot ([`mounts`]), has runc create the container, verifies and starts it,
//! copies stdout and stderr to the log, and writes the exit record. `exec` does the same for a further process and sends its exit code over
//! a socket.
//! `pause` becomes the first process of a PID namespace that containers share. None has threads, an event loop or JSON: each container
//! has a shim, which should be as small as possible.

mod console;
mod enter;
mod exec_fifo;
mod log;
mod mounts;
mod pause;
mod run;
mod runc;
mod signals;
mod verify;

use std::ffi::OsString;
use std::fmt::Display;

use runtimes_shim::channel::Channel;

/// Why there will be no process.
pub struct Failure {
    /// The word for the agent.
    pub kind: &'static str,
    /// The words for people.
    pub message: String,
}

impl Failure {
    /// For `map_err`: a failed operation of the system.
    pub fn io<E: Display>(doing: &str) -> impl FnOnce(E) -> Self {
        let doing = doing.to_owned();
        move |error| Self { kind: "io", message: format!("{doing}: {error}") }
    }

    /// runc failed; its log has the reason.
    pub fn runc() -> Self {
        Self { kind: "start", message: "runc failed".into() }
    }
}

fn main() {
    let mut args = std::env::args_os();
    let is_pause = args.next().is_some_and(|name| name == pause::NAME);
    let verb = args.next().unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    let channel = Channel::from_stdin();
    if let Err(error) = runtimes_host::process::close_inherited() {
        std::process::exit(channel.refuse("io", &format!("closing descriptors: {error}")));
    }
    let code = match verb.to_str() {
        Some("") if is_pause => pause::run(channel),
        Some("pause") => pause::prepare(channel, &args),
        Some("run") => run::run(channel, &args),
        Some("exec") => enter::run(channel, &args),
        _ => channel.refuse("io", "usage: skiff-shim-runc run|exec|pause …; the node agent starts it"),
    };
    std::process::exit(code);
}
