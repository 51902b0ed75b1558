//! The store of a control plane: etcd if its servers are given, otherwise a database in the data directory.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use api_store::{EtcdConfig, EtcdStore, EtcdTls, SqliteConfig, SqliteStore, Store};

use crate::cli::Etcd;
use crate::data_dir::DataDir;

/// The file name of the database in the data directory.
pub const DATABASE: &str = "state.db";

/// Opens the store.
pub async fn open(data_dir: &DataDir, etcd: &Etcd) -> anyhow::Result<Arc<dyn Store>> {
    if etcd.etcd_servers.is_empty() {
        let store = SqliteStore::open(SqliteConfig::new(data_dir.at(DATABASE))).await.context("opening the database")?;
        return Ok(Arc::new(store));
    }
    let store = EtcdStore::open(etcd_config(etcd)?).await;
    Ok(Arc::new(store.with_context(|| format!("opening etcd (--etcd-servers {})", etcd.etcd_servers.join(",")))?))
}

fn etcd_config(etcd: &Etcd) -> anyhow::Result<EtcdConfig> {
    let client_pem = match (&etcd.etcd_certfile, &etcd.etcd_keyfile) {
        (Some(certificate), Some(key)) => Some((read("--etcd-certfile", certificate)?, read("--etcd-keyfile", key)?)),
        _ => None,
    };
    let ca_pem = etcd.etcd_cafile.as_deref().map(|path| read("--etcd-cafile", path)).transpose()?;
    Ok(EtcdConfig {
        prefix: etcd.etcd_prefix.clone(),
        tls: EtcdTls { ca_pem, client_pem },
        compaction_interval: etcd.etcd_compaction_interval,
        ..EtcdConfig::new(etcd.etcd_servers.clone())
    })
}

fn read(flag: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("reading {flag} {}", path.display()))
}
