//! Names that say nothing about a type: no type may have one of them.

use crate::source::{for_each_type, root, sources, tokens};

/// The banned names. Each stood for several different things. Use the noun of CRI, client-go, the kubelet, etcd or CEL
/// instead.
const BANNED: &[&str] = &["Known", "Seen", "Shown", "Place", "Asked", "Kept", "Held", "Ground", "Found", "Turn"];

/// The directories of all crates.
const CRATES: [&str; 8] = ["api", "sched", "node", "dns", "runtimes", "src", "tests", ".ci"];

#[test]
fn no_type_has_a_name_that_says_nothing() {
    let mut found = Vec::new();
    for file in CRATES.iter().flat_map(|dir| sources(&root().join(dir))) {
        for_each_type(tokens(&file), &mut |name| {
            if BANNED.contains(&name) {
                found.push(format!("{}: {name}", file.strip_prefix(root()).expect("inside the project").display()));
            }
        });
    }
    assert!(found.is_empty(), "name these after what they are: {found:#?}");
}
