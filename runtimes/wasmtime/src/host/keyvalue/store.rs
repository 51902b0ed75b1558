//! The data behind `wasi:keyvalue`: keys in order, with a bound on all of them together. What is stored, and what handles of a
//! guest have of it, counts as the container's memory too.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::budget::{Budget, Charge};

/// The most bytes of a store, with what its entries cost beside keys and values.
const BYTES_MAX: usize = 64 << 20;
/// A store has at most such a part of what its container's guests may have.
#[cfg(feature = "shim")]
const PART: usize = 4;
/// What an entry or a handle costs beside its key and value.
pub(super) const ENTRY_LEN: usize = 192;
/// The longest key.
const KEY_LEN_MAX: usize = 1_024;
/// The most keys in one answer.
const PAGE_LEN_MAX: usize = 1_000;

/// Why the store did not do as it was asked; the guest gets the text.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// The key is too long.
    #[error("the key has {0} bytes, and at most {KEY_LEN_MAX} are stored")]
    Key(usize),
    /// The bound on all entries, or the container's memory limit.
    #[error("no room: a store has at most {BYTES_MAX} bytes and a quarter of its container's memory, of which it is a part")]
    Full,
    /// Only a number can be incremented.
    #[error("the value is not a decimal number")]
    NotANumber,
    /// The number is too large, or too small.
    #[error("the number is out of range")]
    Range,
}

/// The store of one container.
pub struct Store {
    entries: Mutex<Entries>,
    /// The budget of this store, then the container's.
    budgets: [Arc<Budget>; 2],
}

#[derive(Default)]
struct Entries {
    by_key: BTreeMap<String, Entry>,
    /// Of the last change: no two values have the same.
    version: u64,
}

struct Entry {
    value: Arc<[u8]>,
    version: u64,
    space: Space,
}

/// Some of the keys, in order.
pub struct Page {
    /// The keys.
    pub keys: Vec<String>,
    /// Whether there are more behind them.
    pub has_more: bool,
}

/// Bytes of both budgets.
struct Space([Charge; 2]);

impl Space {
    fn new([own, container]: &[Arc<Budget>; 2], bytes: usize) -> Result<Self, StoreFault> {
        let own = Charge::new(own, bytes).ok_or(StoreFault::Full)?;
        Ok(Self([own, Charge::new(container, bytes).ok_or(StoreFault::Full)?]))
    }

    fn resize(&mut self, bytes: usize) -> Result<(), StoreFault> {
        let Self([own, container]) = self;
        let before = own.bytes();
        if !own.resize(bytes) {
            return Err(StoreFault::Full);
        }
        if !container.resize(bytes) {
            own.resize(before);
            return Err(StoreFault::Full);
        }
        Ok(())
    }
}

impl Store {
    /// An empty store of a container with this budget.
    #[cfg(feature = "shim")]
    pub fn new(container: &Arc<Budget>) -> Self {
        let bytes_max = BYTES_MAX.min(container.bytes_max() / PART);
        Self { entries: Mutex::default(), budgets: [Arc::new(Budget::new(Some(bytes_max))), container.clone()] }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<Arc<[u8]>> {
        self.entries.lock().by_key.get(key).map(|entry| entry.value.clone())
    }

    /// Stores a value, or changes nothing.
    pub fn set(&self, key: String, value: Vec<u8>) -> Result<(), StoreFault> {
        self.entries.lock().set(&self.budgets, key, value)
    }

    /// Removes a key, if it is there.
    pub fn delete(&self, key: &str) {
        self.entries.lock().by_key.remove(key);
    }

    /// The keys behind one, without the first of them; or all keys without the first.
    pub fn keys(&self, after: Option<&str>, skipped: usize) -> Page {
        let entries = self.entries.lock();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = entries.by_key.range::<str, _>((from, Bound::Unbounded)).map(|(key, _)| key).skip(skipped);
        let keys = rest.by_ref().take(PAGE_LEN_MAX).cloned().collect();
        Page { keys, has_more: rest.next().is_some() }
    }

    /// Adds to a number, which is stored as decimal text; a key that does not exist is 0. Returns the sum.
    pub fn increment<N: TryFrom<i128> + Into<i128>>(&self, key: String, delta: N) -> Result<N, StoreFault> {
        let mut entries = self.entries.lock();
        let number: i128 = match entries.by_key.get(&key) {
            Some(entry) => str::from_utf8(&entry.value).ok().and_then(|text| text.parse().ok()).ok_or(StoreFault::NotANumber)?,
            None => 0,
        };
        let sum = number.checked_add(delta.into()).ok_or(StoreFault::Range)?;
        let narrow = N::try_from(sum).map_err(|_| StoreFault::Range)?;
        entries.set(&self.budgets, key, sum.to_string().into_bytes())?;
        Ok(narrow)
    }

    /// A handle for a change of a key on condition that no other change comes before.
    pub fn cas(store: &Arc<Self>, key: String) -> Result<Cas, StoreFault> {
        check(&key)?;
        let space = Space::new(&store.budgets, ENTRY_LEN + key.len())?;
        let version = store.entries.lock().version_of(&key);
        Ok(Cas { store: store.clone(), key, version, _space: space })
    }
}

impl Entries {
    fn version_of(&self, key: &str) -> Option<u64> {
        self.by_key.get(key).map(|entry| entry.version)
    }

    fn set(&mut self, budgets: &[Arc<Budget>; 2], key: String, value: Vec<u8>) -> Result<(), StoreFault> {
        check(&key)?;
        let bytes = ENTRY_LEN + key.len() + value.len();
        let version = self.version + 1;
        match self.by_key.get_mut(&key) {
            Some(entry) => {
                entry.space.resize(bytes)?;
                entry.value = value.into();
                entry.version = version;
            }
            None => {
                let space = Space::new(budgets, bytes)?;
                self.by_key.insert(key, Entry { value: value.into(), version, space });
            }
        }
        self.version = version;
        Ok(())
    }
}

/// Rejects a key that is too long to be stored.
pub(super) fn check(key: &str) -> Result<(), StoreFault> {
    if key.len() > KEY_LEN_MAX { Err(StoreFault::Key(key.len())) } else { Ok(()) }
}

/// A key with the version of its value that the guest last saw.
pub struct Cas {
    store: Arc<Store>,
    key: String,
    /// `None`: the key did not exist.
    version: Option<u64>,
    _space: Space,
}

impl Cas {
    /// The value now, which is from now on the one that must not have changed.
    pub fn current(&mut self) -> Option<Arc<[u8]>> {
        let entries = self.store.entries.lock();
        let entry = entries.by_key.get(&self.key);
        self.version = entry.map(|entry| entry.version);
        entry.map(|entry| entry.value.clone())
    }

    /// Stores a value unless another change came before. Returns whether it did; if not, the handle is of the present value.
    pub fn swap(&mut self, value: Vec<u8>) -> Result<bool, StoreFault> {
        let mut entries = self.store.entries.lock();
        let version = entries.version_of(&self.key);
        if version != self.version {
            self.version = version;
            return Ok(false);
        }
        entries.set(&self.store.budgets, self.key.clone(), value)?;
        self.version = entries.version_of(&self.key);
        Ok(true)
    }
}

#[cfg(all(test, feature = "shim"))]
mod tests;
