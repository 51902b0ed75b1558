//! `metadata.managedFields`: the managers and the fields that each owns.

use api_model::meta;
use serde_json::{Map, Value};

use super::set::FieldSet;
use super::wire;

/// Upstream's limit of entries with the operation Update; beyond it the oldest are merged into one.
const UPDATERS_MAX: usize = 10;
/// The manager of the merged entry.
const ANCIENT: &str = "ancient-changes";

/// The operation of a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// The id of an entry: manager, operation, API version and subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) name: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    /// Empty for the main resource.
    pub(super) subresource: String,
}

impl Id {
    /// Whether both are the same entry: an applier keeps its entry in another API version.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }
}

/// An entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Manager {
    pub(super) id: Id,
    /// The time as written, in whole seconds; may be empty.
    pub(super) time: String,
    pub(super) fields: FieldSet,
}

/// All entries of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Managers(Vec<Manager>);

impl Managers {
    /// The entries of an object; empty where there are none or they do not parse.
    pub(super) fn from_object(object: &Value) -> Self {
        stated(object).and_then(|entries| Self::decode(entries)).unwrap_or_default()
    }

    /// `None` where one is invalid.
    fn decode(entries: &[Value]) -> Option<Self> {
        let mut managers = Self::default();
        for entry in entries {
            managers.put(decode(entry)?);
        }
        Some(managers)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Manager> {
        self.0.iter()
    }

    /// Removes an entry.
    pub(super) fn take(&mut self, id: &Id) -> Option<Manager> {
        let at = self.0.iter().position(|manager| manager.id.is(id))?;
        Some(self.0.remove(at))
    }

    /// Adds an entry, or replaces the one with the same id.
    pub(super) fn put(&mut self, manager: Manager) {
        self.take(&manager.id);
        self.0.push(manager);
    }

    /// Removes fields from all managers, and managers without fields.
    pub(super) fn disown(&mut self, fields: &FieldSet) {
        for manager in self.0.iter_mut().filter(|manager| manager.fields.overlaps(fields)) {
            manager.fields = manager.fields.difference(fields);
        }
        self.0.retain(|manager| !manager.fields.is_empty());
    }

    /// [`Managers::disown`] for the managers of an API version.
    pub(super) fn disown_in(&mut self, api_version: &str, fields: &FieldSet) {
        for manager in self.0.iter_mut().filter(|manager| manager.id.api_version == api_version) {
            manager.fields = manager.fields.difference(fields);
        }
        self.0.retain(|manager| !manager.fields.is_empty());
    }

    /// The managers of an API version.
    pub(super) fn of_version(&self, api_version: &str) -> Self {
        Self(self.0.iter().filter(|manager| manager.id.api_version == api_version).cloned().collect())
    }

    /// The fields of all managers.
    pub(super) fn owned(&self) -> FieldSet {
        self.0.iter().fold(FieldSet::default(), |owned, manager| owned.union(&manager.fields))
    }

    /// Merges the oldest updates until at most [`UPDATERS_MAX`] are left.
    pub(super) fn cap(&mut self) {
        let is_update = |manager: &Manager| manager.id.operation == Operation::Update;
        let mut excess = self.0.iter().filter(|manager| is_update(manager)).count().saturating_sub(UPDATERS_MAX);
        if excess == 0 {
            return;
        }
        self.sort();
        let mut merged: Vec<Manager> = Vec::with_capacity(self.0.len());
        for manager in self.0.drain(..) {
            let oldest = merged.iter_mut().find(|oldest| is_update(oldest) && oldest.id.api_version == manager.id.api_version);
            match oldest {
                Some(oldest) if excess > 0 && is_update(&manager) => {
                    oldest.id = Id { name: ANCIENT.to_owned(), subresource: String::new(), ..manager.id };
                    oldest.fields = oldest.fields.union(&manager.fields);
                    oldest.time = manager.time;
                    excess -= 1;
                }
                _ => merged.push(manager),
            }
        }
        // An earlier merged entry may be newer than the entries merged now.
        for mut manager in merged {
            if let Some(twin) = self.take(&manager.id) {
                manager.fields = manager.fields.union(&twin.fields);
                manager.time = manager.time.max(twin.time);
            }
            self.0.push(manager);
        }
    }

    /// Upstream's order: appliers first, then by time.
    fn sort(&mut self) {
        self.0.sort_by(|a, b| {
            let key = |manager: &Manager| (manager.id.operation, manager.time.clone());
            let names = |manager: &Manager| (manager.id.name.clone(), manager.id.api_version.clone(), manager.id.subresource.clone());
            key(a).cmp(&key(b)).then_with(|| names(a).cmp(&names(b)))
        });
    }

    /// Writes the entries into an object.
    pub(super) fn write(mut self, object: &mut Value) {
        if self.is_empty() {
            return meta::unset(object, "managedFields");
        }
        self.sort();
        meta::set(object, "managedFields", self.0.iter().map(encode).collect::<Vec<Value>>());
    }
}

/// The entries in an object.
pub(super) fn stated(object: &Value) -> Option<&Vec<Value>> {
    object.get("metadata")?.get("managedFields")?.as_array()
}

/// The entries after a manager changed fields that only it owns; `None` where another manager owns some.
pub(super) fn changed_again(entries: &[Value], id: &Id, changed: &FieldSet, now: &str) -> Option<Vec<Value>> {
    if entries.is_empty() {
        return None;
    }
    if changed.is_empty() {
        return Some(entries.to_vec());
    }
    let mine = entries.iter().position(|entry| is_of(entry, id))?;
    for (at, entry) in entries.iter().enumerate() {
        let fields = entry.get("fieldsV1").and_then(Value::as_object)?;
        let is_as_wanted = if at == mine { wire::covers(fields, changed) } else { !wire::meets(fields, changed) };
        if !is_as_wanted {
            return None;
        }
    }
    let mut entries = entries.to_vec();
    entries.get_mut(mine)?.as_object_mut()?.insert("time".to_owned(), now.into());
    entries.sort_by(|a, b| order(a).cmp(&order(b)));
    Some(entries)
}

fn text<'e>(entry: &'e Value, field: &str) -> &'e str {
    entry.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Whether an entry is that of an update by this writer.
