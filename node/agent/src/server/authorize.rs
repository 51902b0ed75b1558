//! Authorization of requests to the node's server. Administrators and the API server's client may do everything. For other
//! clients the API server decides by upstream's attributes (`nodes/proxy`, `nodes/log`, …).

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

use super::refuse;
use super::verdicts::{Verdicts, question};
use crate::error::chain;
use crate::node::Node;

/// The API server's client certificate.
const API_SERVER: &str = "kube-apiserver-kubelet-client";
/// Administrators.
const MASTERS: &str = "system:masters";

/// How long an answer stays in use: the kubelet's `authorization.webhook.cacheAuthorizedTTL` and `cacheUnauthorizedTTL`.
const ALLOWED_TTL: Duration = Duration::from_secs(300);
const DENIED_TTL: Duration = Duration::from_secs(30);

/// The node, and what the API server has decided.
pub(super) struct Access {
    node: Arc<Node>,
    decided: Verdicts<bool>,
}

impl Access {
    pub(super) fn new(node: Arc<Node>) -> Arc<Self> {
        Arc::new(Self { node, decided: Verdicts::default() })
    }
}

/// Whether the user needs no authorization by the API server.
pub(super) fn may_everything(user: &UserInfo) -> bool {
    user.username == API_SERVER || user.in_group(MASTERS)
}

/// Passes a request on or rejects it.
pub(super) async fn check(
    State(access): State<Arc<Access>>,
    Extension(user): Extension<UserInfo>,
    request: Request,
    next: Next,
) -> Response {
    if may_everything(&user) {
        return next.run(request).await;
    }
    let (verb, subresource) = (verb(request.method()), subresource(request.uri().path()));
    match access.allows(&user, verb, subresource).await {
        Ok(true) => next.run(request).await,
        Ok(false) => {
            let message = format!("Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{subresource}])", user.username);
            refuse(StatusCode::FORBIDDEN, message)
        }
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, format!("Authorization error: {}", chain(&error))),
    }
}

impl Access {
    async fn allows(&self, user: &UserInfo, verb: &str, subresource: &str) -> Result<bool, kube::Error> {
        let extra = user.extra.iter().flat_map(|(name, values)| [name].into_iter().chain(values)).map(String::as_str);
        let groups = user.groups.iter().map(String::as_str);
        let question = question([verb, subresource, &user.username, &user.uid].into_iter().chain(groups).chain(["extra"]).chain(extra));
        if let Some(allowed) = self.decided.get(&question) {
            return Ok(allowed);
        }
        let allowed = self.review(user, verb, subresource).await?;
        self.decided.put(question, allowed, if allowed { ALLOWED_TTL } else { DENIED_TTL });
        Ok(allowed)
    }

    async fn review(&self, user: &UserInfo, verb: &str, subresource: &str) -> Result<bool, kube::Error> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
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
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.node.client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
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

/// Upstream's map from paths to subresources of `nodes`.
fn subresource(path: &str) -> &'static str {
    match path.split('/').nth(1).unwrap_or_default() {
        "stats" => "stats",
        "metrics" => "metrics",
        "logs" => "log",
        _ => "proxy",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_subresources_of_the_node() {
        for (path, wanted) in [
            ("/stats/summary", "stats"),
            ("/metrics", "metrics"),
            ("/metrics/resource", "metrics"),
            ("/exec/a/b/c", "proxy"),
            ("/containerLogs/a/b/c", "proxy"),
            ("/", "proxy"),
        ] {
            assert_eq!(subresource(path), wanted, "{path}");
        }
    }
}
