//! Volumes on the real file system, with real tmpfs and bind mounts (needs root).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use async_trait::async_trait;
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, NodeSelector, PersistentVolume, PersistentVolumeClaim, ResourceFieldSelector, Secret};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

mod persistent;

#[derive(Default)]
struct Objects {
    maps: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
    secrets: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    claims: Mutex<BTreeMap<String, PersistentVolumeClaim>>,
    persistent: Mutex<BTreeMap<String, PersistentVolume>>,
    tokens: Mutex<u32>,
    /// By how many seconds this machine's clock is ahead of the server's.
    ahead_s: Mutex<i64>,
}

#[async_trait]
impl Source for Objects {
    async fn config_map(&self, _namespace: &str, name: &str) -> Result<ConfigMap, SourceError> {
        let data = self.maps.lock().get(name).cloned();
        let missing = SourceError::NotFound { resource: "configmap", name: name.to_owned() };
        data.map(|data| ConfigMap { data: Some(data), ..ConfigMap::default() }).ok_or(missing)
    }

    async fn secret(&self, _namespace: &str, name: &str) -> Result<Secret, SourceError> {
        let data = self.secrets.get(name).cloned();
        let missing = SourceError::NotFound { resource: "secret", name: name.to_owned() };
        let data = data.map(|data| data.into_iter().map(|(key, bytes)| (key, ByteString(bytes))).collect());
        data.map(|data| Secret { data: Some(data), ..Secret::default() }).ok_or(missing)
    }

    async fn claim(&self, _namespace: &str, name: &str) -> Result<PersistentVolumeClaim, SourceError> {
        let missing = SourceError::NotFound { resource: "persistentvolumeclaims", name: name.to_owned() };
        self.claims.lock().get(name).cloned().ok_or(missing)
    }

    async fn volume(&self, name: &str) -> Result<PersistentVolume, SourceError> {
        let missing = SourceError::NotFound { resource: "persistentvolumes", name: name.to_owned() };
        self.persistent.lock().get(name).cloned().ok_or(missing)
    }

    fn selects_node(&self, selector: &NodeSelector) -> bool {
        let values = selector.node_selector_terms.iter().flat_map(|term| term.match_expressions.iter().flatten());
        values.flat_map(|one| one.values.iter().flatten()).any(|value| value == "here")
    }

    async fn token(&self, ask: &TokenAsk) -> Result<Token, SourceError> {
        let mut count = self.tokens.lock();
        *count += 1;
        let expires_at = Timestamp::now() + SignedDuration::from_secs(ask.expiration_seconds - *self.ahead_s.lock());
        Ok(Token { token: format!("{}-{}-{count}", ask.service_account, ask.pod), expires_at })
    }
}

/// A node's volumes in a directory of their own; what is left mounted is unmounted at the end.
struct Node {
    dir: tempfile::TempDir,
    volumes: Volumes,
    objects: Objects,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let objects = Objects::default();
        objects
            .maps
            .lock()
            .insert("settings".to_owned(), BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]));
        let secrets = BTreeMap::from([("keys".to_owned(), BTreeMap::from([("tls.key".to_owned(), b"k".to_vec())]))]);
        let of = |name: &str| dir.path().join(name);
        Self { volumes: Volumes::new(of("pods"), of("local"), of("records")), dir, objects: Objects { secrets, ..objects } }
    }

    async fn set_up(&self, pod: &Pod) -> Result<Option<Timestamp>, VolumeError> {
        self.set_up_within(pod, None).await
    }

    /// With a limit of the Pod's memory.
    async fn set_up_within(&self, pod: &Pod, limit: Option<u64>) -> Result<Option<Timestamp>, VolumeError> {
        let allocatable = Allocatable { cpu_milli: 2_000, memory_bytes: 1 << 30, ephemeral_storage_bytes: 0 };
        self.volumes.set_up(pod, allocatable, limit, &self.objects).await
    }

    async fn mounts(&self, pod: &Pod) -> Result<Vec<Mount>, VolumeError> {
        let container = &pod.spec.as_ref().expect("a spec").containers[0];
        self.volumes.mounts(pod, container, &|text| Ok(text.replace("$(NAME)", "x"))).await
    }

    /// Sets up one volume and answers where it is.
    async fn one(&self, volume: Value) -> Result<(Pod, PathBuf), VolumeError> {
        let pod = pod(json!([volume]), json!([{"name": "v", "mountPath": "/v"}]));
        self.set_up(&pod).await?;
        let path = self.mounts(&pod).await?[0].source.clone();
        Ok((pod, path))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for mount in mount_table::below(self.dir.path()).unwrap_or_default().iter().rev() {
            mount_table::unmount(mount).expect("unmounting");
        }
    }
}

