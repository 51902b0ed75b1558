//! Credentials for registries out of `imagePullSecrets`. Pure.

use k8s_openapi::api::core::v1::Secret;
use node_images::{PullPolicy, RegistryAuth};
use serde_json::Value;

/// The pull policy by upstream's default rule: `Always` for `latest`, else `IfNotPresent`. The API server sets the default;
/// this is for objects without one.
pub(crate) fn policy(declared: Option<&str>, image: &str) -> PullPolicy {
    match declared {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        Some("IfNotPresent") => PullPolicy::IfNotPresent,
        _ => {
            let name = image.rsplit('/').next().unwrap_or(image);
            let pinned = image.contains('@') || name.split_once(':').is_some_and(|(_, tag)| tag != "latest");
            if pinned { PullPolicy::IfNotPresent } else { PullPolicy::Always }
        }
    }
}

/// The credentials of a Secret of type `kubernetes.io/dockerconfigjson` or `kubernetes.io/dockercfg`;
/// an unreadable one has none.
pub(crate) fn credentials(secret: &Secret) -> Vec<RegistryAuth> {
    let data =
        |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).and_then(|bytes| serde_json::from_slice::<Value>(&bytes.0).ok());
    let auths = match data(".dockerconfigjson") {
        Some(config) => config.get("auths").cloned(),
        None => data(".dockercfg"),
    };
    let entries = auths.as_ref().and_then(Value::as_object);
    entries.into_iter().flatten().filter_map(|(registry, entry)| RegistryAuth::from_docker_config(registry, entry)).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn both_secret_types_are_read() {
        let secret = |key: &str, text: &str| Secret {
            data: Some([(key.to_owned(), ByteString(text.as_bytes().to_vec()))].into()),
            ..Secret::default()
        };
        let show = |secret: &Secret| {
            credentials(secret).into_iter().map(|auth| format!("{} {}:{}", auth.registry, auth.username, auth.password)).collect::<Vec<_>>()
        };
        let json =
            r#"{"auths":{"https://index.docker.io/v1/":{"auth":"dTpwOnE="},"r:5000":{"username":"a","password":"b"},"bad":{"auth":"%"}}}"#;
        assert_eq!(show(&secret(".dockerconfigjson", json)), ["index.docker.io u:p:q", "r:5000 a:b"]);
        assert_eq!(show(&secret(".dockercfg", r#"{"r":{"auth":"dTpw"}}"#)), ["r u:p"]);
        assert!(show(&secret(".dockerconfigjson", "nonsense")).is_empty());
    }

    #[test]
    fn policies_default_by_tag() {
        for (declared, image, wanted) in [
            (None, "web", PullPolicy::Always),
            (None, "web:latest", PullPolicy::Always),
            (None, "r:5000/web", PullPolicy::Always),
            (None, "r:5000/web:1", PullPolicy::IfNotPresent),
            (None, "web@sha256:ab", PullPolicy::IfNotPresent),
            (Some("Never"), "web", PullPolicy::Never),
        ] {
            assert_eq!(policy(declared, image), wanted, "{image}");
        }
    }
}
