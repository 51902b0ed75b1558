//! Checks that every stable kind of k8s-openapi is served: compares the sources of the types with the table of kinds.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use api_model::kind;
use cargo_metadata::MetadataCommand;

use super::*;

/// Stable kinds without a resource, with the reason.
const NOT_SERVED: &[(&str, &str, &str)] = &[
    ("", "APIGroup", "the answer of discovery"),
    ("", "APIGroupList", "the answer of discovery"),
    ("", "APIResourceList", "the answer of discovery"),
    ("", "APIVersions", "the answer of discovery"),
    ("", "Status", "what requests are answered"),
    ("authentication.k8s.io", "TokenRequest", "the body of serviceaccounts/token"),
    ("autoscaling", "Scale", "the body of every scale subresource"),
    ("policy", "Eviction", "the body of pods/eviction"),
];

/// The sources of the newest version's types, in cargo's registry. A build fetches only the packages of its own
/// platform, so cargo metadata may ask for no others.
fn sources() -> PathBuf {
    let fetched = ["--offline", "--filter-platform", "host-tuple"].map(str::to_owned);
    let metadata = MetadataCommand::new().other_options(fetched).exec().expect("metadata");
    let types = metadata.packages.iter().find(|package| package.name.as_str() == "k8s-openapi").expect("a dependency");
    let source = types.manifest_path.with_file_name("src");
    let version = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("v1_")?.parse::<u32>().ok();
    let versions = fs::read_dir(source).expect("a directory").flatten().map(|entry| entry.path());
    versions.filter(|path| version(path).is_some()).max_by_key(version).expect("a version")
}

/// Group, version and kind of every type of an API below a directory.
fn kinds_in(directory: &Path, found: &mut BTreeSet<(String, String, String)>) {
    for path in fs::read_dir(directory).expect("a directory").flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            kinds_in(&path, found);
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source");
        let Some(at) = text.find("impl crate::Resource for") else { continue };
        let constant = |name: &str| {
            let (_, rest) = text[at..].split_once(&format!("const {name}: &'static str = \"")).expect("a constant");
            rest.split('"').next().expect("a text").to_owned()
        };
        found.insert((constant("GROUP"), constant("VERSION"), constant("KIND")));
    }
}

fn is_stable(version: &str) -> bool {
    version.strip_prefix('v').is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
}

#[test]
fn every_stable_kind_is_served_or_is_none() {
    let mut known = BTreeSet::new();
    kinds_in(&sources(), &mut known);
    let stable: Vec<_> = known.iter().filter(|(_, version, _)| is_stable(version)).collect();
    assert!(stable.len() > 70, "{stable:?}");
    let is_listed = |group: &str, name: &str| NOT_SERVED.iter().any(|(g, k, _)| *g == group && *k == name);
    for (group, version, name) in &stable {
        let served = kind::builtin().iter().any(|kind| (&kind.group, &kind.version, &kind.kind) == (group, version, name));
        assert!(served != is_listed(group, name), "{group}/{version} {name}: served or listed, and not both");
    }
    for (group, name, _) in NOT_SERVED {
        assert!(stable.iter().any(|(g, _, k)| g == group && k == name), "there is no {name} in {group}");
    }
    for kind in kind::builtin() {
        assert!(kinds().contains_key(format!("{}/{}/{}", kind.group, kind.version, kind.kind).as_str()), "{kind:?} has no type");
        // The metrics of resources and the groups of Pods have no stable version upstream.
        let is_group = matches!(kind.kind.as_str(), "PodGroup" | "Workload");
        assert!(is_stable(&kind.version) || kind.group == kind::METRICS || is_group, "{kind:?}");
    }
}
