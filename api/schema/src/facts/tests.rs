use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::builtin::reference;
use crate::types::Types;

/// All definitions.
fn definitions() -> BTreeMap<String, Value> {
    let json = |schema| serde_json::from_str(schema).expect("JSON");
    Types::shapes().all().map(|(name, _, schema)| (name.to_owned(), json(schema))).collect()
}

#[test]
fn tables_are_ordered() {
    for tables in TABLES {
        assert!(tables.is_sorted_by_key(|table| table.definition), "{:?}", tables.iter().map(|t| t.definition).collect::<Vec<_>>());
    }
}

#[test]
fn every_entry_names_a_field_that_it_fits() {
    let definitions = definitions();
    for table in TABLES.iter().copied().flatten() {
        let definition = definitions.get(table.definition).unwrap_or_else(|| panic!("no type {}", table.definition));
        for field in table.atomic {
            assert_eq!(definition["properties"][field]["type"], "array", "{}.{field}", table.definition);
        }
        for fact in table.facts {
            check(&definitions, table.definition, definition, fact);
        }
    }
}

fn check(definitions: &BTreeMap<String, Value>, name: &str, definition: &Value, fact: &Fact) {
    let at = format!("{name}.{}", fact.field);
    assert_ne!(*fact, field(fact.field), "{at} says nothing");
    let Some(property) = property(definition, fact.field) else { panic!("no field {at}") };
    if fact.list_type.is_some() || fact.merge_key.is_some() {
        assert_eq!(property["type"], "array", "{at}");
    }
    let element = |key: &str| {
        let items = &property["items"];
        let body = reference(items).map_or(Some(items), |target| definitions.get(target));
        assert!(body.is_some_and(|b| b["properties"][key].is_object()), "{at} has no key {key}");
    };
    fact.list_map_keys.iter().copied().chain(fact.merge_key).for_each(element);
    assert_eq!(fact.list_type == Some(ListType::Map), !fact.list_map_keys.is_empty(), "{at}");
    if let Some(json) = fact.default {
        serde_json::from_str::<Value>(json).unwrap_or_else(|e| panic!("{at}: {e}"));
    }
    if !fact.enumeration.is_empty() {
        assert_eq!(property["type"], "string", "{at}");
    }
}

fn property<'a>(definition: &'a Value, field: &str) -> Option<&'a Value> {
    if field == SELF {
        return Some(definition);
    }
    let (name, suffix) = field.split_once("[]").map_or((field, None), |(name, _)| (name, Some(())));
    let found = definition["properties"].get(name)?;
    suffix.map_or(Some(found), |()| found.get("items").or_else(|| found.get("additionalProperties")))
}

#[test]
fn facts_reach_the_walk_trees() {
    let service = crate::of_gvk("", "v1", "Service").expect("built in");
    let ports = service.property("spec").and_then(|s| s.property("ports")).expect("a field");
    assert_eq!(ports.list_type(), ListType::Map);
    assert_eq!(ports.list_map_keys().collect::<Vec<_>>(), ["port", "protocol"]);
    assert_eq!(ports.merge_key(), Some("port"));
    assert_eq!(ports.items().and_then(|i| i.property("protocol")).and_then(crate::Schema::default_json), Some("\"TCP\""));
    assert_eq!(service.property("spec").and_then(|s| s.property("selector")).map(crate::Schema::map_type), Some(MapType::Atomic));
    let deployment = crate::of_gvk("apps", "v1", "Deployment").expect("built in");
    let spec = deployment.property("spec").expect("a field");
    assert!(spec.property("strategy").is_some_and(|s| s.patch_strategy().retain_keys));
    assert_eq!(spec.property("selector").map(crate::Schema::map_type), Some(MapType::Atomic));
    let volumes = spec.property("template").and_then(|t| t.property("spec")?.property("volumes")).expect("a field");
    assert_eq!(volumes.patch_strategy(), PatchStrategy { merge: true, retain_keys: true });
    let finalizers = service.property("metadata").and_then(|m| m.property("finalizers")).expect("a field");
    assert_eq!((finalizers.list_type(), finalizers.merge_key()), (ListType::Set, None));
    assert!(finalizers.patch_strategy().merge);
    let claim = crate::of_gvk("", "v1", "PersistentVolumeClaim").expect("built in");
    let modes = claim.property("spec").and_then(|s| s.property("accessModes")?.items()).expect("a field");
    assert!(modes.enumeration().contains(&"ReadWriteOnce"));
}
