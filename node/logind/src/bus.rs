//! The two objects of the system bus that a node calls, with the names that systemd gives them.

use zbus::Result;
use zbus::zvariant::OwnedFd;

/// `org.freedesktop.login1(5)`.
#[zbus::proxy(
    interface = "org.freedesktop.login1.Manager",
    default_service = "org.freedesktop.login1",
    default_path = "/org/freedesktop/login1",
    gen_blocking = false
)]
pub(crate) trait LoginManager {
    /// Takes a lock, which lasts until its descriptor is closed.
    fn inhibit(&self, what: &str, who: &str, why: &str, mode: &str) -> Result<OwnedFd>;

    /// A shutdown begins, or the one that had begun does not take place.
    #[zbus(signal)]
    fn prepare_for_shutdown(&self, begins: bool) -> Result<()>;

    /// Whether a shutdown has begun.
    #[zbus(property)]
    fn preparing_for_shutdown(&self) -> Result<bool>;

    /// How long locks may delay a shutdown, in microseconds.
    #[zbus(property, name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max_usec(&self) -> Result<u64>;
}

/// `org.freedesktop.systemd1(5)`.
#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1",
    gen_blocking = false
)]
pub(crate) trait SystemManager {
    /// Sends a signal to the processes of a unit.
    fn kill_unit(&self, name: &str, who: &str, signal: i32) -> Result<()>;
}
