//! The story of persistent volumes on one node: a claim without a class gets a directory, which outlives Pods and goes with the
//! claim; WASM and Linux containers share it; StatefulSets find their data again; volumes of administrators are retained; a volume may be
//! a block device. Classes, claims and Pods have policies.

mod block;
mod policies;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tests::disk::Disk;
use tests::{Cluster, Kubectl, eventually};

/// A WASM Pod that uses the claim `notes`. Its user is that of the other visitors, whose file it changes.
const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: VISITOR}
spec:
  runtimeClassName: wasmtime
  restartPolicy: Never
  automountServiceAccountToken: false
  securityContext: {runAsUser: 1000}
  containers: [{name: c, image: "it/visits:latest", imagePullPolicy: Never, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: notes}}]
"#;

/// A Pod of a node whose claim does not exist.
const LOST: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: lost}
spec:
  nodeName: NODE
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "samples/tools:latest", imagePullPolicy: Never, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: nobodys}}]
"#;

const STATEFUL: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Retain}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: c
          image: samples/tools:latest
          imagePullPolicy: Never
          command: [sh, -c, "hostname >> /data/log; exec sleep 1000"]
          volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"#;

const STATIC: &str = r#"
apiVersion: v1
kind: PersistentVolume
metadata: {name: archive}
spec:
  capacity: {storage: 5Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: HOST, type: Directory}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: archive}
spec: {storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: c
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "cat /data/old; exec sleep 1000"]
      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: archive, readOnly: true}}]
---
apiVersion: v1
kind: Pod
metadata: {name: scratch}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: c
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "echo mine > /data/own; exec sleep 1000"]
      volumeMounts: [{name: own, mountPath: /data}]
  volumes: [{name: own, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]
"#;

#[test]
fn data_outlives_pods_and_goes_with_its_claim() {
    let mut cluster = Cluster::up();
    let visits = tests::cluster::project().join("tests/it/volumes/visits.wat").display().to_string();
    cluster.skiff(&["image", "import", "it/visits:latest", &visits]).ok();
    let kubectl = cluster.kubectl();
    let node = kubectl.field("nodes", "/items/0/metadata/name").as_str().expect("a node").to_owned();
    let directory = a_claim_without_a_class_gets_a_directory(&cluster);
    claims_in_use_stay(&kubectl, &directory);
    stateful_sets_find_their_data(&cluster);
    volumes_of_administrators_are_retained(&cluster);
    mounts_below_a_volume_are_read_only_on_request(&cluster);
    policies::policies_of_claims_and_volumes_are_followed(&kubectl);
    // Without a claim a Pod waits and says why.
    kubectl.apply(&LOST.replace("NODE", &node)).ok();
    until_event(&kubectl, "lost", "error processing PVC default/nobodys: failed to fetch PVC from API server: persistentvolumeclaims");
    kubectl.ok("delete pod lost --timeout=60s");

    drop(kubectl);
    block::a_claim_may_be_a_device(&mut cluster, &node);

    // A class that the user deleted does not come back.
    cluster.kubectl().ok("delete storageclass local-path");
    cluster.stop();
    cluster.start();
    assert!(cluster.kubectl().fails("get storageclass local-path").contains("not found"));
}

/// Three containers with one volume, below which the node has another mount.
const LAYERS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: layers}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: plain
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sleep, "1000"]
      volumeMounts: [{name: host, mountPath: /v, readOnly: true}]
    - name: enabled
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sleep, "1000"]
      volumeMounts: [{name: host, mountPath: /v, readOnly: true, recursiveReadOnly: Enabled}]
    - name: possible
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sleep, "1000"]
      volumeMounts: [{name: host, mountPath: /v, readOnly: true, recursiveReadOnly: IfPossible}]
  volumes: [{name: host, hostPath: {path: HOST, type: Directory}}]
"#;

