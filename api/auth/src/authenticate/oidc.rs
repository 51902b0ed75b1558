//! Users of an OpenID Connect provider. Their ID tokens (OpenID Connect Core 1.0) are verified with the provider's
//! published keys.
//!
//! The owner fetches the keys and sets them ([`Oidc::set_keys`]). A token that is signed with an unknown key is rejected,
//! and a callback asks the owner to fetch the keys again. No request waits for the provider.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use api_model::request::UserInfo;
use arc_swap::ArcSwapOption;
use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::tokens::{VerdictCache, unverified_issuer};

/// Tolerance for a provider's clock that is ahead: go-oidc's leeway on `nbf`.
const NOT_BEFORE_LEEWAY: SignedDuration = SignedDuration::from_mins(5);
/// The username claim that gets no prefix by default; a name from another claim is prefixed with the issuer.
const EMAIL: &str = "email";
/// A longer token is rejected without being parsed.
const TOKEN_LEN_MAX: usize = 64 * 1024;

/// The provider and the meaning of its claims, named as upstream's `--oidc-*` flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcConfig {
    /// `--oidc-issuer-url`: `iss` of every token; https.
    pub issuer_url: String,
    /// `--oidc-client-id`: among `aud` of every token.
    pub client_id: String,
    /// `--oidc-username-claim`
    pub username_claim: String,
    /// `--oidc-username-prefix`; empty for upstream's default, `-` for none.
    pub username_prefix: String,
    /// `--oidc-groups-claim`; empty for none.
    pub groups_claim: String,
    /// `--oidc-groups-prefix`
    pub groups_prefix: String,
    /// `--oidc-required-claim`: claims that every token must have with that value.
    pub required_claims: BTreeMap<String, String>,
    /// `--oidc-signing-algs`
    pub signing_algs: Vec<String>,
}

impl OidcConfig {
    /// Upstream's defaults.
    pub fn new(issuer_url: impl Into<String>, client_id: impl Into<String>) -> Self {
        Self {
            issuer_url: issuer_url.into(),
            client_id: client_id.into(),
            username_claim: "sub".to_owned(),
            username_prefix: String::new(),
            groups_claim: String::new(),
            groups_prefix: String::new(),
            required_claims: BTreeMap::new(),
            signing_algs: vec!["RS256".to_owned()],
        }
    }

    fn prefix(&self) -> String {
        match self.username_prefix.as_str() {
            "-" => String::new(),
            "" if self.username_claim != EMAIL => format!("{}#", self.issuer_url),
            prefix => prefix.to_owned(),
        }
    }
}

