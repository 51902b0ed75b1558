//! Names that say nothing about what a type is: no type has one of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::packages;
use crate::source::{for_each_type, root, sources, tokens};

/// The names. Each stood for several unlike things; the noun of CRI, client-go, the kubelet, etcd or CEL takes its place.
const BANNED: &[&str] = &["Known", "Seen", "Shown", "Place", "Asked", "Kept", "Held", "Ground", "Found", "Turn"];

/// Crates that still have such types. A crate leaves the list with its last one.
const NOT_DONE: &[&str] = &[];

#[test]
fn no_type_has_a_name_that_says_nothing() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut packages = packages();
    // The innermost package that a file lies in is the one that it belongs to.
    packages.sort_by_key(|package| std::cmp::Reverse(package.manifest_path.as_str().len()));
    for file in ["api", "sched", "node", "dns", "runtimes", "src", "tests", ".ci"].iter().flat_map(|dir| sources(&root().join(dir))) {
        let owner = packages.iter().find(|package| package.manifest_path.parent().is_some_and(|dir| file.starts_with(dir)));
        let Some(owner) = owner else { continue };
        for_each_type(tokens(&file), &mut |name| {
            if BANNED.contains(&name) {
                let relative = file.strip_prefix(root()).expect("inside the project");
                found.entry(owner.name.to_string()).or_default().push(format!("{}: {name}", relative.display()));
            }
        });
    }
    let new: Vec<&String> = found.iter().filter(|(owner, _)| !NOT_DONE.contains(&owner.as_str())).flat_map(|(_, types)| types).collect();
    assert!(new.is_empty(), "name these after what they are: {new:#?}");
    let owners: BTreeSet<&str> = found.keys().map(String::as_str).collect();
    let done: Vec<&&str> = NOT_DONE.iter().filter(|owner| !owners.contains(**owner)).collect();
    assert!(done.is_empty(), "{done:?} have no such types any more: take them off the list");
}