fn mounts_below_a_volume_are_read_only_on_request(cluster: &Cluster) {
    let (kubectl, host) = (cluster.kubectl(), tempfile::tempdir().expect("a directory"));
    let below = host.path().join("below");
    std::fs::create_dir(&below).expect("a directory");
    let _disk = Disk::mounted(&below, 1);
    kubectl.apply(&LAYERS.replace("HOST", &host.path().display().to_string())).ok();
    kubectl.until_ready("layers");
    kubectl.ok("exec layers -c plain -- touch /v/below/plain");
    for name in ["enabled", "possible"] {
        let refused = kubectl.fails(&format!("exec layers -c {name} -- touch /v/below/{name}"));
        assert!(refused.contains("Read-only file system"), "{refused}");
    }
    let modes = r#"get pod layers -o jsonpath={range.status.containerStatuses[*]}{.name}={.volumeMounts[0].recursiveReadOnly}{"\n"}{end}"#;
    assert_eq!(kubectl.ok(modes), "enabled=Enabled\nplain=Disabled\npossible=Enabled\n");
    let handlers = "get node -o jsonpath={.items[0].status.runtimeHandlers[*].features.recursiveReadOnlyMounts}";
    assert_eq!(kubectl.ok(handlers), "true true true");
    kubectl.ok("delete pod layers --timeout=60s");
}

fn until_bound(kubectl: &Kubectl<'_>, claim: &str) {
    kubectl.until(claim, "/status/phase", "Bound");
}

fn until_event(kubectl: &Kubectl<'_>, object: &str, words: &str) {
    eventually(words, || {
        let events = kubectl.ok(&format!("get events --field-selector involvedObject.name={object} -o jsonpath={{.items[*].message}}"));
        if events.contains(words) { Ok(()) } else { Err(events) }
    });
}

/// The directory behind a bound claim.
fn directory_of(kubectl: &Kubectl<'_>, claim: &str) -> PathBuf {
    let volume = kubectl.field(claim, "/spec/volumeName");
    let path = kubectl.field(&format!("pv/{}", volume.as_str().expect("a name")), "/spec/local/path");
    PathBuf::from(path.as_str().expect("a path"))
}

fn a_claim_without_a_class_gets_a_directory(cluster: &Cluster) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let kubectl = cluster.kubectl();
    kubectl.ok("apply -f samples/storage/notes.yaml");
    assert_eq!(kubectl.field("pvc/notes", "/spec/storageClassName"), "local-path");
    // The scheduler chooses the node.
    until_bound(&kubectl, "pvc/notes");
    kubectl.ok("rollout status deployment/notes --timeout=60s");
    let node = kubectl.ok("get nodes -o jsonpath={.items[0].metadata.name}");
    let summary: Value = serde_json::from_str(&kubectl.ok(&format!("get --raw /api/v1/nodes/{node}/proxy/stats/summary"))).expect("JSON");
    let volume = &summary["pods"][0]["volume"][0];
    assert_eq!(volume["pvcRef"], json!({"name": "notes", "namespace": "default"}), "{summary}");
    assert!(volume["capacityBytes"].as_u64() > Some(0), "{summary}");
    let directory = directory_of(&kubectl, "pvc/notes");
    assert!(directory.starts_with(cluster.data_dir()), "{}", directory.display());
    assert_eq!(std::fs::metadata(&directory).expect("it").permissions().mode() & 0o7777, 0o777);
    let table = kubectl.ok("get pvc notes");
    assert!(table.contains("Bound") && table.contains("1Gi") && table.contains("RWO") && table.contains("local-path"), "{table}");

    // A new Pod finds the data of the old one.
    kubectl.ok("delete pod -l app=notes --timeout=60s");
    kubectl.ok("rollout status deployment/notes --timeout=60s");
    assert_eq!(kubectl.ok("exec deploy/notes -- cat /data/log"), "started\nstarted\n");
    // A WASM guest, which is not root, shares the directory.
    for (name, wanted) in [("first", "x"), ("second", "xx")] {
        kubectl.apply(&PODS.replace("VISITOR", name)).ok();
        kubectl.until(&format!("pod/{name}"), "/status/phase", "Succeeded");
        assert_eq!(kubectl.ok(&format!("logs {name}")), wanted);
    }
    assert_eq!(kubectl.ok("exec deploy/notes -- cat /data/visits"), "xx");
    directory
}

