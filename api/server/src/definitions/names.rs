//! The names that a definition gets: upstream's naming and establishing controllers as one pure function. Within a
//! group, a name belongs to the definition that had it first.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::condition::{self, Condition};

/// The names in use in a group.
#[derive(Default)]
struct Used {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

/// The new status of each definition; None if its status stays.
pub(super) fn plan(definitions: &[Arc<Value>], now: Timestamp) -> Vec<Option<Value>> {
    let mut statuses: Vec<Value> =
        definitions.iter().map(|definition| definition.get("status").cloned().unwrap_or_else(|| json!({}))).collect();
    let mut changed = Vec::with_capacity(definitions.len());
    for (index, definition) in definitions.iter().enumerate() {
        let used = if has_its_names(definition) { Used::default() } else { used_in(group(definition), definitions, &statuses) };
        let Some(status) = statuses.get_mut(index) else { continue };
        let is_changed = decide(definition, status, &used, now);
        changed.push(is_changed.then(|| status.clone()));
    }
    changed
}

fn group(definition: &Value) -> &str {
    definition.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default()
}

/// Whether nothing must be decided. This is the common case, and it needs no other definition.
fn has_its_names(definition: &Value) -> bool {
    definition.pointer("/spec/names") == definition.pointer("/status/acceptedNames")
        && condition::is_true(definition, "NamesAccepted")
        && condition::is_true(definition, "Established")
}

fn used_in(group_name: &str, definitions: &[Arc<Value>], statuses: &[Value]) -> Used {
    let mut used = Used::default();
    for (definition, status) in definitions.iter().zip(statuses) {
        if group(definition) != group_name {
            continue;
        }
        let Some(names) = status.get("acceptedNames") else { continue };
        used.resources.extend([text(names, "plural"), text(names, "singular")].map(str::to_owned));
        used.resources.extend(short_names(names).map(str::to_owned));
        used.kinds.extend([text(names, "kind"), text(names, "listKind")].map(str::to_owned));
    }
    used
}

fn text<'a>(names: &'a Value, field: &str) -> &'a str {
    names.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn short_names(names: &Value) -> impl Iterator<Item = &str> {
    names.get("shortNames").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Writes names and conditions into the status; returns whether anything changed.
fn decide(definition: &Value, status: &mut Value, used: &Used, now: Timestamp) -> bool {
    if has_its_names(definition) {
        return false;
    }
    let empty = json!({});
    let requested = definition.pointer("/spec/names").unwrap_or(&empty);
    let accepted = status.get("acceptedNames").cloned().unwrap_or_else(|| json!({}));
    let mut names: Map<String, Value> = accepted.as_object().cloned().unwrap_or_default();
    let mut conflict = None;
    for (field, used, reason) in [
        ("plural", &used.resources, "PluralConflict"),
        ("singular", &used.resources, "SingularConflict"),
        ("shortNames", &used.resources, "ShortNamesConflict"),
        ("kind", &used.kinds, "KindConflict"),
        ("listKind", &used.kinds, "ListKindConflict"),
    ] {
        let taken = taken(requested, &accepted, field, used);
        match taken.is_empty() {
            true => take(&mut names, requested, field),
            false => conflict = Some((reason, taken)),
        }
    }
    take(&mut names, requested, "categories");
    let is_accepted = conflict.is_none();
    let accepted_now = match conflict {
        None => Condition::new("NamesAccepted", true, "NoConflicts", "no conflicts found"),
        Some((reason, message)) => Condition::new("NamesAccepted", false, reason, message),
    };
    let was_established = condition::is_true(definition, "Established");
    let established = match is_accepted {
        _ if was_established => None,
        true => Some(Condition::new("Established", true, "InitialNamesAccepted", "the initial names have been accepted")),
        false => Some(Condition::new("Established", false, "NotAccepted", "not all names are accepted")),
    };
    let names = Value::Object(names);
    let mut changed = names != accepted;
    api_wire::json::set(status, &["acceptedNames"], names);
    changed |= condition::set(status, &accepted_now, now);
    changed |= established.is_some_and(|established| condition::set(status, &established, now));
    changed
}

/// Why a name is not available; empty if it is available.
fn taken(requested: &Value, accepted: &Value, field: &str, used: &BTreeSet<String>) -> String {
    let in_use = |name: &str| format!("{name:?} is already in use");
    if field != "shortNames" {
        let name = text(requested, field);
        return if name != text(accepted, field) && used.contains(name) { in_use(name) } else { String::new() };
    }
    let new = short_names(requested).filter(|name| !short_names(accepted).any(|own| own == *name));
    let taken: Vec<String> = new.filter(|name| used.contains(*name)).map(in_use).collect();
    match taken.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

fn take(names: &mut Map<String, Value>, requested: &Value, field: &str) {
    match requested.get(field) {
        Some(name) => drop(names.insert(field.to_owned(), name.clone())),
        None => drop(names.remove(field)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(names: Value, status: Value) -> Arc<Value> {
        Arc::new(json!({"spec": {"group": "a.io", "names": names}, "status": status}))
    }

    fn now() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
        let conditions = status["conditions"].as_array().expect("conditions");
        conditions.iter().find(|condition| condition["type"] == kind).expect("the condition")
    }

    #[test]
    fn free_names_are_accepted_and_the_kind_is_established_at_once() {
        let one = definition(
            json!({"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}),
            json!({"storedVersions": ["v1"]}),
        );
        let status = plan(&[Arc::clone(&one)], now()).remove(0).expect("a new status");
        assert_eq!(status["acceptedNames"], one["spec"]["names"]);
        assert_eq!(
            (&condition(&status, "NamesAccepted")["status"], &condition(&status, "Established")["status"]),
            (&json!("True"), &json!("True"))
        );
        assert_eq!(status["storedVersions"], json!(["v1"]));
        let settled = definition(one["spec"]["names"].clone(), status);
        assert_eq!(plan(&[settled], now()), [None]);
    }

    #[test]
    fn who_comes_second_waits_for_the_name() {
        let names = |plural: &str| json!({"plural": plural, "singular": plural, "kind": "Foo", "listKind": "FooList", "shortNames": ["f"]});
        let both = [definition(names("foos"), json!({})), definition(names("others"), json!({}))];
        let statuses = plan(&both, now());
        let second = statuses[1].as_ref().expect("a status");
        assert_eq!(condition(second, "NamesAccepted")["reason"], "ListKindConflict");
        assert_eq!(condition(second, "Established")["reason"], "NotAccepted");
        assert_eq!(second["acceptedNames"]["plural"], "others");
        let alone = definition(names("others"), second.clone());
        let freed = plan(&[alone], now()).remove(0).expect("a status");
        assert_eq!(condition(&freed, "Established")["status"], "True");
    }

    #[test]
    fn an_established_kind_stays_so_when_it_asks_for_a_name_in_use() {
        let names = json!({"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"});
        let first = definition(names.clone(), json!({}));
        let status = plan(&[first], now()).remove(0).expect("a status");
        let mut wishes = names;
        wishes["shortNames"] = json!(["bars"]);
        let bars = definition(json!({"plural": "bars", "singular": "bar", "kind": "Bar", "listKind": "BarList"}), json!({}));
        let statuses = plan(&[bars, definition(wishes, status)], now());
        let second = statuses[1].as_ref().expect("a status");
        assert_eq!(condition(second, "NamesAccepted")["message"], "\"bars\" is already in use");
        assert_eq!(condition(second, "Established")["status"], "True");
        assert!(second["acceptedNames"].get("shortNames").is_none());
    }
}