/// The configuration of a provider is not usable.
#[derive(Debug, Error)]
pub enum OidcConfigError {
    /// The URL does not use TLS, so an attacker could replace the keys of the provider.
    #[error("issuer URL {0:?} must use the https scheme")]
    Scheme(String),
    /// The client id is empty, so the tokens of other clients would be accepted.
    #[error("no client ID provided")]
    ClientId,
    /// The algorithm does not use a public key.
    #[error("unsupported signing alg {0:?}")]
    Algorithm(String),
    /// The keys are no JSON Web Key Set.
    #[error("the provider's keys cannot be read")]
    Keys(#[from] serde_json::Error),
}

/// Why an ID token is not accepted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OidcError {
    /// The token is of another issuer, which another authenticator may know.
    #[error("oidc: not a token of this issuer")]
    Foreign,
    /// The keys of the provider were not fetched yet.
    #[error("oidc: authenticator not initialized")]
    NotReady,
    /// No known key of the provider verifies the signature.
    #[error("oidc: verify token: failed to verify signature: {0}")]
    Signature(&'static str),
    /// The token has expired.
    #[error("oidc: verify token: oidc: token is expired (Token Expiry: {0})")]
    Expired(Timestamp),
    /// The token is not valid yet.
    #[error("oidc: verify token: oidc: current time before the nbf (not before) time: {0}")]
    NotYet(Timestamp),
    /// The token is for another client.
    #[error("oidc: verify token: oidc: expected audience {wanted:?} got {found:?}")]
    Audience {
        /// The client id.
        wanted: String,
        /// The audiences of the token.
        found: Vec<String>,
    },
    /// A claim is missing or not valid.
    #[error("oidc: {0}")]
    Claim(String),
}

/// Verifies the ID tokens of one provider.
pub struct Oidc {
    config: OidcConfig,
    prefix: String,
    algorithms: HashSet<Algorithm>,
    keys: ArcSwapOption<Keys>,
    unknown_key: Box<dyn Fn() + Send + Sync>,
    verdicts: VerdictCache<(Arc<Keys>, Arc<Value>)>,
}

#[derive(PartialEq)]
struct Keys(JwkSet);

impl Oidc {
    /// Creates the verifier of a provider whose keys are not fetched yet. It calls `unknown_key` for a token that is
    /// signed with an unknown key.
    ///
    /// # Errors
    /// The configuration is incomplete or unsafe.
    pub fn new(config: OidcConfig, unknown_key: impl Fn() + Send + Sync + 'static) -> Result<Self, OidcConfigError> {
        if !config.issuer_url.starts_with("https://") {
            return Err(OidcConfigError::Scheme(config.issuer_url));
        }
        if config.client_id.is_empty() {
            return Err(OidcConfigError::ClientId);
        }
        let algorithms: Result<_, _> = config.signing_algs.iter().map(|name| algorithm(name)).collect();
        Ok(Self {
            prefix: config.prefix(),
            algorithms: algorithms?,
            keys: ArcSwapOption::empty(),
            unknown_key: Box::new(unknown_key),
            verdicts: VerdictCache::default(),
            config,
        })
    }

    /// The configuration.
    pub fn config(&self) -> &OidcConfig {
        &self.config
    }

    /// Sets the provider's keys, a JSON Web Key Set (RFC 7517).
    ///
    /// # Errors
    /// The keys do not parse; the previous keys stay.
    pub fn set_keys(&self, jwks: &[u8]) -> Result<(), OidcConfigError> {
        #[derive(Deserialize)]
        struct Given {
            keys: Vec<Value>,
        }
        let given: Given = serde_json::from_slice(jwks)?;
        // A key of an unknown type must not hide the others.
        let keys = Keys(JwkSet { keys: given.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect() });
        if self.keys.load().as_deref() != Some(&keys) {
            // A cached verdict is valid only for the keys that it was made with.
            self.keys.store(Some(Arc::new(keys)));
        }
        Ok(())
    }

    /// The user of a token that is valid at `now`.
    ///
    /// # Errors
    /// The token is not valid; [`OidcError::Foreign`] if it has another issuer.
    pub fn user(&self, token: &str, now: Timestamp) -> Result<UserInfo, OidcError> {
        if token.len() > TOKEN_LEN_MAX || unverified_issuer(token).is_none_or(|issuer| issuer != self.config.issuer_url) {
            return Err(OidcError::Foreign);
        }
        let keys = self.keys.load_full().ok_or(OidcError::NotReady)?;
        let hash: [u8; 32] = Sha256::digest(token).into();
        let remembered = self.verdicts.get(&hash).filter(|(of, _)| Arc::ptr_eq(of, &keys));
        let claims = match remembered {
            Some((_, claims)) => claims,
            None => {
                let claims = Arc::new(self.signed_claims(token, &keys.0)?);
                self.verdicts.put(hash, (keys, Arc::clone(&claims)));
                claims
            }
        };
        self.check(&claims, now)?;
        self.user_of(&claims)
    }

