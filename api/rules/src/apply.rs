//! Server-side apply: several managers write to an object, and each owns the fields that it sets.
//!
//! [`record`] records the fields that a create, update or patch changed in `metadata.managedFields`. [`apply`] merges a
//! configuration into an object, removes the fields that its manager no longer sets, and rejects changes to fields of other
//! managers unless forced. The schema says how a value is owned: as a whole, by field, or by element. Rules and messages
//! are upstream's (structured-merge-diff, KEP-555). Managers of different API versions are compared in the stored form,
//! where all versions have the same fields. Where a conversion webhook makes versions differ, [`settle`] removes changed
//! fields from managers of other versions.

mod compare;
mod conflict;
mod extract;
mod last_applied;
mod managers;
mod merge;
mod overlay;
mod prune;
mod scope;
mod set;
mod typing;
mod validate;
mod wire;

use api_model::kind::Kind;
use api_model::meta;
use serde_json::Value;

pub use conflict::{Conflict, Conflicts};
pub use overlay::overlay;
pub use set::{Element, FieldSet, Node};
pub use typing::Typing;

use compare::{Comparison, NOTHING};
use managers::{Id, Manager, Managers, Operation};
use scope::Scope;

/// The manager of the fields from before the first apply of an object without `managedFields`.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The resource of a write.
#[derive(Debug)]
pub struct Target<'t> {
    typing: Typing<'t>,
    scope: Scope,
    api_version: String,
    subresource: &'t str,
}

impl<'t> Target<'t> {
    /// Objects of a kind, through a subresource where one is given.
    pub fn new(kind: &'t Kind, sub: Option<&'t str>) -> Self {
        Self::typed(kind, Typing::new(kind), sub)
    }

    /// The same for a kind of which the caller has the schema.
    pub fn typed(kind: &Kind, typing: Typing<'t>, sub: Option<&'t str>) -> Self {
        Self { typing, scope: Scope::new(kind, sub), api_version: kind.api_version(), subresource: sub.unwrap_or_default() }
    }

    fn id(&self, name: &str, operation: Operation) -> Id {
        let (api_version, subresource) = (self.api_version.clone(), self.subresource.to_owned());
        Id { name: name.to_owned(), operation, api_version, subresource }
    }
}

/// The writer and the time.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'w> {
    /// The field manager.
    pub manager: &'w str,
    /// As `metav1.Time` is written.
    pub now: &'w str,
}

/// Records in `new` the fields that it changes in `old`, or all fields of a new object. `new` is as the user sent it, with
/// defaults. On the main resource it may set `managedFields`, or clear them with an empty list; then no change is recorded
/// until the next apply.
pub fn record(target: &Target<'_>, old: Option<&Value>, new: &mut Value, by: Writer<'_>) {
    let sent = take(new).filter(|_| target.subresource.is_empty());
    let stated = old.and_then(managers::stated);
    let comparison = compare::objects(target.typing, old.unwrap_or(&NOTHING), new, &target.scope);
    let id = target.id(by.manager, Operation::Update);
    // The usual case: a manager changes fields that it owns already, so only its time changes.
    if let Some(stated) = stated.filter(|stated| sent.as_ref().is_none_or(|sent| sent == *stated))
        && comparison.removed.is_empty()
        && let Some(entries) = managers::changed_again(stated, &id, &comparison.changed, by.now)
    {
        return meta::set(new, "managedFields", entries);
    }
    let mut managers = match (sent.as_deref(), old) {
        (Some(sent), _) if managers::is_reset(sent) => Managers::default(),
        (sent, old) => sent.and_then(managers::stated_by_user).or_else(|| old.map(Managers::from_object)).unwrap_or_default(),
    };
    if managers.is_empty() && old.is_some() {
        return;
    }
    update(&mut managers, id, comparison, by.now);
    managers.cap();
    managers.write(new);
}

/// Updates the managers after an update: changed fields get a new owner, removed fields lose theirs.
fn update(managers: &mut Managers, id: Id, Comparison { changed, removed }: Comparison, now: &str) {
    let before = managers.take(&id);
    managers.disown(&changed);
    managers.disown(&removed);
    let mut manager = before.unwrap_or_else(|| Manager { id, time: String::new(), fields: FieldSet::default() });
    if !changed.is_empty() {
        manager.time = now.to_owned();
    }
    manager.fields = match manager.fields.is_empty() {
        true => changed,
        false => manager.fields.difference(&removed).union(&changed),
    };
    if !manager.fields.is_empty() {
        managers.put(manager);
    }
}

/// The configuration is valid but was not applied.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ApplyConflict(pub Conflicts);

/// The errors of a configuration, as it was sent, against its type; `None` for a valid one.
pub fn complaint(typing: Typing<'_>, config: &Value) -> Option<String> {
    validate::complaint(typing, config)
}

/// Applies a configuration, for which [`complaint`] must return `None`, to the live object, or creates a new object from
/// it. Returns the object to store with its `managedFields`; if nothing changes, the live object.
pub fn apply(target: &Target<'_>, live: Option<&Value>, config: &Value, by: Writer<'_>, force: bool) -> Result<Value, ApplyConflict> {
    let is_new = live.is_none();
    let managers = live.map(Managers::from_object).unwrap_or_default();
    let mut live = live.unwrap_or(&NOTHING).clone();
    take(&mut live);
    let mut applying = Applying { target, live, managers, config, by };
    if applying.managers.is_empty() && !is_new {
        let all = compare::objects(target.typing, &NOTHING, &applying.live, &target.scope);
        update(&mut applying.managers, target.id(BEFORE_FIRST_APPLY, Operation::Update), all, by.now);
        applying.managers.cap();
    }
    applying.perform(force)
}

