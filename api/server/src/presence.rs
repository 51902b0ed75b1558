//! The servers that share a store, as endpoints of the `kubernetes` Service.
//!
//! Each server writes a record of its address into the store every ten seconds. A server whose record has not changed for a while is
//! gone. Each server measures that time by its own clock, so clocks need not agree (upstream's lease endpoint reconciler). All
//! servers publish the same list. A server that stops removes itself from the list.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api_model::kind::GroupResource;
use api_store::{Expect, StoreError, Write};
use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;

use crate::bootstrap;
use crate::core::Core;
use crate::loopback::Loopback;
use api_cache::key;
use api_cache::{Filter, Resource, encode};
use api_wire::status::{ApiError, ApiResult};

/// Upstream's interval, and its time to live of a record.
const RENEW_EVERY: Duration = Duration::from_secs(10);
const GONE_AFTER: Duration = Duration::from_secs(15);

/// Announces this server and publishes all of them.
pub(crate) struct Presence {
    loopback: Loopback,
    records: Arc<Resource>,
    seen: Sightings,
}

/// Records by name: at which revision, and since when.
type Sightings = HashMap<Arc<str>, (u64, Instant)>;

impl Presence {
    /// Announces this server and publishes it beside those that are there.
    pub(crate) async fn announce(loopback: &Loopback) -> ApiResult<Self> {
        let records = loopback.core.cache.resource(&GroupResource::new("skiff.internal", "servers"));
        let mut presence = Self { loopback: loopback.clone(), records, seen: Sightings::new() };
        presence.pass().await?;
        Ok(presence)
    }

    /// Keeps the list up to date until the server stops.
    pub(crate) async fn run(mut self) {
        let shutdown = self.core().shutdown.clone();
        while tokio::time::timeout(RENEW_EVERY, shutdown.cancelled()).await.is_err() {
            if let Err(error) = self.pass().await {
                tracing::warn!(error = error.message(), "the list of API servers is not renewed; it will be tried again");
            }
        }
        if let Err(error) = self.leave().await {
            tracing::warn!(error = error.message(), "this API server stays on the list until its record is old");
        }
    }

    fn core(&self) -> &Core {
        &self.loopback.core
    }

    async fn pass(&mut self) -> ApiResult<()> {
        let own = self.core().config.advertise_address;
        let value = json!({"kind": "Server", "apiVersion": "skiff.internal/v1", "metadata": {"name": own.to_string()},
            "renewed": api_clock::now().to_string()});
        self.write(own, Some(encode(&value))).await?;
        self.publish().await
    }

    async fn leave(&mut self) -> ApiResult<()> {
        self.write(self.core().config.advertise_address, None).await?;
        self.publish().await
    }

    /// Writes this server's record, or deletes it. An earlier server with this address is gone, so the record may be overwritten.
    async fn write(&self, own: SocketAddr, value: Option<Bytes>) -> ApiResult<()> {
        let name = own.to_string();
        let key = key::object_key(&self.records.name, "", &name);
        let sealed = value.map(|value| self.core().cache.seal(&self.records.name, &key, &value)).transpose();
        let value = sealed.map_err(|error| ApiError::unsealable(&key, &error))?;
        loop {
            let expect = match self.records.get("", &name) {
                Some(record) => Expect::At(record.revision),
                None if value.is_none() => return Ok(()),
                None => Expect::Absent,
            };
            let write = Write::new(Arc::clone(&key), value.clone(), expect);
            match self.core().store.write(write).await {
                Ok(revision) => return self.core().cache.settled(&self.records, revision).await.map(drop).map_err(Into::into),
                Err(StoreError::Conflict { .. }) => self.core().catch_up().await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn publish(&mut self) -> ApiResult<()> {
        let records = self.records.list(&Filter::default(), self.core().cache.applied()).items;
        let records = records.iter().map(|record| (Arc::clone(&record.name), record.revision));
        let there = there(&mut self.seen, records, Instant::now());
        bootstrap::publish(&self.loopback, &there).await.map_err(ApiError::internal)
    }
}

/// The servers that are running. A Service has one port, so of servers on different ports only those on the most frequent port (among
/// equally frequent ones, the lowest) are published. By this rule all servers publish the same list.
fn there(seen: &mut Sightings, records: impl Iterator<Item = (Arc<str>, u64)>, now: Instant) -> Vec<SocketAddr> {
    let mut known = Sightings::new();
    let mut by_port: BTreeMap<u16, Vec<SocketAddr>> = BTreeMap::new();
    for (name, revision) in records {
        let since = seen.get(&name).filter(|(at, _)| *at == revision).map_or(now, |(_, since)| *since);
        if now.duration_since(since) <= GONE_AFTER
            && let Ok(address) = name.parse::<SocketAddr>()
        {
            by_port.entry(address.port()).or_default().push(address);
        }
        known.insert(name, (revision, since));
    }
    *seen = known;
    let most = by_port.into_iter().rev().max_by_key(|(_, addresses)| addresses.len());
    let mut addresses = most.map(|(_, addresses)| addresses).unwrap_or_default();
    addresses.sort();
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_is_gone_when_its_record_has_not_changed_for_a_while() {
        let mut seen = Sightings::new();
        let mut look = |records: &[(&str, u64)]| -> Vec<String> {
            let records = records.iter().map(|(name, revision)| (Arc::from(*name), *revision)).collect::<Vec<_>>();
            there(&mut seen, records.into_iter(), Instant::now()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(look(&[("10.0.0.2:6443", 1), ("10.0.0.1:6443", 2)]), ["10.0.0.1:6443", "10.0.0.2:6443"]);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(look(&[("10.0.0.2:6443", 1), ("10.0.0.1:6443", 3)]), ["10.0.0.1:6443", "10.0.0.2:6443"]);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(look(&[("10.0.0.2:6443", 1), ("10.0.0.1:6443", 4)]), ["10.0.0.1:6443"]);
        // It is back.
        assert_eq!(look(&[("10.0.0.2:6443", 5), ("10.0.0.1:6443", 4)]), ["10.0.0.1:6443", "10.0.0.2:6443"]);
    }

    #[test]
    fn servers_on_the_port_of_most_are_published() {
        let look = |records: &[&str]| -> Vec<String> {
            let records = records.iter().map(|name| (Arc::from(*name), 1)).collect::<Vec<_>>();
            there(&mut Sightings::new(), records.into_iter(), Instant::now()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(look(&["10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:2"]), ["10.0.0.2:2", "10.0.0.3:2"]);
        assert_eq!(look(&["10.0.0.1:2", "10.0.0.1:1"]), ["10.0.0.1:1"]);
        assert_eq!(look(&[]), Vec::<String>::new());
    }
}
