//! `kubectl cp` to and from a WASM container, whose image has its module alone.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use tests::Kubectl;
use tests::run::run;

const STORE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: store}
spec:
  containers:
    - name: web
      image: samples/web:latest
      imagePullPolicy: Never
      volumeMounts: [{name: data, mountPath: /data}, {name: fixed, mountPath: /fixed, readOnly: true}]
  volumes: [{name: data, emptyDir: {}}, {name: fixed, emptyDir: {}}]
"#;

pub fn files_are_copied(kubectl: &Kubectl<'_>) {
    let work = tempfile::tempdir().expect("a directory");
    let at = |name: &str| work.path().join(name).display().to_string();
    let tree = work.path().join("tree");
    fs::create_dir_all(tree.join("empty")).expect("made");
    fs::write(tree.join("large"), "0123456789abcde\n".repeat(1 << 18)).expect("written");
    fs::write(tree.join("run.sh"), "#!/bin/sh\n").expect("written");
    fs::set_permissions(tree.join("run.sh"), fs::Permissions::from_mode(0o755)).expect("set");
    kubectl.apply(STORE).ok();
    kubectl.until_ready("store");

    // A directory into one that is there, a file under a new name, and both back.
    kubectl.ok(&format!("cp {} store:/data", at("tree")));
    kubectl.ok(&format!("cp --no-preserve {} store:/data/renamed", at("tree/large")));
    kubectl.ok(&format!("cp store:/data/tree {}", at("back")));
    kubectl.ok(&format!("cp -c web store:/data/renamed {}", at("renamed")));
    assert_same(&tree, &work.path().join("back"));
    assert_same(&tree.join("large"), &work.path().join("renamed"));

    // Links are only warned about by kubectl, which does not make them.
    symlink("large", tree.join("link")).expect("linked");
    kubectl.ok(&format!("cp {} store:/data/linked", at("tree")));
    let warned = kubectl.run(&["cp", "store:/data/linked", &at("linked")]);
    assert!(warned.code == 0 && warned.stderr.contains("skipping symlink"), "{warned}");

    for (from, to, wanted) in [
        ("store:/data/nowhere".to_owned(), at("nowhere"), "tar: /data/nowhere: No such file or directory"),
        (at("tree/run.sh"), "store:/fixed/run.sh".to_owned(), "tar: run.sh: Read-only file system"),
        (at("tree/run.sh"), "store:/run.sh".to_owned(), "tar: run.sh: No such file or directory"),
    ] {
        // kubectl writes the messages of a tar that sends to its own output.
        let failed = kubectl.run(&["cp", &from, &to]);
        assert!(failed.code != 0 && format!("{}{}", failed.stdout, failed.stderr).contains(wanted), "{failed}");
    }
    kubectl.ok("delete pod store --timeout=60s");
}

fn assert_same(one: &Path, other: &Path) {
    run(Command::new("diff").arg("-r").args([one, other]), None).ok();
}
