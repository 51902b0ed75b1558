//! Calls that block on files, mounts or cgroups, away from the async threads.

use std::io;

use runtimes_contract::RuntimeError;
use thiserror::Error;
use tokio::task::JoinError;

/// A blocking call did not finish: it panicked, or the process is shutting down.
#[derive(Debug, Error)]
#[error("running a blocking call")]
pub struct Interrupted(#[from] JoinError);

impl From<Interrupted> for io::Error {
    fn from(interrupted: Interrupted) -> Self {
        Self::other(interrupted.0)
    }
}

impl From<Interrupted> for RuntimeError {
    fn from(interrupted: Interrupted) -> Self {
        Self::io("running a blocking call")(interrupted.0.into())
    }
}

/// Runs a call that blocks on a thread for blocking calls. A panic of the call is an error of the caller's own type.
pub async fn blocking<T, E>(call: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Interrupted> + Send + 'static,
{
    tokio::task::spawn_blocking(call).await.map_err(Interrupted)?
}
