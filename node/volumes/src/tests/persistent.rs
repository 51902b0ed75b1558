//! Volumes behind claims.

use super::*;

const OURS: &str = "skiff.internal/local-path";
const NAME: &str = "pvc-0a1b2c3d";

fn claim(more: &Value) -> PersistentVolumeClaim {
    let mut object =
        json!({"metadata": {"name": "c", "namespace": "ns", "uid": "claim"}, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}});
    merge(&mut object, more);
    serde_json::from_value(object).expect("a claim")
}

/// A volume for the claim.
fn persistent(name: &str, more: &Value) -> PersistentVolume {
    let mut object = json!({"metadata": {"name": name}, "spec": {"claimRef": {"namespace": "ns", "name": "c", "uid": "claim"}}});
    merge(&mut object, more);
    serde_json::from_value(object).expect("a volume")
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

impl Node {
    fn give(&self, claim: PersistentVolumeClaim, volume: PersistentVolume) {
        self.objects.claims.lock().insert(claim.metadata.name.clone().expect("a name"), claim);
        self.objects.persistent.lock().insert(volume.metadata.name.clone().expect("a name"), volume);
    }

    /// A volume of the provisioner, and its claim.
    fn provision(&self) -> PathBuf {
        let path = self.dir.path().join("local").join(NAME);
        fs::create_dir_all(path.parent().expect("a parent")).expect("the provisioner's directory");
        self.provision_at(NAME, json!({"local": {"path": path}}));
        path
    }

    /// A volume of that name and source, of the provisioner.
    fn provision_at(&self, name: &str, source: Value) {
        let mut volume = json!({"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": OURS}}, "spec": source});
        volume["spec"]["capacity"] = json!({"storage": "1Gi"});
        self.give(claim(&json!({"spec": {"volumeName": name}})), persistent(name, &volume));
    }
}

fn by_claim() -> Value {
    json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}})
}

#[tokio::test]
async fn a_provisioned_directory_is_made_once_and_removed_when_no_pod_uses_it() {
    let node = Node::new();
    let path = node.provision();
    let (pod, source) = node.one(by_claim()).await.expect("set up");
    assert_eq!(source, path);
    assert_eq!(fs::metadata(&path).expect("it").permissions().mode() & 0o7777, 0o777, "any user may write");
    fs::write(path.join("data"), "1").expect("writing");

    let refused = node.volumes.remove_local(NAME).await.expect_err("it is used");
    assert!(matches!(refused, VolumeError::InUse(_)), "{refused}");
    // A running Pod needs neither claim nor server.
    node.objects.claims.lock().clear();
    node.set_up(&pod).await.expect("a refresh");
    node.volumes.tear_down("u-1").await.expect("torn down");
    assert_eq!(fs::read_to_string(path.join("data")).expect("the data"), "1", "the data outlives the Pod");

    assert!(node.volumes.remove_local(NAME).await.expect("removed"));
    assert!(!path.exists());
    assert!(!node.volumes.remove_local(NAME).await.expect("it may be repeated"));
    // Killed after the directory got its other name, and after that before the record went.
    for is_recorded in [false, true] {
        let left = path.with_file_name(format!(".removing-{NAME}.0"));
        fs::create_dir_all(left.join("deep")).expect("a leftover");
        if is_recorded {
            fs::write(node.dir.path().join("records").join(NAME), "").expect("a record");
        }
        assert!(node.volumes.remove_local(NAME).await.expect("removed"));
        assert!(!left.exists());
        assert!(!node.volumes.remove_local(NAME).await.expect("nothing is left"));
    }
    for name in ["..", "pvc-../../x", "", ".", "other"] {
        assert!(matches!(node.volumes.remove_local(name).await, Err(VolumeError::NotAVolume(_))), "{name}");
    }
}

