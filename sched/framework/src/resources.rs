//! Amounts of the resources that nodes have and Pods request, in the scheduler's units.

use std::collections::BTreeMap;

use api_model::quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// An amount of each resource: upstream's `framework.Resource`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// CPU in thousandths of a core.
    pub cpu_milli: i64,
    /// Memory in bytes.
    pub memory_bytes: i64,
    /// Ephemeral storage in bytes.
    pub ephemeral_bytes: i64,
    /// Everything else (extended resources, huge pages) in whole units.
    pub scalar: BTreeMap<String, i64>,
}

impl Resource {
    /// From a `requests`, `allocatable` or `overhead` map. A quantity that cannot be parsed counts as zero; the API server
    /// does not store one.
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

    /// The amount of the resource of that name.
    pub fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.cpu_milli,
            "memory" => self.memory_bytes,
            "ephemeral-storage" => self.ephemeral_bytes,
            _ => self.scalar.get(name).copied().unwrap_or_default(),
        }
    }

    /// Adds the other amounts to these.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, |a, b| a.saturating_add(b));
    }

    /// Subtracts the other amounts from these.
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, |a, b| a.saturating_sub(b));
        self.scalar.retain(|_, amount| *amount != 0);
    }

    /// Sets each amount to the larger one of the two.
    pub fn set_max(&mut self, other: &Self) {
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

    /// Whether one of these amounts is larger than the other one of the same resource.
    pub fn exceeds(&self, other: &Self) -> bool {
        !other.could_hold(self)
    }

    /// Whether `wanted` fits into these amounts when nothing of them is used.
    pub fn could_hold(&self, wanted: &Self) -> bool {
        self.insufficient(&Self::default(), wanted).is_empty()
    }

    /// The resources of which `wanted` does not fit into these amounts beside `used`, in upstream's order.
    pub fn insufficient(&self, used: &Self, wanted: &Self) -> Vec<String> {
        let mut insufficient = Vec::new();
        let mut check = |name: &str, has: i64, used: i64, wants: i64| {
            if wants > 0 && wants > has.saturating_sub(used) {
                insufficient.push(name.to_owned());
            }
        };
        check("cpu", self.cpu_milli, used.cpu_milli, wanted.cpu_milli);
        check("memory", self.memory_bytes, used.memory_bytes, wanted.memory_bytes);
        check("ephemeral-storage", self.ephemeral_bytes, used.ephemeral_bytes, wanted.ephemeral_bytes);
        for (name, wants) in &wanted.scalar {
            let amount = |resource: &Self| resource.scalar.get(name).copied().unwrap_or_default();
            check(name, amount(self), amount(used), *wants);
        }
        insufficient
    }
}

/// Whether a resource is an extended one, of a domain that is not Kubernetes': upstream's `IsExtendedResourceName`.
pub fn is_extended_resource(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_beyond_the_integer_range_is_the_largest_amount_and_not_zero() {
        let names = ["cpu", "memory", "ephemeral-storage", "example.com/device"];
        let list = Resource::from_quantities(&names.map(|name| (name.to_owned(), Quantity("1e35".to_owned()))).into());
        assert_eq!([list.cpu_milli, list.memory_bytes, list.ephemeral_bytes], [i64::MAX; 3]);
        assert_eq!(list.scalar.get("example.com/device"), Some(&i64::MAX));
    }
}
