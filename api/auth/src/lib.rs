//! Who a request is from and what it may do: certificates, tokens, RBAC.
//!
//! [`Pki`] keeps the cluster's keys in a directory. [`Authenticator`] turns a verified client
//! certificate or a bearer token into a user, [`Tokens`] issues and checks ServiceAccount tokens,
//! [`Authorizer`] answers whether a user may do something. The only I/O is the directory of keys:
//! everything else is a function of its arguments and of a [`View`](api_model::view::View) of what
//! is stored, with the present time passed in.

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
