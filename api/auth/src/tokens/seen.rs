//! A bounded memory of what was found good, in two generations: when the young one is full it
//! becomes the old one, and what was in the old one is forgotten unless it was used since.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Entries in one generation.
const GENERATION_LEN_MAX: usize = 4096;

type Key = [u8; 32];

/// The memory; entries are keyed by a hash of what was checked.
pub struct Seen<T> {
    generations: Mutex<Generations<T>>,
}

struct Generations<T> {
    young: HashMap<Key, T>,
    old: HashMap<Key, T>,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self { generations: Mutex::new(Generations { young: HashMap::new(), old: HashMap::new() }) }
    }
}

impl<T: Clone> Seen<T> {
    /// What was remembered for a key.
    pub fn get(&self, key: &Key) -> Option<T> {
        let mut generations = self.generations.lock();
        if let Some(value) = generations.young.get(key) {
            return Some(value.clone());
        }
        let value = generations.old.remove(key)?;
        generations.put(*key, value.clone());
        Some(value)
    }

    /// Remembers.
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
    fn the_memory_is_bounded_and_keeps_what_is_used() {
        let seen = Seen::default();
        for n in 0..3 * GENERATION_LEN_MAX {
            seen.put(key(n), n);
            assert_eq!(seen.get(&key(0)), Some(0), "used all along");
        }
        let generations = seen.generations.lock();
        assert!(generations.young.len() + generations.old.len() <= 2 * GENERATION_LEN_MAX);
        drop(generations);
        assert_eq!(seen.get(&key(1)), None, "forgotten");
    }
}
