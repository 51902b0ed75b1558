//! One log line for every panic of the process, with the name of its task.

use std::any::Any;
use std::future::Future;
use std::panic::PanicHookInfo;

use crate::counts;

tokio::task_local! {
    static NAME: &'static str;
}

/// Replaces the standard panic hook, which bypasses the log. The binary calls it once, after it has set up the log.
pub fn install_hook() {
    std::panic::set_hook(Box::new(report));
}

fn report(info: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let task = NAME.try_with(|name| *name).unwrap_or_else(|_| thread.name().unwrap_or("unnamed"));
    counts::add(task, "panic");
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let message = payload_text(info.payload());
    // Captured only if RUST_BACKTRACE is set.
    let backtrace = std::backtrace::Backtrace::capture();
    match backtrace.status() {
        std::backtrace::BacktraceStatus::Captured => tracing::error!(task, location, panic = message, %backtrace, "panicked"),
        _ => tracing::error!(task, location, panic = message, "panicked"),
    }
}

/// The message of a panic.
pub fn payload_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&'static str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

pub(crate) fn scope<W: Future>(name: &'static str, work: W) -> impl Future<Output = W::Output> {
    NAME.scope(name, work)
}

pub(crate) fn under_name<T>(name: &'static str, call: impl FnOnce() -> T) -> T {
    NAME.sync_scope(name, call)
}
