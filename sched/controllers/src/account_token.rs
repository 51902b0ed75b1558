//! ServiceAccount tokens in Secrets: a Secret of type `kubernetes.io/service-account-token` that names an account gets a token
//! of that account, which is valid as long as the Secret exists.
//!
//! Watches these Secrets and ServiceAccounts; writes the Secrets' `token`, `ca.crt` and `namespace` and the account's UID as an
//! annotation; deletes a Secret whose account is gone. The controller requests the token as any client would, bound to the
//! Secret.

use std::sync::Arc;

use api_client::informer::{Change, Informer, ObjectKey};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::context::ControllerContext;
use crate::failure::{During, Failure};
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, writes};

const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// The longest lifetime that a request may have, 136 years: the Secret ends the token.
const EXPIRATION_SECONDS: i64 = 1 << 32;

/// Informers cache Secrets of this type only.
const SECRETS: &str = "type=kubernetes.io/service-account-token";

/// The controller; its keys are Secrets.
pub struct AccountTokens {
    client: kube::Client,
    ca: String,
    secrets: Informer<Secret>,
    accounts: Informer<ServiceAccount>,
}

/// Registers the controller, if the cluster's authority is known.
pub fn build(context: &mut ControllerContext) {
    let Some(ca) = context.config.root_ca_pem.clone() else { return };
    let queue = Arc::new(WorkQueue::new("serviceaccount_tokens_service"));
    let secrets = context.feed_selected(SECRETS, &queue, |change: &Change<Secret>| {
        change.new.iter().map(|secret| ObjectKey::from(&secret.metadata)).collect()
    });
    let secret_cache = secrets.clone();
    let accounts = context.feed(&queue, move |change: &Change<ServiceAccount>| {
        let Some(account) = change.latest() else { return Vec::new() };
        let of_account = |secret: &&Arc<Secret>| account_name(secret) == meta::name(&account.metadata);
        let secrets = secret_cache.in_namespace(meta::namespace(&account.metadata));
        secrets.iter().filter(of_account).map(|secret| ObjectKey::from(&secret.metadata)).collect()
    });
    context.run(Arc::new(AccountTokens { client: context.client(), ca, secrets, accounts }), queue);
}

fn account_name(secret: &Secret) -> &str {
    meta::annotation(&secret.metadata, ACCOUNT_NAME).unwrap_or_default()
}

#[derive(Debug, PartialEq)]
enum Action {
    Nothing,
    /// The account is gone, or is not the account that the Secret was made for.
    Delete,
    /// The fields that the Secret lacks, apart from the token.
    Complete {
        patch: Value,
        token: bool,
    },
}

fn plan(secret: &Secret, account: Option<&ServiceAccount>, ca: &str) -> Action {
    let metadata = &secret.metadata;
    if meta::is_deleting(metadata) || account_name(secret).is_empty() {
        return Action::Nothing;
    }
    let Some(account) = account else { return Action::Delete };
    let uid = meta::annotation(metadata, ACCOUNT_UID).unwrap_or_default();
    if !uid.is_empty() && uid != meta::uid(&account.metadata) {
        return Action::Delete;
    }
    let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|value| value.0.as_slice());
    let mut patch = json!({});
    if uid.is_empty() {
        meta::overlay(&mut patch, &json!({"metadata": {"annotations": {ACCOUNT_UID: meta::uid(&account.metadata)}}}));
    }
    for (key, wanted) in [("ca.crt", ca), ("namespace", meta::namespace(metadata))] {
        if data(key) != Some(wanted.as_bytes()) {
            meta::overlay(&mut patch, &json!({"data": {key: k8s_openapi::ByteString(wanted.into())}}));
        }
    }
    let token = data("token").is_none_or(<[u8]>::is_empty);
    if token || patch != json!({}) { Action::Complete { patch, token } } else { Action::Nothing }
}

