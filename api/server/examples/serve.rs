//! An API server alone, for trying clients on: `serve DIRECTORY [ADDRESS:PORT]`. Keys and database are
//! kept in the directory, `admin.kubeconfig` is written there; it stops on ctrl-c.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api_auth::{Pki, PkiConfig};
use api_server::{Config, Server};
use api_store::{SqliteConfig, SqliteStore, Store};
use base64::Engine as _;
use serde_json::json;
use tokio::net::TcpListener;

type Error = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("usage: serve DIRECTORY [ADDRESS:PORT]")?);
    let address: SocketAddr = arguments.next().as_deref().unwrap_or("127.0.0.1:6443").parse()?;
    let pki = Arc::new(Pki::open(&directory.join("pki"), &PkiConfig::for_cluster("cluster.local"))?);
    let store = Arc::new(SqliteStore::open(SqliteConfig::new(directory.join("state.db"))).await?);
    let listener = TcpListener::bind(address).await?;
    let server = Server::start(Config::new(Arc::clone(&pki), listener.local_addr()?), Arc::clone(&store) as Arc<dyn Store>).await?;
    let kubeconfig = kubeconfig(&pki, listener.local_addr()?)?;
    std::fs::write(directory.join("admin.kubeconfig"), kubeconfig)?;
    println!("serving on https://{address}");
    tokio::select! {
        served = server.serve(listener) => served?,
        stopped = tokio::signal::ctrl_c() => stopped?,
    }
    server.shutdown().await;
    store.close().await;
    Ok(())
}

fn kubeconfig(pki: &Pki, address: SocketAddr) -> Result<String, Error> {
    let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let admin = pki.issue_client("kubernetes-admin", &["system:masters"], Duration::from_secs(24 * 3600))?;
    let cluster = json!({"server": format!("https://{address}"), "certificate-authority-data": base64(pki.ca_pem())});
    let user = json!({"client-certificate-data": base64(&admin.certificate_pem), "client-key-data": base64(&admin.key_pem)});
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "skiff",
        "clusters": [{"name": "skiff", "cluster": cluster}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [{"name": "skiff", "context": {"cluster": "skiff", "user": "admin"}}],
    });
    Ok(serde_json::to_string(&kubeconfig)?)
}