    fn signed_claims(&self, token: &str, keys: &JwkSet) -> Result<Value, OidcError> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| OidcError::Signature("malformed jwt"))?;
        if !self.algorithms.contains(&header.alg) {
            return Err(OidcError::Signature("the token is signed with an unsupported algorithm"));
        }
        let candidates: Vec<DecodingKey> = candidates(&header, keys);
        if candidates.is_empty() {
            (self.unknown_key)();
            return Err(OidcError::Signature("no key of that id is known"));
        }
        let mut validation = Validation::new(header.alg);
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        let verified = candidates.iter().find_map(|key| jsonwebtoken::decode::<Value>(token, key, &validation).ok());
        verified.map(|verified| verified.claims).ok_or(OidcError::Signature("failed to verify id token signature"))
    }

    fn check(&self, claims: &Value, now: Timestamp) -> Result<(), OidcError> {
        let found = strings(claims.get("aud")).unwrap_or_default();
        if !found.contains(&self.config.client_id) {
            return Err(OidcError::Audience { wanted: self.config.client_id.clone(), found });
        }
        let time = |claim: &str| claims.get(claim).and_then(seconds).map(|at| Timestamp::from_second(at).unwrap_or(Timestamp::MIN));
        let expires = time("exp").unwrap_or(Timestamp::UNIX_EPOCH);
        if expires < now {
            return Err(OidcError::Expired(expires));
        }
        match time("nbf") {
            Some(from) if now.saturating_add(NOT_BEFORE_LEEWAY).is_ok_and(|at| at < from) => Err(OidcError::NotYet(from)),
            _ => Ok(()),
        }
    }

    fn user_of(&self, claims: &Value) -> Result<UserInfo, OidcError> {
        let claim = self.config.username_claim.as_str();
        let missing = |what: &str| OidcError::Claim(format!("parse username claims {claim:?}: {what}"));
        let name = claims.get(claim).ok_or_else(|| missing("claim not present"))?;
        let name = name.as_str().ok_or_else(|| missing("claim is not a string"))?;
        if claim == EMAIL && claims.get("email_verified").is_some_and(|verified| verified != &Value::Bool(true)) {
            return Err(OidcError::Claim("email not verified".to_owned()));
        }
        for (claim, wanted) in &self.config.required_claims {
            match claims.get(claim) {
                Some(found) if found.as_str() == Some(wanted) => {}
                Some(_) => return Err(OidcError::Claim(format!("required claim {claim} value does not match"))),
                None => return Err(OidcError::Claim(format!("required claim {claim} not present in ID token"))),
            }
        }
        let mut user = UserInfo::new(format!("{}{name}", self.prefix), &[]);
        if let Some(groups) = claims.get(&self.config.groups_claim).filter(|_| !self.config.groups_claim.is_empty()) {
            let groups = strings(Some(groups));
            let groups = groups
                .ok_or_else(|| OidcError::Claim(format!("parse groups claim {:?}: not a list of strings", self.config.groups_claim)))?;
            user.groups = groups.into_iter().map(|group| format!("{}{group}", self.config.groups_prefix)).collect();
        }
        if let Some(id) = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            user.extra.insert("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("JTI={id}")]);
        }
        Ok(user)
    }
}

/// Accepts only algorithms with a public key: with a shared secret, the server could sign tokens itself.
fn algorithm(name: &str) -> Result<Algorithm, OidcConfigError> {
    match name {
        "RS256" | "RS384" | "RS512" | "ES256" | "ES384" | "PS256" | "PS384" | "PS512" => {
            name.parse().map_err(|_| OidcConfigError::Algorithm(name.to_owned()))
        }
        _ => Err(OidcConfigError::Algorithm(name.to_owned())),
    }
}

/// The candidate keys: the key with the token's key id, or all keys if the token has no key id.
fn candidates(header: &Header, keys: &JwkSet) -> Vec<DecodingKey> {
    let fits = |key: &&jsonwebtoken::jwk::Jwk| match &header.kid {
        Some(wanted) => key.common.key_id.as_ref() == Some(wanted),
        None => true,
    };
    let usable = keys.keys.iter().filter(fits).filter_map(|key| DecodingKey::from_jwk(key).ok());
    usable.filter(|key| key.family() == header.alg.family()).collect()
}

/// Reads a string or a list of strings.
fn strings(value: Option<&Value>) -> Option<Vec<String>> {
    match value? {
        Value::String(one) => Some(vec![one.clone()]),
        Value::Array(many) => many.iter().map(|one| one.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

/// Reads a time in seconds. Some providers write fractions of seconds.
fn seconds(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "a conversion from floating point saturates")]
    value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds as i64))
}

#[cfg(test)]
mod tests;