fn pod(volumes: Value, mounts: Value) -> Pod {
    pod_with(volumes, mounts, json!({}))
}

fn pod_with(volumes: Value, mounts: Value, security: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u-1", "labels": {"app": "web"}, "annotations": {"k": "a\"b"}},
        "spec": {
            "serviceAccountName": "builder", "volumes": volumes, "securityContext": security,
            "containers": [{"name": "c", "volumeMounts": mounts, "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}}}],
        },
    }))
    .expect("a pod")
}

/// A Pod whose container mounts an `emptyDir` of each of these specs, in their order.
fn with_empty_dirs(specs: &[Value]) -> Pod {
    let names = (0..specs.len()).map(|index| format!("v{index}"));
    let mounts = names.clone().map(|name| json!({"name": name, "mountPath": format!("/{name}")})).collect();
    let volumes = names.zip(specs).map(|(name, spec)| json!({"name": name, "emptyDir": spec})).collect();
    pod(volumes, mounts)
}

fn text(path: PathBuf) -> String {
    fs::read_to_string(path).expect("a file")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("metadata").permissions().mode() & 0o7777
}

#[tokio::test]
async fn config_map_keys_become_files_and_follow_changes() {
    let node = Node::new();
    let (pod, path) = node.one(json!({"name": "v", "configMap": {"name": "settings", "defaultMode": 0o440}})).await.expect("set up");
    assert_eq!(text(path.join("a")), "1");
    assert_eq!(mode(&path.join("a")), 0o440);
    let before = fs::read_link(path.join("..data")).expect("a link");
    node.set_up(&pod).await.expect("again");
    assert_eq!(fs::read_link(path.join("..data")).expect("a link"), before, "unchanged content is left alone");
    // What a writer leaves that is killed right after it has written the content.
    fs::remove_file(path.join("a")).expect("removed");
    node.set_up(&pod).await.expect("again");
    assert_eq!(text(path.join("a")), "1", "a missing name is shown again");

    node.objects.maps.lock().insert("settings".to_owned(), BTreeMap::from([("c".to_owned(), "3".to_owned())]));
    node.set_up(&pod).await.expect("changed");
    assert_eq!(text(path.join("c")), "3");
    assert!(fs::symlink_metadata(path.join("a")).is_err(), "a key that went is gone");
    let dated = fs::read_dir(&path).expect("list").filter(|e| e.as_ref().expect("entry").file_type().expect("type").is_dir()).count();
    assert_eq!(dated, 1, "old content is swept");
}

#[tokio::test]
async fn items_choose_keys_paths_and_modes() {
    let node = Node::new();
    let items = json!([{"key": "a", "path": "deep/er/x", "mode": 0o400}]);
    let (_, path) = node.one(json!({"name": "v", "configMap": {"name": "settings", "items": items}})).await.expect("set up");
    assert_eq!(text(path.join("deep/er/x")), "1");
    assert_eq!(mode(&path.join("deep/er/x")), 0o400);
    assert!(!path.join("b").exists());
}

#[tokio::test]
async fn what_is_missing_is_named_unless_optional() {
    let node = Node::new();
    let cases = [
        (json!({"configMap": {"name": "none"}}), "MountVolume.SetUp failed for volume \"v\" : configmap \"none\" not found"),
        (json!({"secret": {"secretName": "none"}}), "MountVolume.SetUp failed for volume \"v\" : secret \"none\" not found"),
        (
            json!({"configMap": {"name": "settings", "items": [{"key": "z", "path": "z"}]}}),
            "MountVolume.SetUp failed for volume \"v\" : references non-existent config key: z",
        ),
        (
            json!({"configMap": {"name": "settings", "items": [{"key": "a", "path": "../a"}]}}),
            "MountVolume.SetUp failed for volume \"v\" : invalid path \"../a\": must be relative and not contain '..'",
        ),
        (json!({"nfs": {"server": "s", "path": "/"}}), "MountVolume.SetUp failed for volume \"v\" : no volume plugin matched name: nfs"),
    ];
    for (mut volume, wanted) in cases {
        volume["name"] = json!("v");
        assert_eq!(node.one(volume).await.expect_err("refused").to_string(), wanted);
    }
    node.one(json!({"name": "v", "configMap": {"name": "none", "optional": true}})).await.expect("optional");
    node.one(json!({"name": "w", "secret": {"secretName": "none", "optional": true}})).await.expect_err("no mount named w");
}

