//! The sources of the workspace as tokens (so that comments and strings do not count), and the paths in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The project's directory.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project's directory")
}

/// Every Rust source below a directory.
pub(crate) fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
            let path = entry.expect("an entry").path();
            match path.file_name().and_then(|name| name.to_str()) {
                Some("target") => {}
                _ if path.is_dir() => dirs.push(path),
                Some(name) if name.ends_with(".rs") => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    files
}

pub(crate) fn tokens(path: &Path) -> TokenStream {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

/// Whether a token is the brackets of `#[cfg(test)]`.
fn is_cfg_test(token: Option<&TokenTree>) -> bool {
    token.is_some_and(|token| token.to_string().replace(' ', "") == "[cfg(test)]")
}

/// Calls `found` with each identifier of a source.
pub(crate) fn for_each_identifier(stream: TokenStream, found: &mut impl FnMut(&str)) {
    for token in stream {
        match token {
            TokenTree::Group(group) => for_each_identifier(group.stream(), found),
            TokenTree::Ident(name) => found(&name.to_string()),
            _ => {}
        }
    }
}

/// Calls `found` with the name of each type that a source defines: `struct`, `enum`, `union`, `trait` and `type`.
pub(crate) fn for_each_type(stream: TokenStream, found: &mut impl FnMut(&str)) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => for_each_type(group.stream(), found),
            TokenTree::Ident(keyword) if ["struct", "enum", "union", "trait", "type"].contains(&keyword.to_string().as_str()) => {
                if let Some(name) = ident(tokens.get(at + 1)) {
                    found(&name);
                }
            }
            _ => {}
        }
    }
}

/// The paths in a source that begin with `crate`, `super` or `self`, each written from the crate's root. `module` is
/// the module of the source. Inline test modules are left out.
pub(crate) fn paths(stream: TokenStream, module: &[String]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    collect(stream, module, &mut paths);
    paths
}

fn collect(stream: TokenStream, module: &[String], paths: &mut Vec<Vec<String>>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut at = 0;
    let mut tested = false;
    while at < tokens.len() {
        tested |= is_punct(tokens.get(at), '#') && is_cfg_test(tokens.get(at + 1));
        match &tokens[at] {
            TokenTree::Ident(word) if word == "mod" && matches!(tokens.get(at + 2), Some(TokenTree::Group(_))) => {
                if let (false, Some(name), Some(TokenTree::Group(body))) = (tested, ident(tokens.get(at + 1)), tokens.get(at + 2)) {
                    collect(body.stream(), &[module, &[name]].concat(), paths);
                }
                (at, tested) = (at + 3, false);
                continue;
            }
            TokenTree::Ident(word) if is_path_start(&tokens, at) => {
                let mut base = module.to_vec();
                match word.to_string().as_str() {
                    "crate" => base.clear(),
                    "super" => drop(base.pop()),
                    _ => {}
                }
                at = follow(&tokens, at + 1, base, paths);
                continue;
            }
            TokenTree::Group(group) => collect(group.stream(), module, paths),
            TokenTree::Punct(punct) if punct.as_char() == ';' => tested = false,
            _ => {}
        }
        tested &= !matches!(&tokens[at], TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        at += 1;
    }
}

/// Whether `crate::`, `super::` or `self::` begins here; also in `$crate::` of a macro.
fn is_path_start(tokens: &[TokenTree], at: usize) -> bool {
    let starts = ident(tokens.get(at)).is_some_and(|word| ["crate", "super", "self"].contains(&word.as_str()));
    starts && is_punct(tokens.get(at + 1), ':') && is_punct(tokens.get(at + 2), ':')
}

/// Follows `::a::b::{c, d}` from `at`; returns the index after the path.
fn follow(tokens: &[TokenTree], mut at: usize, mut path: Vec<String>, paths: &mut Vec<Vec<String>>) -> usize {
    while is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':') {
        match tokens.get(at + 2) {
            Some(TokenTree::Ident(segment)) if segment == "super" => drop(path.pop()),
            Some(TokenTree::Ident(segment)) => path.push(segment.to_string()),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                branches(group.stream(), &path, paths);
                return at + 3;
            }
            // A glob, or the type arguments of a function.
            _ => break,
        }
        at += 3;
    }
    paths.push(path);
    at
}

/// The branches of a `use` tree's braces.
fn branches(stream: TokenStream, path: &[String], paths: &mut Vec<Vec<String>>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    for branch in tokens.split(|token| is_punct(Some(token), ',')) {
        match branch.first() {
            Some(TokenTree::Ident(segment)) if segment == "self" => paths.push(path.to_vec()),
            Some(TokenTree::Ident(segment)) => drop(follow(branch, 1, [path, &[segment.to_string()]].concat(), paths)),
            _ => {}
        }
    }
}

/// The modules that a crate's root declares, and for each name that the root re-exports, the module of the name.
pub(crate) fn root_of_crate(stream: TokenStream) -> (Vec<String>, BTreeMap<String, String>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let follows = |keyword: &str, at: usize| ident(tokens.get(at)).is_some_and(|word| word == keyword);
    let modules: Vec<String> = (0..tokens.len())
        .filter(|at| follows("mod", *at) && is_punct(tokens.get(at + 2), ';'))
        .filter_map(|at| ident(tokens.get(at + 1)))
        .collect();
    let mut exports = BTreeMap::new();
    for at in (0..tokens.len()).filter(|at| follows("use", *at)) {
        let mut named = Vec::new();
        if let Some(first) = ident(tokens.get(at + 1)) {
            let base = if ["crate", "self"].contains(&first.as_str()) { Vec::new() } else { vec![first] };
            follow(&tokens, at + 2, base, &mut named);
        }
        let from_module = named.into_iter().filter(|path| path.first().is_some_and(|first| modules.contains(first)));
        exports.extend(from_module.filter_map(|path| Some((path.last()?.clone(), path.first()?.clone()))));
    }
    (modules, exports)
}
