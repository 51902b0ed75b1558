//! Answers a TokenRequest (`serviceaccounts/NAME/token`): the claims, the validity and the bound objects.

use api_model::field::{FieldError, Path};
use api_model::kind::GroupResource;
use api_model::meta;
use api_model::view::View;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use thiserror::Error;

use super::claims::{Claims, KubernetesClaims, Reference, username};
use super::{KeyError, Tokens};

/// Upstream's defaults and bounds.
const EXPIRATION_SECONDS_DEFAULT: i64 = 3600;
const EXPIRATION_SECONDS_MIN: i64 = 600;
const EXPIRATION_SECONDS_MAX: i64 = 1 << 32;
/// The validity that a kubelet requests for `kube-api-access` volumes. Such tokens are valid for a year, so that
/// clients that never read the file again continue to work. After the requested time they cause a warning.
const WARN_ONLY_SECONDS: i64 = 3607;
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

/// No token was issued.
#[derive(Debug, Error)]
pub enum RequestError {
    /// The ServiceAccount or the bound object is not stored.
    #[error("{resource} {name:?} not found")]
    NotFound {
        /// The resource.
        resource: GroupResource,
        /// The name.
        name: String,
    },
    /// The request is not valid.
    #[error("{0}")]
    BadRequest(String),
    /// A uid does not match the stored object.
    #[error("Operation cannot be fulfilled on {resource} {name:?}: {message}")]
    Conflict {
        /// The resource.
        resource: GroupResource,
        /// The name.
        name: String,
        /// The difference.
        message: String,
    },
    /// A field is not valid.
    #[error("TokenRequest.authentication.k8s.io \"\" is invalid: {}", api_model::field::aggregate(.0))]
    Invalid(Vec<FieldError>),
    /// Signing failed.
    #[error("failed to generate token")]
    Key(#[from] KeyError),
}

impl Tokens {
    /// The response to a TokenRequest for a ServiceAccount: the request with defaults and `status`. Without audiences the
    /// token is for the API server.
    pub fn request(&self, namespace: &str, name: &str, request: &Value, view: &dyn View, now: Timestamp) -> Result<Value, RequestError> {
        let account = stored(view, "serviceaccounts", Some(namespace), name)?;
        let spec = request.get("spec");
        let seconds = spec.and_then(|s| s.get("expirationSeconds")).and_then(Value::as_i64).unwrap_or(EXPIRATION_SECONDS_DEFAULT);
        check_seconds(seconds)?;
        let audiences = self.audiences_of(spec);
        let reference = spec.and_then(|s| s.get("boundObjectRef")).filter(|r| !r.is_null());
        let bound = match reference {
            Some(reference) => bind(reference, namespace, name, view)?,
            None => KubernetesClaims::default(),
        };
        let extended =
            bound.pod.is_some() && seconds == WARN_ONLY_SECONDS && audiences.iter().all(|a| self.config.api_audiences.contains(a));
        let issued = now.as_second();
        let claims = Claims {
            aud: audiences.clone(),
            exp: issued.saturating_add(if extended { EXTENDED_SECONDS } else { seconds }),
            iat: issued,
            iss: self.config.issuer.clone(),
            jti: meta::new_uid(),
            kubernetes: KubernetesClaims {
                namespace: namespace.to_owned(),
                serviceaccount: Reference { name: name.to_owned(), uid: meta::uid(&account).to_owned() },
                warnafter: extended.then(|| issued.saturating_add(seconds)),
                ..bound
            },
            nbf: issued,
            sub: username(namespace, name),
        };
        let until = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        Ok(json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": { "name": name, "namespace": namespace, "creationTimestamp": meta::time(now) },
            "spec": { "audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": reference },
            "status": { "token": self.sign(&claims)?, "expirationTimestamp": meta::time(until) },
        }))
    }

    fn audiences_of(&self, spec: Option<&Value>) -> Vec<String> {
        let requested: Vec<String> = spec
            .and_then(|s| s.get("audiences"))
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        if requested.is_empty() { self.config.api_audiences.clone() } else { requested }
    }
}

fn check_seconds(seconds: i64) -> Result<(), RequestError> {
    let path = Path::new("spec").child("expirationSeconds");
    let problem = match seconds {
        ..EXPIRATION_SECONDS_MIN => "may not specify a duration less than 10 minutes",
        EXPIRATION_SECONDS_MIN..=EXPIRATION_SECONDS_MAX => return Ok(()),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    Err(RequestError::Invalid(vec![FieldError::invalid(&path, seconds, problem)]))
}

/// The claims of a `boundObjectRef`.
fn bind(reference: &Value, namespace: &str, account: &str, view: &dyn View) -> Result<KubernetesClaims, RequestError> {
    let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
    let (kind, name, uid) = (text("kind"), text("name"), text("uid"));
    let mut claims = KubernetesClaims::default();
    match (text("apiVersion"), kind) {
        ("" | "v1", "Pod") => {
            let pod = stored(view, "pods", Some(namespace), name)?;
            let runs_as = pod.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or_default();
            if runs_as != account {
                let message =
                    format!("cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name.");
                return Err(RequestError::BadRequest(message));
            }
            claims.pod = Some(same_uid(&pod, "pods", name, uid)?);
            if let Some(node) = pod.pointer("/spec/nodeName").and_then(Value::as_str).filter(|n| !n.is_empty()) {
                let found = view.get(&GroupResource::new("", "nodes"), None, node);
                let uid = found.map(|n| meta::uid(&n).to_owned()).unwrap_or_default();
                claims.node = Some(Reference { name: node.to_owned(), uid });
            }
        }
        ("" | "v1", "Secret") => {
            let secret = stored(view, "secrets", Some(namespace), name)?;
            claims.secret = Some(same_uid(&secret, "secrets", name, uid)?);
        }
        ("" | "v1", "Node") => {
            let node = stored(view, "nodes", None, name)?;
            claims.node = Some(same_uid(&node, "nodes", name, uid)?);
        }
        (version, _) => {
            let message = format!("cannot bind token to object of type {}", described(version, kind));
            return Err(RequestError::BadRequest(message));
        }
    }
    Ok(claims)
}

/// A group, version and kind as Go prints it.
fn described(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={kind}")
}

fn same_uid(object: &Value, resource: &str, name: &str, wanted: &str) -> Result<Reference, RequestError> {
    let uid = meta::uid(object);
    if wanted.is_empty() || wanted == uid {
        return Ok(Reference { name: name.to_owned(), uid: uid.to_owned() });
    }
    Err(RequestError::Conflict {
        resource: GroupResource::new("", resource),
        name: name.to_owned(),
        message: format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
        ),
    })
}

fn stored(view: &dyn View, resource: &str, namespace: Option<&str>, name: &str) -> Result<std::sync::Arc<Value>, RequestError> {
    let resource = GroupResource::new("", resource);
    view.get(&resource, namespace, name).ok_or_else(|| RequestError::NotFound { resource, name: name.to_owned() })
}
