//! Secrets in the store: never in plain text, readable with the right keys, and a clear error without them.

use api_store::{SqliteConfig, SqliteStore};

use super::*;
use crate::AtRest;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// The value in the object, which must not be on the disk.
const VALUE: &str = "c2tpZmYta2VlcHMtdGhpcw==";
const FIRST: &str = "name: first, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const SECOND: &str = "name: second, secret: ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

fn encrypting(keys: &[&str], more: &str) -> Config {
    let keys: Vec<String> = keys.iter().map(|key| format!("{{{key}}}")).collect();
    let providers = format!("[{{aesgcm: {{keys: [{}]}}}}{more}]", keys.join(", "));
    let text = format!(
        "{{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, resources: [{{resources: [secrets], providers: {providers}}}]}}"
    );
    Config { encryption: AtRest::parse(&text).expect("a good configuration"), ..config() }
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"password": VALUE}})
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

async fn stored(cluster: &Cluster, name: &str) -> Vec<u8> {
    let snapshot = cluster.store.snapshot().await.expect("a snapshot");
    let key = format!("core/secrets/default/{name}");
    snapshot.entries.into_iter().find(|entry| *entry.key == key).expect("stored").value.to_vec()
}

#[tokio::test]
async fn no_secret_reaches_the_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || SqliteStore::open(SqliteConfig::new(directory.path().join("state.db")));
    let cluster = cluster_with(encrypting(&[FIRST], ""), Arc::new(open().await.expect("opens"))).await;
    let made = cluster.post(SECRETS, secret("x")).await.ok();
    assert_eq!(made["data"]["password"], VALUE);
    let plain = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"seen": "in-the-open"}});
    cluster.post(CONFIG_MAPS, plain).await.ok();
    cluster.patch(&format!("{SECRETS}/x"), "merge", json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    let on_disk = || -> Vec<u8> {
        let files = std::fs::read_dir(directory.path()).expect("a directory").map(|file| std::fs::read(file.expect("a file").path()));
        files.flat_map(|bytes| bytes.expect("readable")).collect()
    };
    let check = |when: &str| {
        let bytes = on_disk();
        assert!(contains(&bytes, "in-the-open") && contains(&bytes, "k8s:enc:aesgcm:v1:first:"), "{when}: the right files are looked at");
        assert!(!contains(&bytes, VALUE), "{when}");
    };
    check("running");
    cluster.server.shutdown().await;
    cluster.store.close().await;
    check("stopped");
    drop(cluster);
    let cluster = cluster_with(encrypting(&[FIRST], ""), Arc::new(open().await.expect("opens"))).await;
    let read = cluster.get(&format!("{SECRETS}/x")).await.ok();
    assert_eq!((&read["data"]["password"], &read["metadata"]["labels"]["a"]), (&VALUE.into(), &"b".into()));
    let since =
        cluster.get(&format!("{SECRETS}?resourceVersion={}", made["metadata"]["resourceVersion"].as_str().expect("text"))).await.ok();
    assert_eq!(names(&since), ["x"]);
}

#[tokio::test]
async fn keys_are_rotated_by_writing_everything_again() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let plain = cluster_on(Arc::clone(&store)).await;
    plain.post(SECRETS, secret("oldest")).await.ok();
    plain.server.shutdown().await;
    let first = cluster_with(encrypting(&[FIRST], ", {identity: {}}"), Arc::clone(&store)).await;
    first.post(SECRETS, secret("old")).await.ok();
    assert!(contains(&stored(&first, "oldest").await, VALUE), "nobody has written it yet");
    first.server.shutdown().await;
    let second = cluster_with(encrypting(&[SECOND, FIRST], ", {identity: {}}"), Arc::clone(&store)).await;
    for name in ["oldest", "old"] {
        let path = format!("{SECRETS}/{name}");
        let object = second.get(&path).await.ok();
        assert_eq!(object["data"]["password"], VALUE);
        let replaced = second.put(&path, &object).await.ok();
        assert_ne!(
            replaced["metadata"]["resourceVersion"], object["metadata"]["resourceVersion"],
            "{name} is written though it is the same"
        );
        assert!(stored(&second, name).await.starts_with(b"k8s:enc:aesgcm:v1:second:"), "{name}");
        let again = second.put(&path, &replaced).await.ok();
        assert_eq!(again["metadata"]["resourceVersion"], replaced["metadata"]["resourceVersion"], "{name} is not written once more");
    }
    second.server.shutdown().await;
    let only = cluster_with(encrypting(&[SECOND], ""), store).await;
    assert_eq!(names(&only.get(SECRETS).await.ok()), ["old", "oldest"]);
}

