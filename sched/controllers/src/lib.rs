//! Controllers: a pure plan and a thin apply each, in one shared loop.
//!
//! [`run`] starts the controllers that [`Config::controllers`] selects. They read the informers of the process, write through
//! one client each, and write only what the head of their file lists.

mod account_token;
mod bootstrap_token;
mod claim;
mod clusterrole;
mod concurrent;
mod config;
mod context;
mod cronjob;
mod csr;
mod daemonset;
mod deployment;
mod device_taint_eviction;
mod discovery;
mod disruption;
mod endpoints;
mod endpointslice;
mod endpointslice_mirroring;
mod eviction;
mod external;
mod failure;
mod garbage;
mod hash;
mod job;
mod jobs;
mod keda;
mod kind;
mod meta;
mod metrics;
mod namespace;
mod node_ipam;
mod node_lifecycle;
mod nodes;
mod note;
mod percent;
mod pod_control;
mod pod_gc;
mod podautoscaler;
mod pods;
mod policy_status;
mod relation;
mod replicaset;
mod resourceclaim;
mod revisions;
mod root_ca;
mod service;
mod serviceaccount;
mod slices;
mod statefulset;
mod taint_eviction;
mod ttl_after_finished;
mod volumes;
mod writes;

pub mod work;

use std::sync::Arc;
use std::time::Duration;

use api_client::fence::Fence;
use api_client::informer::Informers;
use api_client::lease::Term;
use api_tasks::{TaskFailure, Tasks};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

pub use config::{Account, Accounts, Autoscaling, Config, NodeTiming, Reserved, Signer, SigningError, SigningRequest, UnknownController};
use context::ControllerContext;
pub use external::{NoValue, ScaledObjectMetrics};
pub use failure::Failure;

