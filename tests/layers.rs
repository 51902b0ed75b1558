//! Checks the imports between crates: reads `cargo metadata` and fails on each edge that the architecture does not
//! have, and on each edge of the architecture that no crate uses. The tables here repeat the architecture's layers.
//! `layers/modules.rs` checks the modules of each crate in the same way, `layers/names.rs` the names of types.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

#[path = "layers/clock.rs"]
mod clock;
#[path = "layers/modules.rs"]
mod modules;
#[path = "layers/names.rs"]
mod names;
#[path = "layers/picture.rs"]
mod picture;
#[path = "layers/source.rs"]
mod source;
#[path = "layers/walks.rs"]
mod walks;

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// Our crates, each with those of our crates that it may import.
const OURS: &[(&str, &[&str])] = &[
    ("api-clock", &[]),
    ("api-files", &[]),
    ("api-metrics", &[]),
    ("api-model", &["api-clock"]),
    ("api-tasks", &["api-metrics"]),
    ("api-tls", &[]),
    ("api-usage", &[]),
    ("api-store", &["api-files", "api-tasks"]),
    ("api-schema", &["api-model"]),
    ("api-cel", &["api-model", "api-schema"]),
    ("api-print", &["api-model"]),
    ("api-state-metrics", &["api-model"]),
    ("api-rules", &["api-cel", "api-clock", "api-model", "api-schema"]),
    ("api-auth", &["api-clock", "api-files", "api-model"]),
    ("api-admission", &["api-cel", "api-model"]),
    ("api-fairness", &["api-model"]),
    ("api-cache", &["api-clock", "api-model", "api-rules", "api-store"]),
    ("api-wire", &["api-admission", "api-auth", "api-cache", "api-model", "api-print", "api-rules", "api-store"]),
    ("api-upstream", &["api-clock", "api-admission", "api-auth", "api-cache", "api-model", "api-tasks", "api-tls", "api-wire"]),
    ("api-client", &["api-clock", "api-metrics", "api-tasks"]),
    (
        "api-server",
        &[
            "api-clock",
            "api-metrics",
            "api-model",
            "api-schema",
            "api-state-metrics",
            "api-rules",
            "api-store",
            "api-cache",
            "api-auth",
            "api-admission",
            "api-fairness",
            "api-cel",
            "api-tasks",
            "api-wire",
            "api-upstream",
            "api-usage",
        ],
    ),
    ("sched-framework", &["api-model"]),
    ("sched-scheduler", &["api-clock", "api-cel", "api-client", "api-metrics", "api-model", "api-tasks", "sched-framework"]),
    ("sched-wasm", &["api-metrics", "api-tasks", "runtimes-wasmtime", "sched-framework"]),
    ("sched-controllers", &["api-clock", "api-cel", "api-client", "api-metrics", "api-model", "api-tasks", "api-tls", "sched-framework"]),
    ("runtimes-contract", &[]),
    ("runtimes-host", &["api-files", "runtimes-contract"]),
    ("runtimes-shim", &["runtimes-contract", "runtimes-host"]),
    ("runtimes-battery", &["runtimes-contract", "runtimes-host"]),
    ("runtimes-wasmtime", &["runtimes-contract", "runtimes-host", "runtimes-shim"]),
    ("runtimes-runc", &["runtimes-contract", "runtimes-host", "runtimes-shim"]),
    ("runtimes-fake", &["runtimes-contract"]),
    ("node-images", &["api-clock", "api-model", "runtimes-contract", "runtimes-host"]),
    ("node-volumes", &["api-clock", "api-model", "runtimes-contract", "runtimes-host"]),
    ("node-device-plugins", &["api-files", "api-metrics", "api-model", "api-tasks"]),
    ("node-logind", &["api-files", "api-tasks"]),
    ("node-netfilter", &[]),
    ("node-network", &["api-model", "node-netfilter", "runtimes-contract", "runtimes-host"]),
    ("node-spdy", &[]),
    (
        "node-agent",
        &[
            "api-admission",
            "api-clock",
            "api-client",
            "api-metrics",
            "api-model",
            "api-rules",
            "api-tasks",
            "api-tls",
            "node-device-plugins",
            "node-images",
            "node-logind",
            "node-volumes",
            "node-network",
            "node-spdy",
            "runtimes-contract",
            "runtimes-host",
            "runtimes-shim",
        ],
    ),
    ("node-proxy", &["api-client", "api-tasks", "node-netfilter"]),
    ("dns", &["api-clock", "api-client", "api-tasks"]),
];

