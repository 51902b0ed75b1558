//! How server-side apply and strategic merge treat a list, a map or an object.

/// `x-kubernetes-list-type`: how server-side apply owns a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// One manager owns the whole list and replaces it.
    #[default]
    Atomic,
    /// Each element has its own managers; no element is duplicate.
    Set,
    /// The fields of [`Schema::list_map_keys`](crate::Schema::list_map_keys) identify an element.
    Map,
}

/// `x-kubernetes-map-type`: how server-side apply owns a map or object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapType {
    /// Each entry has its own managers.
    #[default]
    Granular,
    /// One manager owns the whole map and replaces it.
    Atomic,
}

/// `x-kubernetes-patch-strategy`: how strategic merge treats a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// For lists. True: the elements are merged by [`Schema::merge_key`](crate::Schema::merge_key), or as a set if
    /// there is no key. False: the list is replaced.
    pub merge: bool,
    /// For objects and the elements of a merged list: `$retainKeys` in the patch names the fields to keep.
    pub retain_keys: bool,
}
