//! Bootstrap signer: signs the kubeconfig in `kube-public/cluster-info` with every bootstrap token that allows it, so that the
//! owner of a token can verify that the authority in it is the cluster's.
//!
//! Watches Secrets of that type; writes the keys `jws-kubeconfig-ID` of that ConfigMap and nothing else. It reads the ConfigMap
//! when there is work, and periodically.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::informer::{Change, Informer, ObjectKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::{Map, Value, json};
use sha2::Sha256;

use super::signing;
use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::writes;

const NAMESPACE: &str = "kube-public";
const NAME: &str = "cluster-info";
const KUBECONFIG: &str = "kubeconfig";
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";
/// The period in which the ConfigMap is read although no token changed: it is not watched.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The controller; its only key is the ConfigMap.
pub struct BootstrapSigner {
    client: kube::Client,
    secrets: Informer<Secret>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("bootstrap_signer_queue"));
    let secrets = context.feed_selected(super::SECRETS, &queue, |_: &Change<Secret>| vec![()]);
    // Signatures of tokens that were removed while no controller ran must be removed too.
    queue.add(());
    context.run(Arc::new(BootstrapSigner { client: context.client(), secrets }), queue);
}

/// A JSON Web Signature (RFC 7515) by the token's secret, without the content.
fn signature(content: &str, id: &str, key: &str) -> Option<String> {
    let header = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": id}).to_string());
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).ok()?;
    mac.update(format!("{header}.{}", URL_SAFE_NO_PAD.encode(content)).as_bytes());
    Some(format!("{header}..{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())))
}

/// The change of the ConfigMap's data, as a merge patch; empty when the data is right.
fn plan(data: &BTreeMap<String, String>, tokens: &[Arc<Secret>], now: Timestamp) -> Map<String, Value> {
    let Some(content) = data.get(KUBECONFIG) else { return Map::new() };
    let wanted: BTreeMap<String, String> = tokens
        .iter()
        .filter_map(|secret| signing(secret, now))
        .filter_map(|(id, key)| Some((format!("{SIGNATURE_PREFIX}{id}"), signature(content, id, key)?)))
        .collect();
    let gone = data.keys().filter(|key| key.starts_with(SIGNATURE_PREFIX) && !wanted.contains_key(*key));
    let mut patch: Map<String, Value> = gone.map(|key| (key.clone(), Value::Null)).collect();
    patch.extend(wanted.into_iter().filter(|(key, value)| data.get(key) != Some(value)).map(|(key, value)| (key, value.into())));
    patch
}

impl Controller for BootstrapSigner {
    const NAME: &'static str = "bootstrap-signer-controller";
    const WORKERS: usize = 1;
    type Key = ();

    async fn reconcile(&self, (): &()) -> Result<Next, Failure> {
        let Some(info) = writes::get::<ConfigMap>(&self.client, &ObjectKey::new(NAMESPACE, NAME)).await? else {
            return Ok(Next::After(LOOK_EVERY));
        };
        let patch = plan(&info.data.clone().unwrap_or_default(), &self.secrets.list(), api_clock::now());
        if !patch.is_empty() {
            writes::patch(&self.client, &info, json!({"data": patch})).await?;
        }
        Ok(Next::After(LOOK_EVERY))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::token;
    use super::*;

    #[test]
    fn a_signature_is_a_detached_jws() {
        // Made by Python's hmac module over the same content.
        let expected = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..psz1NayrXM3IaFzKZGsb5n_mBl7MjtlsZ1xE8MRmF_4";
        assert_eq!(signature("content", "abcdef", "0123456789abcdef").as_deref(), Some(expected));
    }

    #[test]
    fn signatures_come_and_go_with_their_tokens() {
        let now = Timestamp::now();
        let (a, b) = (Arc::new(token("aaaaaa", json!({}))), Arc::new(token("bbbbbb", json!({"usage-bootstrap-signing": "false"}))));
        let signed = signature("content", "aaaaaa", "0123456789abcdef").expect("signed");
        let data = |rest: &[(&str, &str)]| -> BTreeMap<String, String> {
            let all = std::iter::once(&(KUBECONFIG, "content")).chain(rest);
            all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let tokens = [a, b];
        let fresh = plan(&data(&[]), &tokens, now);
        assert_eq!(Value::from(fresh), json!({"jws-kubeconfig-aaaaaa": signed}));
        assert!(plan(&data(&[("jws-kubeconfig-aaaaaa", &signed)]), &tokens, now).is_empty());
        let old = plan(&data(&[("jws-kubeconfig-aaaaaa", "old"), ("jws-kubeconfig-bbbbbb", "x"), ("other", "y")]), &tokens, now);
        assert_eq!(Value::from(old), json!({"jws-kubeconfig-aaaaaa": signed, "jws-kubeconfig-bbbbbb": null}));
        assert!(plan(&BTreeMap::new(), &tokens, now).is_empty(), "nothing to sign");
    }
}
