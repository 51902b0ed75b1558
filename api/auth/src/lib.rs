//! Authentication and authorization of requests: certificates, tokens, RBAC.
//!
//! [`Pki`] manages the cluster's keys in a directory. [`Authenticator`] maps a verified client certificate or a bearer
//! token to a user. [`Tokens`] issues and verifies ServiceAccount tokens. [`Authorizer`] decides whether a user may do
//! something. The directory of keys is the only I/O. Everything else depends only on its arguments: a
//! [`View`](api_model::view::View) of the stored objects and the current time.

pub mod authenticate;
pub mod authorize;
pub mod bootstrap;
pub mod pki;
mod role;
pub mod rule;
pub mod tokens;

#[cfg(test)]
mod testing;

pub use authenticate::{Authenticator, Credentials, Oidc, OidcConfig, OidcConfigError, StaticTokens, Unauthenticated};
pub use authorize::{Authorizer, Decision, forbidden_message};
pub use pki::{Identity, Pki, PkiConfig, PkiError};
pub use tokens::{Tokens, TokensConfig};
