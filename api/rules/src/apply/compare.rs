//! The differences between two states of an object, as sets of fields.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::extract::every;
use super::scope::Scope;
use super::set::{Element, FieldSet, Node, join};
use super::typing::{Bearers, Form, List, Typing};

/// The fields in which two objects differ.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// New fields, and fields with another value.
    pub(super) changed: FieldSet,
    /// Removed fields.
    pub(super) removed: FieldSet,
}

impl Comparison {
    pub(super) fn is_same(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

/// The object to compare a new object with.
pub(super) static NOTHING: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

/// Compares two objects in the fields that a manager can own through a subresource.
pub(super) fn objects(typing: Typing<'_>, old: &Value, new: &Value, scope: &Scope) -> Comparison {
    let empty = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    let difference = Walk { scope: Some(scope) }.fields(typing, old, new, Section::Root);
    Comparison { changed: difference.changed.children, removed: difference.removed.children }
}

/// Compares two objects in all fields.
pub(super) fn whole(typing: Typing<'_>, old: &Value, new: &Value) -> Comparison {
    let difference = Walk { scope: None }.values(typing, old, new, Section::Nested);
    Comparison { changed: difference.changed.children, removed: difference.removed.children }
}

static NO_ELEMENTS: Value = Value::Array(Vec::new());

#[derive(Default)]
struct Difference {
    changed: Node,
    removed: Node,
}

impl Difference {
    fn changed(changed: Node) -> Self {
        Self { changed, removed: Node::default() }
    }

    fn removed(removed: Node) -> Self {
        Self { changed: Node::default(), removed }
    }
}

/// The differences of the children of one value.
#[derive(Default)]
struct Gathered {
    changed: Vec<(Element, Node)>,
    removed: Vec<(Element, Node)>,
}

impl Gathered {
    fn add(&mut self, name: impl Fn() -> Element, difference: Difference) {
        if !difference.changed.is_empty() {
            self.changed.push((name(), difference.changed));
        }
        if !difference.removed.is_empty() {
            self.removed.push((name(), difference.removed));
        }
    }
}

impl From<Gathered> for Difference {
    fn from(gathered: Gathered) -> Self {
        let node = |nodes: Vec<(Element, Node)>| Node { member: false, children: nodes.into_iter().collect() };
        Self { changed: node(gathered.changed), removed: node(gathered.removed) }
    }
}

/// The section of the object that the walk is in.
#[derive(Clone, Copy, PartialEq)]
enum Section {
    /// The object itself.
    Root,
    /// A struct that upstream's objects always have.
    Skeleton,
    Metadata,
    Nested,
}

struct Walk<'s> {
    scope: Option<&'s Scope>,
}

impl Walk<'_> {
    fn values(&self, typing: Typing<'_>, old: &Value, new: &Value, section: Section) -> Difference {
        match (typing.form(new), old, new) {
            (Form::Fields, Value::Object(old), Value::Object(new)) => self.fields(typing, old, new, section),
            // Most lists do not change, and comparing them is cheaper than naming their elements.
            (Form::Elements(_), Value::Array(old), Value::Array(new)) if old == new => Difference::default(),
            (Form::Elements(list), Value::Array(old), Value::Array(new)) => {
                self.elements(list, old, new).unwrap_or_else(|| whole_values(old == new))
            }
            (Form::Whole, ..) if matches!(typing.form(old), Form::Whole) => whole_values(old == new),
            // The value has another type now.
            _ => Difference { changed: every(typing, new), removed: Node { member: false, ..every(typing, old) } },
        }
    }

    fn fields(&self, typing: Typing<'_>, old: &Map<String, Value>, new: &Map<String, Value>, section: Section) -> Difference {
        let counts = |name: &str| {
            self.scope.is_none_or(|scope| match section {
                Section::Root => scope.owns(name),
                Section::Metadata => scope.owns_metadata(name),
                _ => true,
            })
        };
        let names = new.keys().chain(old.keys().filter(|name| !new.contains_key(*name))).filter(|name| counts(name));
        let mut gathered = Gathered::default();
        for name in names {
            let (old, new) = (old.get(name), new.get(name));
            let inner = self.inner(section, name);
            let absent = old.or(new).and_then(|value| self.absent(section, inner, typing.requires(name), value));
            let typing = typing.field(name);
            let difference = match (old.or(absent), new.or(absent)) {
                (Some(old), Some(new)) => self.values(typing, old, new, inner),
                (None, Some(new)) => Difference::changed(every(typing, new)),
                (Some(old), None) => Difference::removed(every(typing, old)),
                (None, None) => continue,
            };
            gathered.add(|| Element::field(name), difference);
        }
        gathered.into()
    }

    /// The section of a field's children.
    fn inner(&self, section: Section, name: &str) -> Section {
        let has_skeleton = self.scope.is_some_and(|scope| scope.has_skeleton);
        match section {
            Section::Root if name == "metadata" => Section::Metadata,
            Section::Root | Section::Skeleton if has_skeleton && Scope::is_always_there(name) => Section::Skeleton,
            _ => Section::Nested,
        }
    }

    /// The value in upstream's objects of a field that an object omits, if any.
    fn absent(&self, section: Section, inner: Section, is_required: bool, value: &Value) -> Option<&'static Value> {
        let is_in_skeleton = matches!(section, Section::Root | Section::Skeleton) && self.scope.is_some_and(|scope| scope.has_skeleton);
        match value {
            Value::Object(_) if inner != Section::Nested => Some(&NOTHING),
            Value::Array(_) if is_in_skeleton && is_required => Some(&NO_ELEMENTS),
            _ => None,
        }
    }

    fn elements(&self, list: List<'_>, old: &[Value], new: &[Value]) -> Option<Difference> {
        let (old, new) = (list.index(old)?, list.index(new)?);
        let mut gathered = Gathered::default();
        for (name, old, new) in join(&old, &new) {
            let all = |bearers: &Bearers<'_>| match bearers {
                Bearers::One(value) => every(list.items(), value),
                Bearers::Many(_) => Node::LEAF,
            };
            let difference = match (old, new) {
                (Some(Bearers::One(old)), Some(Bearers::One(new))) => self.values(list.items(), old, new, Section::Nested),
                (Some(old), Some(new)) => whole_values(old == new),
                (None, Some(new)) => Difference::changed(all(new)),
                (Some(old), None) => Difference::removed(all(old)),
                (None, None) => continue,
            };
            gathered.add(|| name.clone(), difference);
        }
        Some(gathered.into())
    }
}

fn whole_values(same: bool) -> Difference {
    if same { Difference::default() } else { Difference::changed(Node::LEAF) }
}
