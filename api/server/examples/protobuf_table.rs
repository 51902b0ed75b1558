//! Makes `src/wire/protobuf/table.txt` from the sources of the k8s-pb crate, whose structs prost has
//! generated from upstream's proto definitions: `protobuf_table K8S_PB_DIRECTORY > table.txt`.
//!
//! A line is a message: its path, then a field a word as `tag:name:type`. Types are `s` text, `b`
//! bytes, `i` whole number, `t` truth, `d` double, or a message's path; `*` before a type is a list,
//! `%` a map from text.

use std::fmt::Write;
use std::path::{Path, PathBuf};

type Error = Box<dyn std::error::Error>;

/// Modules of stable versions; what is missing here cannot be sent as protobuf.
const SKIPPED: &[&str] =
    &["alpha", "beta", "api/extensions", "metrics", "testapigroup", "imagepolicy", "admission/", "apidiscovery", "apiserverinternal"];

fn main() -> Result<(), Error> {
    let root = PathBuf::from(std::env::args().nth(1).ok_or("usage: protobuf_table K8S_PB_DIRECTORY")?).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut table = String::new();
    for file in files {
        let relative = file.strip_prefix(&root)?.parent().unwrap_or(Path::new("")).to_string_lossy().into_owned();
        if SKIPPED.iter().any(|skipped| format!("{relative}/").contains(skipped)) {
            continue;
        }
        let module: Vec<&str> = relative.split('/').collect();
        messages(&std::fs::read_to_string(&file)?, &module, &mut table)?;
    }
    print!("{table}");
    Ok(())
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.file_name().is_some_and(|name| name == "mod.rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn messages(source: &str, module: &[&str], table: &mut String) -> Result<(), Error> {
    let mut attribute = String::new();
    let mut declaration = String::new();
    let mut inside = false;
    for line in source.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("pub struct ").and_then(|rest| rest.split([' ', '{']).next()) {
            inside = true;
            write!(table, "{}.{name}", module.join("."))?;
        }
        if inside && (line.starts_with('}') || line.ends_with("{}")) {
            inside = false;
            table.push('\n');
        } else if line.starts_with("#[prost(") {
            line.clone_into(&mut attribute);
        } else if !attribute.is_empty() && !line.starts_with("///") {
            // Long declarations take several lines.
            declaration.push_str(line);
            if declaration.ends_with(',') && declaration.matches('<').count() == declaration.matches('>').count() {
                field(&attribute, &declaration, module, table)?;
                attribute.clear();
                declaration.clear();
            }
        }
    }
    Ok(())
}

fn field(attribute: &str, declaration: &str, module: &[&str], table: &mut String) -> Result<(), Error> {
    let field = declaration.strip_prefix("pub ").ok_or("an attribute without field")?;
    let (name, declared) = field.split_once(':').ok_or("a field without type")?;
    let tag = attribute.rsplit("tag = \"").next().and_then(|rest| rest.split('"').next()).ok_or("a field without tag")?;
    write!(table, " {tag}:{}:{}", name.trim_start_matches("r#"), kind(attribute, declared, module)?)?;
    Ok(())
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
    module.join(".")
}
