//! The probes that a container declares.

use k8s_openapi::api::core::v1::{Container, Probe};

/// The purpose of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ProbeKind {
    Startup,
    Liveness,
    Readiness,
}

impl ProbeKind {
    /// The word in upstream's event.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// The probes of a container.
pub(crate) fn declared(container: &Container) -> impl Iterator<Item = (ProbeKind, &Probe)> {
    [
        (ProbeKind::Startup, container.startup_probe.as_ref()),
        (ProbeKind::Liveness, container.liveness_probe.as_ref()),
        (ProbeKind::Readiness, container.readiness_probe.as_ref()),
    ]
    .into_iter()
    .filter_map(|(kind, probe)| Some((kind, probe?)))
}
