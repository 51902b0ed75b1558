//! Authentication: the user of a request, from a client certificate or a bearer token, or the anonymous user.
//!
//! TLS has verified the certificate against the cluster's authority; its common name is the user, its organizations are
//! the groups. A bearer token is listed in a static file, is a bootstrap token stored as a Secret, or was issued to a
//! ServiceAccount or by an OpenID Connect provider. An unknown token is an error, never the anonymous user. Secrets are
//! compared in constant time.

mod bootstrap_token;
mod oidc;
mod static_tokens;

use std::sync::Arc;

use api_model::request::UserInfo;
use api_model::view::View;
use jiff::Timestamp;
use serde_json::{Value, json};
use thiserror::Error;

use crate::pki::{CertificateInfo, read_certificate_der};
use crate::tokens::{TokenError, Tokens, Verified};

pub use oidc::{Oidc, OidcConfig, OidcConfigError, OidcError};
pub use static_tokens::{StaticTokens, StaticTokensError};

/// The group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of the anonymous user.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user of a request without credentials.
pub const ANONYMOUS: &str = "system:anonymous";

/// The credentials of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credentials<'a> {
    /// The client's leaf certificate (DER), verified by TLS against the cluster's authority.
    pub client_certificate: Option<&'a [u8]>,
    /// The bearer token.
    pub bearer: Option<&'a str>,
}

/// The credentials are not valid. The client sees only this text.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("Unauthorized")]
pub struct Unauthenticated {
    /// The reason, for the log and the audit.
    pub reason: String,
}

/// The errors of the authenticators of bearer tokens.
#[derive(Debug, Error)]
enum VerifyError {
    /// The token is no valid token of a ServiceAccount.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The token is no valid token of the OpenID Connect provider.
    #[error(transparent)]
    Oidc(#[from] OidcError),
}

/// Maps credentials to users.
pub struct Authenticator {
    static_tokens: StaticTokens,
    tokens: Arc<Tokens>,
    oidc: Option<Arc<Oidc>>,
    anonymous: bool,
}

impl Authenticator {
    /// Creates the authenticator from a static token file (or [`StaticTokens::default`]) and the ServiceAccount tokens.
    /// `anonymous` allows requests without credentials, as the anonymous user.
    pub fn new(static_tokens: StaticTokens, tokens: Arc<Tokens>, anonymous: bool) -> Self {
        Self { static_tokens, tokens, oidc: None, anonymous }
    }

    /// Also accepts tokens of an OpenID Connect provider.
    #[must_use]
    pub fn with_oidc(self, oidc: Option<Arc<Oidc>>) -> Self {
        Self { oidc, ..self }
    }

    /// The ServiceAccount tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// The user of a request.
    pub fn authenticate(&self, credentials: &Credentials<'_>, view: &dyn View, now: Timestamp) -> Result<UserInfo, Unauthenticated> {
        if let Some(user) = credentials.client_certificate.and_then(certificate_user) {
            return Ok(user);
        }
        match credentials.bearer {
            Some(token) => {
                let verified = self.verify(token, &self.tokens.config().api_audiences, view, now);
                verified.map(|v| v.user).map_err(|e| Unauthenticated { reason: e.to_string() })
            }
            None if self.anonymous => Ok(UserInfo::new(ANONYMOUS, &[UNAUTHENTICATED])),
            None => Err(Unauthenticated { reason: "no credentials".to_owned() }),
        }
    }

    /// The response to a TokenReview: the review with its `status`.
    pub fn token_review(&self, review: &Value, view: &dyn View, now: Timestamp) -> Value {
        let spec = review.get("spec");
        let token = spec.and_then(|s| s.get("token")).and_then(Value::as_str).unwrap_or_default();
        let requested: Vec<String> = spec
            .and_then(|s| s.get("audiences"))
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        let audiences = if requested.is_empty() { self.tokens.config().api_audiences.clone() } else { requested };
        let status = match self.verify(token, &audiences, view, now) {
            Ok(Verified { user, audiences }) => json!({ "authenticated": true, "user": user, "audiences": audiences }),
            // Upstream returns no error for a token that no authenticator knows.
            Err(VerifyError::Token(TokenError::Foreign)) => json!({ "user": {} }),
            Err(error) => json!({ "user": {}, "error": error.to_string() }),
        };
        let mut review = review.clone();
        if let Some(map) = review.as_object_mut() {
            map.insert("status".to_owned(), status);
        }
        review
    }

    fn verify(&self, token: &str, audiences: &[String], view: &dyn View, now: Timestamp) -> Result<Verified, VerifyError> {
        let found = self.static_tokens.user(token).or_else(|| bootstrap_token::user(token, view, now));
        let user = match found {
            Some(user) => user,
            None => match self.tokens.verify(token, audiences, now, view) {
                Err(TokenError::Foreign) => self.oidc_user(token, now)?,
                verified => return Ok(with_authenticated(verified?)),
            },
        };
        // These tokens have no audience: they are for the API server itself.
        let own = &self.tokens.config().api_audiences;
        let met: Vec<String> = audiences.iter().filter(|audience| own.contains(audience)).cloned().collect();
        if met.is_empty() {
            return Err(TokenError::Audience(own.clone(), audiences.to_vec()).into());
        }
        Ok(with_authenticated(Verified { user, audiences: met }))
    }

    fn oidc_user(&self, token: &str, now: Timestamp) -> Result<UserInfo, VerifyError> {
        let oidc = self.oidc.as_ref().ok_or(TokenError::Foreign)?;
        oidc.user(token, now).map_err(|error| match error {
            OidcError::Foreign => TokenError::Foreign.into(),
            error => error.into(),
        })
    }
}

fn with_authenticated(mut verified: Verified) -> Verified {
    authenticated(&mut verified.user);
    verified
}

/// The user of a verified client certificate; `None` without a common name.
pub fn certificate_user(der: &[u8]) -> Option<UserInfo> {
    let CertificateInfo { common_name, organizations, fingerprint, .. } = read_certificate_der(der).ok()?;
    if common_name.is_empty() {
        return None;
    }
    let id: String = fingerprint.iter().map(|b| format!("{b:02x}")).collect();
    let mut user = UserInfo { username: common_name, groups: organizations, ..UserInfo::default() };
    user.extra.insert("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("X509SHA256={id}")]);
    authenticated(&mut user);
    Some(user)
}

/// Adds the group of all authenticated users.
pub fn authenticated(user: &mut UserInfo) {
    if user.username != ANONYMOUS && !user.in_group(AUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
}

#[cfg(test)]
mod tests;
