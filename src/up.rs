//! `skiff up`: control plane and one node in one process, talking to each other without a socket.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use api_auth::pki::Subject;
use api_auth::{Pki, PkiConfig};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::wait::await_condition;
use node_agent::{Parts, Serving};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cli::Up;
use crate::control::{ControlPlane, Running};
use crate::node::{Identity, NodeSettings};
use crate::{control, node, say, signals};

/// How long the node may take to be ready before that is said.
const NODE_READY_LIMIT: Duration = Duration::from_secs(30);
/// How long the node's own certificate is good; each start issues a new one, and so does each month.
const NODE_CERTIFICATE_VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);
const RENEW_EVERY: Duration = Duration::from_secs(30 * 24 * 3600);

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
    let subject = subject(settings);
    let (renewed, serving) = watch::channel(serving(&running.pki, &subject)?);
    tasks.spawn(renew(Arc::clone(&running.pki), subject, renewed, cancel.clone()));
    let client = running.client(api_model::request::UserInfo::new(format!("system:node:{}", settings.node_name), &["system:nodes"]));
    node::start(&mut tasks, settings, parts, Identity { client, serving }, cancel);
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

/// Whom the node's serving certificate names. It is signed here; as a client the node is the server's own service
/// under the node's name.
fn subject(settings: &NodeSettings) -> Subject {
    let reached_by = PkiConfig { names: [settings.node_name.clone()].into(), addresses: [settings.node_ip.into()].into() };
    Subject::server(&format!("system:node:{}", settings.node_name), &reached_by)
}

fn serving(pki: &Pki, subject: &Subject) -> anyhow::Result<Serving> {
    let issued = pki.issue(subject, NODE_CERTIFICATE_VALIDITY).context("issuing the node's certificate")?;
    Ok(Serving { certificate_pem: issued.certificate_pem, key_pem: issued.key_pem, client_ca_pem: pki.ca_pem().to_owned() })
}

/// Issues the node's certificate anew long before it expires; new connections are shown it.
async fn renew(pki: Arc<Pki>, subject: Subject, renewed: watch::Sender<Serving>, cancel: CancellationToken) -> anyhow::Result<()> {
    loop {
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            () = tokio::time::sleep(RENEW_EVERY) => {}
        }
        match serving(&pki, &subject) {
            Ok(serving) => drop(renewed.send_replace(serving)),
            Err(error) => tracing::error!(error = format!("{error:#}"), "the node's certificate is not renewed"),
        }
    }
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
