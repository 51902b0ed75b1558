//! Values by key, each for as long as somebody uses it.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Values by key: a lock for each path, for example. All who ask for a key at the same time share its value, and a value that nobody uses
/// any more is dropped.
#[derive(Debug)]
pub struct Keyed<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for Keyed<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> Keyed<K, V> {
    /// The value of the key, which `make` makes if nobody uses it.
    pub fn get<Q: Eq + Hash + ToOwned<Owned = K> + ?Sized>(&self, key: &Q, make: impl FnOnce() -> V) -> Arc<V>
    where
        K: Borrow<Q>,
    {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = values.get(key).and_then(Weak::upgrade) {
            return value;
        }
        values.retain(|_, value| value.strong_count() > 0);
        let value = Arc::new(make());
        values.insert(key.to_owned(), Arc::downgrade(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shared_while_it_is_used_and_dropped_after() {
        let keyed = Keyed::<String, u8>::default();
        let one = keyed.get("a", || 1);
        assert_eq!((*keyed.get("a", || 2), *keyed.get("b", || 3)), (1, 3));
        drop(one);
        assert_eq!(*keyed.get("a", || 4), 4);
        assert_eq!(keyed.0.lock().expect("no panic").len(), 1, "only the last key is left, and its value is gone");
    }
}
