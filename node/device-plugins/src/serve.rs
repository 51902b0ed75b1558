//! The tasks of device plugins: one that accepts connections on the socket of the registration, one a connection, one a plugin.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api_files::{PRIVATE, write_atomic};
use api_tasks::Tasks;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::allocations::Allocations;
use crate::checkpoint::Checkpoint;
use crate::directory::{self, Directory};
use crate::error::DirectoryError;
use crate::manager::DevicePlugins;
use crate::registration;

/// The pause between two attempts to take the directory.
const RETRY: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);
/// Connections at one time on the socket of the registration. A plugin needs one for a moment.
const CONNECTIONS_MAX: usize = 64;

/// Serves device plugins until cancelled. As long as the directory belongs to somebody else, the node has no plugins.
pub async fn run(plugins: Arc<DevicePlugins>, cancel: CancellationToken) {
    let Some(dir) = plugins.config().dir.clone() else { return cancel.cancelled().await };
    let mut before = String::new();
    while !cancel.is_cancelled() {
        match serve(&plugins, &dir, &cancel).await {
            Ok(()) => return,
            Err(error) => {
                let error = error.to_string();
                if error != before {
                    tracing::warn!(error, "no device plugin can register with this node");
                }
                before = error;
            }
        }
        cancel.run_until_cancelled(tokio::time::sleep(RETRY)).await;
    }
}

async fn serve(plugins: &Arc<DevicePlugins>, dir: &Path, cancel: &CancellationToken) -> Result<(), DirectoryError> {
    let directory = Arc::new(Directory::take(dir).await?);
    let socket = directory.listen()?;
    if let Err(error) = plugins.store().await {
        tracing::warn!(error, "skiff down will not find the directory of the device plugins");
    }
    tracing::info!(dir = %dir.display(), "device plugins can register");
    let tasks = Tasks::new(cancel.clone());
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Some(accepted) = cancel.run_until_cancelled(socket.listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the connection of a device plugin is not accepted");
                cancel.run_until_cancelled(tokio::time::sleep(ACCEPT_RETRY)).await;
                continue;
            }
        };
        // A client that finds no room connects again.
        let Ok(permit) = connections.clone().try_acquire_owned() else { continue };
        let connection = Connection { plugins: plugins.clone(), directory: directory.clone(), tasks: tasks.clone(), _permit: permit };
        tasks.request("device-plugins/connection", connection.serve(stream, cancel.clone()));
    }
    tasks.wait().await;
    if let Err(error) = directory.remove_socket(socket.inode) {
        tracing::warn!(dir = %dir.display(), %error, "the socket of the device plugins' registration stays");
    }
    Ok(())
}

/// A connection on the socket of the registration.
struct Connection {
    plugins: Arc<DevicePlugins>,
    directory: Arc<Directory>,
    tasks: Tasks,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    async fn serve(self, stream: UnixStream, cancel: CancellationToken) {
        let register = async |request: crate::wire::RegisterRequest| {
            let resource = request.resource_name.chars().take(256).collect::<String>();
            match self.plugins.register(&self.directory, request, cancel.child_token()).await {
                Ok(registered) => {
                    let plugins = self.plugins.clone();
                    self.tasks.request("device-plugins/plugin", async move { plugins.follow(registered).await });
                    Ok(())
                }
                Err(error) => {
                    tracing::warn!(resource, %error, "a device plugin is not registered");
                    Err(error.to_string())
                }
            }
        };
        if let Some(Err(error)) = cancel.run_until_cancelled(registration::serve(stream, register)).await {
            tracing::debug!(%error, "a connection to the registration of device plugins has ended");
        }
    }
}

/// Forgets all allocations, and removes the socket that a killed agent left. No container with devices may be left. The names of the
/// resources stay: the Node object may still have an amount of them, which the next start sets to 0.
///
/// # Errors
/// The file of allocations cannot be written.
pub async fn remove(state_file: &Path) -> std::io::Result<()> {
    let bytes = match std::fs::read(state_file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        read => read?,
    };
    // A file that is none has no names.
    let Ok(written) = Checkpoint::decode(&bytes) else { return std::fs::remove_file(state_file) };
    if let Some(dir) = &written.dir {
        directory::remove_leftover(dir).await;
    }
    let names = Checkpoint { allocations: Allocations::default(), ..written };
    write_atomic(state_file, &names.encode().map_err(std::io::Error::other)?, PRIVATE)
}
