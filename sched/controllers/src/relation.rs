//! Which objects refer to which values, in both directions: the index of a controller that must find the objects of a value.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// The values to which each key refers.
#[derive(Debug)]
pub struct Relation<K, V> {
    keys: HashMap<V, BTreeSet<K>>,
    values: HashMap<K, BTreeSet<V>>,
}

impl<K, V> Default for Relation<K, V> {
    fn default() -> Self {
        Self { keys: HashMap::new(), values: HashMap::new() }
    }
}

impl<K: Clone + Hash + Ord, V: Clone + Hash + Ord> Relation<K, V> {
    /// The key refers to exactly these values from now on. Returns the values to which it referred.
    pub fn set(&mut self, key: &K, values: BTreeSet<V>) -> BTreeSet<V> {
        let before = self.values.remove(key).unwrap_or_default();
        for value in &before {
            if let Some(keys) = self.keys.get_mut(value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(value);
                }
            }
        }
        for value in &values {
            self.keys.entry(value.clone()).or_default().insert(key.clone());
        }
        if !values.is_empty() {
            self.values.insert(key.clone(), values);
        }
        before
    }

    /// The keys that refer to the value.
    pub fn keys_of(&self, value: &V) -> Vec<K> {
        self.keys.get(value).into_iter().flatten().cloned().collect()
    }

    /// The keys that refer to a value which `selects` accepts.
    pub fn keys_where(&self, selects: impl Fn(&V) -> bool) -> BTreeSet<K> {
        self.keys.iter().filter(|(value, _)| selects(value)).flat_map(|(_, keys)| keys.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_follow_each_change() {
        let mut relation = Relation::default();
        relation.set(&1, BTreeSet::from(["a", "b"]));
        relation.set(&2, BTreeSet::from(["b"]));
        assert_eq!((relation.keys_of(&"a"), relation.keys_of(&"b")), (vec![1], vec![1, 2]));
        assert_eq!(relation.set(&1, BTreeSet::from(["c"])), BTreeSet::from(["a", "b"]));
        assert_eq!((relation.keys_of(&"a"), relation.keys_of(&"b"), relation.keys_of(&"c")), (vec![], vec![2], vec![1]));
        assert_eq!(relation.keys_where(|value| *value != "b"), BTreeSet::from([1]));
        relation.set(&1, BTreeSet::new());
        relation.set(&2, BTreeSet::new());
        assert!(relation.keys.is_empty() && relation.values.is_empty());
    }
}