fn claims_in_use_stay(kubectl: &Kubectl<'_>, directory: &Path) {
    let volume = kubectl.field("pvc/notes", "/spec/volumeName").as_str().expect("a name").to_owned();
    kubectl.ok("delete pvc notes --wait=false");
    let table = kubectl.ok("get pvc notes");
    assert!(table.contains("Terminating"), "{table}");
    kubectl.ok("delete pod first second --timeout=60s");
    // The Deployment's Pod still writes.
    kubectl.run(&["exec", "deploy/notes", "--", "sh", "-c", "echo more >> /data/log"]).ok();
    assert_ne!(kubectl.field("pvc/notes", "/metadata/deletionTimestamp"), Value::Null);
    kubectl.ok("delete deployment notes --timeout=60s");
    kubectl.ok("wait --for=delete pvc/notes --timeout=60s");
    kubectl.ok(&format!("wait --for=delete pv/{volume} --timeout=60s"));
    assert!(!directory.exists(), "the directory goes before the volume");
}

fn stateful_sets_find_their_data(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.apply(STATEFUL).ok();
    for ordinal in 0..2 {
        kubectl.until_ok(&format!("get pvc data-db-{ordinal}"));
        until_bound(&kubectl, &format!("pvc/data-db-{ordinal}"));
        kubectl.until_ready(&format!("db-{ordinal}"));
    }
    let directory = directory_of(&kubectl, "pvc/data-db-1");
    kubectl.ok("delete pod db-1 --timeout=60s");
    kubectl.ok("rollout status statefulset/db --timeout=60s");
    assert_eq!(kubectl.ok("exec db-1 -- cat /data/log"), "db-1\ndb-1\n");
    assert_eq!(kubectl.ok("exec db-0 -- cat /data/log"), "db-0\n");
    kubectl.ok("scale statefulset/db --replicas=1");
    kubectl.ok("wait --for=delete pod/db-1 --timeout=60s");
    kubectl.until("pvc/data-db-1", "/status/phase", "Bound");
    kubectl.ok("scale statefulset/db --replicas=2");
    kubectl.ok("rollout status statefulset/db --timeout=60s");
    assert_eq!(kubectl.ok("exec db-1 -- cat /data/log"), "db-1\ndb-1\ndb-1\n");
    kubectl.ok("delete statefulset db --timeout=60s");
    kubectl.ok("wait --for=delete pvc/data-db-0 pvc/data-db-1 --timeout=60s");
    eventually("no directory", || if directory.exists() { Err(directory.display().to_string()) } else { Ok(()) });
}

fn volumes_of_administrators_are_retained(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let host = cluster.data_dir().join("archive");
    std::fs::create_dir(&host).expect("a directory");
    std::fs::write(host.join("old"), "from before\n").expect("a file");
    kubectl.apply(&STATIC.replace("HOST", &host.display().to_string())).ok();
    kubectl.until("pvc/archive", "/status/phase", "Bound");
    assert_eq!(kubectl.field("pvc/archive", "/spec/volumeName"), "archive");
    kubectl.until_ready("reader");
    assert_eq!(kubectl.ok("logs reader"), "from before\n");
    let refused = kubectl.fails("exec reader -- touch /data/new");
    assert!(refused.contains("Read-only file system"), "{refused}");
    // The claim of an ephemeral volume is the Pod's own.
    kubectl.until_ok("get pvc scratch-own");
    until_bound(&kubectl, "pvc/scratch-own");
    kubectl.until_ready("scratch");
    let own = directory_of(&kubectl, "pvc/scratch-own");
    assert_eq!(std::fs::read_to_string(own.join("own")).expect("the file"), "mine\n");
    kubectl.ok("delete pod reader scratch --timeout=60s");
    kubectl.ok("wait --for=delete pvc/scratch-own --timeout=60s");
    eventually("no directory", || if own.exists() { Err(own.display().to_string()) } else { Ok(()) });

    kubectl.ok("delete pvc archive --timeout=60s");
    kubectl.until("pv/archive", "/status/phase", "Released");
    kubectl.ok("delete pv archive --timeout=60s");
    assert!(host.join("old").exists(), "the data is the administrator's");
}
