//! The official Python client against one cluster. `python/story.py` has the steps; this module checks that all of them
//! ran.

use tests::run::run;
use tests::{Cluster, cluster};

use crate::components;

const STORY: &str = include_str!("python/story.py");

#[test]
fn the_python_client_works() {
    let cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    let grpc = cluster.data_dir().join("grpc.wasm");
    std::fs::write(&grpc, components::grpc()).expect("written");
    cluster.skiff(&["image", "import", "it/grpc:latest", &grpc.display().to_string()]).ok();
    kubectl.ok("apply -f samples/quickstart/tools.yaml");
    kubectl.until_ready("tools");
    let mut python = cluster.net.command(&cluster::python().display().to_string());
    python.arg(cluster::project().join("tests/it/python/story.py")).arg(cluster.data_dir().join("admin.kubeconfig"));
    // The client caches discovery in one file for each host, and every cluster of the tests has the same host.
    python.env("TMPDIR", cluster.data_dir());
    let output = run(&mut python, None).ok();
    let (_, chapters) = STORY.split_once("CHAPTERS = [").expect("a list");
    let chapters: Vec<&str> =
        chapters.lines().skip(1).take_while(|line| *line != "]").map(|line| line.trim().trim_end_matches(',')).collect();
    assert_eq!(output.lines().collect::<Vec<_>>(), chapters);
    assert_eq!(STORY.lines().filter(|line| line.starts_with("def ")).count(), chapters.len() + 3, "every chapter is told");
}
