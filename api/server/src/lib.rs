//! The API server: the state of the cluster, behind upstream's HTTP API.
//!
//! A request comes over TLS ([`Server::serve`]) or from a client in the same process ([`Server::client`]). The server authenticates
//! and authorizes it, finds its verb, kind and name, and answers it with one of the generic verbs over the table of kinds. The
//! particulars of a kind are in `api-rules` (defaults, checks), `api-admission` (plugins) and `api-print` (columns). Reads come from
//! a cache of encoded objects that follows the store's log. Writes go to the store and are answered when the cache has them. Nothing
//! else may write to the store.
//!
//! `docs/ARCHITECTURE.md` has the walk of a write and the order of the modules.

mod admission;
mod aggregation;
mod app;
mod attributes;
mod audit;
mod authenticate;
mod authorize;
mod bootstrap;
mod call;
mod components;
mod condition;
mod config;
mod connect;
mod conversion;
mod core;
mod definitions;
mod documents;
mod exclusive;
mod expire;
mod external_metrics;
mod fairness;
mod fence;
mod handle;
mod health;

mod impersonate;
mod loopback;
mod metrics;
mod metrics_demand;
mod nonresource;
mod oidc;
mod policies;
mod presence;
mod present;
mod quota;
mod registry;
mod renewal;
mod resource_metrics;
mod reviews;
mod serve;
mod server;
mod services;
mod state_metrics;
mod subresource;
#[cfg(test)]
mod tests;
mod tls;
mod verbs;
mod version;
mod webhooks;
mod write_locks;

pub use api_admission::known_plugin as known_admission_plugin;
pub use api_cache::{AtRest, EncryptionError};
pub use api_upstream::tls::TlsError;
pub use audit::{AuditConfig, AuditLog, AuditPolicy, AuditPolicyError};
pub use config::{Config, ExternalMetrics, NoMetric};
pub use fence::LeaderLease;
pub use loopback::BootstrapError;
pub use oidc::{OidcProvider, OidcStartError};
pub use server::{InProcess, Server, StartError};

/// The version that `/version` states, `v1.37.0+skiff`: nodes report it too.
pub fn version() -> String {
    version::git_version()
}