#[tokio::test]
async fn a_provisioned_volume_is_the_directory_of_its_name_and_nothing_else() {
    let node = Node::new();
    let path = node.provision();
    let (_, mine) = node.one(by_claim()).await.expect("set up");
    assert_eq!(mine, path);
    // A tenant makes a link in its volume, and another node, in the same hands, has chosen that for the directory of a claim.
    let (secret, other) = (node.dir.path().join("secret"), "pvc-0b");
    fs::create_dir(&secret).expect("a directory of the node");
    symlink(&secret, path.join(other)).expect("a link");
    node.volumes.tear_down("u-1").await.expect("torn down");
    for source in [
        json!({"local": {"path": path.join(other)}}),
        json!({"local": {"path": path}}),
        json!({"local": {"path": "/"}}),
        json!({"hostPath": {"path": path.with_file_name(other)}}),
    ] {
        node.provision_at(other, source.clone());
        let refused = node.one(by_claim()).await.expect_err("another path").to_string();
        assert!(refused.contains("is not the directory of PersistentVolume \"pvc-0b\" on this node"), "{source}: {refused}");
    }
    node.provision_at("data", json!({"local": {"path": path.with_file_name("data")}}));
    node.one(by_claim()).await.expect_err("no name of the provisioner");
    // What is at the right path is no link either.
    symlink(&secret, path.with_file_name(other)).expect("a link");
    node.provision_at(other, json!({"local": {"path": path.with_file_name(other)}}));
    let refused = node.one(by_claim()).await.expect_err("a link").to_string();
    assert!(refused.contains("only directory and block device are supported"), "{refused}");
}

#[tokio::test]
async fn a_directory_that_was_used_and_is_lost_is_not_made_anew() {
    let node = Node::new();
    let path = node.provision();
    let disk = path.parent().expect("a parent").to_owned();
    node.one(by_claim()).await.expect("set up");
    fs::write(path.join("data"), "1").expect("writing");
    node.volumes.tear_down("u-1").await.expect("torn down");
    // The machine starts without the disk.
    let unmounted = disk.with_file_name("unmounted");
    fs::rename(&disk, &unmounted).expect("moved");
    fs::create_dir(&disk).expect("the directory below the mount");
    let refused = node.one(by_claim()).await.expect_err("lost").to_string();
    let words = format!("path {path:?} does not exist, although the volume was used: its disk may not be mounted");
    assert_eq!(refused, format!("MountVolume.SetUp failed for volume \"v\" : {words}"));
    assert_eq!(node.volumes.remove_local(NAME).await.expect_err("lost").to_string(), words);
    fs::remove_dir(&disk).expect("nothing was made");
    fs::rename(&unmounted, &disk).expect("moved");
    node.one(by_claim()).await.expect("set up");
    assert_eq!(fs::read_to_string(path.join("data")).expect("the data"), "1");
    // A directory of an administrator who restored it from a backup, without the record.
    node.volumes.tear_down("u-1").await.expect("torn down");
    fs::remove_dir_all(node.dir.path().join("records")).expect("removed");
    node.one(by_claim()).await.expect("set up");
    node.volumes.tear_down("u-1").await.expect("torn down");
    assert!(node.volumes.remove_local(NAME).await.expect("removed"));
    assert_eq!(fs::read_dir(node.dir.path().join("records")).expect("the records").count(), 0);
}

