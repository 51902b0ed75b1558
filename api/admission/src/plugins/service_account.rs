//! ServiceAccount: checks that the ServiceAccount of a Pod exists. Adds its image pull secrets and, unless the Pod or
//! the account opts out, a volume with a token, the cluster's CA certificate and the name of the namespace.

use api_model::message::Message;
use std::sync::Arc;

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::view::View;
use serde_json::{Value, json};

use crate::denied::{Awaited, Denied};
use crate::json;
use crate::plugin::Plugin;
use crate::pods;
use crate::request::{Operation, Request};

const DEFAULT: &str = "default";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
/// Upstream's number. For a request with exactly this lifetime, the server issues a longer token for clients that never
/// read the file again.
const TOKEN_SECONDS: i64 = 3607;
const ENFORCE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

/// The plugin.
pub struct ServiceAccount;

impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn admit(&self, request: &mut Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        if request.operation != Operation::Create || !request.is("", "pods") || request.object().is_none_or(pods::is_mirror) {
            return self.check(request, view);
        }
        if let Some(spec) = spec_mut(request) {
            set_name(spec);
        }
        let account = account(request, view)?;
        if let Some(spec) = spec_mut(request) {
            if automounts(&account, spec) {
                mount_token(spec);
            }
            if json::list(spec, "imagePullSecrets").is_empty() && !json::list(&account, "imagePullSecrets").is_empty() {
                json::set(spec, "imagePullSecrets", json::list(&account, "imagePullSecrets").to_vec());
            }
        }
        self.check(request, view)
    }

    fn validate(&self, request: &Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        self.check(request, view)
    }
}

impl ServiceAccount {
    fn check(&self, request: &Request<'_>, view: &dyn View) -> Result<(), Denied> {
        let is_new = request.operation == Operation::Create && request.is("", "pods");
        let adds_containers = request.operation == Operation::Update && request.is_sub("", "pods", "ephemeralcontainers");
        let Some(pod) = request.object().filter(|_| is_new || adds_containers) else { return Ok(()) };
        if pods::is_mirror(pod) {
            return check_mirror(pods::spec(pod)).map_err(|message| Denied::forbidden(request, message));
        }
        let account = account(request, view)?;
        if !matches!(json::annotation(&account, ENFORCE_SECRETS), "true" | "True" | "TRUE" | "t" | "T" | "1") {
            return Ok(());
        }
        check_secrets(&account, pods::spec(pod)).map_err(|message| Denied::forbidden(request, message))
    }
}

fn spec_mut<'r>(request: &'r mut Request<'_>) -> Option<&'r mut Value> {
    request.object.as_deref_mut()?.get_mut("spec")
}

/// `serviceAccount` is the older name of the same field; stored Pods carry both.
fn set_name(spec: &mut Value) {
    let name = [json::text(spec, "serviceAccountName"), json::text(spec, "serviceAccount"), DEFAULT].into_iter().find(|n| !n.is_empty());
    let name = name.unwrap_or(DEFAULT).to_owned();
    json::set(spec, "serviceAccountName", name.clone());
    json::set(spec, "serviceAccount", name);
}

fn account(request: &Request<'_>, view: &dyn View) -> Result<Arc<Value>, Denied> {
    let name = request.object().map(|pod| json::text(pods::spec(pod), "serviceAccountName")).unwrap_or_default();
    let namespace = request.namespace;
    let resource = GroupResource::new("", "serviceaccounts");
    view.get(&resource, Some(namespace), name).ok_or_else(|| {
        let message = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        let denied = Denied::forbidden(request, message);
        // A controller creates the default account of each new namespace, perhaps at this moment.
        match name {
            DEFAULT => denied.until(Awaited { resource, namespace: namespace.to_owned(), name: name.to_owned() }),
            _ => denied,
        }
    })
}

/// The value of the Pod, else the value of the account, else true.
fn automounts(account: &Value, spec: &Value) -> bool {
    let says = |of: &Value| of.get("automountServiceAccountToken").and_then(Value::as_bool);
    says(spec).or_else(|| says(account)).unwrap_or(true)
}

