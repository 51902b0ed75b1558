//! Makes `src/wire/protobuf/table.txt` from the sources of the k8s-pb crate, whose structs prost has
//! generated from upstream's proto definitions, and from our schemas, which say what JSON calls a
//! field: `protobuf_table K8S_PB_DIRECTORY > table.txt`. What the lines mean is told in `table.rs`.
//!
//! Fields that a schema has and the crate, which is older, has not are in the table without a number.

mod names;
mod pointers;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;

use crate::names::Names;
use crate::source::{Messages, collect};

type Error = Box<dyn std::error::Error>;

/// Modules and the groups that they are.
const GROUPS: &[(&str, &str)] = &[
    ("admissionregistration", "admissionregistration.k8s.io"),
    ("apps", "apps"),
    ("authentication", "authentication.k8s.io"),
    ("authorization", "authorization.k8s.io"),
    ("autoscaling", "autoscaling"),
    ("batch", "batch"),
    ("certificates", "certificates.k8s.io"),
    ("coordination", "coordination.k8s.io"),
    ("core", ""),
    ("discovery", "discovery.k8s.io"),
    ("events", "events.k8s.io"),
    ("flowcontrol", "flowcontrol.apiserver.k8s.io"),
    ("networking", "networking.k8s.io"),
    ("node", "node.k8s.io"),
    ("policy", "policy"),
    ("rbac", "rbac.authorization.k8s.io"),
    ("resource", "resource.k8s.io"),
    ("scheduling", "scheduling.k8s.io"),
    ("storage", "storage.k8s.io"),
    ("storagemigration", "storagemigration.k8s.io"),
];

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
    ("apimachinery.pkg.apis.meta.v1beta1.PartialObjectMetadataList", "meta.k8s.io/v1beta1/PartialObjectMetadataList"),
    ("api.apidiscovery.v2.APIGroupDiscoveryList", "apidiscovery.k8s.io/v2/APIGroupDiscoveryList"),
    ("api.apidiscovery.v2beta1.APIGroupDiscoveryList", "apidiscovery.k8s.io/v2beta1/APIGroupDiscoveryList"),
];

fn main() -> Result<(), Error> {
    let root = PathBuf::from(std::env::args().nth(1).ok_or("usage: protobuf_table K8S_PB_DIRECTORY")?).join("src");
    let messages = collect(&root)?;
    let mut names = Names::default();
    let mut roots: BTreeMap<String, String> = OTHERS.iter().map(|(id, root)| ((*id).to_owned(), (*root).to_owned())).collect();
    for id in messages.keys() {
        let Some((group, version, kind)) = kind_of(id) else { continue };
        let Some(schema) = api_schema::of_gvk(group, version, kind) else { continue };
        names.walk(&messages, id, schema);
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        roots.insert(id.clone(), format!("{api_version}/{kind}"));
        let list = format!("{id}List");
        if messages.contains_key(&list) {
            roots.insert(list, format!("{api_version}/{kind}List"));
        }
    }
    print!("{}", render(&messages, &names, &roots)?);
    Ok(())
}

/// The kind whose message it may be.
fn kind_of(id: &str) -> Option<(&'static str, &str, &str)> {
    let (path, kind) = id.rsplit_once('.')?;
    let (path, version) = path.rsplit_once('.')?;
    let group = match path {
        "apiextensions_apiserver.pkg.apis.apiextensions" => "apiextensions.k8s.io",
        "kube_aggregator.pkg.apis.apiregistration" => "apiregistration.k8s.io",
        "apimachinery.pkg.apis.meta" => "",
        _ => GROUPS.iter().find(|(module, _)| path.strip_prefix("api.") == Some(module))?.1,
    };
    Some((group, version, kind))
}

/// The lines of everything that the roots reach.
fn render(messages: &Messages, names: &Names, roots: &BTreeMap<String, String>) -> Result<String, Error> {
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
        for field in messages.get(id).ok_or_else(|| format!("no message {id}"))? {
            let Some((name, keeps_zero)) = names.of(id, field) else { continue };
            let mark = if keeps_zero { "=" } else { "" };
            write!(line, " {}:{name}:{mark}{}", field.tag, field.kind)?;
            left.extend(field.message());
        }
        for name in names.unnumbered(id) {
            write!(line, " 0:{name}:!")?;
        }
        lines.insert(id, line);
    }
    Ok(lines.into_values().fold(String::new(), |table, line| table + &line + "\n"))
}
