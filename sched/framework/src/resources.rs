//! Amounts of what nodes have and Pods ask for, in the scheduler's units.

use std::collections::BTreeMap;

use api_model::quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Amounts of each resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceList {
    /// CPU in thousandths of a core.
    pub cpu_milli: i64,
    /// Memory in bytes.
    pub memory_bytes: i64,
    /// Ephemeral storage in bytes.
    pub ephemeral_bytes: i64,
    /// Everything else (extended resources, huge pages) in whole units.
    pub scalar: BTreeMap<String, i64>,
}

impl ResourceList {
    /// From a `requests`, `allocatable` or `overhead` map. What cannot be parsed was refused by the
    /// API server and counts as nothing.
    pub fn from_quantities(map: &BTreeMap<String, Quantity>) -> Self {
        let mut list = Self::default();
        for (name, Quantity(text)) in map {
            match name.as_str() {
                "cpu" => list.cpu_milli = quantity::milli(text).map_or(0, |milli| i64::try_from(milli).unwrap_or(i64::MAX)),
                "memory" => list.memory_bytes = quantity::value(text).unwrap_or_default(),
                "ephemeral-storage" => list.ephemeral_bytes = quantity::value(text).unwrap_or_default(),
                "pods" => {}
                _ => {
                    list.scalar.insert(name.clone(), quantity::value(text).unwrap_or_default());
                }
            }
        }
        list
    }

    /// Adds another list to this one.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, |a, b| a.saturating_add(b));
    }

    /// Takes another list from this one.
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, |a, b| a.saturating_sub(b));
        self.scalar.retain(|_, amount| *amount != 0);
    }

    /// Raises each amount to the other's where that is larger.
    pub fn raise_to(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    fn combine(&mut self, other: &Self, with: impl Fn(i64, i64) -> i64) {
        self.cpu_milli = with(self.cpu_milli, other.cpu_milli);
        self.memory_bytes = with(self.memory_bytes, other.memory_bytes);
        self.ephemeral_bytes = with(self.ephemeral_bytes, other.ephemeral_bytes);
        for (name, amount) in &other.scalar {
            let mine = self.scalar.entry(name.clone()).or_default();
            *mine = with(*mine, *amount);
        }
    }

    /// Whether `wanted` would fit in this list if nothing of it were used.
    pub fn could_hold(&self, wanted: &Self) -> bool {
        self.lacking(&Self::default(), wanted).is_empty()
    }

    /// The resources of which `wanted` does not fit beside `used` in this list, in upstream's order.
    pub fn lacking(&self, used: &Self, wanted: &Self) -> Vec<String> {
        let mut lacking = Vec::new();
        let mut check = |name: &str, has: i64, used: i64, wants: i64| {
            if wants > 0 && wants > has.saturating_sub(used) {
                lacking.push(name.to_owned());
            }
        };
        check("cpu", self.cpu_milli, used.cpu_milli, wanted.cpu_milli);
        check("memory", self.memory_bytes, used.memory_bytes, wanted.memory_bytes);
        check("ephemeral-storage", self.ephemeral_bytes, used.ephemeral_bytes, wanted.ephemeral_bytes);
        for (name, wants) in &wanted.scalar {
            let of = |list: &Self| list.scalar.get(name).copied().unwrap_or_default();
            check(name, of(self), of(used), *wants);
        }
        lacking
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_for_any_node_is_not_nothing() {
        let names = ["cpu", "memory", "ephemeral-storage", "example.com/device"];
        let list = ResourceList::from_quantities(&names.map(|name| (name.to_owned(), Quantity("1e35".to_owned()))).into());
        assert_eq!([list.cpu_milli, list.memory_bytes, list.ephemeral_bytes], [i64::MAX; 3]);
        assert_eq!(list.scalar.get("example.com/device"), Some(&i64::MAX));
    }
}
