//! The kind of an object.

/// A kind that the server serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KindInfo {
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Plural resource name.
    pub plural: String,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
}

impl KindInfo {
    /// Of a typed kind.
    pub fn typed<K: kube::Resource<DynamicType = ()>>() -> Self {
        let (group, plural) = (K::group(&()).into_owned(), K::plural(&()).into_owned());
        let namespaced = api_model::kind::find(&group, &plural).is_none_or(|kind| kind.namespaced);
        Self { version: K::version(&()).into_owned(), kind: K::kind(&()).into_owned(), group, plural, namespaced }
    }

    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}
