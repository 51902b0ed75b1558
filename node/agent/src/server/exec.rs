//! `/exec/{namespace}/{pod}/{container}`: a further process in a running container. The client gets its stdio, and its exit
//! code as a Status.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use runtimes_contract::{ContainerId, ExecSession, ExecSpec, Runtime};
use tokio::time::timeout;

use super::command::{Client, CommandOptions, End, Refusal, Stdio, answer};
use super::upgrade::Upgrade;
use crate::node::Node;

/// How long a start may take when its client has left.
const START_WITHOUT_CLIENT: Duration = Duration::from_secs(10);

/// The failed action, in upstream's words.
const DOING: &str = "error executing command in container";

pub(super) async fn exec(
    State(node): State<Arc<Node>>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
    upgrade: Upgrade,
) -> Response {
    let options = CommandOptions::parse(&query.unwrap_or_default());
    let found = check(&options).and_then(|()| running(&node, &namespace, &pod, &container));
    let (target, options) = match found {
        Ok(target) => (Some(target), Ok(options)),
        Err(refusal) => (None, Err(refusal)),
    };
    answer(upgrade, options, move |client, options| async move {
        let Some((id, runtime)) = target else { return };
        let spec = ExecSpec { args: options.command, stdin: options.stdin, tty: options.tty, outlives_session: true };
        // A program that nobody waits for any more is not begun.
        let prepared = client.while_there(runtime.prepare_exec(&id, &spec)).await;
        let session = match prepared {
            None => return,
            Some(Ok(())) => match start(client.gone(), runtime.exec(&id, spec)).await {
                Some(session) => session,
                None => return,
            },
            Some(Err(error)) => Err(error),
        };
        match session {
            Ok(session) => run(client, session).await,
            Err(error) => client.end(End::from_result(Err(error), DOING)).await,
        }
    })
}

/// A program starts, and goes on, when its client leaves meanwhile. A start that hangs ends soon after its client has left.
async fn start<T>(gone: impl Future<Output = ()>, starting: impl Future<Output = T>) -> Option<T> {
    let mut starting = pin!(starting);
    tokio::select! {
        biased;
        session = &mut starting => Some(session),
        () = gone => timeout(START_WITHOUT_CLIENT, starting).await.ok(),
    }
}

async fn run(client: Client, session: ExecSession) {
    let ExecSession { stdin, stdout, stderr, resize, exit } = session;
    client.carry(Stdio { stdin, stdout, stderr, resize }, async { End::from_result(exit.await, DOING) }).await;
}

fn check(options: &CommandOptions) -> Result<(), Refusal> {
    if options.command.is_empty() {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "you must specify at least 1 command"));
    }
    options.check_streams()
}

/// The running container of that name and its runtime.
pub(super) fn running(node: &Node, namespace: &str, pod: &str, container: &str) -> Result<(ContainerId, Arc<dyn Runtime>), Refusal> {
    let missing = |message| Refusal::new(StatusCode::NOT_FOUND, message);
    let entry = node.directory.find(namespace, pod).ok_or_else(|| missing(format!("pod \"{namespace}/{pod}\" not found")))?;
    let running = entry.containers.get(container).and_then(|instance| instance.running.clone());
    let (id, handler) = running.ok_or_else(|| missing(format!("container not found (\"{container}\")")))?;
    let unknown = || Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("no runtime for \"{handler}\" is configured"));
    let runtime = node.parts.by_handler(&handler).cloned().ok_or_else(unknown)?;
    Ok((id, runtime))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_start_that_hangs_ends_soon_after_its_client_has_left() {
        let starting = |seconds| async move {
            sleep(Duration::from_secs(seconds)).await;
            "session"
        };
        assert_eq!(start(pending(), starting(1_000)).await, Some("session"));
        assert_eq!(start(ready(()), starting(9)).await, Some("session"));
        assert_eq!(start(ready(()), starting(11)).await, None);
    }
}
