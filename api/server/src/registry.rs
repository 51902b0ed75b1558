//! The served kinds, found by group, version and plural, and those properties of them that upstream's registries hold.

mod autoscaling;
mod events;
mod forms;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api_model::kind::{GroupResource, Kind};
use arc_swap::ArcSwap;
use serde_json::Value;

pub(crate) use self::forms::{External, Internal};
use crate::conversion::Converter;
use api_cache::{Cache, Object, Resource};

/// A served kind and where its objects live.
#[derive(Debug)]
pub(crate) struct Served {
    /// Unique among the served kinds of this process: a changed definition gets another one.
    pub(crate) id: u64,
    pub(crate) kind: Arc<Kind>,
    /// Its name in messages and for authorization.
    pub(crate) name: GroupResource,
    /// The objects. A kind that is a view of another shares the other's objects.
    pub(crate) resource: Arc<Resource>,
    /// The kind whose rules hold for objects in internal form. Versions of a custom resource have rules of their own.
    pub(crate) stored: Arc<Kind>,
    pub(crate) conversion: Option<Conversion>,
    /// How a custom resource is stored; `None` for built-in kinds.
    pub(crate) custom: Option<CustomStorage>,
}

/// How the objects of a custom resource are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CustomStorage {
    /// `apiVersion` of the stored version.
    pub(crate) api_version: String,
    /// Whether the kind is the stored version: clients get the stored bytes.
    pub(crate) is_stored_version: bool,
    /// Objects that were written up to this revision may not fit the present definition.
    pub(crate) since: u64,
    /// Whether the definition is being deleted: creates are rejected.
    pub(crate) terminating: bool,
    /// Converts between the versions; none: there is only one.
    pub(crate) converter: Option<Arc<Converter>>,
}

/// Conversion between a kind that is a view and the kind that it is a view of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conversion {
    pub(crate) to_stored: fn(&mut Value),
    pub(crate) from_stored: fn(&mut Value),
    /// The path in the stored kind of a field of the view.
    pub(crate) stored_field: fn(&str) -> Option<&'static str>,
}

/// The next [`Served::id`].
pub(crate) fn served_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// All served kinds: the built-in ones, and the present custom resources.
#[derive(Debug)]
pub(crate) struct Registry {
    builtin: Vec<Arc<Served>>,
    table: ArcSwap<Table>,
}

/// The kinds that are served at one time.
#[derive(Debug)]
pub(crate) struct Table {
    /// Unique among the tables of a server.
    pub(crate) number: u64,
    /// In discovery order.
    pub(crate) kinds: Vec<Arc<Kind>>,
    /// Custom resources.
    pub(crate) custom: Vec<Arc<Served>>,
    by_plural: HashMap<String, Vec<Arc<Served>>>,
}

impl Table {
    fn new(number: u64, builtin: &[Arc<Served>], custom: Vec<Arc<Served>>) -> Self {
        let mut by_plural: HashMap<String, Vec<Arc<Served>>> = HashMap::new();
        for served in builtin.iter().chain(&custom) {
            by_plural.entry(served.kind.plural.clone()).or_default().push(Arc::clone(served));
        }
        let kinds = builtin.iter().chain(&custom).map(|served| Arc::clone(&served.kind)).collect();
        Self { number, kinds, custom, by_plural }
    }
}

impl Registry {
    /// The built-in kinds.
    pub(crate) fn new(cache: &Cache) -> Self {
        let builtin: Vec<Arc<Served>> = api_model::kind::builtin().iter().map(|kind| Arc::new(serve(kind, cache))).collect();
        let table = ArcSwap::from_pointee(Table::new(0, &builtin, Vec::new()));
        Self { builtin, table }
    }

    /// The present table.
    pub(crate) fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// Serves these custom resources, in this order, and no others. Only the follower of the definitions calls
    /// this.
    pub(crate) fn serve_custom(&self, custom: Vec<Arc<Served>>) {
        let number = self.table.load().number + 1;
        self.table.store(Arc::new(Table::new(number, &self.builtin, custom)));
    }

