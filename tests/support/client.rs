//! kube-rs as the client of a cluster.

use std::path::Path;
use std::thread::JoinHandle;

use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use crate::cluster::Cluster;

/// A client with a kubeconfig.
pub async fn with(kubeconfig: &Path) -> Client {
    // Another call may have installed the provider already.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a configuration");
    Client::try_from(config).expect("a client")
}

/// Runs a story with an administrator's client in the cluster's network namespace.
pub fn story(cluster: &Cluster, story: impl AsyncFnOnce(Client) + Send + 'static) {
    start(cluster, story).join().expect("the client's story holds");
}

/// [`story`] on its own thread.
pub fn start(cluster: &Cluster, story: impl AsyncFnOnce(Client) + Send + 'static) -> JoinHandle<()> {
    let kubeconfig = cluster.data_dir().join("admin.kubeconfig");
    cluster.net.enter(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { story(with(&kubeconfig).await).await });
    })
}
