//! The types of whole objects, from the OpenAPI v3 document of their group and version, for the type check of policies'
//! expressions.
//!
//! As upstream (`cel/openapi/resolver`), a definition is found by `x-kubernetes-group-version-kind`, references are
//! followed, and a recursive definition is unknown within itself. Fields without a type (quantities, free-form objects)
//! have any type; upstream treats them as absent and warns about fields that exist.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::names::escape;
use crate::schema::plain;
use crate::types::{ObjectType, Type};

const REFERENCE: &str = "#/components/schemas/";
const KINDS: &str = "x-kubernetes-group-version-kind";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const OPEN: &str = "x-kubernetes-preserve-unknown-fields";
/// The maximum of schemas of one kind that are converted. A Pod has about two thousand. Further schemas have any type.
const PLACES_MAX: usize = 50_000;

/// The type of a kind's objects; `schemas` are the `components.schemas` of its document. `None` if the document does
/// not have the kind.
pub fn type_of_kind(schemas: &Map<String, Json>, group: &str, version: &str, kind: &str) -> Option<Type> {
    let is_it = |one: &Json| (text(one, "group"), text(one, "version"), text(one, "kind")) == (group, version, kind);
    let stands_for = |schema: &Json| schema.get(KINDS).and_then(Json::as_array).is_some_and(|kinds| kinds.iter().any(is_it));
    let (name, schema) = schemas.iter().find(|(_, schema)| stands_for(schema))?;
    let mut reader = Reader { schemas, within: vec![name], left: PLACES_MAX };
    Some(reader.read(schema, kind))
}

struct Reader<'d> {
    schemas: &'d Map<String, Json>,
    /// The definitions around the current schema.
    within: Vec<&'d str>,
    left: usize,
}

impl<'d> Reader<'d> {
    fn read(&mut self, schema: &'d Json, path: &str) -> Type {
        let Some(left) = self.left.checked_sub(1) else { return Type::Dyn };
        self.left = left;
        if let Some(name) = referred(schema) {
            return self.definition(name, path);
        }
        match text(schema, "type") {
            _ if text(schema, "format") == "int-or-string" || is_set(schema, INT_OR_STRING) => Type::Dyn,
            "array" => Type::list(schema.get("items").map_or(Type::Dyn, |items| self.read(items, &format!("{path}.@idx")))),
            "object" => self.object(schema, path),
            kind => plain(kind, text(schema, "format")).unwrap_or(Type::Dyn),
        }
    }

    fn definition(&mut self, name: &'d str, path: &str) -> Type {
        let Some(schema) = self.schemas.get(name).filter(|_| !self.within.contains(&name)) else { return Type::Dyn };
        self.within.push(name);
        let of = self.read(schema, path);
        self.within.pop();
        of
    }

    fn object(&mut self, schema: &'d Json, path: &str) -> Type {
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            return Type::map(self.read(values, &format!("{path}.@elem")));
        }
        let properties = schema.get("properties").and_then(Json::as_object);
        let Some(properties) = properties.filter(|properties| !properties.is_empty()) else { return Type::Dyn };
        let field = |(field, schema): (&String, &'d Json)| (escape(field), self.read(schema, &format!("{path}.{field}")));
        let fields = properties.iter().map(field).collect();
        let is_open = is_set(schema, OPEN) || is_set(schema, "additionalProperties");
        Type::Object(Arc::new(ObjectType { name: path.to_owned(), fields, is_open }))
    }
}

/// The definition of a schema's reference. The reference may be in `allOf`, beside a description.
fn referred(schema: &Json) -> Option<&str> {
    let name = schema.get("$ref").and_then(Json::as_str).and_then(|reference| reference.strip_prefix(REFERENCE));
    name.or_else(|| schema.get("allOf")?.as_array()?.iter().find_map(referred))
}

fn text<'d>(schema: &'d Json, name: &str) -> &'d str {
    schema.get(name).and_then(Json::as_str).unwrap_or_default()
}

fn is_set(schema: &Json, name: &str) -> bool {
    schema.get(name).and_then(Json::as_bool).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use api_model::kind;

    use super::*;
    use crate::{Env, Expression};

    fn issues(group: &str, version: &str, kind: &str, text: &str) -> String {
        let document = api_schema::openapi::v3(group, version, kind::builtin()).expect("served");
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        let of = type_of_kind(schemas, group, version, kind).expect("known");
        match Expression::compile(text, &Env::default().with("object", of)) {
            Ok(_) => String::new(),
            Err(error) => error.issues().to_owned(),
        }
    }

    #[test]
    fn fields_of_built_in_kinds_have_their_types() {
        for text in [
            "object.spec.replicas > 1 && object.metadata.labels['a'] == object.spec.template.spec.containers[0].image",
            "object.metadata.creationTimestamp > timestamp('2020-01-01T00:00:00Z')",
            "object.spec.template.spec.containers.all(c, has(c.resources.requests) && c.resources.requests['cpu'] == '1')",
            "object.spec.strategy.rollingUpdate.maxSurge == 1 || object.spec.strategy.rollingUpdate.maxSurge == '10%'",
            "object.spec.template.metadata.__namespace__ == ''",
        ] {
            assert_eq!(issues("apps", "v1", "Deployment", text), "", "{text}");
        }
        assert_eq!(issues("", "v1", "Secret", "object.data['a'] == b'x'"), "");
        assert_eq!(
            issues("apps", "v1", "Deployment", "object.replicas > 1"),
            "ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas > 1\n | ......^"
        );
        let issue = issues("apps", "v1", "Deployment", "object.spec.replicas == '1'");
        assert!(issue.contains("found no matching overload for '_==_' applied to '(int, string)'"), "{issue}");
    }

    /// `JSONSchemaProps` is recursive.
    #[test]
    fn of_a_definition_within_itself_nothing_is_known() {
        let schema = "object.spec.versions[0].schema.openAPIV3Schema";
        let issues_in = |rest: &str| issues("apiextensions.k8s.io", "v1", "CustomResourceDefinition", &format!("{schema}{rest}"));
        assert_eq!(issues_in(".maxLength > 1"), "");
        assert_eq!(issues_in(".properties['a'].nothing == 1"), "");
        assert!(issues_in(".nothing == 1").contains("undefined field 'nothing'"));
    }

    #[test]
    fn an_unknown_kind_has_no_type() {
        assert!(type_of_kind(&Map::new(), "apps", "v1", "Deployment").is_none());
    }
}
