//! `/attach/{namespace}/{pod}/{container}`: the stdio of a container's own process, as long as both process and client exist.
//! The container continues to run when the client leaves.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use runtimes_contract::AttachSession;

use super::command::{CommandOptions, End, Stdio, answer};
use super::exec::running;
use super::upgrade::Upgrade;
use crate::node::Node;

/// The failed action, in upstream's words.
const DOING: &str = "error attaching to container";

pub(super) async fn attach(
    State(node): State<Arc<Node>>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
    upgrade: Upgrade,
) -> Response {
    let options = CommandOptions::parse(&query.unwrap_or_default());
    let found = options.check_streams().and_then(|()| running(&node, &namespace, &pod, &container));
    let (target, options) = match found {
        Ok(target) => (Some(target), Ok(options)),
        Err(refusal) => (None, Err(refusal)),
    };
    answer(upgrade, options, move |client, options| async move {
        let Some((id, runtime)) = target else { return };
        match runtime.attach(&id, options.stdin).await {
            Ok(AttachSession { stdin, stdout, stderr, resize }) => {
                // The output ends with the container; the Pod's status has the exit code.
                client.carry(Stdio { stdin, stdout, stderr, resize }, async { End::Code(0) }).await;
            }
            Err(error) => client.end(End::from_result(Err(error), DOING)).await,
        }
    })
}
