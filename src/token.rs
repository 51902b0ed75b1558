//! Join tokens: bootstrap tokens with the hash of the cluster's authority in front. `skiff server` makes one when it
//! starts, `skiff token` makes, lists and deletes them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use api_auth::bootstrap::JOINING;
use api_model::meta;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use node_agent::bootstrap::ca_hash;
use serde_json::json;

use crate::cli::{self, DataDirArgs};
use crate::control::Running;
use crate::data_dir::DataDir;
use crate::say;

/// The file with the token of `skiff server`.
const FILE: &str = "node-token";
const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const PREFIX: &str = "bootstrap-token-";
/// A token with less time left is replaced by a new one.
const LEFT_MIN: Duration = Duration::from_secs(3_600);

/// The properties of a new token.
struct Terms {
    /// None: the token never expires.
    ttl: Option<Duration>,
    description: String,
    groups: Vec<String>,
    usages: Vec<String>,
}

/// Creates a bootstrap token for joining nodes and stores it beside the database. An existing token stays while it is
/// valid for longer than `LEFT_MIN`.
pub async fn of_server(running: &Running, ttl: Duration) -> anyhow::Result<PathBuf> {
    let (data_dir, secrets) = (running.data_dir(), Api::<Secret>::namespaced(running.admin(), NAMESPACE));
    let now = api_clock::now();
    if let Some(id) = stored_id(data_dir) {
        let secret = match secrets.get_opt(&format!("{PREFIX}{id}")).await {
            Ok(secret) => secret,
            // A key of the encryption at rest may be missing. The rest of the cluster must still start.
            Err(error) => {
                tracing::warn!(error = api_client::error::chain(&error), "the join token cannot be read and is left as it is");
                return Ok(data_dir.at(FILE));
            }
        };
        match secret.as_ref().map(expiration) {
            // Earlier versions created tokens that never expire.
            Some(None) if !ttl.is_zero() => {
                let patch = json!({"stringData": {"expiration": after(now, ttl)?}});
                let name = format!("{PREFIX}{id}");
                secrets.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.context("limiting the join token")?;
                return Ok(data_dir.at(FILE));
            }
            Some(None) => return Ok(data_dir.at(FILE)),
            Some(Some(end)) if end.duration_since(now) > SignedDuration::try_from(LEFT_MIN)? => return Ok(data_dir.at(FILE)),
            Some(Some(_)) | None => {}
        }
    }
    let terms = Terms {
        ttl: (!ttl.is_zero()).then_some(ttl),
        description: "Made by skiff server for nodes to join.".to_owned(),
        groups: vec![JOINING.to_owned()],
        usages: vec!["signing".to_owned(), "authentication".to_owned()],
    };
    let token = create(&secrets, &terms, now).await?;
    data_dir.write_private(FILE, &format!("{}.{token}\n", ca_hash(running.pki.ca_pem())?))
}

/// The id in the file, if there is one.
fn stored_id(data_dir: &DataDir) -> Option<String> {
    let text = std::fs::read_to_string(data_dir.at(FILE)).ok()?;
    text.split('.').nth(1).map(str::to_owned)
}

/// Runs one of the commands.
pub async fn run(command: cli::Token) -> anyhow::Result<()> {
    match command {
        cli::Token::Create { data_dir, ttl, description, groups, usages, print_join_command } => {
            let client = admin(&data_dir).await?;
            let terms = Terms { ttl: (!ttl.is_zero()).then_some(ttl), description, groups, usages };
            let token = create(&Api::namespaced(client.clone(), NAMESPACE), &terms, api_clock::now()).await?;
            let (hash, url) = cluster(client).await?;
            match print_join_command {
                true => say::line(format_args!("skiff agent --server {url} --token {hash}.{token}")),
                false => say::line(format_args!("{hash}.{token}")),
            }
        }
        cli::Token::List { data_dir } => {
            let secrets: Api<Secret> = Api::namespaced(admin(&data_dir).await?, NAMESPACE);
            let found = secrets.list(&ListParams::default().fields(&format!("type={TYPE}"))).await.context("listing tokens")?;
            say::line(format_args!("{:8}{:26}{:26}{:58}DESCRIPTION", "ID", "EXPIRES", "USAGES", "EXTRA GROUPS"));
            found.items.iter().for_each(|secret| say::line(row(secret)));
        }
        cli::Token::Delete { data_dir, id } => {
            let secrets: Api<Secret> = Api::namespaced(admin(&data_dir).await?, NAMESPACE);
            let id = id.rsplit('.').nth(1).unwrap_or(&id).to_owned();
            secrets.delete(&format!("{PREFIX}{id}"), &DeleteParams::default()).await.with_context(|| format!("deleting token {id}"))?;
            say::line(format_args!("token {id} deleted"));
        }
    }
    Ok(())
}

