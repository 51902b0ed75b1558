//! Checks that the files of `api/schema/definitions` say what the types of k8s-openapi say, and writes them.

#![allow(clippy::expect_used, clippy::panic, reason = "what a test cannot do fails it")]

#[path = "definitions/types.rs"]
mod types;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::io::Write as _;
use std::path::PathBuf;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::types::{SHARED, TYPES};

const STALE: &str = "is not what the types say: SKIFF_WRITE_DOCS=1 cargo test -p api-schema --test definitions";

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("definitions").join(name)
}

/// All definitions that the types reach, with upstream's names and reference style.
fn definitions() -> BTreeMap<String, Value> {
    let settings = SchemaSettings::openapi3().with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    for generate in TYPES.iter().map(|found| found.generate).chain(SHARED.iter().copied()) {
        generate(&mut generator);
    }
    generator.take_definitions(false).into_iter().collect()
}

/// Removes the descriptions of a schema and of its parts.
fn strip(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.remove("description");
    for part in ["items", "additionalProperties"] {
        fields.get_mut(part).into_iter().for_each(strip);
    }
    let properties = fields.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(|properties| properties.values_mut()).for_each(strip);
}

fn lines(definitions: &BTreeMap<String, Value>) -> String {
    let kinds: BTreeMap<_, _> = TYPES.iter().map(|found| ((found.name)(), found.gvk.join("/"))).collect();
    let gvk = |name: &String| kinds.get(name.as_str()).map(String::as_str).unwrap_or_default();
    definitions.iter().map(|(name, schema)| format!("{name}\t{}\t{schema}\n", gvk(name))).collect()
}

#[test]
fn files_say_what_the_types_say() {
    let mut definitions = definitions();
    let described = lines(&definitions);
    definitions.values_mut().for_each(strip);
    let shapes = lines(&definitions);
    if std::env::var_os("SKIFF_WRITE_DOCS").is_some() {
        fs::write(path("shapes.tsv"), &shapes).expect("written");
        let mut file = GzEncoder::new(File::create(path("described.tsv.gz")).expect("created"), Compression::best());
        file.write_all(described.as_bytes()).and_then(|()| file.try_finish()).expect("written");
    }
    assert!(fs::read_to_string(path("shapes.tsv")).expect("a file") == shapes, "shapes.tsv {STALE}");
    let mut stored = String::new();
    GzDecoder::new(File::open(path("described.tsv.gz")).expect("a file")).read_to_string(&mut stored).expect("compressed text");
    assert!(stored == described, "described.tsv.gz {STALE}");
}