    /// The kinds that serve the same objects in other groups and versions.
    pub(crate) fn equivalents(&self, served: &Served) -> Vec<Arc<Served>> {
        let same = |other: &&Arc<Served>| Arc::ptr_eq(&other.resource, &served.resource) && other.kind != served.kind;
        self.table.load().by_plural.get(&served.kind.plural).into_iter().flatten().filter(same).cloned().collect()
    }

    /// The kind behind a path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Served>> {
        let table = self.table.load();
        table.by_plural.get(plural)?.iter().find(|served| served.kind.group == group && served.kind.version == version).cloned()
    }

    /// The kind of that `apiVersion` and `kind`.
    pub(crate) fn find_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Served>> {
        let table = self.table.load();
        let is_it = |served: &&Arc<Served>| served.kind.kind == kind && served.kind.api_version() == api_version;
        table.by_plural.values().flatten().find(is_it).cloned()
    }
}

fn serve(kind: &Arc<Kind>, cache: &Cache) -> Served {
    let (stored, conversion) = match view(kind) {
        Some((stored, conversion)) => (stored, Some(conversion)),
        None => (kind, None),
    };
    let resource = cache.resource(&stored.group_resource());
    Served {
        id: served_id(),
        kind: Arc::clone(kind),
        name: kind.group_resource(),
        resource,
        stored: Arc::clone(stored),
        conversion,
        custom: None,
    }
}

/// The kind that another is a view of.
fn view(kind: &Kind) -> Option<(&'static Arc<Kind>, Conversion)> {
    match (kind.group.as_str(), kind.version.as_str()) {
        ("events.k8s.io", _) => Some((api_model::kind::find("", "events")?, events::CONVERSION)),
        // The table's first is the preferred version, in which objects are stored.
        ("autoscaling", "v1") => Some((api_model::kind::find("autoscaling", &kind.plural)?, autoscaling::CONVERSION)),
        _ => None,
    }
}

/// Kinds whose deletion returns the object (`ReturnDeletedObject`).
const DELETION_ANSWERS_OBJECT: &[(&str, &str)] = &[
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "podtemplates"),
    ("", "resourcequotas"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "resourceclaims"),
    ("resource.k8s.io", "resourceclaimtemplates"),
    ("resource.k8s.io", "resourceslices"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattachments"),
    ("storage.k8s.io", "volumeattributesclasses"),
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

    /// Whether DELETE returns the object instead of a Status.
    pub(crate) fn deletion_answers_object(&self) -> bool {
        self.is_in(DELETION_ANSWERS_OBJECT)
    }

    /// Converts between the versions; none: there is only one. With several versions, everything but the store works on objects in
    /// this kind's version: [`Served::in_version`] and [`Served::for_storage`] convert.
    pub(crate) fn converter(&self) -> Option<&Converter> {
        self.custom.as_ref()?.converter.as_deref()
    }

    /// How a custom resource of one version is stored.
    fn plain_custom(&self) -> Option<&CustomStorage> {
        self.custom.as_ref().filter(|custom| custom.converter.is_none())
    }

    /// Whether an object fits the kind's present definition, so that its bytes can be used as they are.
    pub(crate) fn is_current(&self, object: &Object) -> bool {
        self.plain_custom().is_none_or(|custom| object.written > custom.since)
    }

    /// Whether an object was written since the definition last changed.
    pub(crate) fn is_written_since(&self, object: &Object) -> bool {
        self.custom.as_ref().is_none_or(|custom| object.written > custom.since)
    }

    /// The warning that comes with a deprecated version.
    pub(crate) fn deprecation(&self) -> Option<String> {
        match (&self.kind.custom, self.kind.group.as_str(), self.kind.plural.as_str()) {
            (Some(custom), _, _) => custom.deprecation_warning.clone(),
            (None, "", "componentstatuses") => Some("v1 ComponentStatus is deprecated in v1.19+".to_owned()),
            (None, "", "endpoints") => Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned()),
            (None, _, _) => None,
        }
    }

    /// Whether the kind's definition is being deleted.
    pub(crate) fn is_terminating(&self) -> bool {
        self.custom.as_ref().is_some_and(|custom| custom.terminating)
    }
}