/// A client with the administrator's kubeconfig in the data directory.
async fn admin(data_dir: &DataDirArgs) -> anyhow::Result<kube::Client> {
    let path = data_dir.data_dir.join("admin.kubeconfig");
    let kubeconfig = Kubeconfig::read_from(&path).with_context(|| format!("reading {}: is this the server's machine?", path.display()))?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

/// The hash of the cluster's authority, and the server's URL for nodes, from the public ConfigMap `cluster-info`.
async fn cluster(client: kube::Client) -> anyhow::Result<(String, String)> {
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-public");
    let info = maps.get("cluster-info").await.context("reading kube-public/cluster-info")?;
    let text = info.data.and_then(|data| data.get("kubeconfig").cloned()).context("kube-public/cluster-info has no kubeconfig")?;
    let cluster_info = Kubeconfig::from_yaml(&text).context("reading the kubeconfig of kube-public/cluster-info")?;
    let cluster = cluster_info.clusters.into_iter().find_map(|named| named.cluster).context("kube-public/cluster-info names no cluster")?;
    let ca = STANDARD.decode(cluster.certificate_authority_data.unwrap_or_default()).context("reading the cluster's authority")?;
    Ok((ca_hash(&String::from_utf8(ca)?)?, cluster.server.unwrap_or_default()))
}

/// Creates a token; returns `id.secret`.
async fn create(secrets: &Api<Secret>, terms: &Terms, now: Timestamp) -> anyhow::Result<String> {
    let (id, secret) = (meta::random_suffix(6), meta::random_suffix(16));
    secrets.create(&PostParams::default(), &object(&id, &secret, terms, now)?).await.context("creating the join token")?;
    Ok(format!("{id}.{secret}"))
}

/// The Secret of a token, with upstream's fields.
fn object(id: &str, secret: &str, terms: &Terms, now: Timestamp) -> anyhow::Result<Secret> {
    let mut data = BTreeMap::from([("token-id", id.to_owned()), ("token-secret", secret.to_owned())]);
    if !terms.description.is_empty() {
        data.insert("description", terms.description.clone());
    }
    if let Some(ttl) = terms.ttl {
        data.insert("expiration", after(now, ttl)?);
    }
    if !terms.groups.is_empty() {
        ensure!(
            terms.groups.iter().all(|group| group.starts_with("system:bootstrappers:")),
            "--groups: each begins with system:bootstrappers:"
        );
        data.insert("auth-extra-groups", terms.groups.join(","));
    }
    let mut usages = BTreeMap::new();
    for usage in &terms.usages {
        ensure!(matches!(usage.as_str(), "signing" | "authentication"), "--usages: {usage:?} is neither signing nor authentication");
        usages.insert(format!("usage-bootstrap-{usage}"), "true".to_owned());
    }
    let data: BTreeMap<String, String> = data.into_iter().map(|(key, value)| (key.to_owned(), value)).chain(usages).collect();
    Ok(serde_json::from_value(json!({"metadata": {"name": format!("{PREFIX}{id}")}, "type": TYPE, "stringData": data}))?)
}

fn after(now: Timestamp, ttl: Duration) -> anyhow::Result<String> {
    Ok(now.saturating_add(ttl)?.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

fn field(secret: &Secret, key: &str) -> String {
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    value.map(|ByteString(bytes)| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}

/// When a token expires; None: never. A token whose expiration cannot be parsed has expired.
fn expiration(secret: &Secret) -> Option<Timestamp> {
    let text = field(secret, "expiration");
    (!text.is_empty()).then(|| text.parse().unwrap_or(Timestamp::MIN))
}

/// The fields of a token that may be printed: all but its secret.
fn row(secret: &Secret) -> String {
    let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
    let has = |usage: &&str| field(secret, &format!("usage-bootstrap-{usage}")) == "true";
    let usages: Vec<&str> = ["authentication", "signing"].into_iter().filter(has).collect();
    format!(
        "{:8}{:26}{:26}{:58}{}",
        field(secret, "token-id"),
        or(field(secret, "expiration"), "<never>"),
        or(usages.join(","), "<none>"),
        or(field(secret, "auth-extra-groups"), "<none>"),
        or(field(secret, "description"), "<none>"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(ttl: u64, groups: &[&str], usages: &[&str]) -> anyhow::Result<BTreeMap<String, String>> {
        let own = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        let terms = Terms {
            ttl: (ttl > 0).then(|| Duration::from_secs(ttl)),
            description: String::new(),
            groups: own(groups),
            usages: own(usages),
        };
        let now = "2026-01-01T00:00:00Z".parse().expect("a time");
        object("abcdef", "0123456789abcdef", &terms, now).map(|secret| secret.string_data.expect("data"))
    }

    #[test]
    fn a_token_ends_and_says_what_it_is_for() {
        let data = made(86_400, &[JOINING], &["signing", "authentication"]).expect("a token");
        let wanted = [
            ("auth-extra-groups", JOINING),
            ("expiration", "2026-01-02T00:00:00Z"),
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("usage-bootstrap-signing", "true"),
        ];
        assert_eq!(data, wanted.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect());
        assert!(!made(0, &[], &[]).expect("a token").contains_key("expiration"), "only where that is asked for");
        assert!(made(1, &["system:masters"], &[]).is_err() && made(1, &[], &["root"]).is_err());
    }
}
