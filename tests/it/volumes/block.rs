//! Volumes that are block devices (`volumeMode: Block`): a container gets the device at a path of its own.

use std::fs;

use tests::loop_device::LoopDevice;
use tests::run::Ran;
use tests::{Cluster, Kubectl};

use super::{until_bound, until_event};

const LEN: u64 = 4 << 20;

/// A device of the node, and its claim.
const VOLUME: &str = r#"
apiVersion: v1
kind: PersistentVolume
metadata: {name: device}
spec:
  capacity: {storage: 4Mi}
  accessModes: [ReadWriteOnce]
  volumeMode: Block
  storageClassName: ""
  local: {path: DEVICE}
  nodeAffinity:
    required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [NODE]}]}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: device}
spec: {storageClassName: "", volumeMode: Block, accessModes: [ReadWriteOnce], resources: {requests: {storage: 4Mi}}}
"#;

/// A Pod that uses the claim.
const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers:
    - name: c
      image: IMAGE
      imagePullPolicy: Never
      command: [COMMAND]
      USE
  volumes: [{name: data, persistentVolumeClaim: {claimName: device, readOnly: READONLY}}]
"#;

const DEVICES: &str = "volumeDevices: [{name: data, devicePath: /dev/xvda}]";

fn pod(name: &str, usage: &str, read_only: bool) -> String {
    let pod = POD.replace("NAME", name).replace("USE", usage).replace("READONLY", &read_only.to_string());
    pod.replace("IMAGE", "samples/tools:latest").replace("COMMAND", r#"sh, -c, "until [ -e /stop ]; do sleep 0.1; done""#)
}

pub fn a_claim_may_be_a_device(cluster: &mut Cluster, node: &str) {
    let work = tempfile::tempdir().expect("a directory");
    let device = LoopDevice::over(&work.path().join("disk"), LEN);
    {
        let kubectl = cluster.kubectl();
        kubectl.apply(&VOLUME.replace("DEVICE", &device.path().display().to_string()).replace("NODE", node)).ok();
        until_bound(&kubectl, "pvc/device");
        kubectl.apply(&pod("writer", DEVICES, false)).ok();
        kubectl.until_ready("writer");
        shell(&kubectl, "writer", "printf written | dd of=/dev/xvda bs=512 conv=sync,fsync").ok();
        let described = kubectl.ok("describe pod writer");
        assert!(described.contains("/dev/xvda from data"), "{described}");
        others_do_not_reach_it(&kubectl, &device);
        what_does_not_fit_is_named(&kubectl);
    }
    // A container that starts again after a restart of the node has the device.
    cluster.stop();
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.ok("exec writer -- touch /stop");
    kubectl.until("pod/writer", "/status/containerStatuses/0/restartCount", 1);
    kubectl.until_ready("writer");
    assert_eq!(kubectl.ok("exec writer -- head -c 7 /dev/xvda"), "written");
    kubectl.ok("delete pod writer --timeout=60s");
    assert!(fs::read(device.path()).expect("the device").starts_with(b"written"), "it is the node's device");

    kubectl.apply(&pod("reader", DEVICES, true)).ok();
    kubectl.until_ready("reader");
    assert_eq!(kubectl.ok("exec reader -- head -c 7 /dev/xvda"), "written");
    let refused = shell(&kubectl, "reader", "printf over | dd of=/dev/xvda bs=512").fails();
    assert!(refused.contains("Operation not permitted"), "{refused}");
    kubectl.ok("delete pod reader --timeout=60s");
    kubectl.ok("delete pvc device --timeout=60s");
    kubectl.ok("delete pv device --timeout=60s");
}

fn shell(kubectl: &Kubectl<'_>, pod: &str, script: &str) -> Ran {
    kubectl.run(&["exec", pod, "--", "sh", "-c", script])
}

/// A root that makes a node of the same device has no use of it.
fn others_do_not_reach_it(kubectl: &Kubectl<'_>, device: &LoopDevice) {
    use std::os::unix::fs::MetadataExt as _;
    let minor = nix::sys::stat::minor(fs::metadata(device.path()).expect("the device").rdev());
    kubectl
        .apply(
            &pod("other", "", false)
                .replace("  volumes: [{name: data, persistentVolumeClaim: {claimName: device, readOnly: false}}]\n", ""),
        )
        .ok();
    kubectl.until_ready("other");
    let refused = shell(kubectl, "other", &format!("busybox mknod /d b 7 {minor} && head -c 7 /d")).fails();
    assert!(refused.contains("not permitted"), "{refused}");
    kubectl.ok("delete pod other --timeout=60s");
}

fn what_does_not_fit_is_named(kubectl: &Kubectl<'_>) {
    kubectl.apply(&pod("mounts", "volumeMounts: [{name: data, mountPath: /data}]", false)).ok();
    until_event(
        kubectl,
        "mounts",
        "error processing PVC default/device: volume data has volumeMode Block, but is specified in volumeMounts",
    );
    kubectl.ok("delete pod mounts --timeout=60s");
    let wasm = pod("guest", DEVICES, false).replace("samples/tools:latest", "samples/hello:latest");
    kubectl.apply(&wasm).ok();
    kubectl.until_waiting("guest", "CreateContainerConfigError", "a WebAssembly container cannot have devices");
    kubectl.ok("delete pod guest --timeout=60s");
}
