//! ServiceAccount tokens: JSON Web Tokens (RFC 7519) signed with the cluster's key (ES256), bound to an audience, a time
//! and usually a Pod.
//!
//! [`Tokens::request`] answers a TokenRequest. [`Tokens::verify`] returns the user of a token. [`Tokens::jwks`] and
//! [`Tokens::discovery`] let other servers verify tokens (OpenID Connect Discovery). A token is valid only while the
//! objects that it is bound to (ServiceAccount, Pod, Secret or Node) are stored with the same uid. Verified signatures are
//! cached by the token's hash, because verifying one is by far the most expensive step. Times and bindings are checked on
//! each use.

mod claims;
mod request;
mod verdict_cache;

use std::sync::Arc;

use api_model::request::UserInfo;
use api_model::view::View;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use rcgen::{KeyPair, PublicKeyData};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use thiserror::Error;

pub(crate) use claims::unverified_issuer;
pub use claims::{Claims, KubernetesClaims, Reference, groups, username};
pub use request::RequestError;
pub(crate) use verdict_cache::VerdictCache;

/// A longer token is rejected without being parsed.
const TOKEN_LEN_MAX: usize = 16 * 1024;

/// Why a token is not accepted. Clients see only `Unauthorized`; the audit log and a TokenReview have this text.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TokenError {
    /// The token is of another issuer, which another authenticator may know.
    #[error("not a token of this issuer")]
    Foreign,
    /// The signature or the encoding is wrong.
    #[error("invalid bearer token")]
    Malformed,
    /// The token is not valid yet.
    #[error("service account token is not valid yet")]
    NotYet,
    /// The token has expired.
    #[error("service account token has expired")]
    Expired,
    /// The token is for other audiences.
    #[error("token audiences {0:?} is invalid for the target audiences {1:?}")]
    Audience(Vec<String>, Vec<String>),
    /// An object that the token is bound to does not exist any more.
    #[error("service account token has been invalidated")]
    Invalidated,
}

/// The signing key is not usable.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The key is no P-256 key.
    #[error("the ServiceAccount signing key is not a usable P-256 key: {0}")]
    Unusable(String),
}

/// The issuer and the default audiences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokensConfig {
    /// `iss`: upstream's `--service-account-issuer`.
    pub issuer: String,
    /// Audiences that the API server accepts: upstream's `--api-audiences`.
    pub api_audiences: Vec<String>,
    /// The absolute URL of the public keys.
    pub jwks_uri: String,
}

impl TokensConfig {
    /// kubeadm's values: the in-cluster name as issuer and only audience.
    pub fn for_cluster(cluster_domain: &str) -> Self {
        let issuer = format!("https://kubernetes.default.svc.{cluster_domain}");
        Self { api_audiences: vec![issuer.clone()], jwks_uri: format!("{issuer}/openid/v1/jwks"), issuer }
    }
}

/// The user and the audiences of a valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The ServiceAccount, as a user.
    pub user: UserInfo,
    /// The requested audiences that the token is for.
    pub audiences: Vec<String>,
}

/// Issues and verifies ServiceAccount tokens.
pub struct Tokens {
    config: TokensConfig,
    header: Header,
    encoding: EncodingKey,
    decoding: DecodingKey,
    point: Vec<u8>,
    key_id: String,
    verdicts: VerdictCache<Arc<Claims>>,
}

impl Tokens {
    /// Creates the issuer from the signing key, PKCS#8 PEM.
    pub fn new(key_pem: &str, config: TokensConfig) -> Result<Self, KeyError> {
        let unusable = |e: &dyn std::fmt::Display| KeyError::Unusable(e.to_string());
        let key = KeyPair::from_pem(key_pem).map_err(|e| unusable(&e))?;
        let encoding = EncodingKey::from_ec_pem(key_pem.as_bytes()).map_err(|e| unusable(&e))?;
        let decoding = DecodingKey::from_ec_der(key.der_bytes());
        // Upstream's key id: the hash of the SubjectPublicKeyInfo.
        let key_id = URL_SAFE_NO_PAD.encode(Sha256::digest(key.subject_public_key_info()));
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(key_id.clone());
        header.typ = None;
        Ok(Self { config, header, encoding, decoding, point: key.der_bytes().to_vec(), key_id, verdicts: VerdictCache::default() })
    }

    /// The configuration.
    pub fn config(&self) -> &TokensConfig {
        &self.config
    }

    /// Signs claims.
    pub fn sign(&self, claims: &Claims) -> Result<String, KeyError> {
        jsonwebtoken::encode(&self.header, claims, &self.encoding).map_err(|e| KeyError::Unusable(e.to_string()))
    }

    /// The user of a token that is valid at `now` and for one of the audiences.
    pub fn verify(&self, token: &str, audiences: &[String], now: Timestamp, view: &dyn View) -> Result<Verified, TokenError> {
        let claims = self.signed_claims(token)?;
        claims.check_time(now)?;
        let matching: Vec<String> = audiences.iter().filter(|a| claims.aud.contains(a)).cloned().collect();
        if matching.is_empty() {
            return Err(TokenError::Audience(claims.aud.clone(), audiences.to_vec()));
        }
        claims.check_bindings(now, view)?;
        Ok(Verified { user: claims.user(), audiences: matching })
    }

    /// The public key as a JSON Web Key Set (RFC 7517): the body of `/openid/v1/jwks`.
    pub fn jwks(&self) -> Value {
        let coordinate = |from: usize| URL_SAFE_NO_PAD.encode(self.point.get(from..from + 32).unwrap_or_default());
        let key = json!({
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256", "x": coordinate(1), "y": coordinate(33),
        });
        json!({ "keys": [key] })
    }

    /// The body of `/.well-known/openid-configuration`.
    pub fn discovery(&self) -> Value {
        json!({
            "issuer": self.config.issuer,
            "jwks_uri": self.config.jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    fn signed_claims(&self, token: &str) -> Result<Arc<Claims>, TokenError> {
        if token.len() > TOKEN_LEN_MAX || token.bytes().filter(|b| *b == b'.').count() != 2 {
            return Err(TokenError::Foreign);
        }
        let hash: [u8; 32] = Sha256::digest(token).into();
        if let Some(claims) = self.verdicts.get(&hash) {
            return Ok(claims);
        }
        if claims::unverified_issuer(token).is_none_or(|issuer| issuer != self.config.issuer) {
            return Err(TokenError::Foreign);
        }
        let mut validation = Validation::new(Algorithm::ES256);
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        let decoded = jsonwebtoken::decode::<Claims>(token, &self.decoding, &validation).map_err(|_| TokenError::Malformed)?;
        let claims = Arc::new(decoded.claims);
        self.verdicts.put(hash, claims.clone());
        Ok(claims)
    }
}

#[cfg(test)]
mod tests;
