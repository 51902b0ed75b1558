//! Authentication of a request: the user of the connection's certificate or, without one, the user of the bearer token, which the
//! API server reviews (TokenReview). Prometheus and metrics servers have tokens of ServiceAccounts.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api_model::request::UserInfo;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use k8s_openapi::api::authentication::v1::{self, TokenReview, TokenReviewSpec};
use kube::Api;
use kube::api::PostParams;

use super::refuse;
use super::review_cache::{ReviewCache, ReviewError};
use crate::node::Node;

/// How long an accepted token is not reviewed again: the kubelet's `authentication.webhook.cacheTTL`.
const ACCEPTED_TTL: Duration = Duration::from_secs(120);
/// The same for a rejected one. It is shorter than the kubelet's, so that rejected tokens make room for accepted ones.
const REJECTED_TTL: Duration = Duration::from_secs(10);

/// Where a request comes from.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) address: IpAddr,
    /// The user of its certificate.
    pub(super) user: Option<UserInfo>,
    /// Whether a request of the connection was authenticated.
    pub(super) is_authenticated: Arc<AtomicBool>,
}

/// Reviews tokens.
pub(super) struct Authenticator {
    node: Arc<Node>,
    /// The user of each token; `None` for one that the API server does not accept.
    reviews: ReviewCache<Option<UserInfo>>,
}

impl Authenticator {
    pub(super) fn new(node: Arc<Node>) -> Arc<Self> {
        let ttl = |user: &Option<UserInfo>| if user.is_some() { ACCEPTED_TTL } else { REJECTED_TTL };
        Arc::new(Self { node, reviews: ReviewCache::new(ttl) })
    }

    async fn review(&self, token: &str) -> Result<Option<UserInfo>, kube::Error> {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.node.client.clone());
        let status = reviews.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        if status.authenticated == Some(true) {
            return Ok(status.user.map(user_info));
        }
        match status.error.filter(|error| !error.is_empty()) {
            // The API server could not decide: the next review may accept the token.
            Some(error) => Err(kube::Error::Service(error.into())),
            None => Ok(None),
        }
    }
}

/// Passes on a request with its user, or rejects it.
pub(super) async fn check(
    State(authenticator): State<Arc<Authenticator>>,
    Extension(client): Extension<Client>,
    mut request: Request,
    next: Next,
) -> Response {
    let user = match (client.user, bearer(request.headers())) {
        (Some(user), _) => Ok(Some(user)),
        (None, Some(token)) => authenticator.reviews.get(&token, client.address, authenticator.review(token)).await,
        (None, None) => Ok(None),
    };
    let user = match user {
        Ok(Some(user)) => user,
        Ok(None) => return refuse(StatusCode::UNAUTHORIZED, "Unauthorized"),
        Err(error @ ReviewError::TooMany) => return refuse(StatusCode::TOO_MANY_REQUESTS, error.to_string()),
        Err(error) => {
            tracing::debug!(address = %client.address, %error, "a token cannot be reviewed");
            return refuse(StatusCode::UNAUTHORIZED, "Unauthorized");
        }
    };
    client.is_authenticated.store(true, Ordering::Relaxed);
    request.extensions_mut().insert(user);
    next.run(request).await
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn user_info(user: v1::UserInfo) -> UserInfo {
    UserInfo {
        username: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    }
}
