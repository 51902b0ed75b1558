//! `skiff db` beside a running server: a copy made while objects are written, looked at, and put back.

use std::path::Path;

use tests::net::Net;
use tests::{Cluster, Kubectl, Ran};

/// `skiff db`, which has a flag for the data directory of its own.
fn db(cluster: &Cluster, words: &[&str]) -> Ran {
    cluster.skiff(&[&["db"], words].concat())
}

fn names(kubectl: &Kubectl<'_>) -> Vec<String> {
    kubectl.ok("get configmaps -o name -l day").lines().map(str::to_owned).collect()
}

fn write(kubectl: &Kubectl<'_>, day: &str) {
    kubectl.ok(&format!("create configmap {day} --from-literal=day={day}"));
    kubectl.ok(&format!("label configmap {day} day={day}"));
}

#[test]
fn a_database_is_copied_while_it_is_used_and_put_back() {
    let mut cluster = Cluster::prepared(Net::alone(), &["server"]);
    cluster.start();
    write(&cluster.kubectl(), "monday");
    let files = tempfile::tempdir().expect("a directory");
    let file = files.path().join("monday.db").display().to_string();

    let made = db(&cluster, &["backup", &file]).ok();
    assert!(made.starts_with(&format!("{file} holds ")), "{made}");
    let again = db(&cluster, &["backup", &file]).fails();
    assert!(again.contains(&file) && again.contains("exists"), "a backup is not overwritten: {again}");
    let whole = db(&cluster, &["check", &file]).ok();
    assert!(whole.starts_with(&format!("{file} is whole\nrevision ")), "{whole}");
    write(&cluster.kubectl(), "tuesday");
    assert_eq!(names(&cluster.kubectl()), ["configmap/monday", "configmap/tuesday"]);
    let running = db(&cluster, &["restore", &file]).fails();
    assert!(running.contains("in use"), "not under a running server: {running}");
    let before: u64 =
        cluster.kubectl().field("configmap/tuesday", "/metadata/resourceVersion").as_str().expect("text").parse().expect("a number");

    assert_eq!(cluster.stop(), 0);
    let restored = db(&cluster, &["restore", &file]).ok();
    assert!(restored.contains("the log goes on at revision ") && restored.contains("state.db.replaced"), "{restored}");
    assert!(Path::new(cluster.data_dir()).join("state.db.replaced").exists());
    assert!(db(&cluster, &["check"]).ok().contains("is whole"));
    cluster.start();
    let kubectl = cluster.kubectl();
    assert_eq!(names(&kubectl), ["configmap/monday"]);
    // What clients have seen stays in the past: a revision is never given twice.
    write(&kubectl, "wednesday");
    let after: u64 = kubectl.field("configmap/wednesday", "/metadata/resourceVersion").as_str().expect("text").parse().expect("a number");
    assert!(after > before, "{after} is not later than {before}");
}
