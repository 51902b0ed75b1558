//! Names that a client gives as programs to run in a WASM container, with files that a container of the same Pod has planted.

use tests::Kubectl;

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: planted}
spec:
  initContainers:
    - name: plants
      image: samples/tools:latest
      imagePullPolicy: Never
      command:
        - sh
        - -c
        - |
          b=/bin/busybox
          cd /shared
          $b ln -s /etc/passwd absolute
          $b ln -s ../../../../../../../../../etc/passwd relative
          $b ln -s /proc/self/exe process
          $b ln -s loop loop
          $b mkfifo pipe
          $b mknod device c 60 1
          $b truncate -s 1000000000000 huge
          echo secret > closed && $b chmod 600 closed
      volumeMounts: [{name: shared, mountPath: /shared}]
  containers:
    - name: c
      image: samples/web:latest
      imagePullPolicy: Never
      volumeMounts: [{name: shared, mountPath: /shared}]
  volumes: [{name: shared, emptyDir: {}}]
"#;

pub fn start(kubectl: &Kubectl<'_>) {
    kubectl.apply(POD).ok();
}

/// No name leads to a file of the node, waits for ever, or fills the node's disk.
pub fn of_the_node_are_not_run(kubectl: &Kubectl<'_>) {
    kubectl.ok("wait --for=condition=Ready pod/planted --timeout=60s");
    let (absent, denied) = ("no such file or directory", "permission denied");
    let names = [
        ("/shared/absolute", absent),
        ("/shared/relative", absent),
        ("/shared/../../../../../etc/passwd", absent),
        ("/shared/process", absent),
        ("/shared/loop", absent),
        ("/etc/passwd", absent),
        ("/shared/pipe", denied),
        ("/shared/device", denied),
        ("/shared/closed", denied),
        ("/shared", denied),
        ("/shared/huge", "the file has more than 268435456 bytes"),
    ];
    for (name, wanted) in names {
        // kubectl drops an answer that comes before it has opened its streams, and says so: then it did not arrive.
        let said = std::iter::repeat_with(|| kubectl.fails(&format!("exec planted -c c -- {name}")));
        let said = said.take(5).find(|said| !said.contains("Unknown stream id")).expect("an answer that arrives");
        assert!(said.contains(&format!("exec: {name:?}: {wanted}")), "{name}: {said}");
    }
}