/// A Pod whose volume takes long: the group of a large tree, a file server that does not answer.
#[tokio::test]
async fn a_volume_that_takes_long_keeps_no_other_one_waiting() {
    let node = Node::new();
    let path = node.provision();
    let path_lock = node.volumes.local.path_lock(&path);
    let (free, end) = (std::sync::mpsc::channel::<()>(), std::time::Duration::from_secs(20));
    let slow = std::thread::spawn(move || {
        let _guard = path_lock.lock();
        free.1.recv_timeout(end).expect("the others are done in time");
    });
    while node.volumes.local.path_lock(&path).try_lock().is_some() {
        tokio::task::yield_now().await;
    }
    let refused = node.volumes.remove_local(NAME).await.expect_err("a Pod is being connected");
    assert!(matches!(refused, VolumeError::Busy(_)), "{refused}");
    let other = path.with_file_name("pvc-0b");
    node.provision_at("pvc-0b", json!({"local": {"path": other}}));
    assert_eq!(node.one(by_claim()).await.expect("set up").1, other);
    node.volumes.tear_down("u-1").await.expect("torn down");
    assert!(node.volumes.remove_local("pvc-0b").await.expect("removed"));
    free.0.send(()).expect("the slow one waits");
    slow.join().expect("it waited");
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_takes_long_is_not_waited_for() {
    let node = Node::new();
    let path = node.provision();
    fs::create_dir_all(&path).expect("a directory");
    let running = node.volumes.local.removal.clone().lock_owned().await;
    let refused = node.volumes.remove_local(NAME).await.expect_err("another one runs");
    assert!(matches!(refused, VolumeError::NotRemovedYet(_)), "{refused}");
    drop(running);
    assert!(node.volumes.remove_local(NAME).await.expect("removed"));
}

#[tokio::test]
async fn a_host_path_or_local_volume_is_mounted_like_the_path() {
    let node = Node::new();
    let host = node.dir.path().join("host");
    node.give(claim(&json!({})), persistent("v", &json!({"spec": {"hostPath": {"path": host, "type": "DirectoryOrCreate"}}})));
    let (pod, source) = node.one(by_claim()).await.expect("set up");
    assert_eq!((source, host.is_dir()), (host.clone(), true));
    // The path within the volume, resolved below it.
    fs::create_dir(host.join("sub")).expect("a directory");
    fs::write(host.join("sub/file"), "2").expect("writing");
    let mounts = json!([{"name": "v", "mountPath": "/a", "subPath": "sub"}, {"name": "v", "mountPath": "/b", "subPath": "../etc"}]);
    let container = |mount: usize| serde_json::from_value(json!({"name": "c", "volumeMounts": [mounts[mount]]})).expect("a container");
    let below = node.volumes.mounts(&pod, &container(0), &|text| Ok(text.to_owned())).await.expect("mounted");
    assert_eq!(fs::read_to_string(below[0].source.join("file")).expect("the file"), "2");
    let escape = node.volumes.mounts(&pod, &container(1), &|text| Ok(text.to_owned())).await.expect_err("outside");
    assert!(escape.to_string().contains("outside of the volume"), "{escape}");
    node.volumes.tear_down("u-1").await.expect("torn down");
    assert!(host.join("sub/file").exists(), "tearing down a Pod removes no data");

    // A local volume must exist, and belong to this node. The reader of it is told to only read.
    let disk = node.dir.path().join("disk");
    let affinity =
        |host: &str| json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "h", "operator": "In", "values": [host]}]}]}});
    let local = |host: &str| persistent("v", &json!({"spec": {"local": {"path": disk}, "nodeAffinity": affinity(host)}}));
    node.give(claim(&json!({})), local("elsewhere"));
    let failed = |volume: Value| {
        let node = &node;
        async move { node.one(volume).await.expect_err("not set up").to_string() }
    };
    assert_eq!(failed(by_claim()).await, "MountVolume.NodeAffinity check failed for volume \"v\" : no matching NodeSelectorTerms");
    node.give(claim(&json!({})), local("here"));
    assert_eq!(failed(by_claim()).await, format!("MountVolume.SetUp failed for volume \"v\" : path {disk:?} does not exist"));
    fs::create_dir(&disk).expect("a disk");
    let read_only = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c", "readOnly": true}});
    let pod = super::pod(json!([read_only]), json!([{"name": "v", "mountPath": "/v"}]));
    node.set_up(&pod).await.expect("set up");
    assert!(node.mounts(&pod).await.expect("mounts")[0].read_only);
}

