//! The picture of the crates in docs/ARCHITECTURE.md, drawn from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use crate::{TOPS, imports, packages};

const BEGIN: &str = "<!-- crates: drawn by tests/layers/picture.rs -->\n";
const END: &str = "<!-- end of the crates -->";

/// The imports of a crate among our crates, without those that another of its imports imports too, directly or
/// indirectly.
fn reduced(edges: &BTreeMap<String, BTreeSet<String>>) -> BTreeMap<&str, Vec<&str>> {
    let reaches = |from: &str, to: &str| {
        let (mut next, mut reached) = (vec![from.to_owned()], BTreeSet::new());
        while let Some(name) = next.pop() {
            next.extend(edges[&name].iter().filter(|below| reached.insert((*below).clone())).cloned());
        }
        reached.contains(to)
    };
    let direct = |below: &BTreeSet<String>| -> Vec<String> {
        below.iter().filter(|to| !below.iter().any(|other| other != *to && reaches(other, to))).cloned().collect()
    };
    edges
        .iter()
        .map(|(name, below)| {
            let direct_imports = direct(below);
            (name.as_str(), below.iter().filter(|to| direct_imports.contains(to)).map(String::as_str).collect())
        })
        .collect()
}

/// A flowchart in Mermaid's language: an arrow leads from the importing crate to the imported one.
fn drawn() -> String {
    let packages = packages();
    let ours = |name: &str| packages.iter().any(|package| package.name.as_str() == name) && !TOPS[1..].contains(&name);
    let below = |name: &String| ours(name);
    let edges: BTreeMap<String, BTreeSet<String>> = packages
        .iter()
        .filter(|package| ours(&package.name))
        .map(|package| (package.name.to_string(), imports(package).into_iter().filter(below).collect()))
        .collect();
    let mut text = "```mermaid\nflowchart TD\n".to_owned();
    for (name, below) in reduced(&edges) {
        for to in below {
            writeln!(text, "  {name} --> {to}").expect("written");
        }
    }
    text + "```\n"
}

#[test]
fn the_architecture_shows_the_crates_as_they_are() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ARCHITECTURE.md");
    let text = std::fs::read_to_string(&page).expect("docs/ARCHITECTURE.md");
    let (before, rest) = text.split_once(BEGIN).expect("the picture's beginning");
    let (drawn_before, after) = rest.split_once(END).expect("the picture's end");
    let drawn = drawn();
    if std::env::var_os("SKIFF_DRAW").is_some() {
        std::fs::write(&page, format!("{before}{BEGIN}{drawn}{END}{after}")).expect("written");
    } else {
        assert_eq!(drawn_before, drawn, "draw it again: SKIFF_DRAW=1 cargo test -p tests --test layers");
    }
}
