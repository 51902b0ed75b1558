//! Authorization of requests to the node's server. Administrators and the API server's client may do everything. For other
//! clients the API server decides by upstream's attributes (`nodes/metrics`, `nodes/proxy`, …).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api_model::request::UserInfo;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;

use super::authenticate::Client;
use super::refuse;
use super::review_cache::{ReviewCache, ReviewError};
use crate::node::Node;

/// The API server's client certificate.
const API_SERVER: &str = "kube-apiserver-kubelet-client";
/// Administrators.
const MASTERS: &str = "system:masters";

/// How long a review is used again: the kubelet's `authorization.webhook.cacheAuthorizedTTL` and `cacheUnauthorizedTTL`.
const ALLOWED_TTL: Duration = Duration::from_secs(300);
const DENIED_TTL: Duration = Duration::from_secs(30);

/// Reviews what users may do.
pub(super) struct Authorizer {
    node: Arc<Node>,
    reviews: ReviewCache<bool>,
}

impl Authorizer {
    pub(super) fn new(node: Arc<Node>) -> Arc<Self> {
        Arc::new(Self { node, reviews: ReviewCache::new(|allowed| if *allowed { ALLOWED_TTL } else { DENIED_TTL }) })
    }

    async fn allows(&self, user: &UserInfo, address: IpAddr, verb: &str, subresource: &str) -> Result<bool, ReviewError> {
        let spec = SubjectAccessReviewSpec {
            user: Some(user.username.clone()),
            uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("nodes".to_owned()),
                subresource: Some(subresource.to_owned()),
                name: Some(self.node.config.node_name.clone()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = async {
            let reviews: Api<SubjectAccessReview> = Api::all(self.node.client.clone());
            let answer = reviews.create(&PostParams::default(), &review).await?;
            Ok(answer.status.is_some_and(|status| status.allowed))
        };
        self.reviews.get(&review.spec, address, answer).await
    }
}

/// Whether the user of a certificate needs no review.
pub(super) fn may_everything(user: &UserInfo) -> bool {
    user.username == API_SERVER || user.in_group(MASTERS)
}

/// Passes a request on or rejects it.
pub(super) async fn check(
    State(authorizer): State<Arc<Authorizer>>,
    Extension(client): Extension<Client>,
    Extension(user): Extension<UserInfo>,
    request: Request,
    next: Next,
) -> Response {
    // The cluster's CA has signed these names. Whoever is called the same by a token is reviewed.
    if client.user.as_ref().is_some_and(may_everything) {
        return next.run(request).await;
    }
    let (verb, subresources) = (verb(request.method()), subresources(request.uri().path()));
    for subresource in subresources {
        match authorizer.allows(&user, client.address, verb, subresource).await {
            Ok(true) => return next.run(request).await,
            Ok(false) => {}
            Err(error @ ReviewError::TooMany) => return refuse(StatusCode::TOO_MANY_REQUESTS, error.to_string()),
            Err(error) => return refuse(StatusCode::INTERNAL_SERVER_ERROR, format!("Authorization error: {error}")),
        }
    }
    let (user, subresources) = (&user.username, subresources.join(" "));
    let message = format!("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{subresources}])");
    refuse(StatusCode::FORBIDDEN, message)
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

/// Upstream's map from paths to subresources of `nodes` (KEP-2862); each of them is enough.
fn subresources(path: &str) -> &'static [&'static str] {
    match path.split('/').nth(1).unwrap_or_default() {
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        "pods" => &["pods", "proxy"],
        "healthz" => &["healthz", "proxy"],
        _ => &["proxy"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_subresources_of_the_node() {
        for (path, wanted) in [
            ("/stats/summary", &["stats"][..]),
            ("/metrics", &["metrics"]),
            ("/metrics/resource", &["metrics"]),
            ("/pods", &["pods", "proxy"]),
            ("/healthz", &["healthz", "proxy"]),
            ("/livez/ping", &["proxy"]),
            ("/exec/a/b/c", &["proxy"]),
            ("/containerLogs/a/b/c", &["proxy"]),
            ("/", &["proxy"]),
        ] {
            assert_eq!(subresources(path), wanted, "{path}");
        }
    }
}