/// The API versions of an object's managers other than `own`.
pub fn other_versions(object: &Value, own: &str) -> Vec<String> {
    let mut versions: Vec<String> = Managers::from_object(object).iter().map(|manager| manager.id.api_version.clone()).collect();
    versions.sort_unstable();
    versions.dedup();
    versions.retain(|version| version != own);
    versions
}

/// Removes the fields that a writer of another API version changed from the managers of the target's version. `old` and
/// `new` are the object before and after in the target's version. With an `applier`, a manager that would lose a field is a
/// conflict.
///
/// # Errors
/// When an applied configuration would change fields of other managers.
pub fn settle(target: &Target<'_>, old: &Value, new: &Value, object: &mut Value, applier: Option<&str>) -> Result<(), ApplyConflict> {
    let Comparison { changed, removed } = compare::objects(target.typing, old, new, &target.scope);
    let mut managers = Managers::from_object(object);
    if let Some(applier) = applier {
        let theirs = managers.of_version(&target.api_version);
        let conflicts = Conflicts::find(&theirs, &target.id(applier, Operation::Apply), &changed);
        if !conflicts.is_empty() {
            return Err(ApplyConflict(conflicts));
        }
    }
    managers.disown_in(&target.api_version, &changed.union(&removed));
    managers.write(object);
    Ok(())
}

struct Applying<'a> {
    target: &'a Target<'a>,
    /// Without `managedFields`.
    live: Value,
    managers: Managers,
    config: &'a Value,
    by: Writer<'a>,
}

impl Applying<'_> {
    fn perform(mut self, force: bool) -> Result<Value, ApplyConflict> {
        let (target, typing) = (self.target, self.target.typing);
        let id = target.id(self.by.manager, Operation::Apply);
        let last = self.managers.take(&id);
        let stated = extract::claimed(typing, self.config);
        let merged = merge::merge(typing, self.live.clone(), self.config);
        let mut object = match &last {
            Some(last) => prune::prune(typing, merged, &last.fields, &self.managers.owned().union(&stated)),
            None => merged,
        };
        let comparison = compare::objects(typing, &self.live, &object, &target.scope);
        if !force {
            self.check(&id, &comparison.changed)?;
        }
        let is_same = comparison.is_same();
        self.managers.disown(&comparison.changed);
        self.managers.disown(&comparison.removed);
        let fields = target.scope.part(stated);
        if !fields.is_empty() {
            let time = last.filter(|last| is_same && last.fields == fields && last.id == id).map(|last| last.time);
            self.managers.put(Manager { id, time: time.unwrap_or_else(|| self.by.now.to_owned()), fields });
        }
        if self.by.manager == last_applied::KUBECTL {
            last_applied::follow(&mut object, self.config);
        }
        self.managers.write(&mut object);
        Ok(object)
    }

    fn check(&self, id: &Id, changed: &FieldSet) -> Result<(), ApplyConflict> {
        let mut conflicts = Conflicts::find(&self.managers, id, changed);
        if !conflicts.is_empty()
            && id.name == last_applied::KUBECTL
            && let Some(allowed) = last_applied::unchanged_since(self.target.typing, &self.live, &id.api_version)
        {
            conflicts = conflicts.without(&allowed);
        }
        if conflicts.is_empty() { Ok(()) } else { Err(ApplyConflict(conflicts)) }
    }
}

/// Removes `managedFields` from an object.
fn take(object: &mut Value) -> Option<Vec<Value>> {
    match object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")? {
        Value::Array(entries) => Some(entries),
        _ => None,
    }
}

/// Restores the old times of entries where nothing else in the object changes, so that a request without changes writes
/// nothing.
pub fn keep_times(old: &Value, new: &mut Value) {
    let (Some(before), Some(after)) = (managers::stated(old), managers::stated(new)) else { return };
    let is_time_alone = |(before, after): (&Value, &Value)| match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let rest = |entry: &serde_json::Map<String, Value>| entry.keys().filter(|key| *key != "time").count();
            rest(before) == rest(after) && after.iter().all(|(key, value)| key == "time" || before.get(key) == Some(value))
        }
        _ => false,
    };
    if before == after || before.len() != after.len() || !before.iter().zip(after).all(is_time_alone) {
        return;
    }
    let before = before.clone();
    let after = take(new);
    let is_same = is_same_without_managers(old, new);
    if let Some(entries) = if is_same { Some(before) } else { after } {
        meta::set(new, "managedFields", entries);
    }
}

fn is_same_without_managers(old: &Value, new: &Value) -> bool {
    let metadata = old.get("metadata").zip(new.get("metadata"));
    same_but(old, new, &["metadata"]) && metadata.is_some_and(|(old, new)| same_but(old, new, &["managedFields", "resourceVersion"]))
}

/// Whether two maps are equal except for those keys.
fn same_but(a: &Value, b: &Value, but: &[&str]) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a == b };
    let counts = |key: &&String| !but.contains(&key.as_str());
    a.keys().filter(counts).count() == b.keys().filter(counts).count()
        && a.iter().all(|(key, value)| but.contains(&key.as_str()) || b.get(key) == Some(value))
}

#[cfg(test)]
mod tests;
