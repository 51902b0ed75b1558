//! Authentication of a request: the user of the connection's certificate or, without one, the user of the bearer token, which the
//! API server reviews (TokenReview). Prometheus and metrics servers have tokens of ServiceAccounts.

use std::net::IpAddr;
use std::sync::Arc;
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
use super::verdicts::{Verdicts, question};
use crate::error::chain;
use crate::fair_queue::{FairQueue, QueueLimits};
use crate::node::Node;

/// How long a review of a token stays in use: the kubelet's `authentication.webhook.cacheTTL`.
const REVIEW_TTL: Duration = Duration::from_secs(120);
/// How long the API server may take.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// Reviews at a time: a Pod can send the node wrong tokens as fast as it likes. One address may have two of them.
const REVIEWS: QueueLimits = QueueLimits { all: 8, of_namespace: 2, slow: 0, slow_after: REVIEW_TIMEOUT };

/// Where a request comes from.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) address: IpAddr,
    /// The user of its certificate.
    pub(super) user: Option<UserInfo>,
}

/// The tokens that have been reviewed.
pub(super) struct Tokens {
    node: Arc<Node>,
    reviews: FairQueue,
    /// The user of each token; `None` for one that the API server does not accept.
    reviewed: Verdicts<Option<UserInfo>>,
}

impl Tokens {
    pub(super) fn new(node: Arc<Node>) -> Arc<Self> {
        Arc::new(Self { node, reviews: FairQueue::new(REVIEWS), reviewed: Verdicts::default() })
    }

    /// The user of a token; `None` when there is none, also when nobody can say.
    async fn user(&self, token: &str, address: IpAddr) -> Option<UserInfo> {
        let token_itself = question([token]);
        if let Some(reviewed) = self.reviewed.get(&token_itself) {
            return reviewed;
        }
        let _permit = self.reviews.acquire(&address.to_string()).await;
        // Another request may have had it reviewed meanwhile.
        if let Some(reviewed) = self.reviewed.get(&token_itself) {
            return reviewed;
        }
        match tokio::time::timeout(REVIEW_TIMEOUT, self.review(token)).await {
            Ok(Ok(user)) => {
                self.reviewed.put(token_itself, user.clone(), REVIEW_TTL);
                user
            }
            Ok(Err(error)) => {
                tracing::warn!(%address, error = chain(&error), "a token cannot be reviewed");
                None
            }
            Err(_) => {
                tracing::warn!(%address, "the review of a token took too long");
                None
            }
        }
    }

    async fn review(&self, token: &str) -> Result<Option<UserInfo>, kube::Error> {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.node.client.clone());
        let status = reviews.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)).map(user_info))
    }
}

/// Passes on a request with its user, or rejects it.
pub(super) async fn check(
    State(tokens): State<Arc<Tokens>>,
    Extension(client): Extension<Client>,
    mut request: Request,
    next: Next,
) -> Response {
    let user = match (client.user, bearer(request.headers())) {
        (Some(user), _) => Some(user),
        (None, Some(token)) => tokens.user(token, client.address).await,
        (None, None) => None,
    };
    let Some(user) = user else { return refuse(StatusCode::UNAUTHORIZED, "Unauthorized") };
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