#[tokio::test]
async fn secrets_lie_in_memory() {
    let node = Node::new();
    let (_, path) = node.one(json!({"name": "v", "secret": {"secretName": "keys"}})).await.expect("set up");
    assert_eq!(text(path.join("tls.key")), "k");
    assert!(mount_table::is_mount_point(&path).expect("asking"));
    node.volumes.tear_down("u-1").await.expect("torn down");
    assert!(!path.exists());
    node.volumes.tear_down("u-1").await.expect("twice");
    assert_eq!(node.volumes.pods().await.expect("list"), Vec::<String>::new());
}

#[tokio::test]
async fn projected_tokens_stay_until_they_are_due() {
    let node = Node::new();
    let sources = json!([
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
        {"configMap": {"name": "settings", "items": [{"key": "a", "path": "a"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]);
    let (pod, path) = node.one(json!({"name": "v", "projected": {"sources": sources}})).await.expect("set up");
    assert_eq!((text(path.join("token")), text(path.join("namespace"))), ("builder-web-1".to_owned(), "default".to_owned()));
    let due = node.set_up(&pod).await.expect("again").expect("a due time");
    let left = due.duration_since(Timestamp::now()).as_secs();
    assert!((2_800..=2_880).contains(&left), "80 % of an hour, not {left} s");
    assert_eq!(text(path.join("token")), "builder-web-1", "a good token is kept");

    fs::write(path.with_file_name(".v.token-due"), "2000-01-01T00:00:00Z").expect("writing");
    node.set_up(&pod).await.expect("due");
    assert_eq!(text(path.join("token")), "builder-web-2");
}

#[tokio::test]
async fn a_clock_that_is_ahead_does_not_ask_for_tokens_without_end() {
    let node = Node::new();
    *node.objects.ahead_s.lock() = 100_000;
    let sources = json!([{"serviceAccountToken": {"path": "token"}}]);
    let (pod, path) = node.one(json!({"name": "v", "projected": {"sources": sources}})).await.expect("set up");
    let due = node.set_up(&pod).await.expect("again").expect("a due time");
    assert!(due.duration_since(Timestamp::now()).as_secs() > 30, "due at {due}");
    assert_eq!(text(path.join("token")), "builder-web-1");
}

#[tokio::test]
async fn a_volume_that_cannot_be_set_up_keeps_no_other_from_it() {
    let node = Node::new();
    let sources = json!([{"serviceAccountToken": {"path": "token"}}]);
    let volumes = json!([{"name": "gone", "configMap": {"name": "none"}}, {"name": "v", "projected": {"sources": sources}}]);
    let pod = pod(volumes, json!([{"name": "v", "mountPath": "/v"}]));
    let error = node.set_up(&pod).await.expect_err("a volume is missing").to_string();
    assert_eq!(error, "MountVolume.SetUp failed for volume \"gone\" : configmap \"none\" not found");
    let path = node.mounts(&pod).await.expect("mounts")[0].source.clone();
    assert_eq!(text(path.join("token")), "builder-web-1");
    fs::write(path.with_file_name(".v.token-due"), "2000-01-01T00:00:00Z").expect("writing");
    node.set_up(&pod).await.expect_err("still missing");
    assert_eq!(text(path.join("token")), "builder-web-2", "rotated all the same");
}

#[tokio::test]
async fn downward_files_show_the_pod() {
    let node = Node::new();
    let items = json!([
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "note", "fieldRef": {"fieldPath": "metadata.annotations['k']"}},
        {"path": "notes", "fieldRef": {"fieldPath": "metadata.annotations"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}},
        {"path": "mem", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"}},
        {"path": "req", "resourceFieldRef": {"containerName": "c", "resource": "requests.cpu"}},
    ]);
    let (_, path) = node.one(json!({"name": "v", "downwardAPI": {"items": items}})).await.expect("set up");
    for (file, wanted) in
        [("labels", "app=\"web\""), ("note", "a\"b"), ("notes", "k=\"a\\\"b\""), ("cpu", "2"), ("mem", "64"), ("req", "0")]
    {
        assert_eq!(text(path.join(file)), wanted, "{file}");
    }
}

#[tokio::test]
async fn empty_dirs_keep_their_content_and_bound_their_size() {
    let node = Node::new();
    let (pod, path) = node.one(json!({"name": "v", "emptyDir": {}})).await.expect("set up");
    assert_eq!(mode(&path), 0o777);
    fs::write(path.join("kept"), "x").expect("writing");
    node.set_up(&pod).await.expect("again");
    assert_eq!(text(path.join("kept")), "x");
    node.volumes.tear_down("u-1").await.expect("torn down");

    let (_, path) = node.one(json!({"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}})).await.expect("set up");
    assert!(fs::write(path.join("big"), vec![1; 2 << 20]).is_err(), "the size limit binds");
}

#[tokio::test]
async fn what_a_pod_may_use_bounds_its_volumes_in_memory() {
    let node = Node::new();
    let memory = |limit: Value| json!({"medium": "Memory", "sizeLimit": limit});
    let pod = with_empty_dirs(&[memory(Value::Null), memory(json!("1Mi")), memory(json!("0"))]);
    node.set_up_within(&pod, Some(2 << 20)).await.expect("set up");
    let mounts = node.mounts(&pod).await.expect("mounts");
    let size =
        |index: usize| nix::sys::statvfs::statvfs(&mounts[index].source).map(|fs| fs.blocks() * fs.fragment_size()).expect("a file system");
    assert_eq!([size(0), size(1), size(2)], [2 << 20, 1 << 20, 2 << 20]);
    node.volumes.tear_down("u-1").await.expect("torn down");
    node.set_up(&pod).await.expect("set up");
    assert_eq!(size(0), 1 << 30, "what the node has for Pods");
}

/// No page is used, so that the machine needs none.
#[tokio::test]
async fn a_volume_of_huge_pages_has_the_size_of_its_limit() {
    if !fs::read_to_string("/proc/filesystems").expect("file systems").contains("\thugetlbfs\n") {
        return;
    }
    let node = Node::new();
    let (open, bounded) = (json!({"medium": "HugePages"}), json!({"medium": "HugePages-2Mi", "sizeLimit": "9Mi"}));
    let mut pod = with_empty_dirs(&[open, bounded, json!({"medium": "HugePages", "sizeLimit": "1Ki"})]);
    let why = node.set_up(&pod).await.expect_err("no request").to_string();
    assert!(why.ends_with("medium HugePages: hugePages storage requested, but there is no resource request for huge pages"), "{why}");
    let resources = json!({"requests": {"hugepages-2Mi": "12Mi"}, "limits": {"hugepages-2Mi": "12Mi"}});
    pod.spec.as_mut().expect("a spec").containers[0].resources = Some(serde_json::from_value(resources).expect("requirements"));
    for _ in 0..2 {
        node.set_up(&pod).await.expect("set up, and again by the next agent");
    }
    let size = |mount: &Mount| {
        let file_system = nix::sys::statfs::statfs(&mount.source).expect("a file system");
        assert_eq!((file_system.filesystem_type(), mode(&mount.source)), (nix::sys::statfs::HUGETLBFS_MAGIC, 0o777));
        (file_system.block_size(), file_system.blocks())
    };
    let sizes: Vec<_> = node.mounts(&pod).await.expect("mounts").iter().map(size).collect();
    assert_eq!(sizes, [(2 << 20, 6), (2 << 20, 4), (2 << 20, 1)], "the Pod's limit, whole pages, at least one");
    let dir = node.volumes.pod_dir("u-1");
    assert_eq!(mount_table::below(&dir).expect("mounts").len(), 3, "each is mounted once");
    node.volumes.tear_down("u-1").await.expect("torn down");
    assert!(!dir.exists() && mount_table::below(node.dir.path()).expect("mounts").is_empty());
}

#[tokio::test]
async fn other_media_are_unknown() {
    let fault = Node::new().one(json!({"name": "v", "emptyDir": {"medium": "Tape"}})).await.expect_err("unknown").to_string();
    assert!(fault.ends_with("unknown storage medium \"Tape\""), "{fault}");
}

#[test]
fn a_container_without_a_limit_sees_that_of_the_whole_pod() {
    let limits = json!({"limits": {"cpu": "1500m", "memory": "64Mi"}});
    let pod = serde_json::from_value(json!({"spec": {"containers": [{"name": "c"}], "resources": limits}})).expect("a pod");
    let zero = json!({"name": "c", "resources": {"limits": {"cpu": "0"}}});
    let container: Container = serde_json::from_value(zero).expect("a container");
    let node = Allocatable { cpu_milli: 4_000, memory_bytes: 1 << 30, ephemeral_storage_bytes: 1 << 30 };
    for (resource, wanted) in [
        ("limits.cpu", "2"),
        ("limits.memory", "67108864"),
        ("limits.ephemeral-storage", "1073741824"),
        ("requests.cpu", "0"),
        ("limits.hugepages-2Mi", "0"),
    ] {
        let selector = ResourceFieldSelector { resource: resource.to_owned(), ..ResourceFieldSelector::default() };
        assert_eq!(resource_field(&pod, &container, &selector, node).expect("a value"), wanted, "{resource}");
    }
}

#[tokio::test]
async fn fs_group_owns_and_may_write() {
    let node = Node::new();
    let volumes = json!([{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "keys", "defaultMode": 0o400}}]);
    let pod = pod_with(volumes, json!([{"name": "v", "mountPath": "/v"}, {"name": "s", "mountPath": "/s"}]), json!({"fsGroup": 1234}));
    node.set_up(&pod).await.expect("set up");
    let mounts = node.mounts(&pod).await.expect("mounts");
    let (dir, secret) = (&mounts[0].source, mounts[1].source.join("tls.key"));
    assert_eq!((fs::metadata(dir).expect("metadata").gid(), mode(dir)), (1234, 0o2777));
    assert_eq!((fs::metadata(&secret).expect("metadata").gid(), mode(&secret)), (1234, 0o440));
}

#[tokio::test]
async fn host_paths_are_checked_by_type() {
    let node = Node::new();
    let base = node.dir.path();
    fs::write(base.join("file"), "").expect("writing");
    let path = |name: &str| base.join(name).display().to_string();
    for (name, kind, good) in [
        ("made", "DirectoryOrCreate", true),
        ("made", "Directory", true),
        ("made", "File", false),
        ("made-file", "FileOrCreate", true),
        ("file", "File", true),
        ("file", "Directory", false),
        ("none", "Directory", false),
        ("file", "Socket", false),
        ("file", "CharDevice", false),
        ("fresh", "", true),
    ] {
        let made = node.one(json!({"name": "v", "hostPath": {"path": path(name), "type": kind}})).await;
        assert_eq!(made.is_ok(), good, "{name} {kind}: {made:?}");
    }
    node.volumes.tear_down("u-1").await.expect("torn down");
    assert!(base.join("made").exists(), "the node's own files stay");
}

#[tokio::test]
async fn sub_paths_never_leave_their_volume() {
    let node = Node::new();
    let mount = |sub: &str| json!([{"name": "v", "mountPath": "/v", "subPath": sub}]);
    let volume = json!([{"name": "v", "emptyDir": {}}]);
    node.set_up(&pod(volume.clone(), json!([]))).await.expect("set up");
    let root = node.volumes.pod_dir("u-1").join("volumes/kubernetes.io~empty-dir/v");
    fs::write(root.join("file"), "content").expect("writing");
    symlink("/etc", root.join("out")).expect("linking");
    symlink("../../../..", root.join("up")).expect("linking");
    symlink("file", root.join("in")).expect("linking");
    for bad in ["out", "up", "out/passwd", "../x", "/etc"] {
        let error = node.mounts(&pod(volume.clone(), mount(bad))).await.expect_err(bad).to_string();
        assert!(error.contains("outside of the volume"), "{bad}: {error}");
    }
    let good = node.mounts(&pod(volume.clone(), mount("in"))).await.expect("a file");
    assert_eq!(text(good[0].source.clone()), "content");
    node.volumes.tear_down("u-1").await.expect("torn down");

    node.set_up(&pod(volume.clone(), json!([]))).await.expect("set up");
    let expression = json!([{"name": "v", "mountPath": "/v", "subPathExpr": "logs/$(NAME)"}]);
    let made = node.mounts(&pod(volume, expression)).await.expect("made");
    assert!(root.join("logs/x").is_dir());
    fs::write(made[0].source.join("y"), "1").expect("writing");
    assert_eq!(text(root.join("logs/x/y")), "1");
    node.volumes.tear_down("u-1").await.expect("torn down with its binds");
    assert!(!node.volumes.pod_dir("u-1").exists());
}

#[tokio::test]
async fn what_the_machine_has_mounted_below_a_sub_path_stays_mounted() {
    use nix::mount::{MsFlags, mount};
    let node = Node::new();
    let host = node.dir.path().join("host");
    fs::create_dir(&host).expect("making");
    mount_table::mount_tmpfs(&host, None).expect("mounting");
    mount(None::<&str>, &host, None::<&str>, MsFlags::MS_SHARED, None::<&str>).expect("sharing, as systemd does for all mounts");
    let (early, late) = (host.join("data/early"), host.join("data/late"));
    for dir in [&early, &late] {
        fs::create_dir_all(dir).expect("making");
    }
    mount_table::mount_tmpfs(&early, None).expect("mounting");
    let volumes = json!([{"name": "v", "hostPath": {"path": host}}]);
    let pod = pod(volumes, json!([{"name": "v", "mountPath": "/v", "subPath": "data"}]));
    node.set_up(&pod).await.expect("set up");
    node.mounts(&pod).await.expect("mounts");
    mount_table::mount_tmpfs(&late, None).expect("mounting");
    node.volumes.tear_down("u-1").await.expect("torn down");
    for dir in [&early, &late] {
        assert!(mount_table::is_mount_point(dir).expect("asking"), "{} was unmounted", dir.display());
    }
}

/// By a container with bidirectional propagation, for example.
#[tokio::test]
async fn what_was_mounted_within_a_volume_is_unmounted_and_not_emptied() {
    let node = Node::new();
    let host = node.dir.path().join("host");
    fs::create_dir(&host).expect("making");
    fs::write(host.join("file"), "1").expect("writing");
    let pod = pod(json!([{"name": "v", "emptyDir": {}}]), json!([{"name": "v", "mountPath": "/v"}]));
    node.set_up(&pod).await.expect("set up");
    let volume = node.volumes.pod_dir("u-1").join("volumes/kubernetes.io~empty-dir/v");
    fs::create_dir_all(volume.join("a/b")).expect("making");
    fs::write(volume.join("file"), "").expect("writing");
    mount_table::bind(&host, &volume.join("a/b")).expect("binding");
    mount_table::bind(&host.join("file"), &volume.join("file")).expect("binding");
    node.volumes.tear_down("u-1").await.expect("torn down");
    assert!(!node.volumes.pod_dir("u-1").exists());
    assert_eq!(text(host.join("file")), "1");
}

#[tokio::test]
async fn the_containers_of_a_pod_share_one_memory() {
    let node = Node::new();
    let ask = || node.volumes.shared_memory("u-1");
    let (one, two, three, four) = tokio::join!(ask(), ask(), ask(), ask());
    let at = one.expect("made");
    assert!([two, three, four].into_iter().all(|other| other.is_ok_and(|other| other == at)));
    assert_eq!(mount_table::below(&at).expect("asking"), std::slice::from_ref(&at), "mounted once");
    assert_eq!(mode(&at), 0o1777);
    node.volumes.tear_down("u-1").await.expect("torn down");
    assert!(!at.exists());
}

#[tokio::test]
async fn tear_down_refuses_what_is_no_uid() {
    let node = Node::new();
    for bad in ["", "..", "../x", "a/b"] {
        assert!(node.volumes.tear_down(bad).await.is_err(), "{bad:?}");
    }
}
