//! The messages in prost's structs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Error;

/// Fields by the path of their message.
pub type Messages = BTreeMap<String, Vec<Field>>;

/// A field as the struct has it.
pub struct Field {
    pub tag: u32,
    /// In camel case: mostly, but not always, what JSON calls it (`hostIp` for `hostIP`).
    pub camel: String,
    /// As the table writes it.
    pub kind: String,
}

/// Modules of versions that are not stable, and of what no client of ours asks for.
const SKIPPED: &[&str] = &["alpha", "beta", "api/extensions", "metrics", "testapigroup", "imagepolicy", "admission/", "apiserverinternal"];
/// All the same.
const KEPT: &[&str] = &["apis/meta/v1beta1/", "apidiscovery/v2beta1/"];

impl Field {
    /// The path of the message that it holds.
    pub fn message(&self) -> Option<&str> {
        Some(self.kind.trim_start_matches(['*', '%'])).filter(|kind| kind.contains('.'))
    }

    /// Whether it holds one value rather than a list or map.
    pub fn is_one(&self) -> bool {
        !self.kind.starts_with(['*', '%'])
    }
}

/// Every message below a directory.
pub fn collect(root: &Path) -> Result<Messages, Error> {
    let mut paths = Vec::new();
    modules(root, &mut paths)?;
    let mut found = Messages::new();
    for path in paths {
        let relative = path.strip_prefix(root)?.parent().unwrap_or(Path::new("")).to_string_lossy().into_owned();
        let folder = format!("{relative}/");
        if SKIPPED.iter().any(|skipped| folder.contains(skipped)) && !KEPT.iter().any(|kept| folder.contains(kept)) {
            continue;
        }
        let module: Vec<&str> = relative.split('/').collect();
        messages(&std::fs::read_to_string(&path)?, &module, &mut found)?;
    }
    Ok(found)
}

fn modules(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            modules(&path, files)?;
        } else if path.file_name().is_some_and(|name| name == "mod.rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn messages(source: &str, module: &[&str], found: &mut Messages) -> Result<(), Error> {
    let mut attribute = String::new();
    let mut declaration = String::new();
    let mut id: Option<String> = None;
    for line in source.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("pub struct ").and_then(|rest| rest.split([' ', '{']).next()) {
            let path = spelled(&format!("{}.{name}", module.join(".")));
            found.insert(path.clone(), Vec::new());
            id = Some(path);
        }
        if line.starts_with('}') || line.ends_with("{}") {
            id = None;
        } else if line.starts_with("#[prost(") {
            line.clone_into(&mut attribute);
        } else if !attribute.is_empty() && !line.starts_with("///") {
            // Long declarations take several lines.
            declaration.push_str(line);
            if declaration.ends_with(',') && declaration.matches('<').count() == declaration.matches('>').count() {
                if let Some(fields) = id.as_ref().and_then(|id| found.get_mut(id)) {
                    fields.push(field(&attribute, &declaration, module)?);
                }
                attribute.clear();
                declaration.clear();
            }
        }
    }
    Ok(())
}

fn field(attribute: &str, declaration: &str, module: &[&str]) -> Result<Field, Error> {
    let field = declaration.strip_prefix("pub ").ok_or("an attribute without field")?;
    let (name, declared) = field.split_once(':').ok_or("a field without type")?;
    let tag = attribute.rsplit("tag = \"").next().and_then(|rest| rest.split('"').next()).ok_or("a field without tag")?;
    Ok(Field { tag: tag.parse()?, camel: camel(name.trim_start_matches("r#")), kind: kind(attribute, declared, module)? })
}

fn kind(attribute: &str, declared: &str, module: &[&str]) -> Result<String, Error> {
    let words = attribute.trim_start_matches("#[prost(");
    let scalar = |word: &str| match word {
        "string" => Some("s"),
        "bytes" => Some("b"),
        "int32" | "int64" => Some("i"),
        "bool" => Some("t"),
        "double" => Some("d"),
        _ => None,
    };
    let first = words.split([',', ' ', '=']).next().unwrap_or_default();
    if first == "btree_map" {
        let value = words.split("string, ").nth(1).and_then(|rest| rest.split('"').next()).ok_or("a map without values")?;
        return Ok(format!("%{}", scalar(value).map_or_else(|| message(declared, module), str::to_owned)));
    }
    let kind = scalar(first).map_or_else(|| message(declared, module), str::to_owned);
    Ok(if words.contains("repeated") { format!("*{kind}") } else { kind })
}

/// The path of the message in a field's declared type.
fn message(declared: &str, module: &[&str]) -> String {
    let last = declared.trim().trim_end_matches([',', '>', ' ']);
    let path = last.rsplit(['<', ' ', ',']).next().unwrap_or_default();
    let mut module = module.to_vec();
    let mut name = Vec::new();
    for part in path.split("::").filter(|part| !part.is_empty()) {
        match part {
            "super" => {
                module.pop();
            }
            part => name.push(part),
        }
    }
    module.extend(name);
    spelled(&module.join("."))
}

/// Upstream's spelling of what Rust's manners changed, where it matters here.
fn spelled(path: &str) -> String {
    path.replace(".Json", ".JSON")
}

fn camel(snake: &str) -> String {
    let mut out = String::with_capacity(snake.len());
    let mut upper = false;
    for c in snake.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                out.push(c.to_ascii_uppercase());
                upper = false;
            }
            c => out.push(c),
        }
    }
    out
}
