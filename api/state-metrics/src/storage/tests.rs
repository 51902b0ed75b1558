use serde_json::json;

use crate::tests::{samples, text};

#[test]
fn a_volume_and_its_claim_have_their_families() {
    let volume = json!({
        "metadata": {"name": "pv-1", "creationTimestamp": "2026-10-14T03:00:00Z"},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "storageClassName": "local",
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/data/1", "fsType": "ext4"},
            "claimRef": {"kind": "PersistentVolumeClaim", "name": "reports", "namespace": "shop"},
        },
        "status": {"phase": "Bound"},
    });
    let claim = json!({
        "metadata": {"name": "reports", "namespace": "shop", "creationTimestamp": "2026-10-14T03:00:00Z"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "volumeMode": "Filesystem",
            "volumeName": "pv-1",
            "resources": {"requests": {"storage": "8Gi"}},
        },
        "status": {"phase": "Bound", "conditions": [{"type": "Resizing", "status": "True"}]},
    });
    insta::assert_snapshot!([text("", "persistentvolumes", &volume), text("", "persistentvolumeclaims", &claim)].concat());
}

#[test]
fn classes_and_attachments_have_their_families() {
    let class = json!({"metadata": {"name": "local"}, "provisioner": "skiff.dev/local", "volumeBindingMode": "WaitForFirstConsumer"});
    let attachment = json!({
        "metadata": {"name": "a", "labels": {"app.kubernetes.io/name": "db"}},
        "spec": {"attacher": "csi.example.com", "nodeName": "one", "source": {"persistentVolumeName": "pv-1"}},
        "status": {"attached": true, "attachmentMetadata": {"devicePath": "/dev/sda"}},
    });
    insta::assert_snapshot!(
        [samples("storage.k8s.io", "storageclasses", &class), samples("storage.k8s.io", "volumeattachments", &attachment)].concat()
    );
}
