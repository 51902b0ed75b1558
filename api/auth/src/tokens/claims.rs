//! The claims of a ServiceAccount token, and the check that they are still valid.

use std::collections::BTreeMap;

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::request::UserInfo;
use api_model::view::View;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};

use super::TokenError;

/// Upstream's leeway for different clocks: the tokens of a deleted object stay valid this long.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);

/// The claims, named as on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Audiences.
    #[serde(default, deserialize_with = "one_or_many")]
    pub aud: Vec<String>,
    /// Expiry, in seconds since the epoch.
    pub exp: i64,
    /// Time of issue.
    pub iat: i64,
    /// Issuer.
    pub iss: String,
    /// The id of the token.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jti: String,
    /// The objects that the token is bound to.
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: KubernetesClaims,
    /// Start of the validity.
    #[serde(default)]
    pub nbf: i64,
    /// `system:serviceaccount:NAMESPACE:NAME`
    pub sub: String,
}

/// The private claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesClaims {
    /// Namespace of the objects other than the Node.
    pub namespace: String,
    /// The bound Node, or the Node of the bound Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    /// The bound Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    /// The bound Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    /// The ServiceAccount.
    pub serviceaccount: Reference,
    /// The time after which its user gets a warning: the token is still valid only for old clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

/// An object by name and uid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// Name.
    pub name: String,
    /// Uid at the time of issue.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

impl Claims {
    /// Checks the current time against `nbf` and `exp`.
    pub fn check_time(&self, now: Timestamp) -> Result<(), TokenError> {
        let now = now.as_second();
        if now < self.nbf.saturating_sub(LEEWAY.as_secs()) {
            return Err(TokenError::NotYet);
        }
        if now > self.exp.saturating_add(LEEWAY.as_secs()) { Err(TokenError::Expired) } else { Ok(()) }
    }

    /// Whether the bound objects are still stored with the same uid and were not deleted long ago.
    pub fn check_bindings(&self, now: Timestamp, view: &dyn View) -> Result<(), TokenError> {
        let own = &self.kubernetes;
        if self.sub != username(&own.namespace, &own.serviceaccount.name) {
            return Err(TokenError::Malformed);
        }
        let namespaced = Some(own.namespace.as_str());
        let alive = |resource: &str, namespace: Option<&str>, reference: &Reference| {
            let object = view.get(&GroupResource::new("", resource), namespace, &reference.name);
            object.is_some_and(|o| meta::uid(&o) == reference.uid && !long_deleted(&o, now))
        };
        let good = alive("serviceaccounts", namespaced, &own.serviceaccount)
            && own.secret.as_ref().is_none_or(|r| alive("secrets", namespaced, r))
            && own.pod.as_ref().is_none_or(|r| alive("pods", namespaced, r))
            // The Node in a Pod's token is only information. Only a token that is bound to the Node needs the Node.
            && (own.pod.is_some() || own.node.as_ref().is_none_or(|r| alive("nodes", None, r)));
        if good { Ok(()) } else { Err(TokenError::Invalidated) }
    }

    /// The user: upstream's names, groups and extra.
    pub fn user(&self) -> UserInfo {
        let own = &self.kubernetes;
        let mut extra = BTreeMap::new();
        let mut put = |key: &str, value: &str| {
            if !value.is_empty() {
                extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
            }
        };
        if let Some(pod) = &own.pod {
            put("pod-name", &pod.name);
            put("pod-uid", &pod.uid);
        }
        if let Some(node) = &own.node {
            put("node-name", &node.name);
            put("node-uid", &node.uid);
        }
        if !self.jti.is_empty() {
            put("credential-id", &format!("JTI={}", self.jti));
        }
        UserInfo { username: self.sub.clone(), uid: own.serviceaccount.uid.clone(), groups: groups(&own.namespace), extra }
    }
}

/// The user name `system:serviceaccount:NAMESPACE:NAME`.
pub fn username(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The groups of ServiceAccounts in a namespace.
pub fn groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// The `iss` of a token whose signature is not verified, to select the authenticator.
pub fn unverified_issuer(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Issuer {
        iss: String,
    }
    let payload = token.split('.').nth(1)?;
    let bytes = URL_SAFE_NO_PAD.decode(payload).ok()?;
    serde_json::from_slice::<Issuer>(&bytes).ok().map(|claims| claims.iss)
}

fn long_deleted(object: &serde_json::Value, now: Timestamp) -> bool {
    let at = meta::text(object, "deletionTimestamp");
    if at.is_empty() {
        return false;
    }
    // A time that does not parse counts as past.
    at.parse::<Timestamp>().map_or(true, |at| at.saturating_add(LEEWAY).is_ok_and(|until| until < now))
}

fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audience {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Audience::deserialize(from)? {
        Audience::One(one) => vec![one],
        Audience::Many(many) => many,
    })
}