fn is_of(entry: &Value, id: &Id) -> bool {
    let of_entry = ["manager", "operation", "apiVersion", "subresource"].map(|field| text(entry, field));
    of_entry == [&id.name, "Update", &id.api_version, &id.subresource]
}

/// The order of [`Managers::sort`].
fn order(entry: &Value) -> [&str; 5] {
    ["operation", "time", "manager", "apiVersion", "subresource"].map(|field| text(entry, field))
}

/// Whether a user clears all entries: with an empty list, or one empty entry.
pub(super) fn is_reset(entries: &[Value]) -> bool {
    match entries {
        [] => true,
        [one] => one.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// The entries that a user sent, where they are valid and not empty.
pub(super) fn stated_by_user(entries: &[Value]) -> Option<Managers> {
    Managers::decode(entries).filter(|managers| !managers.is_empty())
}

fn decode(entry: &Value) -> Option<Manager> {
    let text = |field: &str| text(entry, field);
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    if text("apiVersion").is_empty() || text("fieldsType") != "FieldsV1" {
        return None;
    }
    let fields = match entry.get("fieldsV1") {
        None | Some(Value::Null) => FieldSet::default(),
        Some(fields) => wire::decode(fields.as_object()?)?,
    };
    let id = Id {
        name: text("manager").to_owned(),
        operation,
        api_version: text("apiVersion").to_owned(),
        subresource: text("subresource").to_owned(),
    };
    Some(Manager { id, time: text("time").to_owned(), fields })
}

fn encode(manager: &Manager) -> Value {
    let Id { name, operation, api_version, subresource } = &manager.id;
    let operation = match operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let fields = Value::Object(wire::encode(&manager.fields));
    let mut entry = Map::from_iter([("fieldsType".to_owned(), "FieldsV1".into()), ("fieldsV1".to_owned(), fields)]);
    let texts = [
        ("manager", name.as_str()),
        ("operation", operation),
        ("apiVersion", api_version),
        ("time", &manager.time),
        ("subresource", subresource),
    ];
    for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        entry.insert(field.to_owned(), text.into());
    }
    Value::Object(entry)
}
