//! Objects of the API that the node reads: Services, RuntimeClasses and Nodes from informers; ConfigMaps, Secrets and
//! tokens by a request when they are needed.

use std::sync::Arc;

use api_client::informer::{Informer, Informers, ObjectKey, Registration};
use async_trait::async_trait;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Node, NodeSelector, PersistentVolume, PersistentVolumeClaim, Secret, Service, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::PostParams;
use node_volumes::{Source, SourceError, Token, TokenAsk};
use tokio::sync::watch;

use crate::admit;

/// The node's view of the API.
#[derive(Clone)]
pub(crate) struct Objects {
    client: kube::Client,
    node_name: String,
    services: Informer<Service>,
    classes: Informer<RuntimeClass>,
    nodes: Informer<Node>,
    nodes_changed: watch::Receiver<()>,
    /// Marks `nodes_changed`.
    _registration: Arc<Registration<Node>>,
}

impl Objects {
    pub(crate) fn new(client: kube::Client, informers: &Informers, node_name: &str) -> Self {
        let nodes = informers.informer::<Node>();
        let (changed, nodes_changed) = watch::channel(());
        let registration = nodes.on_change(move |_| changed.send_replace(()));
        let (services, classes) = (informers.informer(), informers.informer());
        Self { client, node_name: node_name.to_owned(), services, classes, nodes, nodes_changed, _registration: Arc::new(registration) }
    }

    /// Whether all of them have been listed once.
    pub(crate) fn are_listed(&self) -> bool {
        self.services.is_synced() && self.classes.is_synced() && self.nodes.is_synced()
    }

    /// Every Service, as soon as they have been listed.
    pub(crate) async fn services(&self) -> Vec<Arc<Service>> {
        self.services.synced().await;
        self.listed_services()
    }

    /// Every Service as the cache has it.
    pub(crate) fn listed_services(&self) -> Vec<Arc<Service>> {
        self.services.list()
    }

    /// A RuntimeClass; `None` when there is no such class. A class that the cache does not have yet is read from the server.
    pub(crate) async fn class(&self, name: &str) -> Result<Option<Arc<RuntimeClass>>, kube::Error> {
        if let Some(class) = self.cached_class(name) {
            return Ok(Some(class));
        }
        let classes: Api<RuntimeClass> = Api::all(self.client.clone());
        Ok(classes.get_opt(name).await?.map(Arc::new))
    }

    /// A RuntimeClass as the cache has it.
    pub(crate) fn cached_class(&self, name: &str) -> Option<Arc<RuntimeClass>> {
        self.classes.get(&ObjectKey::new("", name))
    }

    /// A ResourceClaim of a Pod of this node, as the server has it; `None` when there is no such claim.
    pub(crate) async fn resource_claim(&self, namespace: &str, name: &str) -> Result<Option<ResourceClaim>, kube::Error> {
        Api::namespaced(self.client.clone(), namespace).get_opt(name).await
    }

    /// A Node as the cache has it.
    pub(crate) fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(&ObjectKey::new("", name))
    }

    /// Every Node as the cache has it.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.list()
    }

    /// Changes whenever a Node does.
    pub(crate) fn nodes_changed(&self) -> watch::Receiver<()> {
        self.nodes_changed.clone()
    }

    /// Secrets by name. Secrets that do not exist are left out, as upstream.
    pub(crate) async fn pull_secrets(&self, namespace: &str, names: &[String]) -> Vec<Secret> {
        let mut found = Vec::new();
        for name in names {
            match self.secret(namespace, name).await {
                Ok(secret) => found.push(secret),
                Err(error) => tracing::info!(namespace, name, %error, "unable to retrieve pull secret"),
            }
        }
        found
    }
}

#[async_trait]
impl Source for Objects {
    async fn config_map(&self, namespace: &str, name: &str) -> Result<ConfigMap, SourceError> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        found(maps.get_opt(name).await, "configmap", name)
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Secret, SourceError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        found(secrets.get_opt(name).await, "secret", name)
    }

    async fn claim(&self, namespace: &str, name: &str) -> Result<PersistentVolumeClaim, SourceError> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        found(claims.get_opt(name).await, "persistentvolumeclaims", name)
    }

    async fn volume(&self, name: &str) -> Result<PersistentVolume, SourceError> {
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        found(volumes.get_opt(name).await, "persistentvolumes", name)
    }

    fn selects_node(&self, selector: &NodeSelector) -> bool {
        self.node(&self.node_name).is_some_and(|node| admit::selects(selector, &node))
    }

    async fn token(&self, ask: &TokenAsk) -> Result<Token, SourceError> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &ask.namespace);
        // Without an audience the server uses its own.
        let audiences = Some(ask.audience.clone()).filter(|audience| !audience.is_empty()).map(|audience| vec![audience]);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences,
                expiration_seconds: Some(ask.expiration_seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(ask.pod.clone()),
                    uid: Some(ask.pod_uid.clone()),
                }),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let what = format!("a token of service account {}/{}", ask.namespace, ask.service_account);
        let failed = |message: String| SourceError::Failed { what: what.clone(), message };
        let answer = accounts.create_token_request(&ask.service_account, &PostParams::default(), &request).await;
        let answer = answer.map_err(|error| failed(crate::error::chain(&error)))?;
        let status = answer.status.unwrap_or_default();
        match (status.token, status.expiration_timestamp) {
            (Some(token), Some(expires_at)) => Ok(Token { token, expires_at: expires_at.0 }),
            _ => Err(failed("the answer has no token".to_owned())),
        }
    }
}

fn found<T>(answer: Result<Option<T>, kube::Error>, resource: &'static str, name: &str) -> Result<T, SourceError> {
    match answer {
        Ok(Some(object)) => Ok(object),
        Ok(None) => Err(SourceError::NotFound { resource, name: name.to_owned() }),
        Err(error) => Err(SourceError::Failed { what: format!("{resource} \"{name}\""), message: crate::error::chain(&error) }),
    }
}
