//! Probes: when one is due ([`Rounds`]), what one look says ([`once`]), and when looks add up to a
//! verdict ([`Tally`], pure). HTTP, TCP and gRPC go from the node to the Pod's address; exec runs in
//! the container.

mod exec;
mod grpc;
pub(crate) mod http;
mod tcp;

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use runtimes_contract::ContentKind;

use crate::node::Node;
use crate::worker::facts::Alive;

/// Upstream's defaults.
const PERIOD_SECONDS: i32 = 10;
const TIMEOUT_SECONDS: i32 = 1;
const SUCCESS_THRESHOLD: i32 = 1;
const FAILURE_THRESHOLD: i32 = 3;

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ProbeKind {
    Startup,
    Liveness,
    Readiness,
}

impl ProbeKind {
    /// As upstream's event says it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// The probes of a container.
pub(crate) fn of(container: &Container) -> impl Iterator<Item = (ProbeKind, &Probe)> {
    [
        (ProbeKind::Startup, container.startup_probe.as_ref()),
        (ProbeKind::Liveness, container.liveness_probe.as_ref()),
        (ProbeKind::Readiness, container.readiness_probe.as_ref()),
    ]
    .into_iter()
    .filter_map(|(kind, probe)| Some((kind, probe?)))
}

/// Whom a probe looks at.
pub(crate) struct Target<'a> {
    pub(crate) node: &'a Node,
    pub(crate) container: &'a Container,
    pub(crate) alive: &'a Alive,
    pub(crate) ip: IpAddr,
}

impl Target<'_> {
    /// What tells a runtime's own server that the node asks; a Linux container's server is not the runtime's.
    fn token(&self) -> Option<String> {
        let runtime = self.node.parts.by_handler(&self.alive.handler)?;
        (runtime.runs() == ContentKind::Wasm).then(|| self.node.probe_token(&self.alive.id))
    }
}

/// One look, no longer than the probe's timeout. The error is what the event says.
pub(crate) async fn once(target: &Target<'_>, probe: &Probe) -> Result<(), String> {
    let timeout = seconds(probe.timeout_seconds, TIMEOUT_SECONDS);
    let look = async {
        if let Some(http) = &probe.http_get {
            http::look(target, http).await
        } else if let Some(tcp) = &probe.tcp_socket {
            tcp::look(target, tcp).await
        } else if let Some(exec) = &probe.exec {
            exec::look(target, exec).await
        } else if let Some(grpc) = &probe.grpc {
            grpc::look(target, grpc).await
        } else {
            Err("missing probe handler".to_owned())
        }
    };
    let late = || format!("timeout: probe did not answer within {}s", timeout.as_secs());
    tokio::time::timeout(timeout, look).await.unwrap_or_else(|_| Err(late()))
}

/// Counts looks of one kind in a row.
#[derive(Debug)]
pub(crate) struct Tally {
    success_threshold: i32,
    failure_threshold: i32,
    row: (bool, i32),
    verdict: Option<bool>,
}

impl Tally {
    /// `ready` is what a readiness probe begins with: the word is only given when it changes.
    pub(crate) fn new(probe: &Probe, kind: ProbeKind, ready: bool) -> Self {
        let threshold = |declared: Option<i32>, default: i32| declared.filter(|count| *count > 0).unwrap_or(default);
        Self {
            success_threshold: threshold(probe.success_threshold, SUCCESS_THRESHOLD),
            failure_threshold: threshold(probe.failure_threshold, FAILURE_THRESHOLD),
            row: (false, 0),
            verdict: (kind == ProbeKind::Readiness).then_some(ready),
        }
    }

    /// Counts a look; a new verdict when it brings one.
    pub(crate) fn count(&mut self, success: bool) -> Option<bool> {
        self.row = if self.row.0 == success { (success, self.row.1.saturating_add(1)) } else { (success, 1) };
        let threshold = if success { self.success_threshold } else { self.failure_threshold };
        if self.row.1 < threshold || self.verdict == Some(success) {
            return None;
        }
        self.verdict = Some(success);
        Some(success)
    }
}

/// When looks are due: as upstream each period, however long a look takes; those that fall into a look
/// are left out.
pub(crate) struct Rounds(tokio::time::Interval);

impl Rounds {
    /// The first look comes `initialDelaySeconds` after the start, and then one each period.
    pub(crate) fn new(probe: &Probe, started_at: Timestamp) -> Self {
        let delay = seconds(probe.initial_delay_seconds, 0);
        let age = Duration::try_from(Timestamp::now().duration_since(started_at)).unwrap_or(Duration::ZERO);
        let period = seconds(probe.period_seconds, PERIOD_SECONDS).max(Duration::from_secs(1));
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + delay.saturating_sub(age), period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        Self(ticks)
    }

    /// Resolves when the next look is due.
    pub(crate) async fn next(&mut self) {
        self.0.tick().await;
    }
}

/// Why a connection was not made, in Go's words: people look for those.
fn dial_error(address: &str, error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    let why = match error.kind() {
        ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        ErrorKind::TimedOut => "connect: connection timed out".to_owned(),
        _ => error.to_string(),
    };
    format!("dial tcp {address}: {why}")
}

fn seconds(declared: Option<i32>, default: i32) -> Duration {
    Duration::from_secs(u64::try_from(declared.filter(|count| *count > 0).unwrap_or(default)).unwrap_or(0))
}

/// A port by number, or by the name that the container gives it.
pub(crate) fn port(container: &Container, port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port);
            named.or_else(|| name.parse().ok())
        }
    };
    let found = number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
    found.ok_or_else(|| match port {
        IntOrString::Int(number) => format!("invalid port number: {number}"),
        IntOrString::String(name) => format!("couldn't find port: {name}"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn looks_add_up_to_verdicts() {
        let probe: Probe = serde_json::from_value(json!({"successThreshold": 2, "failureThreshold": 3})).expect("a probe");
        let run = |kind: ProbeKind, looks: &str| {
            let mut tally = Tally::new(&probe, kind, false);
            looks.chars().map(|look| tally.count(look == '+').map_or('.', |verdict| if verdict { 'Y' } else { 'N' })).collect::<String>()
        };
        assert_eq!(run(ProbeKind::Readiness, "-+-++--+---++"), "....Y.....N.Y");
        assert_eq!(run(ProbeKind::Liveness, "++---"), ".Y..N");
        assert_eq!(run(ProbeKind::Liveness, "------"), "..N...");
        assert_eq!(run(ProbeKind::Startup, "--++"), "...Y");
    }

    #[test]
    fn ports_go_by_number_or_name() {
        let container: Container =
            serde_json::from_value(json!({"name": "c", "ports": [{"name": "web", "containerPort": 8080}]})).expect("a container");
        for (given, wanted) in [
            (IntOrString::Int(80), Ok(80)),
            (IntOrString::String("web".to_owned()), Ok(8080)),
            (IntOrString::String("81".to_owned()), Ok(81)),
            (IntOrString::String("x".to_owned()), Err("couldn't find port: x".to_owned())),
            (IntOrString::Int(0), Err("invalid port number: 0".to_owned())),
        ] {
            assert_eq!(port(&container, &given), wanted);
        }
    }
}
