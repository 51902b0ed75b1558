//! How server-side apply and strategic merge treat a list, a map or an object.

/// `x-kubernetes-list-type`: how server-side apply owns a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// The list is owned and replaced whole.
    #[default]
    Atomic,
    /// Each element is owned for itself, none stands twice.
    Set,
    /// Elements are told apart by [`Schema::list_map_keys`](crate::Schema::list_map_keys).
    Map,
}

/// `x-kubernetes-map-type`: how server-side apply owns a map or object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapType {
    /// Each entry is owned for itself.
    #[default]
    Granular,
    /// The map is owned and replaced whole.
    Atomic,
}

/// `x-kubernetes-patch-strategy`: how strategic merge treats a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Lists: elements are merged by [`Schema::merge_key`](crate::Schema::merge_key), or as a set where there is none; without it the list is replaced.
    pub merge: bool,
    /// Objects, or the elements of a merged list: `$retainKeys` names the fields that stay.
    pub retain_keys: bool,
}