#[tokio::test]
async fn a_claim_that_is_not_ready_says_why_in_upstreams_words() {
    let node = Node::new();
    let say = |volume: Value| {
        let node = &node;
        async move {
            let error = node.one(volume).await.expect_err("not set up").to_string();
            let start = "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: \
                         error processing PVC default/";
            error.strip_prefix(start).map_or(error.clone(), str::to_owned)
        }
    };
    assert_eq!(say(by_claim()).await, "c: failed to fetch PVC from API server: persistentvolumeclaims \"c\" not found");
    let volume = |more: &Value| persistent("v", more);
    let host = json!({"spec": {"hostPath": {"path": "/tmp"}}});
    node.give(claim(&json!({"status": {"phase": "Pending"}})), volume(&host));
    assert_eq!(say(by_claim()).await, "c: PVC is not bound");
    node.give(claim(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})), volume(&host));
    assert_eq!(say(by_claim()).await, "c: PVC is being deleted");
    node.give(claim(&json!({"spec": {"volumeName": "gone"}})), volume(&host));
    assert_eq!(say(by_claim()).await, "c: failed to fetch PV gone from API server: persistentvolumes \"gone\" not found");
    // Somebody else's volume, which this claim names.
    node.give(claim(&json!({})), volume(&json!({"spec": {"hostPath": {"path": "/tmp"}, "claimRef": {"uid": "other"}}})));
    let words = "c: found PV object v but its pv.Spec.ClaimRef.UID other does not point to claim.UID claim";
    assert_eq!(say(by_claim()).await, words);
    node.give(claim(&json!({})), volume(&json!({"spec": {"hostPath": {"path": "/tmp"}, "volumeMode": "Block"}})));
    assert_eq!(say(by_claim()).await, "c: volume v has volumeMode Block, but is specified in volumeMounts");
    node.give(claim(&json!({})), volume(&json!({"spec": {"local": {"path": "/a/../etc"}}})));
    assert_eq!(
        say(by_claim()).await,
        "MountVolume.SetUp failed for volume \"v\" : invalid path \"/a/../etc\": must be absolute and not contain '..'"
    );
    node.give(claim(&json!({})), volume(&json!({"spec": {"nfs": {"server": "s", "path": "/"}}})));
    assert_eq!(
        say(by_claim()).await,
        "MountVolume.SetUp failed for volume \"v\" : no volume plugin matched name: the source of PersistentVolume v"
    );

    // An ephemeral volume takes no claim that is not the Pod's own.
    let ephemeral = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}});
    node.give(claim(&json!({"metadata": {"name": "web-v"}})), volume(&host));
    assert_eq!(say(ephemeral.clone()).await, "web-v: PVC default/web-v was not created for pod default/web (pod is not owner)");
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u-1", "controller": true});
    node.give(claim(&json!({"metadata": {"name": "web-v", "ownerReferences": [owner]}})), volume(&host));
    assert_eq!(node.one(ephemeral).await.expect("set up").1, PathBuf::from("/tmp"));
}

