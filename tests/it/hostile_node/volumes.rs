//! Volumes in the node's directory: the node chooses the directory, and its own labels, and no other node mounts them.

use super::*;

/// The scheduler has chosen the hostile node for it.
const CLAIM: &str = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, annotations: {volume.kubernetes.io/selected-node: evil}}
spec: {storageClassName: local-path, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";

pub(super) fn its_volumes_are_on_no_other_node(admin: &Kubectl<'_>, evil: &Evil<'_>) {
    // The label of an honest node, and a directory there, in which the attacker's Pod has made a link.
    let labels = json!({"kubernetes.io/hostname": "victim"});
    let annotations = json!({"skiff.internal/local-path": "/var/lib/skiff/volumes/pvc-0a"});
    let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
    evil.kubectl.ok(&format!("patch node evil --type=merge -p {patch}"));
    admin.apply(CLAIM).ok();
    let volume = eventually("the claim is bound", || {
        let volume = admin.field("pvc/data", "/spec/volumeName");
        volume.as_str().map(str::to_owned).ok_or_else(|| admin.ok("describe pvc data"))
    });
    let terms = admin.field(&format!("pv/{volume}"), "/spec/nodeAffinity/required/nodeSelectorTerms");
    let only = |key: &str, value: &str| json!([{"key": key, "operator": "In", "values": [value]}]);
    let wanted = json!({"matchExpressions": only("kubernetes.io/hostname", "victim"), "matchFields": only("metadata.name", "evil")});
    assert_eq!(terms, json!([wanted]));
}
