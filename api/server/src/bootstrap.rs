//! What every cluster has from its first moment: namespaces, roles, priority classes, runtime
//! classes, the built-in StorageClass, the Services of the API server and of the DNS, what a node needs to join, and the kinds of `keda.sh`.
//!
//! All objects go through the loopback client. Objects that exist stay as they are, but for those that upstream keeps up to date
//! too: roles and bindings regain what they lost (unless they are marked otherwise), and the `kubernetes` endpoints follow the
//! servers' addresses.

mod flow_control;
mod join;
mod network;
mod objects;
mod roles;
mod scaling;
mod storage;

pub(crate) use join::PUBLISHED_AUTHORITY;

use std::net::SocketAddr;
use std::time::Duration;

use crate::aggregation;
use crate::loopback::{BootstrapError, Loopback};

/// The interval at which the `kubernetes` Service is checked: upstream's.
const KEEP_EVERY: Duration = Duration::from_secs(10);
/// The interval at which the system's namespaces and flow control are checked: upstream's.
const RESTORE_EVERY: Duration = Duration::from_secs(60);

/// Creates the objects that are missing, in an order in which later objects find those that they refer to.
pub(crate) async fn run(loopback: &Loopback) -> Result<(), BootstrapError> {
    let core = &*loopback.core;
    loopback.ensure(objects::namespaces()).await?;
    let mut rest = objects::classes();
    rest.extend(flow_control::objects());
    rest.extend(flow_control::revised(&*core.cache));
    let roles = roles::changes(&*core.cache);
    for object in roles.delete {
        loopback.delete(object).await?;
    }
    rest.extend(roles.write);
    rest.extend(network::services(&core.config));
    rest.extend(join::objects(&core.config));
    rest.extend(join::published_authority(core));
    rest.extend(aggregation::local::builtin());
    if core.config.scaled_objects {
        rest.extend(scaling::changes(&*core.cache));
    }
    loopback.ensure(rest).await?;
    if core.config.local_volumes {
        loopback.ensure(storage::class(&*core.cache)).await?;
        loopback.ensure(storage::mark(&*core.cache)).await?;
    }
    Ok(())
}

/// Publishes these servers as the endpoints of the `kubernetes` Service. Creates the Service if somebody deleted it.
pub(crate) async fn publish(loopback: &Loopback, servers: &[SocketAddr]) -> Result<(), BootstrapError> {
    loopback.ensure(network::services(&loopback.core.config)).await?;
    loopback.replace(network::endpoints(servers)).await
}

/// Creates the published objects of a lone server again when somebody deleted them, until the server stops.
pub(crate) async fn keep(loopback: Loopback) {
    let (config, shutdown) = (&loopback.core.config, &loopback.core.shutdown);
    while tokio::time::timeout(KEEP_EVERY, shutdown.cancelled()).await.is_err() {
        let published = [network::services(config), network::endpoints(&[config.advertise_address])].concat();
        if let Err(error) = loopback.ensure(published).await {
            tracing::warn!(%error, "the server's own service is not brought back; it will be tried again");
        }
    }
}

/// Creates objects that every cluster needs again when somebody deleted them, until the server stops: the system's namespaces,
/// the suggested objects of flow control (also when somebody changed them, see [`flow_control::revised`]), and the authority that
/// aggregated servers read. Roles and classes come back when a server starts. All of this is as upstream. So does, here, the role of
/// those who read metrics: the manifest of a metrics server contains it, and so takes it away when it is deleted.
pub(crate) async fn restore(loopback: Loopback) {
    let core = &*loopback.core;
    while tokio::time::timeout(RESTORE_EVERY, core.shutdown.cancelled()).await.is_err() {
        let mut rest = flow_control::objects();
        rest.extend(flow_control::revised(&*core.cache));
        rest.extend(join::published_authority(core));
        rest.extend(roles::metrics_reader());
        for objects in [objects::namespaces(), rest] {
            if let Err(error) = loopback.ensure(objects).await {
                tracing::warn!(%error, "what every cluster has is not brought back; it will be tried again");
            }
        }
    }
}
