//! The source of the objects that volumes show. The agent implements it over its API client; tests implement it over maps.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, NodeSelector, PersistentVolume, PersistentVolumeClaim, Secret};
use thiserror::Error;

/// Returns the present objects that volumes show.
#[async_trait]
pub trait Source: Send + Sync {
    /// A ConfigMap; missing is [`SourceError::NotFound`].
    async fn config_map(&self, namespace: &str, name: &str) -> Result<ConfigMap, SourceError>;

    /// A Secret; missing is [`SourceError::NotFound`].
    async fn secret(&self, namespace: &str, name: &str) -> Result<Secret, SourceError>;

    /// A claim; missing is [`SourceError::NotFound`].
    async fn claim(&self, namespace: &str, name: &str) -> Result<PersistentVolumeClaim, SourceError>;

    /// A PersistentVolume; missing is [`SourceError::NotFound`].
    async fn volume(&self, name: &str) -> Result<PersistentVolume, SourceError>;

    /// Whether a selector selects this node.
    fn selects_node(&self, selector: &NodeSelector) -> bool;

    /// A token of a ServiceAccount, bound to the Pod.
    async fn token(&self, ask: &TokenAsk) -> Result<Token, SourceError>;
}

/// The requested token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAsk {
    /// Namespace of Pod and ServiceAccount.
    pub namespace: String,
    /// The ServiceAccount.
    pub service_account: String,
    /// The Pod that the token is bound to.
    pub pod: String,
    /// That Pod's UID.
    pub pod_uid: String,
    /// The intended audience; empty is the API server's own.
    pub audience: String,
    /// How long it should be good for.
    pub expiration_seconds: i64,
}

/// A token and how long it is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The token.
    pub token: String,
    /// When it stops being good.
    pub expires_at: Timestamp,
}

/// Why an object is not available.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SourceError {
    /// It does not exist; upstream's words.
    #[error("{resource} {name:?} not found")]
    NotFound {
        /// `configmap`, `secret`, … as upstream's kubelet writes it.
        resource: &'static str,
        /// Its name.
        name: String,
    },
    /// The API server rejected the request or could not be reached.
    #[error("failed to get {what}: {message}")]
    Failed {
        /// The request.
        what: String,
        /// The answer.
        message: String,
    },
}

/// The text and binary data of a ConfigMap in one map.
pub(crate) fn config_map_data(map: ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = map.data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into_bytes()));
    let binary = map.binary_data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0));
    text.chain(binary).collect()
}

/// Data of a Secret.
pub(crate) fn secret_data(secret: Secret) -> BTreeMap<String, Vec<u8>> {
    secret.data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0)).collect()
}
