//! `skiff up`: control plane and one node in one process. The node reaches the API server without a socket.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use api_auth::PkiConfig;
use api_auth::pki::Subject;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::wait::await_condition;
use node_agent::{Parts, Serving, bootstrap};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cli::Up;
use crate::control::{ControlPlane, Running};
use crate::node::{Identity, NodeSettings};
use crate::process::Process;
use crate::renewal::{CertificateStore, Renewal};
use crate::{control, node, pod_ranges, renewal, say};

/// After this time a message says that the node is not ready yet.
const NODE_READY_LIMIT: Duration = Duration::from_secs(30);

/// Runs until a signal.
pub async fn run(options: Up) -> anyhow::Result<()> {
    let (range, mask_size) = (options.ranges.cluster_cidr, options.control.node_cidr_mask_size);
    pod_ranges::check_max_pods(range, mask_size, options.node.max_pods.unwrap_or(node_agent::PODS_MAX))?;
    let data_dir = options.data_dir.open()?;
    let _locks = (data_dir.lock("node")?, data_dir.lock("server")?);
    let process = Process::begin()?;
    let settings = NodeSettings::new(data_dir.clone(), options.ranges.clone(), options.node)?;
    let mut of_control = options.control;
    of_control.allow_mirror_pods |= settings.options.pod_manifest_path.is_some();
    let control = ControlPlane::new(data_dir, options.ranges, of_control, settings.node_ip);
    let serving = async {
        let parts = node::parts(&settings).await?;
        let running = control::start(&control, &process).await?;
        let node = run_node(&running, &settings, parts, &process).await;
        running.stop().await;
        node
    };
    process.run(serving).await
}

/// Runs the node until it is cancelled.
async fn run_node(running: &Running, settings: &NodeSettings, parts: Parts, process: &Process) -> anyhow::Result<()> {
    let (tasks, cancel) = (process.tasks.child(), &process.cancel);
    let subject = subject(settings);
    let issued = running.pki.issue(&subject, renewal::VALIDITY).context("issuing the node's certificate")?;
    let (renewed, serving) = watch::channel(serving_from(issued, running.pki.ca_pem()));
    let renewal = Renewal::new(Arc::clone(&running.pki), subject, NodeServing(renewed));
    tasks.own("node-certificate", renewal.run(api_clock::now, cancel.clone()));
    let user = api_model::request::UserInfo::new(format!("system:node:{}", settings.node_name), &["system:nodes"]);
    let client = running.client(user, bootstrap::USER_AGENT);
    let identity = Identity { client, informers: running.informers.clone(), serving, certificates: None };
    node::start(&tasks, settings, parts, identity, cancel);
    let said = say_ready(running, settings, cancel).await;
    if said.is_err() {
        cancel.cancel();
    }
    cancel.cancelled().await;
    tasks.wait().await;
    said
}

/// The subject of the node's serving certificate. The control plane in this process signs it. The node's client needs
/// no certificate: it calls the server in this process under the node's name.
fn subject(settings: &NodeSettings) -> Subject {
    let reached_by = PkiConfig { names: [settings.node_name.clone()].into(), addresses: [settings.node_ip.into()].into() };
    Subject::server(&format!("system:node:{}", settings.node_name), &reached_by)
}

fn serving_from(issued: api_auth::Identity, ca_pem: &str) -> Serving {
    Serving { certificate_pem: issued.certificate_pem, key_pem: issued.key_pem, client_ca_pem: ca_pem.to_owned() }
}

/// Distributes the node's serving certificate. New connections use a renewed one.
struct NodeServing(watch::Sender<Serving>);

impl CertificateStore for NodeServing {
    fn what(&self) -> &'static str {
        "the node's"
    }

    fn present(&self) -> Option<String> {
        Some(self.0.borrow().certificate_pem.clone())
    }

    fn replace(&mut self, identity: api_auth::Identity) -> anyhow::Result<()> {
        let renewed = serving_from(identity, &self.0.borrow().client_ca_pem);
        self.0.send_replace(renewed);
        Ok(())
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