#[tokio::test]
async fn the_wrong_key_is_an_error_that_says_so() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let first = cluster_with(encrypting(&[FIRST], ""), Arc::clone(&store)).await;
    first.post(SECRETS, secret("x")).await.ok();
    first.server.shutdown().await;
    let renamed = SECOND.replace("second", "first");
    for (config, why) in [
        (encrypting(&[&renamed], ""), "failed to decrypt with key \"k8s:enc:aesgcm:v1:first\": message authentication failed"),
        (encrypting(&[SECOND], ""), "no matching prefix found"),
        (config(), "identity transformer tried to read encrypted data"),
    ] {
        let cluster = cluster_with(config, Arc::clone(&store)).await;
        let message = format!("Internal error occurred: unable to transform key \"core/secrets/default/x\": {why}");
        let path = format!("{SECRETS}/x");
        let read = cluster.get(&path).await;
        assert_eq!(read.refusal(), (500, message.as_str()));
        assert_eq!(read.body["reason"], "InternalError");
        for answer in [
            cluster.get(SECRETS).await,
            cluster.get("/api/v1/secrets").await,
            cluster.get(&format!("{SECRETS}?watch=1")).await,
            cluster.delete(&path).await,
            cluster.patch(&path, "merge", json!({"data": {"a": "Yg=="}})).await,
        ] {
            assert_eq!(answer.refusal(), (500, message.as_str()));
        }
        assert_eq!(cluster.post(SECRETS, secret("x")).await.status, StatusCode::CONFLICT, "it is there all the same");
        cluster.get(CONFIG_MAPS).await.ok();
        cluster.get("/api/v1/namespaces/kube-system/secrets").await.ok();
        cluster.server.shutdown().await;
    }
}

/// With a lost key, whole lists fail. A user with the right may delete the objects that the key had encrypted.
#[tokio::test]
async fn what_no_key_opens_can_be_deleted_unseen() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let first = cluster_with(encrypting(&[FIRST], ""), Arc::clone(&store)).await;
    first.post(SECRETS, secret("lost")).await.ok();
    first.server.shutdown().await;
    let cluster = cluster_with(encrypting(&[SECOND], ""), store).await;
    cluster.post(SECRETS, secret("good")).await.ok();
    let unseen = |name: &str, more: &str| format!("{SECRETS}/{name}?ignoreStoreReadErrorWithClusterBreakingPotential=true{more}");
    assert_eq!(cluster.get(SECRETS).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    let refused = cluster.delete(&unseen("good", "")).await;
    let why = "Secret \"good\" is invalid: ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: is exclusively used to \
               delete corrupt object(s), try again by removing this option";
    assert_eq!(refused.refusal(), (422, why));
    let both = cluster.delete(&unseen("lost", "&gracePeriodSeconds=0")).await;
    assert_eq!(both.status, StatusCode::UNPROCESSABLE_ENTITY, "{both:?}");
    assert_eq!(cluster.delete(&unseen("missing", "")).await.status, StatusCode::NOT_FOUND);
    // The right to delete is not enough.
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "deleter"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["delete"]}]});
    cluster.post(&format!("{rbac}/namespaces/default/roles"), role).await.ok();
    let subject = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "deleter"}, "subjects": subject});
    cluster.post(&format!("{rbac}/namespaces/default/rolebindings"), binding).await.ok();
    let jane = cluster.user("jane", &["system:authenticated"]);
    let request = Request::builder().method(Method::DELETE).uri(unseen("lost", "")).body(Body::empty()).expect("a request");
    let refused = json_of(send(&jane, request).await).await;
    assert!(refused.status == StatusCode::FORBIDDEN && refused.refusal().1.contains("unsafe-delete-ignore-read-errors"), "{refused:?}");
    cluster.delete(&unseen("lost", "&dryRun=All")).await.ok();
    assert_eq!(cluster.get(SECRETS).await.status, StatusCode::INTERNAL_SERVER_ERROR, "only tried");
    assert_eq!(cluster.delete(&unseen("lost", "")).await.ok()["status"], "Success");
    assert_eq!(names(&cluster.get(SECRETS).await.ok()), ["good"]);
    cluster.post(SECRETS, secret("lost")).await.ok();
}
