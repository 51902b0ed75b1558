use serde_json::json;

use crate::tests::row;

#[test]
fn volumes_and_claims_point_at_each_other() {
    let volume = json!({
        "spec": {
            "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": "default", "name": "data"}, "storageClassName": "fast", "volumeMode": "Filesystem",
        },
        "status": {"phase": "Bound"},
    });
    assert_eq!(
        row("", "PersistentVolume", volume),
        "x | 5Gi | RWO,RWX | Retain | Bound | default/data | fast | <unset> |  | 90m | Filesystem"
    );
    let claim = json!({
        "spec": {"volumeName": "pv1", "storageClassName": "fast", "volumeMode": "Filesystem"},
        "status": {"phase": "Bound", "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"]},
    });
    assert_eq!(row("", "PersistentVolumeClaim", claim), "x | Bound | pv1 | 5Gi | RWO | fast | <unset> | 90m | Filesystem");
    let pending = json!({
        "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}, "deletionTimestamp": "2024-01-02T11:00:00Z"},
        "status": {"phase": "Pending"},
    });
    assert_eq!(row("", "PersistentVolumeClaim", pending), "x | Terminating |  |  |  | old | <unset> | 90m | <unset>");
}

#[test]
fn classes_mark_the_default() {
    let class = json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p"});
    assert_eq!(row("storage.k8s.io", "StorageClass", class), "x (default) | p | Delete | Immediate | false | 90m");
    let other =
        json!({"provisioner": "p", "reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true});
    assert_eq!(row("storage.k8s.io", "StorageClass", other), "x | p | Retain | WaitForFirstConsumer | true | 90m");
    assert_eq!(row("storage.k8s.io", "VolumeAttributesClass", json!({"driverName": "d"})), "x | d | 90m");
}

#[test]
fn drivers_and_what_they_attach() {
    let driver = json!({"spec": {"attachRequired": false, "tokenRequests": [{"audience": "a"}, {"audience": "b"}], "volumeLifecycleModes": ["Persistent", "Ephemeral"]}});
    assert_eq!(row("storage.k8s.io", "CSIDriver", driver), "x | false | false | false | a,b | false | Persistent,Ephemeral | 90m");
    assert_eq!(row("storage.k8s.io", "CSIDriver", json!({})), "x | true | false | false | <unset> | false | <none> | 90m");
    assert_eq!(row("storage.k8s.io", "CSINode", json!({"spec": {"drivers": [{}, {}]}})), "x | 2 | 90m");
    let attachment =
        json!({"spec": {"attacher": "d", "source": {"persistentVolumeName": "pv1"}, "nodeName": "n1"}, "status": {"attached": true}});
    assert_eq!(row("storage.k8s.io", "VolumeAttachment", attachment), "x | d | pv1 | n1 | true | 90m");
    assert_eq!(row("storage.k8s.io", "CSIStorageCapacity", json!({"storageClassName": "fast", "capacity": "1Gi"})), "x | fast | 1Gi");
}
