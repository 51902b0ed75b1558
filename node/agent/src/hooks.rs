//! Lifecycle hooks, and the signal that ends a container.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};

use crate::action::{ActionError, Target, exec, http};
use crate::layout::PodName;
use crate::node::Node;
use crate::record::RunningInstance;

/// Runs a hook; the error is the text of the event.
pub(crate) async fn run(
    node: &Node,
    pod: &Pod,
    container: &Container,
    handler: &LifecycleHandler,
    alive: &RunningInstance,
) -> Result<(), ActionError> {
    if let Some(action) = &handler.exec {
        let (code, output) = exec::run(node, alive, action.command.clone().unwrap_or_default()).await?;
        return if code == 0 { Ok(()) } else { Err(ActionError::HookCommand { code, output }) };
    }
    if let Some(action) = &handler.http_get {
        let ip = address(node, pod)?;
        let target = Target { node, container, alive, ip };
        let status = http::get(&target, action, "kube-lifecycle/1.37").await?;
        return if status < 400 { Ok(()) } else { Err(ActionError::HookStatus(status)) };
    }
    if let Some(sleep) = &handler.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
        return Ok(());
    }
    // As upstream: the API accepts such a hook, and it fails when it is to run.
    Err(ActionError::InvalidHook(if handler.tcp_socket.is_some() { "tcpSocket" } else { "no action" }))
}

fn address(node: &Node, pod: &Pod) -> Result<IpAddr, ActionError> {
    let names = PodName::of(pod);
    let entry = node.directory.find(&names.namespace, &names.name);
    entry.and_then(|entry| entry.ip).ok_or(ActionError::NoAddress)
}

/// A signal by name (`SIGQUIT`, `QUIT`) or number, as an image's `StopSignal` gives it.
pub(crate) fn signal_number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let name = if text.starts_with("SIG") { text.to_owned() } else { format!("SIG{text}") };
    let realtime = |base: &str, from: i32, sign: i32| {
        let rest = name.strip_prefix(base)?.trim_start_matches(['+', '-']);
        if rest.is_empty() { Some(from) } else { rest.parse::<i32>().ok().map(|offset| from + sign * offset) }
    };
    let named = name.parse::<nix::sys::signal::Signal>().ok().map(|signal| signal as i32);
    named.or_else(|| realtime("SIGRTMIN", 34, 1)).or_else(|| realtime("SIGRTMAX", 64, -1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_by_name_and_number() {
        for (text, wanted) in [
            ("SIGTERM", Some(15)),
            ("QUIT", Some(3)),
            ("9", Some(9)),
            ("SIGRTMIN+3", Some(37)),
            ("", None),
            ("SIGNOPE", None),
            ("99", None),
        ] {
            assert_eq!(signal_number(text), wanted, "{text}");
        }
    }
}
