//! What can fail between a node and logind.

use std::path::PathBuf;
use std::time::Duration;

/// A failure of the system bus, of logind or of its settings.
#[derive(Debug, thiserror::Error)]
pub enum LogindError {
    /// The bus, or the service that was called.
    #[error("calling systemd on the system bus")]
    Bus(#[from] zbus::Error),
    /// The file with the setting.
    #[error("changing {}", path.display())]
    Setting {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another setting is stronger.
    #[error(
        "systemd-logind delays a shutdown by {allowed:?} at most, although {} says InhibitDelayMaxSec={}: look for another file in \
         /etc/systemd/logind.conf.d or /run/systemd/logind.conf.d that sets InhibitDelayMaxSec",
        path.display(),
        wanted.as_secs()
    )]
    Delay {
        /// How long the node needs.
        wanted: Duration,
        /// How long logind waits.
        allowed: Duration,
        /// The node's file.
        path: PathBuf,
    },
}
