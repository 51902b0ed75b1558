//! Facts about fields that the types do not have. Upstream has them as markers and struct tags in its `types.go` files and
//! publishes them as `x-kubernetes-*` extensions, defaults and enumerations. Here they are tables, one file per family of
//! groups. A test checks that the field of every entry exists and that the entry fits its type.

mod access;
mod core;
mod extension;
mod meta;
mod network;
mod resources;
mod workloads;

use crate::strategy::{ListType, MapType, PatchStrategy};

/// The name of the entry about the type itself in the table of a definition.
pub(crate) const SELF: &str = "";

/// The facts about one definition.
#[derive(Debug)]
pub(crate) struct Table {
    /// Upstream's name, for example `io.k8s.api.core.v1.Container`.
    pub(crate) definition: &'static str,
    /// Fields whose only fact is that they are atomic lists.
    pub(crate) atomic: &'static [&'static str],
    /// The other fields with facts. `name[]` is about the elements of `name`, [`SELF`] about the type.
    pub(crate) facts: &'static [Fact],
}

/// The facts about one field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) field: &'static str,
    pub(crate) list_type: Option<ListType>,
    pub(crate) list_map_keys: &'static [&'static str],
    pub(crate) map_type: Option<MapType>,
    pub(crate) merge_key: Option<&'static str>,
    /// `None` if upstream has no strategy, which is the same as an empty one.
    pub(crate) strategy: Option<PatchStrategy>,
    /// JSON text.
    pub(crate) default: Option<&'static str>,
    pub(crate) enumeration: &'static [&'static str],
}

impl Fact {
    /// No facts.
    pub(crate) const NONE: Self = field(SELF);

    const fn strategy(mut self, merge: bool, retain_keys: bool) -> Self {
        let (was_merge, was_retain) = match self.strategy {
            Some(PatchStrategy { merge, retain_keys }) => (merge, retain_keys),
            None => (false, false),
        };
        self.strategy = Some(PatchStrategy { merge: merge || was_merge, retain_keys: retain_keys || was_retain });
        self
    }

    const fn merge(self) -> Self {
        self.strategy(true, false)
    }

    const fn merge_by(mut self, key: &'static str) -> Self {
        self.merge_key = Some(key);
        self.strategy(true, false)
    }

    const fn replace(self) -> Self {
        self.strategy(false, false)
    }

    const fn retain_keys(self) -> Self {
        self.strategy(false, true)
    }

    const fn map_atomic(mut self) -> Self {
        self.map_type = Some(MapType::Atomic);
        self
    }

    const fn map_granular(mut self) -> Self {
        self.map_type = Some(MapType::Granular);
        self
    }

    const fn default(mut self, json: &'static str) -> Self {
        self.default = Some(json);
        self
    }

    const fn one_of(mut self, values: &'static [&'static str]) -> Self {
        self.enumeration = values;
        self
    }
}

const fn table(definition: &'static str, atomic: &'static [&'static str], facts: &'static [Fact]) -> Table {
    Table { definition, atomic, facts }
}

const fn field(field: &'static str) -> Fact {
    Fact { field, list_type: None, list_map_keys: &[], map_type: None, merge_key: None, strategy: None, default: None, enumeration: &[] }
}

const fn list(name: &'static str, list_type: ListType) -> Fact {
    let mut fact = field(name);
    fact.list_type = Some(list_type);
    fact
}

const fn atomic(name: &'static str) -> Fact {
    list(name, ListType::Atomic)
}

const fn set(name: &'static str) -> Fact {
    list(name, ListType::Set)
}

const fn map(name: &'static str, keys: &'static [&'static str]) -> Fact {
    let mut fact = list(name, ListType::Map);
    fact.list_map_keys = keys;
    fact
}

static ATOMIC: Fact = atomic(SELF);

/// All tables, each sorted by definition.
pub(crate) static TABLES: [&[Table]; 7] =
    [access::TABLES, core::TABLES, extension::TABLES, meta::TABLES, network::TABLES, resources::TABLES, workloads::TABLES];

/// The facts of a field of a definition; [`Fact::NONE`] if the table has none.
pub(crate) fn of_field(definition: &str, name: &str) -> &'static Fact {
    let found = TABLES.iter().find_map(|tables| {
        let at = tables.binary_search_by(|table| table.definition.cmp(definition)).ok()?;
        tables.get(at)
    });
    let Some(table) = found else { return &Fact::NONE };
    if table.atomic.contains(&name) {
        return &ATOMIC;
    }
    table.facts.iter().find(|fact| fact.field == name).unwrap_or(&Fact::NONE)
}

/// The required fields of a definition, selected from the fields that the Rust types always have. The Rust types also
/// require metadata, which upstream requires only for core Events, and names with an empty default.
pub(crate) fn required<'a>(definition: &str, always_there: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = |name: &&str| match *name {
        "metadata" => definition == "io.k8s.api.core.v1.Event",
        name => of_field(definition, name).default.is_none(),
    };
    let mut required: Vec<&str> = always_there.filter(wanted).collect();
    if definition == "io.k8s.api.events.v1.Event" {
        required.push("eventTime");
    }
    required
}

#[cfg(test)]
mod tests;
