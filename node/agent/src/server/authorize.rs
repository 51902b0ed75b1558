//! Authorization of requests to the node's server. Administrators and the API server's client may do everything. For other
//! clients the API server decides by upstream's attributes (`nodes/proxy`, `nodes/log`, …).

use std::sync::Arc;

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
use crate::error::chain;
use crate::node::Node;

/// The API server's client certificate.
const API_SERVER: &str = "kube-apiserver-kubelet-client";
/// Administrators.
const MASTERS: &str = "system:masters";

/// Whether the user needs no authorization by the API server.
pub(super) fn may_everything(user: &UserInfo) -> bool {
    user.username == API_SERVER || user.in_group(MASTERS)
}

/// Passes a request on or rejects it.
pub(super) async fn check(State(node): State<Arc<Node>>, Extension(user): Extension<UserInfo>, request: Request, next: Next) -> Response {
    if may_everything(&user) {
        return next.run(request).await;
    }
    let (verb, subresource) = (verb(request.method()), subresource(request.uri().path()));
    match allowed(&node, &user, verb, subresource).await {
        Ok(true) => next.run(request).await,
        Ok(false) => {
            let message = format!("Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{subresource}])", user.username);
            refuse(StatusCode::FORBIDDEN, message)
        }
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, format!("Authorization error: {}", chain(&error))),
    }
}

async fn allowed(node: &Node, user: &UserInfo, verb: &str, subresource: &str) -> Result<bool, kube::Error> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.username.clone()),
            groups: Some(user.groups.clone()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("nodes".to_owned()),
                subresource: Some(subresource.to_owned()),
                name: Some(node.config.node_name.clone()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(node.client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
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
