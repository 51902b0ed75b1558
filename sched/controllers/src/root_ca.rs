//! Root CA publisher: every active namespace has ConfigMap `kube-root-ca.crt` with the certificate
//! authority of the API server, so that Pods can verify it.
//!
//! Watches Namespaces and the ConfigMaps of that name. Creates the ConfigMap or corrects its data. Never deletes one.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_client::informer::{Change, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use tokio::time::Instant;

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::namespace::is_active;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, metrics, writes};

/// The ConfigMap's name.
const NAME: &str = "kube-root-ca.crt";
/// Informers cache ConfigMaps of that name only.
const MAPS: &str = "metadata.name=kube-root-ca.crt";
/// The key in its data.
const KEY: &str = "ca.crt";
const DESCRIPTION_KEY: &str = "kubernetes.io/description";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as \
    the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// The controller; its keys are namespaces' names.
pub struct RootCa {
    client: kube::Client,
    pem: String,
    namespaces: Informer<Namespace>,
    maps: Informer<ConfigMap>,
}

/// Registers the controller, if there is a certificate authority to publish.
pub fn build(context: &mut ControllerContext) {
    let Some(pem) = context.config.root_ca_pem.clone() else { return };
    let queue = Arc::new(WorkQueue::new("root_ca_cert_publisher"));
    let namespaces =
        context.feed(&queue, |change: &Change<Namespace>| change.new.iter().map(|ns| meta::name(&ns.metadata).to_owned()).collect());
    let maps = context.feed_selected(MAPS, &queue, |change: &Change<ConfigMap>| {
        change.latest().map(|map| meta::namespace(&map.metadata).to_owned()).into_iter().collect()
    });
    context.run(Arc::new(RootCa { client: context.client(), pem, namespaces, maps }), queue);
}

#[derive(Debug, PartialEq)]
enum Action {
    Nothing,
    Create(Box<ConfigMap>),
    /// Put the data right.
    Restore,
}

fn plan(namespace: &Namespace, current: Option<&ConfigMap>, pem: &str) -> Action {
    if !is_active(namespace) {
        return Action::Nothing;
    }
    let data = BTreeMap::from([(KEY.to_owned(), pem.to_owned())]);
    match current {
        None => Action::Create(Box::new(ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                namespace: namespace.metadata.name.clone(),
                annotations: Some(BTreeMap::from([(DESCRIPTION_KEY.to_owned(), DESCRIPTION.to_owned())])),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        })),
        Some(map) if map.data.as_ref() == Some(&data) && meta::annotation(&map.metadata, DESCRIPTION_KEY).is_some() => Action::Nothing,
        Some(_) => Action::Restore,
    }
}

impl Controller for RootCa {
    const NAME: &'static str = "root-ca-certificate-publisher-controller";
    const WORKERS: usize = 1;
    type Key = String;

    async fn reconcile(&self, key: &String) -> Result<Next, Failure> {
        let began = Instant::now();
        let result = self.pass(key).await;
        let code = result
            .as_ref()
            .map_or_else(|failure| failure.code().map_or_else(|| "500".to_owned(), |code| code.to_string()), |_| "200".to_owned());
        metrics::ROOT_CA_SYNCS.count([&code]);
        metrics::ROOT_CA_SYNC_DURATION.observe([&code], began.elapsed().as_secs_f64());
        result
    }
}

impl RootCa {
    async fn pass(&self, key: &str) -> Result<Next, Failure> {
        let Some(namespace) = self.namespaces.get(&ObjectKey::new("", key)) else { return Ok(Next::OnChange) };
        let current = self.maps.get(&ObjectKey::new(key, NAME));
        match (plan(&namespace, current.as_deref(), &self.pem), current) {
            (Action::Create(map), _) => match writes::create(&self.client, map.as_ref()).await {
                Err(failure) if failure.is_conflict() || failure.is_namespace_terminating() => {}
                other => drop(other?),
            },
            (Action::Restore, Some(map)) => {
                let mut data: serde_json::Map<_, _> = map.data.iter().flatten().map(|(key, _)| (key.clone(), json!(null))).collect();
                data.insert(KEY.to_owned(), json!(self.pem));
                writes::patch(
                    &self.client,
                    map.as_ref(),
                    json!({"metadata": {"annotations": {DESCRIPTION_KEY: DESCRIPTION}}, "data": data}),
                )
                .await?;
            }
            _ => {}
        }
        Ok(Next::OnChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_map_is_made_and_a_wrong_one_restored() {
        let namespace =
            |phase: &str| serde_json::from_value(json!({"metadata": {"name": "a"}, "status": {"phase": phase}})).expect("a Namespace");
        let Action::Create(made) = plan(&namespace("Active"), None, "PEM") else { panic!("none made") };
        assert_eq!(plan(&namespace("Active"), Some(&made), "PEM"), Action::Nothing);
        assert_eq!(plan(&namespace("Active"), Some(&made), "NEW"), Action::Restore);
        assert_eq!(plan(&namespace("Terminating"), None, "PEM"), Action::Nothing);
    }
}
