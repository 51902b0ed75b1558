//! Policies of claims and volumes: a default class that comes after the claim, a bound volume that waits for its claim, a claim for one
//! Pod and one for many nodes, a claim that cannot grow, data that is retained, and which Pod changes the group of files.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;

use serde_json::{Value, json};
use tests::Kubectl;

use super::{directory_of, until_bound, until_event};

/// The group of the Pods' files, and that of a file that somebody changed.
const GROUP: u32 = 3_000;
const OTHER_GROUP: u32 = 7;

/// `HOST` is a directory of the node.
const OBJECTS: &str = r#"
apiVersion: v1
kind: PersistentVolume
metadata: {name: guarded}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: HOST, type: Directory}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: guarded}
spec: {storageClassName: "", volumeName: guarded, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: retaining}
provisioner: skiff.internal/local-path
reclaimPolicy: Retain
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: books}
spec: {storageClassName: retaining, accessModes: [ReadWriteOncePod], resources: {requests: {storage: 1Gi}}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: at-once}
provisioner: skiff.internal/local-path
volumeBindingMode: Immediate
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: shared}
spec: {storageClassName: at-once, accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
"#;

/// A claim that names no class, and one that wants none.
const CLAIMS: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: unclassed}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: explicit}
spec: {storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"#;

/// A Pod that uses the claim `books`.
const OWNER: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 2
  automountServiceAccountToken: false
  securityContext: {fsGroup: GROUP, fsGroupChangePolicy: POLICY}
  containers:
    - name: c
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "trap 'exit 0' TERM; while true; do sleep 0.1; done"]
      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: books}}]
"#;

pub fn policies_of_claims_and_volumes_are_followed(kubectl: &Kubectl<'_>) {
    let host = tempfile::tempdir().expect("a directory");
    kubectl.apply(&OBJECTS.replace("HOST", &host.path().display().to_string())).ok();
    until_bound(kubectl, "pvc/guarded");
    kubectl.ok("delete pv guarded --wait=false");
    a_claim_gets_the_later_default_class(kubectl);
    a_claim_for_many_nodes_gets_no_volume(kubectl);
    one_pod_uses_the_claim_and_its_data_is_retained(kubectl);
    a_bound_volume_waits_for_its_claim(kubectl);
}

/// The volume has been deleted for some time.
fn a_bound_volume_waits_for_its_claim(kubectl: &Kubectl<'_>) {
    let volume = kubectl.json("get pv guarded");
    assert!(volume["metadata"]["deletionTimestamp"].is_string(), "{volume}");
    assert_eq!(volume["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]), "{volume}");
    assert_eq!(volume["status"]["phase"], "Bound", "{volume}");
    let table = kubectl.ok("get pv guarded");
    assert!(table.contains("Terminating"), "{table}");
    kubectl.ok("delete pvc guarded --timeout=60s");
    kubectl.ok("wait --for=delete pv/guarded --timeout=60s");
}

fn a_claim_gets_the_later_default_class(kubectl: &Kubectl<'_>) {
    let is_default = |value: bool| {
        kubectl.ok(&format!("annotate storageclass local-path --overwrite storageclass.kubernetes.io/is-default-class={value}"));
    };
    is_default(false);
    kubectl.apply(CLAIMS).ok();
    let message = "no persistent volumes available for this claim and no storage class is set";
    for claim in ["unclassed", "explicit"] {
        until_event(kubectl, claim, message);
    }
    assert_eq!(kubectl.field("pvc/unclassed", "/spec/storageClassName"), Value::Null);
    is_default(true);
    kubectl.until("pvc/unclassed", "/spec/storageClassName", "local-path");
    until_event(kubectl, "unclassed", "waiting for first consumer to be created before binding");
    assert_eq!(kubectl.field("pvc/explicit", "/spec/storageClassName"), "");
    kubectl.ok("delete pvc unclassed explicit --timeout=60s");
}

fn a_claim_for_many_nodes_gets_no_volume(kubectl: &Kubectl<'_>) {
    let reason = "NodePath only supports ReadWriteOnce and ReadWriteOncePod (1.22+) access modes";
    until_event(kubectl, "shared", &format!("failed to provision volume with StorageClass \"at-once\": {reason}"));
    assert_eq!(kubectl.field("pvc/shared", "/status/phase"), "Pending");
    kubectl.ok("delete pvc/shared storageclass/at-once --timeout=60s");
}

fn one_pod_uses_the_claim_and_its_data_is_retained(kubectl: &Kubectl<'_>) {
    let create = |name: &str, policy: &str| {
        let pod = OWNER.replace("NAME", name).replace("POLICY", policy).replace("GROUP", &GROUP.to_string());
        kubectl.apply(&pod).ok();
    };
    create("first-owner", "OnRootMismatch");
    kubectl.until_ready("first-owner");
    // Its class does not allow it.
    let grown = kubectl.fails(r#"patch pvc books --patch {"spec":{"resources":{"requests":{"storage":"2Gi"}}}}"#);
    let words = "persistentvolumeclaims \"books\" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that \
                 provisions the pvc must support resize";
    assert!(grown.contains(words), "{grown}");
    let directory = directory_of(kubectl, "pvc/books");
    assert_eq!(group_of(&directory), GROUP, "the root did not match");
    kubectl.ok("exec first-owner -- touch /data/file");
    let file = directory.join("file");
    assert_eq!(group_of(&file), GROUP, "new files inherit the group");
    chown(&file, None, Some(OTHER_GROUP)).expect("another group");

    create("second-owner", "OnRootMismatch");
    let message = "0/1 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access \
                   mode. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    kubectl.until("pod/second-owner", "/status/conditions/0/message", message);
    kubectl.ok("delete pod first-owner --timeout=60s");
    kubectl.until_ready("second-owner");
    assert_eq!(group_of(&file), OTHER_GROUP, "the root matches");
    kubectl.ok("delete pod second-owner --timeout=60s");
    create("third-owner", "Always");
    kubectl.until_ready("third-owner");
    assert_eq!(group_of(&file), GROUP);
    kubectl.ok("delete pod third-owner --timeout=60s");

    let volume = kubectl.field("pvc/books", "/spec/volumeName");
    let volume = format!("pv/{}", volume.as_str().expect("a name"));
    kubectl.ok("delete pvc books --timeout=60s");
    kubectl.until(&volume, "/status/phase", "Released");
    assert_eq!(kubectl.field(&volume, "/spec/claimRef/name"), "books");
    kubectl.ok(&format!("delete {volume} --timeout=60s"));
    assert!(file.exists(), "the data outlives its claim and its volume");
    kubectl.ok("delete storageclass retaining");
}

fn group_of(path: &Path) -> u32 {
    fs::metadata(path).expect("it").gid()
}
