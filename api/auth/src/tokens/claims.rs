//! What a ServiceAccount token says, and whether it still holds.

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

/// A deleted object's tokens go on for this long, for clocks that differ: upstream's leeway.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);

/// The claims, named as on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Audiences.
    #[serde(default, deserialize_with = "one_or_many")]
    pub aud: Vec<String>,
    /// Good until, in seconds since the epoch.
    pub exp: i64,
    /// Issued at.
    pub iat: i64,
    /// Issuer.
    pub iss: String,
    /// The token's own id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jti: String,
    /// What it is bound to.
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: KubernetesClaims,
    /// Good from.
    #[serde(default)]
    pub nbf: i64,
    /// `system:serviceaccount:NAMESPACE:NAME`
    pub sub: String,
}

/// The private claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesClaims {
    /// Namespace of all but the node.
    pub namespace: String,
    /// The Node it is bound to, or of the Pod it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    /// The Pod it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    /// The Secret it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    /// Whose it is.
    pub serviceaccount: Reference,
    /// After this its user should be warned that it lives on only for old clients.
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
    /// Whether the present lies between `nbf` and `exp`.
    pub fn check_time(&self, now: Timestamp) -> Result<(), TokenError> {
        let now = now.as_second();
        if now < self.nbf.saturating_sub(LEEWAY.as_secs()) {
            return Err(TokenError::NotYet);
        }
        if now > self.exp.saturating_add(LEEWAY.as_secs()) { Err(TokenError::Expired) } else { Ok(()) }
    }

    /// Whether what it is bound to is still stored, with the same uid, and not long deleted.
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
            // A Pod's token names its Node for information; only a token bound to the Node dies with it.
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

/// `system:serviceaccount:NAMESPACE:NAME`
pub fn username(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The groups of ServiceAccounts in a namespace.
pub fn groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// The `iss` of a token whose signature nobody looked at: to tell quickly whose it may be.
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
    // An unreadable time counts as past.
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
