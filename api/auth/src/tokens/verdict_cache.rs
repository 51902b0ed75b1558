//! A bounded cache of successful verifications, in two generations. When the young generation is full, it replaces the
//! old one; entries of the old one that were not used since are dropped.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The maximum of entries in one generation.
const GENERATION_LEN_MAX: usize = 4096;

type Key = [u8; 32];

/// The cache. The keys are hashes of the verified tokens.
pub struct VerdictCache<T> {
    generations: Mutex<Generations<T>>,
}

struct Generations<T> {
    young: HashMap<Key, T>,
    old: HashMap<Key, T>,
}

impl<T> Default for VerdictCache<T> {
    fn default() -> Self {
        Self { generations: Mutex::new(Generations { young: HashMap::new(), old: HashMap::new() }) }
    }
}

impl<T: Clone> VerdictCache<T> {
    /// The cached value of a key.
    pub fn get(&self, key: &Key) -> Option<T> {
        let mut generations = self.generations.lock();
        if let Some(value) = generations.young.get(key) {
            return Some(value.clone());
        }
        let value = generations.old.remove(key)?;
        generations.put(*key, value.clone());
        Some(value)
    }

    /// Stores a value.
    pub fn put(&self, key: Key, value: T) {
        self.generations.lock().put(key, value);
    }
}

impl<T> Generations<T> {
    fn put(&mut self, key: Key, value: T) {
        if self.young.len() >= GENERATION_LEN_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Key {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&n.to_be_bytes());
        key
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_used() {
        let cache = VerdictCache::default();
        for n in 0..3 * GENERATION_LEN_MAX {
            cache.put(key(n), n);
            assert_eq!(cache.get(&key(0)), Some(0), "used all along");
        }
        let generations = cache.generations.lock();
        assert!(generations.young.len() + generations.old.len() <= 2 * GENERATION_LEN_MAX);
        drop(generations);
        assert_eq!(cache.get(&key(1)), None, "dropped");
    }
}
