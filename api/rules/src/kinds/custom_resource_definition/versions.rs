//! The versions of a definition: exactly one is stored, each has a schema, columns, subresources and
//! selectable fields.

use api_model::message::Message;
use std::collections::BTreeSet;

use api_model::field::Path;
use api_schema::Structural;
use serde_json::Value;

use super::schema;
use crate::at::At;
use crate::checks::Checks;
use crate::format;

/// Upstream's `MaxSelectableFields`.
const SELECTABLE_FIELDS_MAX: usize = 8;
const WARNING_LEN_MAX: usize = 256;

/// Checks the versions of a definition.
pub fn validate(spec: &At<'_>, checks: &mut Checks) {
    let versions = spec.get("versions");
    each(spec, checks);
    if versions.items().map(|version| version.get("name").text()).collect::<BTreeSet<_>>().len() < versions.len() {
        checks.invalid(&versions, "must contain unique version names");
    }
    if versions.items().filter(|version| version.get("storage").flag()).count() != 1 {
        checks.invalid(&versions, "must have exactly one version marked as storage version");
    }
    for (schema, status) in shared(spec, "schema", "validation").iter().zip(statuses(spec)) {
        schema::validate(&schema.get("openAPIV3Schema"), status, checks);
    }
    shared(spec, "subresources", "subresources").iter().for_each(|subresources| scale(&subresources.get("scale"), checks));
    for columns in shared(spec, "additionalPrinterColumns", "additionalPrinterColumns") {
        columns.items().for_each(|column| printer_column(&column, checks));
    }
    let schemas: Vec<Value> = versions.items().map(|version| version.find("schema.openAPIV3Schema").value_or_null()).collect();
    for (fields, schema) in shared(spec, "selectableFields", "selectableFields").iter().zip(&schemas) {
        selectable_fields(fields, schema, checks);
    }
}

fn each(spec: &At<'_>, checks: &mut Checks) {
    for version in spec.get("versions").items() {
        if !version.find("schema.openAPIV3Schema").exists() {
            checks.required(&version.get("schema").get("openAPIV3Schema"), "");
        }
        let name = version.get("name");
        let wrong = format::dns_1035_label(name.text());
        if !wrong.is_empty() {
            checks.invalid_value(&name.path, name.text(), wrong.join(","));
        }
        deprecation(&version, checks);
    }
}

/// A field of every version. If all versions have the same value, it is returned once, with the path `of_spec` of the
/// spec.
fn shared<'a>(spec: &At<'a>, field: &str, of_spec: &str) -> Vec<At<'a>> {
    let all: Vec<At<'a>> = spec.get("versions").items().map(|version| version.get(field)).collect();
    match all.split_first() {
        Some((first, rest)) if first.exists() && rest.iter().all(|other| other.value() == first.value()) => {
            vec![At::new(first.value(), spec.path.child(of_spec))]
        }
        _ => all,
    }
}

/// Whether each version has a status subresource, in the order of the versions.
fn statuses(spec: &At<'_>) -> Vec<bool> {
    spec.get("versions").items().map(|version| version.get("subresources").get("status").exists()).collect()
}

fn deprecation(version: &At<'_>, checks: &mut Checks) {
    let warning = version.get("deprecationWarning");
    if !warning.exists() {
        return;
    }
    if !version.get("deprecated").flag() {
        return checks.invalid(&warning, "can only be set for deprecated versions");
    }
    if warning.text().len() > WARNING_LEN_MAX {
        checks.invalid(&warning, format!("must be <= {WARNING_LEN_MAX} characters long"));
    }
    if warning.text().is_empty() {
        checks.invalid(&warning, "must not be an empty string");
    }
    if let Some((index, _)) = warning.text().char_indices().find(|(_, c)| c.is_control()) {
        checks.invalid(&warning, format!("must only contain printable UTF-8 characters; non-printable character found at index {index}"));
    }
}

fn scale(scale: &At<'_>, checks: &mut Checks) {
    if !scale.exists() {
        return;
    }
    for (field, root) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let path = At::new(scale.get(field).value(), scale.path.child(field));
        if path.text().is_empty() {
            checks.required(&path, "");
        } else if is_simple(&path, checks) && !path.text().starts_with(root) {
            checks.invalid(&path, format!("should be a json path under {}", root.trim_end_matches('.')));
        }
    }
    let selector = scale.get("labelSelectorPath");
    let under = |root: &str| selector.text().starts_with(root);
    if !selector.text().is_empty() && is_simple(&selector, checks) && !under(".spec.") && !under(".status.") {
        checks.invalid(&selector, "should be a json path under either .spec or .status");
    }
}

fn is_simple(path: &At<'_>, checks: &mut Checks) -> bool {
    let is_simple = path.text().starts_with('.');
    if !is_simple {
        checks.invalid(path, "must be a simple json path starting with .");
    }
    is_simple
}

fn printer_column(column: &At<'_>, checks: &mut Checks) {
    const TYPES: &str = "must be one of boolean,date,integer,number,string";
    const FORMATS: [&str; 9] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "name", "password"];
    let (name, kind, format) = (column.get("name"), column.get("type"), column.get("format"));
    if name.text().is_empty() {
        checks.required(&name, "");
    }
    match kind.text() {
        "" => checks.required(&kind, TYPES),
        "boolean" | "date" | "integer" | "number" | "string" => {}
        _ => checks.invalid(&kind, TYPES),
    }
    if !format.text().is_empty() && !FORMATS.contains(&format.text()) {
        checks.invalid(&format, format!("must be one of {}", FORMATS.join(",")));
    }
    let path = At::new(column.get("jsonPath").value(), column.path.child("JSONPath"));
    if path.text().is_empty() {
        checks.required(&path, "");
    } else {
        is_simple(&path, checks);
    }
}

fn selectable_fields(fields: &At<'_>, schema: &Value, checks: &mut Checks) {
    let schema = Structural::parse(schema);
    let mut seen = BTreeSet::new();
    for field in fields.items() {
        let path = field.get("jsonPath");
        if path.text().is_empty() {
            checks.required(&path, "");
            continue;
        }
        match selected(&schema, path.text()) {
            Err(why) => checks.invalid(&path, format!("is an invalid path: {why}")),
            Ok(_) if path.text().starts_with(".metadata") => checks.invalid(&path, "must not point to fields in metadata"),
            Ok(kind) if !matches!(kind, "string" | "boolean" | "integer") => {
                let detail =
                    "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
                checks.invalid(&path, detail);
            }
            Ok(_) if !seen.insert(path.text()) => checks.duplicate(&path),
            Ok(_) => {}
        }
    }
    if seen.len() > SELECTABLE_FIELDS_MAX {
        checks.too_many(&At::new(fields.value(), fields.path.clone()), SELECTABLE_FIELDS_MAX);
    }
}

/// The type of the field at a simple path.
fn selected<'s>(schema: &'s Structural, path: &str) -> Result<&'s str, Message> {
    let path = path.strip_prefix('.').ok_or("does not start with a dot")?;
    let mut at = schema;
    let mut walked = Path::default();
    for name in path.split('.') {
        walked = walked.child(name);
        at = at.properties.get(name).ok_or_else(|| format!("does not refer to a valid field: {walked}"))?;
    }
    Ok(&at.kind)
}
