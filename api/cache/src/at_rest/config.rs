//! Reads an `EncryptionConfiguration` (`apiserver.config.k8s.io/v1`), with upstream's checks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api_model::field::{FieldError, Path, aggregate};
use api_model::kind::GroupResource;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use thiserror::Error;

use super::cipher::{self, Cipher};
use super::{ANY, AtRest, Provider};

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";
const AES_KEY_LENS: &[usize] = &[16, 24, 32];
const SECRETBOX_KEY_LENS: &[usize] = &[32];

/// Why an EncryptionConfiguration was rejected.
#[derive(Debug, Error)]
pub enum EncryptionError {
    /// It cannot be parsed.
    #[error("the encryption configuration cannot be read")]
    Unreadable(#[from] serde_yaml::Error),
    /// It is another kind.
    #[error("the encryption configuration must be of kind {KIND} in version {API_VERSION}, not {kind:?} in {api_version:?}")]
    Kind {
        /// Its kind.
        kind: String,
        /// Its version.
        api_version: String,
    },
    /// Fields are wrong.
    #[error("the encryption configuration is invalid: {}", aggregate(.0))]
    Invalid(Vec<FieldError>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Configuration {
    api_version: String,
    kind: String,
    #[serde(default)]
    resources: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    providers: Vec<Given>,
}

/// Exactly one of them is set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    aesgcm: Option<Keys>,
    aescbc: Option<Keys>,
    secretbox: Option<Keys>,
    identity: Option<Identity>,
    kms: Option<serde_yaml::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default)]
    keys: Vec<Key>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    #[serde(default)]
    name: String,
    #[serde(default)]
    secret: String,
}

pub(super) fn parse(text: &str) -> Result<AtRest, EncryptionError> {
    let given: Configuration = serde_yaml::from_str(text)?;
    if given.kind != KIND || given.api_version != API_VERSION {
        return Err(EncryptionError::Kind { kind: given.kind, api_version: given.api_version });
    }
    let mut errors = Vec::new();
    let root = Path::new("resources");
    if given.resources.is_empty() {
        errors.push(FieldError::required(&root, "at least one resource is required"));
    }
    let mut by_resource: HashMap<GroupResource, Arc<[Provider]>> = HashMap::new();
    for (at, entry) in given.resources.iter().enumerate() {
        let path = root.index(at);
        let providers: Arc<[Provider]> = providers(entry, &path.child("providers"), &mut errors).into();
        for resource in resources(entry, &path.child("resources"), &mut errors) {
            // The first of two entries for one resource counts, as upstream documents it.
            by_resource.entry(resource).or_insert_with(|| Arc::clone(&providers));
        }
    }
    if errors.is_empty() { Ok(AtRest { by_resource }) } else { Err(EncryptionError::Invalid(errors)) }
}

fn resources(entry: &Entry, path: &Path, errors: &mut Vec<FieldError>) -> Vec<GroupResource> {
    if entry.resources.is_empty() {
        errors.push(FieldError::required(path, "at least one resource is required"));
    }
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for (at, text) in entry.resources.iter().enumerate() {
        let path = path.index(at);
        match resource(text) {
            Err(problem) => errors.push(FieldError::invalid(&path, text.as_str(), problem)),
            Ok(resource) if seen.insert(resource.clone()) => found.push(resource),
            Ok(_) => errors.push(FieldError::duplicate(&path, text.as_str())),
        }
    }
    found
}

/// `secrets`, `deployments.apps`, `*.` (all of the core group), `*.apps`, `*.*`.
fn resource(text: &str) -> Result<GroupResource, &'static str> {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    match (resource, group) {
        ("", _) => Err("resource name is required"),
        (ANY, _) if !text.contains('.') => Err("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"),
        (resource, ANY) if resource != ANY => Err("wildcards in the API group are only allowed with all resources: *.*"),
        (_, group) if group != ANY && group.contains(ANY) => Err("asterisk cannot be a part of the API group"),
        (resource, _) if resource != ANY && resource.contains(ANY) => Err("asterisk cannot be a part of the resource name"),
        ("events", "events.k8s.io") => Err("is stored with the core group's events: use 'events'"),
        _ => Ok(GroupResource::new(group, resource)),
    }
}

