//! Kinds of storage, and limits of namespaces.

use super::*;

#[test]
fn storage_and_limits() {
    refused(
        "",
        "persistentvolumeclaims",
        &[
            "spec: {}",
            "spec: {accessModes: [x, ReadWriteOncePod, ReadWriteOnce], resources: {requests: {storage: 0}}, volumeMode: y, storageClassName: A, dataSource: {kind: x}}",
        ],
    );
    changes(
        "",
        "persistentvolumeclaims",
        None,
        &[
            "spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}",
            "spec: {accessModes: [ReadWriteOnce], volumeName: pv, storageClassName: fast, resources: {requests: {storage: 1Gi}}}",
            "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}\nstatus: {phase: Bound}",
        ],
    );
    refused(
        "",
        "persistentvolumes",
        &[
            "spec: {}",
            "spec: {capacity: {storage: 1Gi, cpu: 1}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: x, hostPath: {path: /}, nfs: {server: a, path: /}}",
            "spec: {capacity: {storage: 0}, accessModes: [ReadWriteOnce], local: {path: /x}}",
        ],
    );
    changes(
        "",
        "persistentvolumes",
        None,
        &["spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /y}, volumeMode: Block}"],
    );
    refused("storage.k8s.io", "storageclasses", &["provisioner: ''\nreclaimPolicy: x\nvolumeBindingMode: y"]);
    changes(
        "storage.k8s.io",
        "storageclasses",
        None,
        &["provisioner: other\nparameters: {a: b}\nreclaimPolicy: Retain\nvolumeBindingMode: WaitForFirstConsumer"],
    );
    refused(
        "",
        "resourcequotas",
        &[
            "spec: {hard: {foo: 1, pods: 1500m, cpu: -1}, scopes: [x, BestEffort, NotBestEffort], scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In}, {scopeName: BestEffort, operator: In, values: [a]}]}}",
        ],
    );
    refused(
        "",
        "limitranges",
        &[
            "spec: {limits: [{type: Pod, default: {cpu: 1}}, {type: Pod}, {type: x}, {type: PersistentVolumeClaim}]}",
            "spec: {limits: [{type: Container, min: {cpu: 2}, max: {cpu: 1}, default: {cpu: 3}, defaultRequest: {cpu: 4}, maxLimitRequestRatio: {cpu: 500m, foo: 1}}]}",
        ],
    );
    refused(
        "policy",
        "poddisruptionbudgets",
        &["spec: {minAvailable: 1, maxUnavailable: 101%, unhealthyPodEvictionPolicy: x}", "spec: {minAvailable: x}"],
    );
}
