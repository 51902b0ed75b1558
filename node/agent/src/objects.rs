//! Objects of the API that the node looks at: Services, RuntimeClasses and Nodes are kept in memory by
//! watches; ConfigMaps, Secrets and tokens are asked for when they are needed.

use std::sync::Arc;

use api_tasks::Tasks;
use async_trait::async_trait;
use futures::{FutureExt as _, Stream, StreamExt as _};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret, Service, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::PostParams;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt as _, reflector as reflect};
use kube::{Api, Resource};
use node_volumes::{Source, SourceError, Token, TokenAsk};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What the node knows of the API.
#[derive(Clone)]
pub(crate) struct Objects {
    client: kube::Client,
    services: Store<Service>,
    classes: Store<RuntimeClass>,
    nodes: Store<Node>,
    nodes_changed: watch::Receiver<()>,
}

impl Objects {
    /// Begins to watch; the tasks end with the token.
    pub(crate) fn start(client: kube::Client, tasks: &Tasks, cancel: &CancellationToken) -> Self {
        let services = kept::<Service>("node-agent/watch-services", &client, tasks, cancel, None);
        let classes = kept::<RuntimeClass>("node-agent/watch-runtimeclasses", &client, tasks, cancel, None);
        let (changed, nodes_changed) = watch::channel(());
        let nodes = kept::<Node>("node-agent/watch-nodes", &client, tasks, cancel, Some(changed));
        Self { client, services, classes, nodes, nodes_changed }
    }

    /// Whether all of them have been listed once.
    pub(crate) fn are_listed(&self) -> bool {
        is_listed(&self.services) && is_listed(&self.classes) && is_listed(&self.nodes)
    }

    /// Every Service, as soon as they are known.
    pub(crate) async fn services(&self) -> Vec<Arc<Service>> {
        ready(&self.services).await;
        self.services.state()
    }

    /// The handler of a RuntimeClass; `None` when there is no such class. A class that the watch has not
    /// shown yet is asked for.
    pub(crate) async fn handler(&self, class: &str) -> Result<Option<String>, kube::Error> {
        if let Some(found) = self.classes.get(&reflector::ObjectRef::new(class)) {
            return Ok(Some(found.handler.clone()));
        }
        let classes: Api<RuntimeClass> = Api::all(self.client.clone());
        Ok(classes.get_opt(class).await?.map(|found| found.handler))
    }

    /// A Node as last seen.
    pub(crate) fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(&reflector::ObjectRef::new(name))
    }

    /// Every Node as last seen.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.state()
    }

    /// Changes whenever a Node does.
    pub(crate) fn nodes_changed(&self) -> watch::Receiver<()> {
        self.nodes_changed.clone()
    }

    /// Secrets by name; those that do not exist are left out, as upstream leaves them.
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

/// A store that a watch keeps current.
fn kept<K>(
    name: &'static str,
    client: &kube::Client,
    tasks: &Tasks,
    cancel: &CancellationToken,
    changed: Option<watch::Sender<()>>,
) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher(Api::all(client.clone()), watcher::Config::default()).default_backoff();
    tasks.own(name, drive(reflect(writer, events), changed, cancel.clone()));
    store
}

async fn drive<K>(
    events: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>>,
    changed: Option<watch::Sender<()>>,
    cancel: CancellationToken,
) where
    K: Resource<DynamicType = ()>,
{
    let mut events = std::pin::pin!(events);
    loop {
        let event = tokio::select! {
            () = cancel.cancelled() => return,
            event = events.next() => event,
        };
        match event {
            Some(Ok(_)) => {
                if let Some(changed) = &changed {
                    changed.send_replace(());
                }
            }
            Some(Err(error)) if api_client::error::is_everyday(&error) => {
                tracing::debug!(kind = %K::kind(&()), error = crate::error::chain(&error), "watch ended");
            }
            Some(Err(error)) => tracing::warn!(kind = %K::kind(&()), error = crate::error::chain(&error), "watch failed"),
            None => return,
        }
    }
}

fn is_listed<K>(store: &Store<K>) -> bool
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store.wait_until_ready().now_or_never().is_some_and(|listed| listed.is_ok())
}

/// Waits for the first list. The writer is gone only when the agent is ending.
async fn ready<K>(store: &Store<K>)
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    if store.wait_until_ready().await.is_err() {
        tracing::debug!("watch ended before its first list");
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

    async fn token(&self, ask: &TokenAsk) -> Result<Token, SourceError> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &ask.namespace);
        // Without an audience the server takes its own.
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
