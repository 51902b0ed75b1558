//! The kinds that are served, found by group, version and plural, and what upstream's registries say
//! of each beyond its rules.

mod events;

use std::collections::HashMap;
use std::sync::Arc;

use api_model::kind::{GroupResource, Kind};
use serde_json::Value;

use crate::cache::{Cache, Resource};

/// A served kind and where its objects live.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) kind: Arc<Kind>,
    /// How messages and authorization name it.
    pub(crate) name: GroupResource,
    /// Where the objects are; kinds that are views of another share its place.
    pub(crate) resource: Arc<Resource>,
    /// The kind in which objects are stored.
    pub(crate) stored: Arc<Kind>,
    pub(crate) conversion: Option<Conversion>,
}

/// How a kind that is a view of another is turned into it and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conversion {
    pub(crate) to_stored: fn(&mut Value),
    pub(crate) from_stored: fn(&mut Value),
    /// What a field of the view is called in the stored kind.
    pub(crate) stored_field: fn(&str) -> Option<&'static str>,
}

/// All served kinds.
#[derive(Debug)]
pub(crate) struct Registry {
    kinds: Vec<Arc<Kind>>,
    by_plural: HashMap<String, Vec<Arc<Served>>>,
}

impl Registry {
    /// The built-in kinds.
    pub(crate) fn new(cache: &Cache) -> Self {
        let kinds = api_model::kind::builtin().to_vec();
        let mut by_plural: HashMap<String, Vec<Arc<Served>>> = HashMap::new();
        for kind in &kinds {
            by_plural.entry(kind.plural.clone()).or_default().push(Arc::new(serve(kind, cache)));
        }
        Self { kinds, by_plural }
    }

    /// In discovery order.
    pub(crate) fn kinds(&self) -> &[Arc<Kind>] {
        &self.kinds
    }

    /// The same objects in other groups and versions.
    pub(crate) fn equivalents(&self, served: &Served) -> Vec<Arc<Served>> {
        let same = |other: &&Arc<Served>| Arc::ptr_eq(&other.resource, &served.resource) && other.kind != served.kind;
        self.by_plural.get(&served.kind.plural).into_iter().flatten().filter(same).cloned().collect()
    }

    /// The kind behind a path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.by_plural.get(plural)?.iter().find(|served| served.kind.group == group && served.kind.version == version)
    }
}

fn serve(kind: &Arc<Kind>, cache: &Cache) -> Served {
    let name = kind.group_resource();
    if kind.group == "events.k8s.io"
        && let Some(core) = api_model::kind::find("", "events")
    {
        let resource = cache.resource(&core.group_resource());
        return Served { kind: Arc::clone(kind), name, resource, stored: Arc::clone(core), conversion: Some(events::CONVERSION) };
    }
    let resource = cache.resource(&name);
    Served { kind: Arc::clone(kind), name, resource, stored: Arc::clone(kind), conversion: None }
}

/// Kinds whose deletion answers the object (`ReturnDeletedObject`).
const DELETION_ANSWERS_OBJECT: &[(&str, &str)] = &[
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "podtemplates"),
    ("", "resourcequotas"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "storageclasses"),
];

impl Served {
    fn is_in(&self, table: &[(&str, &str)]) -> bool {
        table.iter().any(|(group, plural)| *group == self.kind.group && *plural == self.kind.plural)
    }

    /// Whether this is that resource.
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.kind.group == group && self.kind.plural == plural
    }

    /// Whether PUT on a name that does not exist creates the object.
    pub(crate) fn is_created_by_update(&self) -> bool {
        api_rules::allows_create_on_update(&self.kind)
    }

    /// Whether PUT without a resource version overwrites.
    pub(crate) fn allows_unconditional_update(&self) -> bool {
        api_rules::allows_unconditional_update(&self.kind)
    }

    /// Whether DELETE answers the object rather than a Status.
    pub(crate) fn deletion_answers_object(&self) -> bool {
        self.is_in(DELETION_ANSWERS_OBJECT)
    }

    /// The object as this kind's clients see it.
    pub(crate) fn shown(&self, mut value: Value) -> Value {
        if let Some(conversion) = &self.conversion {
            (conversion.from_stored)(&mut value);
        }
        value
    }

    /// The object as it is stored.
    pub(crate) fn to_stored(&self, mut value: Value) -> Value {
        if let Some(conversion) = &self.conversion {
            (conversion.to_stored)(&mut value);
        }
        value
    }
}
