//! The top modules of a crate (the direct children of its root) may not import each other in a circle: such modules are
//! one module in several files. Items that the root itself defines belong to no module.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::TargetKind;

use crate::packages;
use crate::source::{paths, root_of_crate, sources, tokens};

/// Each top module with the modules that it imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The imports among the top modules of the crate with this root file.
fn imports(root: &Path) -> Imports {
    let dir = root.parent().expect("a directory");
    let (modules, exports) = root_of_crate(tokens(root));
    let mut imports: Imports = modules.iter().map(|module| (module.clone(), BTreeSet::new())).collect();
    for file in sources(dir).iter().filter(|file| *file != root && !file.starts_with(dir.join("bin"))) {
        let relative = file.strip_prefix(dir).expect("below the root").with_extension("");
        let module: Vec<String> = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let Some(top) = module.first().filter(|_| !module.iter().any(|part| part == "tests" || part == "fixtures")) else { continue };
        let named = paths(tokens(file), &module).into_iter().filter_map(|path| path.first().cloned());
        let named = named.filter_map(|name| if modules.contains(&name) { Some(name) } else { exports.get(&name).cloned() });
        imports.entry(top.clone()).or_default().extend(named.filter(|name| name != top));
    }
    imports
}

/// The modules that a module imports directly or indirectly.
fn reached<'i>(imports: &'i Imports, from: &str) -> BTreeSet<&'i str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = vec![from];
    while let Some(module) = next.pop() {
        let new = imports.get(module).into_iter().flatten().map(String::as_str).filter(|name| reached.insert(*name));
        next.extend(new.collect::<Vec<_>>());
    }
    reached
}

/// The groups of modules that import each other in a circle.
fn cycles(imports: &Imports) -> BTreeSet<Vec<&str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = imports.keys().map(|module| (module.as_str(), reached(imports, module))).collect();
    let in_circle = reach.iter().filter(|(module, reached)| reached.contains(*module));
    in_circle.map(|(module, there)| there.iter().filter(|other| reach[**other].contains(module)).copied().collect()).collect()
}

#[test]
fn top_modules_of_a_crate_import_each_other_one_way() {
    let mut wrong = Vec::new();
    for package in packages() {
        let is_root = |kind: &TargetKind| matches!(kind, TargetKind::Lib);
        let lib = package.targets.iter().find(|target| target.kind.iter().any(is_root));
        let main = package.targets.iter().find(|target| target.kind.contains(&TargetKind::Bin));
        let root = &lib.or(main).expect("a library or a binary").src_path;
        let imports = imports(root.as_std_path());
        let cycles = cycles(&imports);
        wrong.extend(cycles.iter().map(|modules| format!("{}: {modules:?} import each other in a circle", package.name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn imports_are_read_from_every_form_of_path() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    };
    write("lib.rs", "pub mod a; mod b; mod c; mod d; mod e; pub use crate::c::{deep::{Thing as Other, More}, Plain}; struct OfRoot;");
    write(
        "a.rs",
        "// crate::d::No\nuse crate::{b::{self, One}, Plain}; fn f() -> &'static str { \"crate::d\" } #[cfg(test)] mod tests { use crate::e; }",
    );
    write("a/deep.rs", "use super::super::d; use super::Own; use crate::OfRoot;");
    write("b.rs", "fn f() { log!(error = crate::d::chain(&error)) } mod inner { use super::super::e::E; }");
    write("c.rs", "fn f() { self::deep::g() }");
    write("d.rs", "pub(in crate::c) struct S;");
    write("e.rs", "pub(crate) struct E(super::a::Own);");
    let imports = imports(&dir.path().join("lib.rs"));
    let read: Vec<String> =
        imports.iter().map(|(module, names)| format!("{module}: {}", names.iter().cloned().collect::<Vec<_>>().join(" "))).collect();
    assert_eq!(read, ["a: b c d", "b: d e", "c: ", "d: c", "e: a"]);
    assert_eq!(cycles(&imports).into_iter().collect::<Vec<_>>(), [vec!["a", "b", "e"]]);
}
