//! Checks the references from documents to sources: each file, and each item `file.rs::item`, must exist.

use std::fs;
use std::path::{Path, PathBuf};

/// The documents that refer to the sources.
const DOCUMENTS: [&str; 3] = ["docs/ARCHITECTURE.md", "docs/contributing.md", "docs/recipes"];

/// Keywords before the name of an item's definition.
const KEYWORDS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod"];

fn pages(root: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for document in DOCUMENTS.map(|document| root.join(document)) {
        match fs::read_dir(&document) {
            Ok(entries) => pages.extend(entries.map(|entry| entry.expect("an entry").path())),
            Err(_) => pages.extend(document.exists().then_some(document)),
        }
    }
    pages
}

/// The texts in backticks that name a source file with its directory, and the item in it if the text names one.
fn places(page: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    page.split('`').skip(1).step_by(2).filter_map(|text| {
        let (file, item) = text.split_once("::").map_or((text, None), |(file, item)| (file, Some(item)));
        let is_file = Path::new(file).extension().is_some_and(|extension| extension == "rs");
        (is_file && file.contains('/') && !file.contains(['*', ' ', '<'])).then_some((file, item))
    })
}

fn defines(source: &str, item: &str) -> bool {
    let words: Vec<&str> = source.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).collect();
    words.windows(2).any(|pair| KEYWORDS.contains(&pair[0]) && pair[1] == item)
}

#[test]
fn places_that_the_documents_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project's directory");
    let mut wrong = Vec::new();
    for page in pages(root) {
        let text = fs::read_to_string(&page).expect("a page");
        for (file, item) in places(&text) {
            let source = fs::read_to_string(root.join(file));
            let is_there = source.as_ref().is_ok_and(|source| item.is_none_or(|item| defines(source, item)));
            if !is_there {
                wrong.push(format!("{}: {file} {}", page.display(), item.unwrap_or_default()));
            }
        }
    }
    assert!(wrong.is_empty(), "not in the sources any more: {wrong:#?}");
}
