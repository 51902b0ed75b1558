//! Names that say nothing about a type or a value: no type and no other item may have one of them.

use std::path::{Path, PathBuf};

use crate::source::{for_each_identifier, for_each_type, root, sources, tokens};

/// The banned names. Each stood for several different things. Use the noun of CRI, client-go, the kubelet, etcd or CEL
/// instead.
const BANNED: &[&str] = &["Known", "Seen", "Shown", "Place", "Asked", "Kept", "Held", "Ground", "Found", "Turn"];

/// The words that stand in no identifier at all: of a variable, field, constant, variant, function, test or module. Participles
/// say what happened to a value; its name has to say what the value is.
const BANNED_WORDS: &[&str] = &["told", "asked", "kept", "shown", "held", "ground", "turn", "had", "place"];

/// The directories of all crates.
const CRATES: [&str; 8] = ["api", "sched", "node", "dns", "runtimes", "src", "tests", ".ci"];

#[test]
fn no_type_has_a_name_that_says_nothing() {
    let mut banned = Vec::new();
    for file in files() {
        for_each_type(tokens(&file), &mut |name| banned.extend(BANNED.contains(&name).then(|| named(&file, name))));
    }
    assert!(banned.is_empty(), "name these after what they are: {banned:#?}");
}

#[test]
fn no_identifier_has_a_word_that_says_nothing() {
    let mut banned = Vec::new();
    for file in files() {
        for_each_identifier(tokens(&file), &mut |name| {
            banned.extend(words(name).any(|word| BANNED_WORDS.contains(&word.as_str())).then(|| named(&file, name)))
        });
    }
    banned.dedup();
    assert!(banned.is_empty(), "name these after what they are: {banned:#?}");
}

/// The words of an identifier, in lower case: both `first_retained` and `FirstRetained` have two.
fn words(name: &str) -> impl Iterator<Item = String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut before = '_';
    for letter in name.chars() {
        if letter == '_' || (letter.is_uppercase() && !before.is_uppercase()) {
            words.push(String::new());
        }
        if letter != '_'
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.into_iter()
}

fn files() -> impl Iterator<Item = PathBuf> {
    CRATES.iter().flat_map(|dir| sources(&root().join(dir)))
}

fn named(file: &Path, name: &str) -> String {
    format!("{}: {name}", file.strip_prefix(root()).expect("inside the project").display())
}
