//! A Pod with all that a Pod can have beside its containers: a claim, an image volume, an init container, a sidecar, shared processes and a
//! preStop hook. While it runs, it gets a debugger and other resources. Each of its containers writes a line to the claim when it begins.
//! The claim outlives the Pod: after many lives it has one line of each container for each life.

use std::fs;
use std::path::PathBuf;

use super::Life;
use super::resize::ids;

pub(super) const NAME: &str = "whole";
/// What its container writes to its log when it begins.
pub(super) const LOG: &str = "image\nbegan\n";
/// Of the sidecar and of the container. The debugger has one more; the pause process has none.
pub(super) const SHIMS: usize = 2;
/// Its grace period is shorter than the waits.
pub(super) const YAML: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: whole}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: whole}
spec:
  runtimeClassName: runc
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 20
  volumes:
    - {name: data, persistentVolumeClaim: {claimName: whole}}
    - {name: tools, image: {reference: "samples/tools:latest", pullPolicy: Never}}
  initContainers:
    - name: first
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "echo first >> /data/lives"]
      volumeMounts: [{name: data, mountPath: /data}]
    - name: side
      image: samples/tools:latest
      imagePullPolicy: Never
      restartPolicy: Always
      command: [sh, -c, "echo side >> /data/lives; exec sleep 1000000"]
      volumeMounts: [{name: data, mountPath: /data}]
  containers:
    - name: app
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "echo app >> /data/lives; test -e /tools/bin/busybox && echo image; echo began; exec sleep 1000000"]
      lifecycle: {preStop: {exec: {command: [sh, -c, "echo hook >> /data/lives"]}}}
      volumeMounts: [{name: data, mountPath: /data}, {name: tools, mountPath: /tools}]
      resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 200m, memory: 64Mi}}
"#;

impl Life<'_> {
    /// A debugger joins the Pod, and no other container changes.
    pub(super) fn debug(&mut self) {
        let before = ids(&self.status());
        let image = ["--image=samples/tools:latest", "--image-pull-policy=Never"];
        let script = ["-c", "look", "--", "sh", "-c", "echo looked; exec sleep 1000000"];
        self.kubectl.run(&[&["debug", NAME][..], &image, &script].concat()).ok();
        self.until("has its debugger", |life| {
            let status = life.status();
            let debugger = &status["ephemeralContainerStatuses"][0];
            let log = life.kubectl.run(&["logs", NAME, "-c", "look"]).stdout;
            let runs = debugger["state"]["running"].is_object() && debugger["restartCount"] == 0 && log == "looked\n";
            if runs { Ok(()) } else { Err(format!("{log}\n{status:#}")) }
        });
        assert_eq!(ids(&self.status()), before, "{}", self.agent.log());
        assert_eq!(self.agent.shims().len(), SHIMS + 1, "{}", self.agent.log());
    }

    /// The claim has one line of each container for each life. The hook of a Pod whose agent was killed may run again.
    pub(super) fn claim_has_all_lives(&self) {
        let path = self.kubectl.ok("get pv -o jsonpath={.items[0].spec.local.path}");
        let text = fs::read_to_string(PathBuf::from(path).join("lives")).expect("the file of the claim");
        let count = |word: &str| text.lines().filter(|line| *line == word).count();
        for name in ["first", "side", "app"] {
            assert_eq!(count(name), self.lives, "{name}: {text}");
        }
        assert!((self.lives..=2 * self.lives).contains(&count("hook")), "{} lives: {text}", self.lives);
    }
}