/// Crates that may import every crate.
const TOPS: &[&str] = &["skiff", "tests", "tests-fuzz", "tests-sim", "xtask"];

/// Foreign crates, each with exactly those of our crates that import it. `hickory` stands for every crate `hickory-…`
/// too.
const DOORS: &[(&str, &[&str])] = &[
    ("sqlx", &["api-store"]),
    ("tonic", &["api-store", "node-device-plugins"]),
    ("prost", &["api-store", "node-device-plugins"]),
    ("axum", &["api-server", "api-upstream", "api-wire", "node-agent"]),
    ("cel", &["api-cel"]),
    ("prometheus", &["api-metrics"]),
    ("zbus", &["node-logind"]),
    ("rand", &["api-clock"]),
    ("wasmtime", &["runtimes-wasmtime", "sched-wasm"]),
    ("hickory", &["dns"]),
    ("rtnetlink", &["node-network"]),
    ("miniz_oxide", &["node-spdy"]),
    ("oci-client", &["node-images"]),
    ("reqwest", &["node-images", "sched-controllers"]),
    ("cgroups-rs", &["runtimes-host"]),
];

fn packages() -> Vec<Package> {
    MetadataCommand::new().no_deps().exec().expect("cargo metadata").packages
}

fn imports(package: &Package) -> BTreeSet<String> {
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind == DependencyKind::Normal)
        .map(|dependency| dependency.name.clone())
        .collect()
}

#[test]
fn crates_import_only_what_lies_below_them() {
    let allowed: BTreeMap<&str, &[&str]> = OURS.iter().copied().collect();
    let packages = packages();
    let names: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    for package in packages.iter().filter(|package| !TOPS.contains(&package.name.as_str())) {
        let below = allowed.get(package.name.as_str()).unwrap_or_else(|| panic!("{} has no place in the layers", package.name));
        for import in imports(package).iter().filter(|import| names.contains(import.as_str())) {
            assert!(below.contains(&import.as_str()), "{} may not import {import}", package.name);
        }
    }
    for (name, below) in OURS {
        let package = packages.iter().find(|package| package.name.as_str() == *name);
        let imports = imports(package.unwrap_or_else(|| panic!("{name} is in the layers and does not exist")));
        let unused: Vec<_> = below.iter().filter(|below| !imports.contains(**below)).collect();
        assert!(unused.is_empty(), "{name} may import {unused:?} and does not: take it out of the layers");
    }
}

/// Whether a foreign crate belongs to the entry of `DOORS` with that name.
fn is_of(door: &str, import: &str) -> bool {
    import.strip_prefix(door).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[test]
fn foreign_crates_come_in_by_their_one_door() {
    let packages = packages();
    let below: Vec<_> = packages.iter().filter(|package| !TOPS.contains(&package.name.as_str())).collect();
    for (door, through) in DOORS {
        let imports_it = |package: &&&Package| imports(package).iter().any(|import| is_of(door, import));
        let importing: BTreeSet<&str> = below.iter().filter(imports_it).map(|package| package.name.as_str()).collect();
        assert_eq!(
            importing,
            through.iter().copied().collect::<BTreeSet<_>>(),
            "{door} comes in through the one, and may through the other"
        );
    }
}

#[test]
fn a_crates_name_is_its_path_and_the_architecture_names_it() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project's directory");
    let architecture = std::fs::read_to_string(root.join("docs/ARCHITECTURE.md")).expect("docs/ARCHITECTURE.md");
    for package in packages().iter().filter(|package| !TOPS.contains(&package.name.as_str())) {
        let dir = package.manifest_path.parent().expect("a directory").as_std_path();
        let path = dir.strip_prefix(root).expect("inside the project").display().to_string();
        assert_eq!(package.name.as_str(), path.replace('/', "-"));
        assert!(architecture.contains(&format!("`{path}`")), "docs/ARCHITECTURE.md does not name {path}");
    }
}