/// Why the controllers could not start, or ended.
#[derive(Debug, Error)]
pub enum Error {
    /// `--controllers` names a controller that does not exist.
    #[error(transparent)]
    UnknownController(#[from] UnknownController),
    /// A background task of the controllers failed.
    #[error(transparent)]
    Task(#[from] TaskFailure),
}

/// How long the others may take to end when one has failed.
const FAILED_ENDING_MAX: Duration = Duration::from_millis(200);

/// A controller's name, the identity with which it acts, and the function that sets it up.
type Row = (&'static str, Account, fn(&mut ControllerContext));

/// Every controller, by upstream's name, with upstream's account.
const CONTROLLERS: &[Row] = &[
    ("bootstrap-signer-controller", Account::Named("bootstrap-signer"), bootstrap_token::sign::build),
    ("certificatesigningrequest-approving-controller", Account::Named("certificate-controller"), csr::approve::build),
    ("certificatesigningrequest-cleaner-controller", Account::Named("certificate-controller"), csr::clean::build),
    ("certificatesigningrequest-signing-controller", Account::Named("certificate-controller"), csr::sign::build),
    ("clusterrole-aggregation-controller", Account::Named("clusterrole-aggregation-controller"), clusterrole::build),
    ("cronjob-controller", Account::Named("cronjob-controller"), cronjob::build),
    ("daemonset-controller", Account::Named("daemon-set-controller"), daemonset::build),
    ("deployment-controller", Account::Named("deployment-controller"), deployment::build),
    ("device-taint-eviction-controller", Account::Named("device-taint-eviction-controller"), device_taint_eviction::build),
    ("disruption-controller", Account::Named("disruption-controller"), disruption::build),
    ("endpoints-controller", Account::Named("endpoint-controller"), endpoints::build),
    ("endpointslice-controller", Account::Named("endpointslice-controller"), endpointslice::build),
    ("endpointslice-mirroring-controller", Account::Named("endpointslicemirroring-controller"), endpointslice_mirroring::build),
    ("ephemeral-volume-controller", Account::Named("ephemeral-volume-controller"), volumes::ephemeral::build),
    ("garbage-collector-controller", Account::Named("generic-garbage-collector"), garbage::build),
    ("horizontal-pod-autoscaler-controller", Account::Named("horizontal-pod-autoscaler"), podautoscaler::build),
    ("job-controller", Account::Named("job-controller"), job::build),
    ("local-path-provisioner-controller", Account::Named("local-path-provisioner"), volumes::local_path::build),
    ("namespace-controller", Account::Named("namespace-controller"), namespace::build),
    ("node-ipam-controller", Account::Named("node-controller"), node_ipam::build),
    ("node-lifecycle-controller", Account::Named("node-controller"), node_lifecycle::build),
    ("persistentvolume-binder-controller", Account::Named("persistent-volume-binder"), volumes::binder::build),
    ("persistentvolume-protection-controller", Account::Named("pv-protection-controller"), volumes::protection::build_volumes),
    ("persistentvolumeclaim-protection-controller", Account::Named("pvc-protection-controller"), volumes::protection::build_claims),
    ("pod-garbage-collector-controller", Account::Named("pod-garbage-collector"), pod_gc::build),
    ("replicaset-controller", Account::Named("replicaset-controller"), replicaset::build::<ReplicaSet>),
    ("replicationcontroller-controller", Account::Named("replication-controller"), replicaset::build::<ReplicationController>),
    ("resourceclaim-controller", Account::Named("resource-claim-controller"), resourceclaim::build),
    ("root-ca-certificate-publisher-controller", Account::Named("root-ca-cert-publisher"), root_ca::build),
    ("scaledjob-controller", Account::Named("keda-operator"), keda::scaledjob::build),
    ("scaledobject-controller", Account::Named("keda-operator"), keda::scaledobject::build),
    ("serviceaccount-controller", Account::Named("service-account-controller"), serviceaccount::build),
    ("serviceaccount-token-controller", Account::Manager, account_token::build),
    ("statefulset-controller", Account::Named("statefulset-controller"), statefulset::build),
    ("taint-eviction-controller", Account::Named("node-controller"), taint_eviction::build),
    ("token-cleaner-controller", Account::Named("token-cleaner"), bootstrap_token::clean::build),
    ("ttl-after-finished-controller", Account::Named("ttl-after-finished-controller"), ttl_after_finished::build),
    ("validatingadmissionpolicy-status-controller", Account::Named("validatingadmissionpolicy-status-controller"), policy_status::build),
];

/// The names that [`Config::controllers`] may mention.
pub fn controller_names() -> Vec<&'static str> {
    CONTROLLERS.iter().map(|(name, ..)| *name).collect()
}

/// Whether the list of [`Config::controllers`] selects a controller that acts on the kinds of `keda.sh`.
pub fn acts_on_scaled_objects(controllers: &[String]) -> bool {
    ["scaledjob-controller", "scaledobject-controller"].iter().any(|name| config::enabled(controllers, name))
}

/// Whether the list of [`Config::controllers`] selects the provisioner of the built-in StorageClass.
pub fn provisions_local_volumes(controllers: &[String]) -> bool {
    config::enabled(controllers, "local-path-provisioner-controller")
}

/// Runs the selected controllers until cancelled. While another server leads, it waits. The informers' client acts as
/// the controller manager.
pub async fn run(informers: Informers, config: Config, cancel: CancellationToken) -> Result<(), Error> {
    config::check_names(&config.controllers, &controller_names())?;
    let config = Arc::new(config);
    match config.election.clone() {
        None => run_now(informers, config, None, cancel).await,
        Some(election) => {
            let leading = |Term { fence, cancel }| run_now(informers.clone(), Arc::clone(&config), Some(fence), cancel);
            // `None`: cancelled while another process was the leader.
            api_client::lease::lead(informers.client().clone(), &election, cancel, leading).await.unwrap_or(Ok(()))
        }
    }
}

async fn run_now(informers: Informers, config: Arc<Config>, fence: Option<Fence>, cancel: CancellationToken) -> Result<(), Error> {
    // Ends all of them when one fails.
    let cancel = cancel.child_token();
    let tasks = Tasks::new(cancel.clone());
    metrics::publish();
    let mut context = ControllerContext::new(informers, Arc::clone(&config), fence, tasks.clone());
    for (name, account, build) in CONTROLLERS {
        if config::enabled(&config.controllers, name) {
            context.act_as(*account);
            build(&mut context);
        }
    }
    let mut built = context.build();
    let working = async {
        built.synced().await;
        tracing::info!(controllers = built.runs.len(), "controllers started");
        for (name, run) in built.runs.drain(..) {
            tasks.own(name, run(cancel.clone()));
        }
        cancel.cancelled().await;
    };
    tokio::select! {
        () = cancel.cancelled() => {}
        () = working => {}
        failure = tasks.failed() => {
            cancel.cancel();
            // The next leader must not meet writes of this one.
            let _in_time = tokio::time::timeout(FAILED_ENDING_MAX, tasks.wait()).await;
            return Err(failure.into());
        }
    }
    tasks.wait().await;
    Ok(())
}
