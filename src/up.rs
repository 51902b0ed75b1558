//! `skiff up`: control plane and one node in one process, talking to each other without a socket.

use std::time::Duration;

use anyhow::Context;
use api_auth::PkiConfig;
use api_auth::pki::Subject;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::wait::await_condition;
use node_agent::Parts;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cli::Up;
use crate::control::{ControlPlane, Running};
use crate::node::{Identity, NodeSettings};
use crate::{control, node, say, signals};

/// How long the node may take to be ready before that is said.
const NODE_READY_LIMIT: Duration = Duration::from_secs(30);
/// How long the node's own certificate is good; each start issues a new one.
const NODE_CERTIFICATE_VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);

/// Runs until told to stop.
pub async fn run(options: Up) -> anyhow::Result<()> {
    let place = options.data_dir.place()?;
    let _locks = (place.lock("node")?, place.lock("server")?);
    let cancel = signals::stop_token()?;
    let settings = NodeSettings::new(place.clone(), options.ranges.clone(), options.node)?;
    let parts = node::parts(&settings).await?;
    let control = ControlPlane { place, ranges: options.ranges, options: options.control, node_ip: settings.node_ip };
    let running = control::start(&control, &cancel).await?;
    let node = run_node(&running, &settings, parts, &cancel).await;
    let control = running.stop().await;
    node.and(control)
}

/// Runs the node until told to stop, or until a part of it fails.
async fn run_node(running: &Running, settings: &NodeSettings, parts: Parts, cancel: &CancellationToken) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    node::start(&mut tasks, settings, parts, identity(running, settings)?, cancel);
    let mut stopped = std::pin::pin!(node::until_stopped(&mut tasks, cancel));
    let said = tokio::select! {
        ended = &mut stopped => return ended,
        said = say_ready(running, settings, cancel) => said,
    };
    if said.is_err() {
        cancel.cancel();
    }
    stopped.await.and(said)
}

/// The node's clients are the server's own service under the node's name; its serving certificate
/// is signed here.
fn identity(running: &Running, settings: &NodeSettings) -> anyhow::Result<Identity> {
    let reached_by = PkiConfig { names: [settings.node_name.clone()].into(), addresses: [settings.node_ip.into()].into() };
    let subject = Subject::server(&format!("system:node:{}", settings.node_name), &reached_by);
    let issued = running.pki.issue(&subject, NODE_CERTIFICATE_VALIDITY).context("issuing the node's certificate")?;
    let serving = node_agent::Serving {
        certificate_pem: issued.certificate_pem,
        key_pem: issued.key_pem,
        client_ca_pem: running.pki.ca_pem().to_owned(),
    };
    let client = running.client(api_model::request::UserInfo::new(format!("system:node:{}", settings.node_name), &["system:nodes"]));
    Ok(Identity { client, serving: serving.fixed() })
}

async fn say_ready(running: &Running, settings: &NodeSettings, cancel: &CancellationToken) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(running.admin());
    let ready = await_condition(nodes, &settings.node_name, |node: Option<&Node>| node.is_some_and(is_ready));
    tokio::select! {
        () = cancel.cancelled() => return Ok(()),
        answer = tokio::time::timeout(NODE_READY_LIMIT, ready) => match answer {
            Ok(seen) => drop(seen.context("watching the node")?),
            Err(_) => say::complaint(&format!("the node {} is not ready yet; `kubectl describe node` says why", settings.node_name)),
        },
    }
    say::ready(&format!("skiff is ready: export KUBECONFIG={}", running.kubeconfig.display()));
    Ok(())
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
