//! What a `generated.proto` declares: messages, and their fields' numbers and types. Upstream's generator
//! writes one declaration a line, nests no message in another and imports only its own kind.

use crate::Error;

/// A package.
#[derive(Default)]
pub struct Declared {
    /// `api.core.v1`, say.
    pub package: String,
    pub messages: Vec<Message>,
}

pub struct Message {
    pub name: String,
    /// Number and type, the type as the table writes it.
    pub fields: Vec<(u32, String)>,
}

impl Declared {
    pub fn read(text: &str) -> Result<Self, Error> {
        let mut found = Self::default();
        let lines = text.lines().map(|line| line.trim().trim_end_matches([';', '{', ' ']));
        for line in lines.filter(|line| !line.starts_with("//")) {
            if let Some(package) = line.strip_prefix("package ") {
                found.package = local(package)?.to_owned();
            } else if let Some(name) = line.strip_prefix("message ") {
                found.messages.push(Message { name: name.to_owned(), fields: Vec::new() });
            } else if let (Some(message), Some((declared, tag))) = (found.messages.last_mut(), line.rsplit_once(" = ")) {
                let (kind, _name) = declared.rsplit_once(' ').ok_or_else(|| format!("a field without type: {line}"))?;
                message.fields.push((tag.parse()?, shaped(kind, &found.package)?));
            }
        }
        Ok(found)
    }
}

/// A field's type with its mark of a list or map.
fn shaped(declared: &str, package: &str) -> Result<String, Error> {
    if let Some(values) = declared.strip_prefix("map<string, ") {
        return Ok(format!("%{}", kind(values.trim_end_matches('>'), package)?));
    }
    match declared.split_once(' ') {
        Some(("repeated", items)) => Ok(format!("*{}", kind(items, package)?)),
        Some(("optional", one)) => kind(one, package),
        _ => Err(format!("neither a field, a list nor a map from text: {declared}").into()),
    }
}

fn kind(declared: &str, package: &str) -> Result<String, Error> {
    Ok(match declared {
        "string" => "s".to_owned(),
        "bytes" => "b".to_owned(),
        "int32" | "int64" => "i".to_owned(),
        "bool" => "t".to_owned(),
        "double" => "d".to_owned(),
        path if path.starts_with('.') => local(path.trim_start_matches('.'))?.to_owned(),
        name => format!("{package}.{name}"),
    })
}

/// A path without what all of them begin with.
fn local(path: &str) -> Result<&str, Error> {
    path.strip_prefix("k8s.io.").ok_or_else(|| format!("a foreign package: {path}").into())
}
