//! `/attach/{namespace}/{pod}/{container}`: the stdio of a container's own process, carried to the
//! client for as long as both are there. The client that goes leaves the container running.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use runtimes_contract::AttachSession;

use super::command::{CommandOptions, End, Stdio, answer};
use super::exec::running;
use super::upgrade::Upgrade;
use crate::node::Node;

/// What could not be done, in upstream's words.
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
                // Its output ends when the container does; how that ended is the Pod's to tell.
                client.carry(Stdio { stdin, stdout, stderr, resize }, async { End::Code(0) }).await;
            }
            Err(error) => client.end(End::from_result(Err(error), DOING)).await,
        }
    })
}
