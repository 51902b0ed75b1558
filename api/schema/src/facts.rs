//! Facts about fields that the types do not carry. Upstream writes them as markers and struct tags in
//! its `types.go` files and publishes them as `x-kubernetes-*` extensions, defaults and enumerations.

use crate::schema::{ListType, MapType, PatchStrategy};

/// What is known of one field (or, under [`SELF`], of a whole type) beyond its shape.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    /// The field's name in JSON.
    pub(crate) field: &'static str,
    pub(crate) list_type: Option<ListType>,
    pub(crate) list_map_keys: &'static [&'static str],
    pub(crate) map_type: Option<MapType>,
    pub(crate) merge_key: Option<&'static str>,
    pub(crate) strategy: PatchStrategy,
    /// JSON text.
    pub(crate) default: Option<&'static str>,
    pub(crate) enumeration: &'static [&'static str],
}

impl Fact {
    /// Nothing known.
    pub(crate) const NONE: Self = Self {
        field: "",
        list_type: None,
        list_map_keys: &[],
        map_type: None,
        merge_key: None,
        strategy: PatchStrategy { merge: false, retain_keys: false },
        default: None,
        enumeration: &[],
    };
}

/// The facts of a field of a definition.
pub(crate) fn of(_definition: &str, _field: &str) -> &'static Fact {
    &Fact::NONE
}

/// The name under which a definition's table tells of the type itself.
pub(crate) const SELF: &str = "";

/// Whether upstream, too, requires a field that the types say is always there.
pub(crate) fn is_required(_definition: &str, field: &str) -> bool {
    field != "metadata"
}