#[tokio::test]
async fn a_claim_with_a_device_is_no_directory() {
    let node = Node::new();
    let device = LoopDevice::over(&node.dir.path().join("disk"));
    let local = |path: &std::path::Path| persistent("v", &json!({"spec": {"local": {"path": path}, "volumeMode": "Block"}}));
    let with = |volume: Value, devices: Value| {
        let mut pod = pod(json!([volume]), json!([]));
        pod.spec.as_mut().expect("a spec").containers[0].volume_devices = Some(serde_json::from_value(devices).expect("devices"));
        pod
    };
    let used = with(by_claim(), json!([{"name": "v", "devicePath": "/dev/xvda"}]));
    let container = |pod: &Pod| pod.spec.as_ref().expect("a spec").containers[0].clone();

    // What is not a device, or not there.
    let file = node.dir.path().join("file");
    fs::write(&file, "").expect("writing");
    for (path, wanted) in [
        (file.clone(), format!("MountVolume.SetUp failed for volume \"v\" : {} is not a block device", file.display())),
        (PathBuf::from("/dev/null"), "MountVolume.SetUp failed for volume \"v\" : /dev/null is not a block device".to_owned()),
        (PathBuf::from("/dev/absent"), "MountVolume.SetUp failed for volume \"v\" : path \"/dev/absent\" does not exist".to_owned()),
    ] {
        node.give(claim(&json!({})), local(&path));
        assert_eq!(node.set_up(&used).await.expect_err("not set up").to_string(), wanted);
    }
    node.give(claim(&json!({})), persistent("v", &json!({"spec": {"hostPath": {"path": device.0}, "volumeMode": "Block"}})));
    let wanted =
        "MountVolume.SetUp failed for volume \"v\" : no volume plugin matched name: hostPath has no block devices; use a local volume";
    assert_eq!(node.set_up(&used).await.expect_err("not set up").to_string(), wanted);
    node.give(claim(&json!({})), persistent("v", &json!({"spec": {"local": {"path": node.dir.path()}, "volumeMode": "Filesystem"}})));
    let error = node.set_up(&used).await.expect_err("not set up").to_string();
    assert!(error.ends_with(": volume v has volumeMode Filesystem, but is specified in volumeDevices"), "{error}");

    node.give(claim(&json!({})), local(&device.0));
    for _ in 0..2 {
        node.set_up(&used).await.expect("set up");
        let devices = node.volumes.devices(&used, &container(&used)).await.expect("devices");
        assert_eq!(devices, [Device { source: device.0.clone(), target: "/dev/xvda".into(), access: "rwm".to_owned() }]);
    }
    assert!(node.volumes.claims(&used).is_empty(), "nobody measures a device");
    assert!(node.mounts(&used).await.expect("mounts").is_empty());
    let claim_read_only = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c", "readOnly": true}});
    let read_only = with(claim_read_only, json!([{"name": "v", "devicePath": "/dev/xvda"}]));
    assert_eq!(node.volumes.devices(&read_only, &container(&read_only)).await.expect("devices")[0].access, "r");

    // The link leads to something else now.
    let link = node.volumes.pod_dir("u-1").join("volumeDevices/kubernetes.io~local-volume/v");
    fs::remove_file(&link).and_then(|()| symlink("/dev/null", &link)).expect("another link");
    let error = node.volumes.devices(&used, &container(&used)).await.expect_err("no device").to_string();
    assert!(error.contains("/dev/null is not a block device"), "{error}");
    node.volumes.tear_down("u-1").await.expect("torn down");
    assert!(device.0.exists() && !node.volumes.pod_dir("u-1").exists());
}

/// A loop device, which is detached when dropped.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn over(file: &std::path::Path) -> Self {
        fs::File::create_new(file).and_then(|file| file.set_len(1 << 20)).expect("a file");
        let printed = std::process::Command::new("losetup").args(["--find", "--show"]).arg(file).output().expect("losetup");
        assert!(printed.status.success(), "{printed:?}");
        Self(String::from_utf8(printed.stdout).expect("a path").trim().into())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = std::process::Command::new("losetup").arg("--detach").arg(&self.0).status();
        assert!(detached.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[tokio::test]
async fn the_group_of_the_first_pod_is_given_to_a_local_volume() {
    let node = Node::new();
    let path = node.provision();
    let grouped = |uid: &str, group: u32, policy: &str| {
        let mut pod = pod(json!([by_claim()]), json!([{"name": "v", "mountPath": "/v"}]));
        pod.metadata.uid = Some(uid.to_owned());
        let context = json!({"fsGroup": group, "fsGroupChangePolicy": policy});
        pod.spec.as_mut().expect("a spec").security_context = Some(serde_json::from_value(context).expect("a context"));
        pod
    };
    let gid = |of: &std::path::Path| fs::metadata(of).expect("it").gid();
    node.set_up(&grouped("first", 1_234, "Always")).await.expect("set up");
    assert_eq!((gid(&path), fs::metadata(&path).expect("it").permissions().mode() & 0o2070), (1_234, 0o2070));
    // The first Pod goes on using it.
    node.set_up(&grouped("second", 99, "Always")).await.expect("set up");
    assert_eq!(gid(&path), 1_234);
    for uid in ["first", "second"] {
        node.volumes.tear_down(uid).await.expect("torn down");
    }
    let file = path.join("file");
    fs::write(&file, "").expect("writing");
    std::os::unix::fs::chown(&file, None, Some(7)).expect("a group");
    node.set_up(&grouped("third", 1_234, "OnRootMismatch")).await.expect("set up");
    assert_eq!(gid(&file), 7, "the top has the group");
    node.volumes.tear_down("third").await.expect("torn down");
    node.set_up(&grouped("fourth", 1_234, "Always")).await.expect("set up");
    assert_eq!(gid(&file), 1_234);
}
