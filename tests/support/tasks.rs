//! The names of skiff's background tasks, and faults injected into them. Debug builds read the faults from a FIFO.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::run::eventually_within;

/// Tasks of `skiff up`; the failure of any of them ends the process.
pub const OF_UP: &[&str] = &[
    "signals",
    "api-server",
    "admin-certificate",
    "scheduler",
    "controllers",
    "node-certificate",
    "node-agent",
    "service-proxy",
    "service-proxy/activator",
    "service-proxy/demand",
    "dns",
    "resolvers",
    "store/writer",
    "event-recorder",
    "api-server/cache-feeder",
    "api-server/definitions",
    "api-server/flow-control",
    "api-server/own-service",
    "api-server/restore",
    "api-server/aggregation",
    "api-server/event-expiry",
    "api-server/resource-metrics",
    "api-server/list-expiry",
    "api-server/quota-status",
    "api-server/certificates",
    "informer",
    "garbage-collector-controller/monitor",
    "garbage-collector-controller",
    "namespace-controller",
    "node-agent/server",
    "node-agent/healthz",
    "node-agent/routes",
    "node-agent/registrar",
    "node-agent/housekeeping",
    "node-agent/qos-classes",
    "node-agent/cpu-manager",
    "node-agent/device-plugins",
    "node-agent/eviction",
    "node-agent/local-storage",
    "node-agent/node-shutdown",
    "node-agent/background-work",
    "node-agent/requests",
    "node-agent/mirror-pods",
    "node-agent/manifests",
    "node-agent/pod-manager",
];

/// Further tasks of `skiff server --etcd-servers`.
pub const OF_A_SHARED_STORE: &[&str] = &["store/compactor", "api-server/presence"];

/// Tasks that other tests make fail, and where.
pub const ELSEWHERE: &[(&str, &str)] = &[
    ("api-server/audit-log", "api/server/src/audit/log.rs: a thread, which runs only where there is an audit policy"),
    ("api-server/oidc", "api/server/src/tests/oidc.rs: needs a provider"),
    ("faults", "the reader of the faults themselves; not in release builds"),
];

impl Cluster {
    /// Makes the process accept faults, from its next start on.
    pub fn take_faults(&mut self) {
        let path = self.faults();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).expect("a FIFO");
        self.set_env("SKIFF_TEST_FAULTS", path);
    }

    fn faults(&self) -> PathBuf {
        self.data_dir().join("faults")
    }

    /// Makes a running task `panic`, `end` or `stall`.
    pub fn inject(&self, fault: &str, task: &str) {
        let mut fifo = std::fs::File::options().write(true).open(self.faults()).expect("the FIFO");
        writeln!(fifo, "{fault} {task}").expect("written");
    }

    /// Waits until the process has ended by itself; returns its exit code.
    #[track_caller]
    pub fn ended_within(&mut self, limit: Duration, what: &str) -> i32 {
        let code = eventually_within(limit, what, || self.exit_code().ok_or_else(|| self.log()));
        self.forget();
        code
    }
}
