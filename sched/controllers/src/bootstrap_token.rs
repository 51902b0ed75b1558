//! Bootstrap tokens, with which nodes join: one controller removes expired tokens, another signs the public `cluster-info` with
//! the tokens that allow it. Two controllers on one kind of Secret, as upstream.

pub mod clean;
pub mod sign;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use crate::meta;

/// The namespace in which bootstrap tokens are valid.
const NAMESPACE: &str = "kube-system";
/// Informers cache Secrets of this type only.
const SECRETS: &str = "type=bootstrap.kubernetes.io/token";
const NAME_PREFIX: &str = "bootstrap-token-";

fn field<'a>(secret: &'a Secret, name: &str) -> Option<&'a str> {
    std::str::from_utf8(&secret.data.as_ref()?.get(name)?.0).ok()
}

/// The time at which the token expires; `None` when it never does. A time that cannot be parsed counts as past.
fn expiration(secret: &Secret) -> Option<Timestamp> {
    field(secret, "expiration").filter(|at| !at.is_empty()).map(|at| at.parse().unwrap_or(Timestamp::MIN))
}

/// Id and secret of a token that may sign.
fn signing(secret: &Secret, now: Timestamp) -> Option<(&str, &str)> {
    let name = meta::name(&secret.metadata);
    let (id, key) = (field(secret, "token-id")?, field(secret, "token-secret")?);
    let good = name.strip_prefix(NAME_PREFIX) == Some(id)
        && meta::namespace(&secret.metadata) == NAMESPACE
        && !key.is_empty()
        && !meta::is_deleting(&secret.metadata)
        && field(secret, "usage-bootstrap-signing") == Some("true")
        && expiration(secret).is_none_or(|at| at > now);
    good.then_some((id, key))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A token's Secret with some of its data changed.
    pub fn token(id: &str, changes: Value) -> Secret {
        let mut data = json!({"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true"});
        data.as_object_mut().expect("data").extend(changes.as_object().expect("changes").clone());
        let data = data.as_object().expect("data").iter();
        let data = data.map(|(key, value)| (key.clone(), k8s_openapi::ByteString(value.as_str().expect("text").into())));
        let metadata = json!({"name": format!("{NAME_PREFIX}{id}"), "namespace": NAMESPACE});
        let mut secret: Secret =
            serde_json::from_value(json!({"metadata": metadata, "type": "bootstrap.kubernetes.io/token"})).expect("a Secret");
        secret.data = Some(data.collect());
        secret
    }

    #[test]
    fn only_good_tokens_sign() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().expect("a time");
        let cases = [
            (json!({}), true),
            (json!({"expiration": "2026-01-02T00:00:01Z"}), true),
            (json!({"expiration": "2026-01-02T00:00:00Z"}), false),
            (json!({"expiration": "soon"}), false),
            (json!({"usage-bootstrap-signing": "false"}), false),
            (json!({"token-secret": ""}), false),
            (json!({"token-id": "zzzzzz"}), false),
        ];
        for (changes, expected) in cases {
            let secret = token("abcdef", changes.clone());
            assert_eq!(signing(&secret, now).is_some(), expected, "{changes}");
        }
        let mut elsewhere = token("abcdef", json!({}));
        elsewhere.metadata.namespace = Some("default".to_owned());
        assert_eq!(signing(&elsewhere, now), None);
    }
}
