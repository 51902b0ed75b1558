//! What every cluster has from its first moment: namespaces, roles, priority classes, runtime
//! classes, the Services of the API server and of the DNS, and what a node needs to join.
//!
//! Everything goes through the same door as any client's objects, as a member of `system:masters`.
//! What is there already stays as it is, but for what upstream keeps up to date too: roles and
//! bindings regain what they lost (unless they are marked otherwise), the `kubernetes` endpoints follow the servers' addresses.

mod flow_control;
mod join;
mod network;
mod objects;
mod roles;

pub(crate) use join::PUBLISHED_AUTHORITY;

use std::net::SocketAddr;
use std::time::Duration;

use crate::aggregation;
use crate::loopback::{BootstrapError, Loopback};

/// Upstream's interval of looking after the `kubernetes` Service.
const KEEP_EVERY: Duration = Duration::from_secs(10);
/// Upstream's interval of looking after the system's namespaces, and after flow control.
const RESTORE_EVERY: Duration = Duration::from_secs(60);

/// Makes what is missing, in an order in which later objects find what they refer to.
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
    loopback.ensure(rest).await
}

/// Publishes these servers as what the `kubernetes` Service leads to, and that Service where somebody deleted it.
pub(crate) async fn publish(loopback: &Loopback, servers: &[SocketAddr]) -> Result<(), BootstrapError> {
    loopback.ensure(network::services(&loopback.core.config)).await?;
    loopback.replace(network::endpoints(servers)).await
}

/// Brings what a server alone has published back until it stops, where somebody deleted it.
pub(crate) async fn keep(loopback: Loopback) {
    let (config, shutdown) = (&loopback.core.config, &loopback.core.shutdown);
    while tokio::time::timeout(KEEP_EVERY, shutdown.cancelled()).await.is_err() {
        let published = [network::services(config), network::endpoints(&[config.advertise_address])].concat();
        if let Err(error) = loopback.ensure(published).await {
            tracing::warn!(%error, "the server's own service is not brought back; it will be tried again");
        }
    }
}

/// Brings back what somebody deleted and every cluster needs, until the server stops: the system's namespaces, the
/// suggestions of flow control (also where somebody changed them, see [`flow_control::revised`]), and the authority that
/// aggregated servers read. As upstream, roles and classes come back when a server starts.
pub(crate) async fn restore(loopback: Loopback) {
    let core = &*loopback.core;
    while tokio::time::timeout(RESTORE_EVERY, core.shutdown.cancelled()).await.is_err() {
        let mut rest = flow_control::objects();
        rest.extend(flow_control::revised(&*core.cache));
        rest.extend(join::published_authority(core));
        for objects in [objects::namespaces(), rest] {
            if let Err(error) = loopback.ensure(objects).await {
                tracing::warn!(%error, "what every cluster has is not brought back; it will be tried again");
            }
        }
    }
}
