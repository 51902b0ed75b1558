//! systemd-logind, which shuts a machine down: the announcement of a shutdown, and the inhibitor lock that delays it
//! (`systemd-inhibit(1)`). Locks delay a shutdown for a limited time; [`Logind::watch`] extends that time by a setting.
//!
//! The crate does not know what the time is for.

mod bus;
mod error;
mod setting;

use std::os::fd::OwnedFd;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use zbus::connection::{self, Connection};
use zbus::proxy::CacheProperties;

use bus::{LoginManagerProxy, SystemManagerProxy};
pub use error::LogindError;
use setting::Setting;

/// What `systemd-inhibit --list` shows.
const WHO: &str = "skiff";
const WHY: &str = "Skiff ends the Pods of this node";
const SIGHUP: i32 = 1;
/// How long one call may take.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// How long logind may take to read its settings again, and how often it is asked.
const RELOADED_WITHIN: Duration = Duration::from_secs(5);
const RELOADED_POLL: Duration = Duration::from_millis(50);

/// The logind of this machine.
pub struct Logind {
    setting: Setting,
}

/// A connection to logind, from which it announces shutdowns.
pub struct ShutdownWatch {
    /// A shutdown had begun already.
    pub has_begun: bool,
    /// True when a shutdown begins, false when one does not take place after all. The stream ends with the connection.
    pub announcements: BoxStream<'static, bool>,
    /// Delays the next shutdown. There is none when a shutdown has begun.
    pub lock: Option<InhibitorLock>,
    /// Why the lock delays a shutdown for less time than wanted.
    pub delay_fault: Option<LogindError>,
}

/// Delays a shutdown until it is dropped.
#[derive(Debug)]
pub struct InhibitorLock {
    _descriptor: OwnedFd,
}

impl From<OwnedFd> for InhibitorLock {
    /// The descriptor of a lock.
    fn from(descriptor: OwnedFd) -> Self {
        Self { _descriptor: descriptor }
    }
}

impl Logind {
    /// `node` tells the settings of several nodes of one machine apart.
    pub fn new(node: &str) -> Self {
        Self { setting: Setting::new(node) }
    }

    /// Connects, and takes a lock that delays the next shutdown for up to `delay`. If logind allows less, this node's setting is
    /// written and logind reads its settings again.
    ///
    /// # Errors
    /// When the machine has no system bus, when the bus has no logind, or when logind refuses.
    pub async fn watch(&self, delay: Duration) -> Result<ShutdownWatch, LogindError> {
        let connection = connection::Builder::system()?.method_timeout(ANSWERED_WITHIN).build().await?;
        // A shutdown is rare: the properties are not worth a subscription.
        let manager = LoginManagerProxy::builder(&connection).cache_properties(CacheProperties::No).build().await?;
        // Before the question whether a shutdown has begun, so that none begins in between.
        let signals = manager.receive_prepare_for_shutdown().await?;
        let announcements = signals.filter_map(async |signal| match signal.args() {
            Ok(args) => Some(args.begins),
            Err(error) => {
                tracing::warn!(%error, "an announcement of logind was not understood");
                None
            }
        });
        let delay_fault = self.allow_delay(&connection, &manager, delay).await.err();
        let mut has_begun = manager.preparing_for_shutdown().await?;
        let mut lock = None;
        if !has_begun {
            match manager.inhibit("shutdown", WHO, WHY, "delay").await {
                Ok(descriptor) => lock = Some(InhibitorLock::from(OwnedFd::from(descriptor))),
                // It began just now.
                Err(_) if manager.preparing_for_shutdown().await? => has_begun = true,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(ShutdownWatch { has_begun, announcements: announcements.boxed(), lock, delay_fault })
    }

    async fn allow_delay(&self, connection: &Connection, manager: &LoginManagerProxy<'_>, wanted: Duration) -> Result<(), LogindError> {
        if delay_max(manager).await? >= wanted {
            return Ok(());
        }
        let path = self.setting.write(wanted).await?;
        let systemd = SystemManagerProxy::builder(connection).cache_properties(CacheProperties::No).build().await?;
        systemd.kill_unit("systemd-logind.service", "all", SIGHUP).await?;
        let reloaded = async {
            while delay_max(manager).await? < wanted {
                tokio::time::sleep(RELOADED_POLL).await;
            }
            Ok(())
        };
        match tokio::time::timeout(RELOADED_WITHIN, reloaded).await {
            Ok(reloaded) => reloaded,
            Err(_) => Err(LogindError::Delay { wanted, allowed: delay_max(manager).await?, path }),
        }
    }

    /// Removes this node's setting. logind applies that when it starts next.
    ///
    /// # Errors
    /// When the file exists and cannot be removed.
    pub async fn remove_setting(&self) -> Result<(), LogindError> {
        self.setting.remove().await
    }
}

/// How long locks may delay a shutdown.
async fn delay_max(manager: &LoginManagerProxy<'_>) -> zbus::Result<Duration> {
    Ok(Duration::from_micros(manager.inhibit_delay_max_usec().await?))
}
