//! Encryption at rest: how objects of chosen resources look in the store.
//!
//! An `EncryptionConfiguration` names resources and, for each, providers in order. The first provider's first key encrypts. The
//! key that wrote a value decrypts it; the prefix of each key's values (`k8s:enc:aesgcm:v1:KEY:`) identifies it, as upstream.
//! An object that the first key did not write is stale: the next write replaces it even when nothing else changed, so that
//! `kubectl replace` over all objects rotates keys.
//!
//! The module sits between the registry and the store: the store sees bytes, all other code plain objects. The store's key is
//! authenticated with the bytes, so the bytes of one object are invalid under the key of another.

mod cipher;
mod config;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use api_model::kind::GroupResource;
use bytes::Bytes;
use thiserror::Error;

use self::cipher::Cipher;
pub use config::EncryptionError;

/// The beginning of every encrypted value.
const ENCRYPTED: &[u8] = b"k8s:enc:";
/// Stands for all resources of a group, and for all groups.
const ANY: &str = "*";

/// The providers of every resource that has some. [`AtRest::default`] encrypts nothing.
#[derive(Clone, Default)]
pub struct AtRest {
    by_resource: HashMap<GroupResource, Arc<[Provider]>>,
}

/// One key of one provider, or no encryption.
struct Provider {
    /// The prefix of its values; empty for plain values.
    prefix: Vec<u8>,
    /// `None`: the values are plain.
    cipher: Option<Box<dyn Cipher>>,
}

/// A value as it was before it was sealed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) bytes: Bytes,
    /// Whether another provider or key than the first wrote it.
    pub(crate) stale: bool,
}

/// A value that cannot be read or written with the providers at hand.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AtRestError {
    /// No provider of the resource has the prefix of the value.
    #[error("no matching prefix found")]
    NoProvider,
    /// The value is encrypted and the resource has no provider.
    #[error("identity transformer tried to read encrypted data")]
    Encrypted,
    /// The key of that label does not open the value.
    #[error("failed to decrypt with key {0:?}: message authentication failed")]
    Decrypt(String),
    /// The key of that label cannot encrypt the value.
    #[error("failed to encrypt with key {0:?}")]
    Encrypt(String),
}

impl AtRest {
    /// From the content of `--encryption-provider-config`.
    ///
    /// # Errors
    /// When it is no EncryptionConfiguration or names keys that cannot be used.
    pub fn parse(text: &str) -> Result<Self, EncryptionError> {
        config::parse(text)
    }

    /// The bytes to store for an object.
    pub(crate) fn seal(&self, resource: &GroupResource, key: &str, plain: &Bytes) -> Result<Bytes, AtRestError> {
        let Some(first) = self.providers(resource).and_then(<[_]>::first) else { return Ok(plain.clone()) };
        let Some(cipher) = &first.cipher else { return Ok(plain.clone()) };
        let sealed = cipher.seal(key.as_bytes(), plain).ok_or_else(|| AtRestError::Encrypt(first.label()))?;
        let mut stored = Vec::with_capacity(first.prefix.len() + sealed.len());
        stored.extend_from_slice(&first.prefix);
        stored.extend_from_slice(&sealed);
        Ok(stored.into())
    }

    /// The object behind stored bytes.
    pub(crate) fn open(&self, resource: &GroupResource, key: &str, stored: &Bytes) -> Result<Opened, AtRestError> {
        let Some(providers) = self.providers(resource) else {
            return if stored.starts_with(ENCRYPTED) {
                Err(AtRestError::Encrypted)
            } else {
                Ok(Opened { bytes: stored.clone(), stale: false })
            };
        };
        let mut failure = AtRestError::NoProvider;
        for (at, provider) in providers.iter().enumerate() {
            match provider.open(key, stored) {
                Some(Ok(bytes)) => return Ok(Opened { bytes, stale: at > 0 }),
                // Two keys may have one name: another one may still decrypt the value.
                Some(Err(error)) => failure = error,
                None => {}
            }
        }
        Err(failure)
    }

    /// The most particular entry decides: the resource, its group, all.
    fn providers(&self, resource: &GroupResource) -> Option<&[Provider]> {
        if self.by_resource.is_empty() {
            return None;
        }
        let find = |group: &str, resource: &str| self.by_resource.get(&GroupResource::new(group, resource));
        let found = self.by_resource.get(resource).or_else(|| find(&resource.group, ANY)).or_else(|| find(ANY, ANY));
        found.map(AsRef::as_ref)
    }
}

impl std::fmt::Debug for AtRest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.by_resource.iter().map(|(resource, providers)| (resource, providers.len()))).finish()
    }
}

impl Provider {
    fn plain() -> Self {
        Self { prefix: Vec::new(), cipher: None }
    }

    fn keyed(kind: &str, name: &str, cipher: Box<dyn Cipher>) -> Self {
        Self { prefix: format!("k8s:enc:{kind}:v1:{name}:").into_bytes(), cipher: Some(cipher) }
    }

    /// The value, if this provider wrote it.
    fn open(&self, key: &str, stored: &Bytes) -> Option<Result<Bytes, AtRestError>> {
        match &self.cipher {
            None if stored.starts_with(ENCRYPTED) => None,
            None => Some(Ok(stored.clone())),
            Some(cipher) => {
                let sealed = stored.strip_prefix(self.prefix.as_slice())?;
                let opened = cipher.open(key.as_bytes(), sealed);
                Some(opened.map(Bytes::from).ok_or_else(|| AtRestError::Decrypt(self.label())))
            }
        }
    }

    /// The name in messages.
    fn label(&self) -> String {
        String::from_utf8_lossy(&self.prefix).trim_end_matches(':').to_owned()
    }
}