fn mount_token(spec: &mut Value) {
    let existing =
        json::list(spec, "volumes").iter().map(|v| json::text(v, "name")).find(|n| n.starts_with(VOLUME_PREFIX)).map(str::to_owned);
    let name = existing.clone().unwrap_or_else(|| meta::generated_name(VOLUME_PREFIX));
    let mount = json!({ "name": name, "readOnly": true, "mountPath": MOUNT_PATH });
    let mut needed = false;
    for field in ["initContainers", "containers"] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if json::list(container, "volumeMounts").iter().any(|m| json::text(m, "mountPath") == MOUNT_PATH) {
                continue;
            }
            if let Some(mounts) = json::list_mut(container, "volumeMounts") {
                mounts.push(mount.clone());
                needed = true;
            }
        }
    }
    if let (true, None, Some(volumes)) = (needed, existing, json::list_mut(spec, "volumes")) {
        volumes.push(token_volume(&name));
    }
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                { "serviceAccountToken": { "expirationSeconds": TOKEN_SECONDS, "path": "token" } },
                { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } }] } },
            ],
        },
    })
}

fn check_mirror(spec: &Value) -> Result<(), &'static str> {
    if !json::text(spec, "serviceAccountName").is_empty() {
        return Err("a mirror pod may not reference service accounts");
    }
    if !pods::secrets(spec).is_empty() {
        return Err("a mirror pod may not reference secrets");
    }
    if !pods::config_maps(spec).is_empty() {
        return Err("a mirror pod may not reference configmaps");
    }
    let volumes = json::list(spec, "volumes");
    if volumes.iter().any(|v| json::has(v, "persistentVolumeClaim")) {
        return Err("a mirror pod may not reference persistentvolumeclaims");
    }
    let projected = volumes.iter().filter_map(|v| v.pointer("/projected/sources")?.as_array()).flatten();
    if projected.into_iter().any(|s| json::has(s, "serviceAccountToken")) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

/// If the account enforces it, a Pod may use only the Secrets that the account lists. Upstream ignores all volumes but
/// those of kind `secret`.
fn check_secrets(account: &Value, spec: &Value) -> Result<(), Message> {
    let listed = |field: &str, secret: &str| json::list(account, field).iter().any(|s| json::text(s, "name") == secret);
    let name = meta::name(account);
    let refused = |who: String, secret: &str| {
        Message::from(format!(
            "{who} secret.secretName={secret:?} is not allowed because service account {name} does not reference that secret"
        ))
    };
    let volumes = json::list(spec, "volumes").iter().flat_map(pods::secrets_of_volume);
    if let Some(secret) = volumes.into_iter().find(|secret| !listed("secrets", secret)) {
        return Err(refused("volume with".to_owned(), secret));
    }
    for (field, what) in [("initContainers", "init container"), ("containers", "container"), ("ephemeralContainers", "ephemeral container")]
    {
        for container in json::list(spec, field) {
            let who = json::text(container, "name");
            for variable in json::list(container, "env") {
                let secret = json::text_at(variable, "/valueFrom/secretKeyRef/name");
                if !secret.is_empty() && !listed("secrets", secret) {
                    let variable = json::text(variable, "name");
                    return Err(refused(format!("{what} {who} with envVar {variable} referencing"), secret));
                }
            }
            let sources = json::list(container, "envFrom").iter().map(|source| json::text_at(source, "/secretRef/name"));
            if let Some(secret) = sources.filter(|secret| !secret.is_empty()).find(|secret| !listed("secrets", secret)) {
                return Err(refused(format!("{what} {who} with envFrom referencing"), secret));
            }
        }
    }
    for (at, secret) in json::list(spec, "imagePullSecrets").iter().map(|s| json::text(s, "name")).enumerate() {
        if !listed("imagePullSecrets", secret) {
            return Err(format!(
                "imagePullSecrets[{at}].name={secret:?} is not allowed because service account {name} does not reference that imagePullSecret"
            ).into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