fn providers(entry: &Entry, path: &Path, errors: &mut Vec<FieldError>) -> Vec<Provider> {
    if entry.providers.is_empty() {
        errors.push(FieldError::required(path, "at least one provider is required"));
    }
    let mut providers = Vec::new();
    for (at, given) in entry.providers.iter().enumerate() {
        let path = path.index(at);
        let names =
            [given.aesgcm.is_some(), given.aescbc.is_some(), given.secretbox.is_some(), given.identity.is_some(), given.kms.is_some()];
        match names.iter().filter(|is_given| **is_given).count() {
            1 => {}
            0 => errors.push(FieldError::required(
                &path,
                "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
            )),
            _ => errors.push(FieldError::invalid(
                &path,
                "",
                "more than one provider specified in a single element, should split into different list elements",
            )),
        }
        if given.kms.is_some() {
            errors.push(FieldError::forbidden(&path.child("kms"), "key management services are not supported"));
        }
        if given.identity.is_some() {
            providers.push(Provider::plain());
        }
        providers.extend(keyed("aesgcm", given.aesgcm.as_ref(), AES_KEY_LENS, cipher::aes_gcm, &path, errors));
        providers.extend(keyed("aescbc", given.aescbc.as_ref(), AES_KEY_LENS, cipher::aes_cbc, &path, errors));
        providers.extend(keyed("secretbox", given.secretbox.as_ref(), SECRETBOX_KEY_LENS, cipher::secretbox, &path, errors));
    }
    providers
}

type MakeCipher = fn(&[u8]) -> Option<Box<dyn Cipher>>;

fn keyed(kind: &str, keys: Option<&Keys>, lens: &[usize], make: MakeCipher, path: &Path, errors: &mut Vec<FieldError>) -> Vec<Provider> {
    let Some(keys) = keys else { return Vec::new() };
    let path = path.child(kind).child("keys");
    if keys.keys.is_empty() {
        errors.push(FieldError::required(&path, "at least one key is required"));
    }
    let mut seen = HashSet::new();
    let mut providers = Vec::new();
    for (at, key) in keys.keys.iter().enumerate() {
        let path = path.index(at);
        if key.name.is_empty() {
            errors.push(FieldError::required(&path.child("name"), "secret must have a name"));
        }
        if key.name.contains(':') {
            // A colon ends the name in the stored prefix.
            errors.push(FieldError::invalid(&path.child("name"), key.name.as_str(), "must not contain ':'"));
        }
        if !seen.insert(key.name.as_str()) {
            errors.push(FieldError::duplicate(&path.child("name"), key.name.as_str()));
        }
        match secret(key, lens, make) {
            Ok(cipher) => providers.push(Provider::keyed(kind, &key.name, cipher)),
            // The secret itself never appears in a message.
            Err(problem) => errors.push(FieldError::invalid(&path.child("secret"), "REDACTED", problem.to_string())),
        }
    }
    providers
}

/// Why a secret is not a key. The messages are upstream's.
#[derive(Debug, thiserror::Error)]
enum SecretError {
    #[error("secret is required")]
    Missing,
    #[error("secrets must be base64 encoded")]
    Encoding,
    #[error("secret is not of the expected length, got {len}, expected one of [{expected}]")]
    Len { len: usize, expected: String },
}

fn secret(key: &Key, lens: &[usize], make: MakeCipher) -> Result<Box<dyn Cipher>, SecretError> {
    if key.secret.is_empty() {
        return Err(SecretError::Missing);
    }
    let bytes = STANDARD.decode(key.secret.trim()).map_err(|_| SecretError::Encoding)?;
    let lens: Vec<String> = lens.iter().map(usize::to_string).collect();
    make(&bytes).ok_or_else(|| SecretError::Len { len: bytes.len(), expected: lens.join(" ") })
}
