//! Families, and the kinds that have them. A kind is a type of k8s-openapi with tables of families. A [`Table`] is a
//! kind without its type, so that all kinds can be in one list.

use api_model::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use api_model::k8s_openapi::{Metadata, Resource};
use serde::de::DeserializeOwned;

use crate::series::{Label, Series, label_text};

/// What the text says about a family before its samples.
pub(crate) struct Head {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    /// The type in the text: `gauge` or `counter`.
    pub(crate) metric_type: &'static str,
}

/// A family of one kind: its head, and the function that writes its samples for one object.
pub(crate) struct Family<K: 'static> {
    pub(crate) head: Head,
    series: fn(&K, &mut Series<'_>),
}

/// A family whose values can go up and down.
pub(crate) const fn gauge<K>(name: &'static str, help: &'static str, series: fn(&K, &mut Series<'_>)) -> Family<K> {
    Family { head: Head { name, help, metric_type: "gauge" }, series }
}

/// A family whose values only go up.
pub(crate) const fn counter<K>(name: &'static str, help: &'static str, series: fn(&K, &mut Series<'_>)) -> Family<K> {
    Family { head: Head { name, help, metric_type: "counter" }, series }
}

/// A kind with families.
pub(crate) trait Kind: Resource + Metadata<Ty = ObjectMeta> + DeserializeOwned + 'static {
    /// The families, in the order of the output.
    const FAMILIES: &'static [&'static [Family<Self>]];

    /// The labels that come first in every sample of the object.
    fn identity(&self) -> Vec<Label<'_>>;
}

/// Why an object has no samples.
pub(crate) enum AddError {
    Json(serde_json::Error),
    NoName,
}

/// The families of a kind, without its type.
pub(crate) struct Table {
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
    /// One head a family.
    pub(crate) heads: fn() -> Vec<&'static Head>,
    pub(crate) add: Add,
}

/// Adds the samples of an object, given as JSON, to the buffers, one a family.
type Add = fn(object: &[u8], buffers: &mut [Vec<u8>]) -> Result<(), AddError>;

impl Table {
    /// The table of a kind.
    pub(crate) const fn of<K: Kind>() -> Self {
        Self { group: K::GROUP, resource: K::URL_PATH_SEGMENT, heads: heads::<K>, add: add::<K> }
    }
}

fn families<K: Kind>() -> impl Iterator<Item = &'static Family<K>> {
    K::FAMILIES.iter().copied().flatten()
}

fn heads<K: Kind>() -> Vec<&'static Head> {
    families::<K>().map(|family| &family.head).collect()
}

fn add<K: Kind>(object: &[u8], buffers: &mut [Vec<u8>]) -> Result<(), AddError> {
    let object: K = serde_json::from_slice(object).map_err(AddError::Json)?;
    if object.metadata().name.is_none() {
        return Err(AddError::NoName);
    }
    let identity = label_text(&object.identity());
    for (family, buffer) in families::<K>().zip(buffers) {
        (family.series)(&object, &mut Series::new(family.head.name, &identity, buffer));
    }
    Ok(())
}
