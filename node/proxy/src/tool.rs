//! The packet filter's tools, off the async threads.

use std::collections::BTreeMap;

use node_netfilter::{Flow, NetfilterError};

use crate::ProxyError;
use crate::flows::Stale;

async fn blocking<T: Send + 'static>(call: impl FnOnce() -> Result<T, NetfilterError> + Send + 'static) -> Result<T, ProxyError> {
    let ended = api_tasks::blocking("service-proxy/netfilter", call).await;
    Ok(ended.map_err(|error| ProxyError::Tool { tool: "nft", source: error.into() })??)
}

/// Applies a script, wholly or not at all.
pub(crate) async fn nft(script: &str) -> Result<(), ProxyError> {
    let script = script.to_owned();
    blocking(move || node_netfilter::apply(&script)).await
}

/// The packets of the table's counters.
pub(crate) async fn counters(table: &str) -> Result<BTreeMap<String, u64>, ProxyError> {
    let table = table.to_owned();
    blocking(move || node_netfilter::counters(&table)).await
}

/// Whether the table still exists: other programs may have flushed all rules.
pub(crate) async fn has_table(table: &str) -> Result<bool, ProxyError> {
    let table = table.to_owned();
    blocking(move || node_netfilter::has_table(&table)).await
}

/// Deletes the kernel's flows to endpoints that are gone, so that the next datagram is translated anew.
pub(crate) async fn forget(stale: &Stale) -> Result<(), ProxyError> {
    let flow = Flow {
        port: stale.front.port,
        destination: stale.front.ip,
        reply_source: stale.endpoint.map(|endpoint| *endpoint.ip()),
        reply_port: stale.endpoint.map(|endpoint| endpoint.port()),
    };
    blocking(move || flow.forget()).await
}
