//! Secret: its types, and `stringData`, which is merged into `data` when the object is read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::Rules;
use super::config_map::{CONTENT_BYTES_MAX, decoded_len, immutable};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{fill, make};
use crate::format;

/// The rules of Secrets.
pub const RULES: Rules = Rules::new(default, validate_create, validate_update);

const SERVICE_ACCOUNT: &str = "kubernetes.io/service-account.name";

fn default(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    fill(fields, "type", "Opaque");
    if let Some(Value::Object(plain)) = fields.remove("stringData")
        && !plain.is_empty()
        && let Some(data) = make(fields, "data")
    {
        data.extend(plain.into_iter().map(|(key, text)| (key, STANDARD.encode(text.as_str().unwrap_or_default()).into())));
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let data = object.get("data");
    let mut bytes = 0;
    for (key, value) in data.entries() {
        for message in format::config_key(key) {
            checks.invalid_value(&value.path, key, message);
        }
        bytes += decoded_len(value.text());
    }
    if bytes > CONTENT_BYTES_MAX {
        checks.too_long(&data, CONTENT_BYTES_MAX);
    }
    content(object, &data, checks);
}

/// Checks the data and the annotation that the type requires.
fn content(object: &At<'_>, data: &At<'_>, checks: &mut Checks) {
    match object.get("type").text() {
        "kubernetes.io/service-account-token" => {
            let name = object.find("metadata.annotations").key(SERVICE_ACCOUNT);
            if name.text().is_empty() {
                checks.required(&name, "");
            }
        }
        "kubernetes.io/dockercfg" => json_map(&data.key(".dockercfg"), checks),
        "kubernetes.io/dockerconfigjson" => json_map(&data.key(".dockerconfigjson"), checks),
        "kubernetes.io/basic-auth" if !data.key("username").exists() && !data.key("password").exists() => {
            checks.required(&data.key("username"), "");
            checks.required(&data.key("password"), "");
        }
        "kubernetes.io/ssh-auth" if data.key("ssh-privatekey").text().is_empty() => checks.required(&data.key("ssh-privatekey"), ""),
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !data.key(key).exists() {
                    checks.required(&data.key(key), "");
                }
            }
        }
        _ => {}
    }
}

fn json_map(at: &At<'_>, checks: &mut Checks) {
    if !at.exists() {
        return checks.required(at, "");
    }
    let bytes = STANDARD.decode(at.text()).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<Map<String, Value>>(&bytes) {
        // The error's own text may quote secret data.
        let detail = format!("not a JSON object: line {}, column {}", error.line(), error.column());
        checks.invalid_value(&at.path, "<secret contents redacted>", detail);
    }
}

fn validate_update(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    checks.immutable(&new.get("type"), &old.get("type"));
    immutable(new, old, &["data"], checks);
    validate_create(new, checks);
}
