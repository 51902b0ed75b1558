//! Makes `src/protobuf/table.txt` from upstream's own definitions:
//!
//! `protobuf_table DIRECTORY > table.txt`
//!
//! The directory holds the Go modules `api`, `apimachinery`, `apiextensions-apiserver`, `kube-aggregator` and `metrics` of `k8s.io`, of the version whose kinds are served. What the lines mean is told in
//! `table.rs`.
//!
//! Each package's `generated.proto` has the number and type of each field, and the Go types beside it have the JSON names. Both
//! are generated or formatted, one declaration a line, so reading lines is enough: a parser of either language would be a
//! dependency without further use.

mod go;
mod proto;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::go::Types;
use crate::proto::Declared;

type Error = Box<dyn std::error::Error>;

/// Kinds that are no objects, or of no group's.
const OTHERS: &[(&str, &str)] = &[
    ("apimachinery.pkg.apis.meta.v1.APIGroup", "v1/APIGroup"),
    ("apimachinery.pkg.apis.meta.v1.APIGroupList", "v1/APIGroupList"),
    ("apimachinery.pkg.apis.meta.v1.APIResourceList", "v1/APIResourceList"),
    ("apimachinery.pkg.apis.meta.v1.APIVersions", "v1/APIVersions"),
    ("apimachinery.pkg.apis.meta.v1.DeleteOptions", "v1/DeleteOptions"),
    (
        "apimachinery.pkg.apis.meta.v1.PartialObjectMetadata",
        "meta.k8s.io/v1/PartialObjectMetadata,meta.k8s.io/v1beta1/PartialObjectMetadata",
    ),
    ("apimachinery.pkg.apis.meta.v1.PartialObjectMetadataList", "meta.k8s.io/v1/PartialObjectMetadataList"),
    ("apimachinery.pkg.apis.meta.v1.Status", "v1/Status"),
    ("apimachinery.pkg.apis.meta.v1beta1.PartialObjectMetadataList", "meta.k8s.io/v1beta1/PartialObjectMetadataList"),
    ("api.apidiscovery.v2.APIGroupDiscoveryList", "apidiscovery.k8s.io/v2/APIGroupDiscoveryList"),
    ("api.apidiscovery.v2beta1.APIGroupDiscoveryList", "apidiscovery.k8s.io/v2beta1/APIGroupDiscoveryList"),
];

/// A message's fields as the table writes them, by the message's path.
type Messages = BTreeMap<String, Vec<Word>>;

/// A word of a line.
struct Word {
    text: String,
    /// The path of the message that the field holds.
    message: Option<String>,
}

fn main() -> Result<(), Error> {
    let root = PathBuf::from(std::env::args().nth(1).ok_or("usage: protobuf_table DIRECTORY")?);
    let mut messages = Messages::new();
    let mut roots: BTreeMap<String, String> = OTHERS.iter().map(|(id, root)| ((*id).to_owned(), (*root).to_owned())).collect();
    for directory in packages(&root)? {
        let declared = Declared::read(&std::fs::read_to_string(directory.join("generated.proto"))?)?;
        let types = Types::read(&directory)?;
        for message in &declared.messages {
            let fields = message.fields.iter();
            let words = fields.filter_map(|(tag, kind)| word(&types, &message.name, *tag, kind)).collect();
            messages.insert(format!("{}.{}", declared.package, message.name), words);
        }
        kinds(&declared, &types, &mut roots);
    }
    print!("{}", render(&messages, &roots)?);
    Ok(())
}

/// Directories of packages that have definitions.
fn packages(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(packages(&path)?);
        } else if path.file_name().is_some_and(|name| name == "generated.proto") {
            found.push(directory.to_owned());
        }
    }
    Ok(found)
}

/// A field as the table writes it; none where JSON has no such field.
fn word(types: &Types, message: &str, tag: u32, kind: &str) -> Option<Word> {
    let (name, keeps_zero) = match types.is_list(message) {
        true => ("[]", false),
        false => types.field(message, tag).map(|field| (field.name.as_str(), field.keeps_zero))?,
    };
    let path = Some(kind.trim_start_matches(['*', '%'])).filter(|kind| kind.contains('.'));
    // A list, a map or a message is never zero.
    let mark = if keeps_zero && path.is_none() && !kind.starts_with(['*', '%']) { "=" } else { "" };
    Some(Word { text: format!("{tag}:{name}:{mark}{kind}"), message: path.map(str::to_owned) })
}

/// Notes the messages that are whole kinds of ours, or lists of them.
fn kinds(declared: &Declared, types: &Types, roots: &mut BTreeMap<String, String>) {
    let version = declared.package.rsplit('.').next().unwrap_or_default();
    let api_version = if types.group.is_empty() { version.to_owned() } else { format!("{}/{version}", types.group) };
    for message in &declared.messages {
        let kind = message.name.strip_suffix("List").unwrap_or(&message.name);
        if api_schema::of_gvk(&types.group, version, kind).is_some() {
            let id = format!("{}.{}", declared.package, message.name);
            roots.entry(id).or_insert_with(|| format!("{api_version}/{}", message.name));
        }
    }
}

/// The lines of everything that the roots reach.
fn render(messages: &Messages, roots: &BTreeMap<String, String>) -> Result<String, Error> {
    let mut reached = BTreeSet::new();
    let mut lines = BTreeMap::new();
    let mut left: Vec<&str> = roots.keys().map(String::as_str).collect();
    while let Some(id) = left.pop() {
        if !reached.insert(id) {
            continue;
        }
        let mut line = id.to_owned();
        if let Some(root) = roots.get(id) {
            write!(line, "={root}")?;
        }
        for word in messages.get(id).ok_or_else(|| format!("no message {id}"))? {
            write!(line, " {}", word.text)?;
            left.extend(word.message.as_deref());
        }
        lines.insert(id, line);
    }
    Ok(lines.into_values().fold(String::new(), |table, line| table + &line + "\n"))
}