impl Controller for AccountTokens {
    const NAME: &'static str = "serviceaccount-token-controller";
    const WORKERS: usize = 2;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(secret) = self.secrets.get(key) else { return Ok(Next::OnChange) };
        let account = ObjectKey::new(&key.namespace, account_name(&secret));
        match plan(&secret, self.accounts.get(&account).as_deref(), &self.ca) {
            Action::Nothing => {}
            Action::Delete => {
                // The cache may be behind: an account that was just created is not gone.
                if writes::get::<ServiceAccount>(&self.client, &account).await?.is_none_or(|live| is_other(&secret, &live)) {
                    writes::delete(&self.client, secret.as_ref(), DeleteParams::default()).await?;
                }
            }
            Action::Complete { mut patch, token } => {
                if token {
                    let token = self.token(&account, &secret.metadata).await?;
                    meta::overlay(&mut patch, &json!({"data": {"token": k8s_openapi::ByteString(token.into_bytes())}}));
                }
                writes::patch(&self.client, secret.as_ref(), patch).await?;
            }
        }
        Ok(Next::OnChange)
    }
}

fn is_other(secret: &Secret, account: &ServiceAccount) -> bool {
    meta::annotation(&secret.metadata, ACCOUNT_UID).is_some_and(|uid| !uid.is_empty() && uid != meta::uid(&account.metadata))
}

impl AccountTokens {
    async fn token(&self, account: &ObjectKey, secret: &ObjectMeta) -> Result<String, Failure> {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Secret".to_owned()),
                    name: secret.name.clone(),
                    uid: secret.uid.clone(),
                }),
                expiration_seconds: Some(EXPIRATION_SECONDS),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let api = writes::api::<ServiceAccount>(&self.client, &account.namespace);
        let answer = api.create_token_request(&account.name, &PostParams::default(), &request).await;
        let answer = answer.during("requesting a token of", format!("ServiceAccount {account}"))?;
        let token = answer.status.and_then(|status| status.token).filter(|token| !token.is_empty());
        token.ok_or_else(|| Failure::Unusable { object: format!("ServiceAccount {account}"), problem: "no token was issued".to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(annotations: Value, data: Value) -> Secret {
        let metadata = json!({"name": "s", "namespace": "n", "annotations": annotations});
        let data = data.as_object().expect("data").iter();
        let data = data.map(|(key, value)| (key.clone(), k8s_openapi::ByteString(value.as_str().expect("text").into())));
        let mut secret: Secret = serde_json::from_value(json!({"metadata": metadata})).expect("a Secret");
        secret.data = Some(data.collect());
        secret
    }

    #[test]
    fn a_secret_gets_what_it_lacks_and_goes_with_its_account() {
        let account: ServiceAccount =
            serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}})).expect("an account");
        let named = json!({ACCOUNT_NAME: "a"});
        let whole = json!({"token": "t", "ca.crt": "CA", "namespace": "n"});
        let encoded = |text: &str| json!(k8s_openapi::ByteString(text.into()));
        let cases = [
            (secret(json!({}), json!({})), Some(&account), Action::Nothing),
            (secret(named.clone(), json!({})), None, Action::Delete),
            (secret(json!({ACCOUNT_NAME: "a", ACCOUNT_UID: "old"}), whole.clone()), Some(&account), Action::Delete),
            (secret(json!({ACCOUNT_NAME: "a", ACCOUNT_UID: "u"}), whole.clone()), Some(&account), Action::Nothing),
            (
                secret(named.clone(), json!({})),
                Some(&account),
                Action::Complete {
                    patch: json!({
                        "metadata": {"annotations": {ACCOUNT_UID: "u"}}, "data": {"ca.crt": encoded("CA"), "namespace": encoded("n")},
                    }),
                    token: true,
                },
            ),
            (
                secret(json!({ACCOUNT_NAME: "a", ACCOUNT_UID: "u"}), json!({"token": "t", "ca.crt": "OLD", "namespace": "n"})),
                Some(&account),
                Action::Complete { patch: json!({"data": {"ca.crt": encoded("CA")}}), token: false },
            ),
        ];
        for (secret, account, expected) in cases {
            assert_eq!(plan(&secret, account, "CA"), expected, "{secret:?}");
        }
    }
}
