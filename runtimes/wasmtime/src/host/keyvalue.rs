//! `wasi:keyvalue`: one store for each container, which its instances share. It is in memory and ends with the container, or it is a
//! Redis server. Two drafts of the interface are offered; they differ in the cursor of `list-keys` and in `atomics`.

mod memory;
pub mod redis;
pub mod store;

use std::sync::Arc;

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Linker, Lower};

use super::ComponentHost;
use redis::Client;
use store::{Store, StoreFault};

/// The drafts.
const FIRST: &str = "0.2.0-draft";
const SECOND: &str = "0.2.0-draft2";
/// The names by which a guest opens the store.
const NAMES: [&str; 2] = ["", "default"];

/// The store of one container.
#[cfg_attr(not(feature = "shim"), expect(dead_code, reason = "only a shim runs guests"))]
pub enum KeyValue {
    /// In memory.
    Memory(Arc<Store>),
    /// A Redis server.
    Redis(Arc<Client>),
}

/// The kind of a [`KeyValue`], which decides the host functions: those of the store in memory do not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyValueBackend {
    /// In memory.
    Memory,
    /// A Redis server.
    #[cfg_attr(not(feature = "shim"), expect(dead_code, reason = "only a shim runs guests"))]
    Redis,
}

#[cfg(feature = "shim")]
impl KeyValue {
    /// Its kind.
    pub fn backend(&self) -> KeyValueBackend {
        match self {
            Self::Memory(_) => KeyValueBackend::Memory,
            Self::Redis(_) => KeyValueBackend::Redis,
        }
    }
}

/// `error` of the interface.
#[derive(ComponentType, Lower)]
#[component(variant)]
enum KeyValueError {
    #[component(name = "no-such-store")]
    NoSuchStore,
    #[component(name = "access-denied")]
    AccessDenied,
    #[component(name = "other")]
    Other(String),
}

impl From<StoreFault> for KeyValueError {
    fn from(fault: StoreFault) -> Self {
        Self::Other(fault.to_string())
    }
}

/// `cas-error` of the second draft.
#[derive(ComponentType, Lower)]
#[component(variant)]
enum CasError<C> {
    #[component(name = "store-error")]
    Store(KeyValueError),
    #[component(name = "cas-failed")]
    Failed(C),
}

/// `key-response` of the first draft: a cursor is a number.
#[derive(ComponentType, Lower)]
#[component(record)]
struct CountedKeys {
    keys: Vec<String>,
    cursor: Option<u64>,
}

/// `key-response` of the second draft: a cursor is text.
#[derive(ComponentType, Lower)]
#[component(record)]
struct NamedKeys {
    keys: Vec<String>,
    cursor: Option<String>,
}

type Context<'a> = StoreContextMut<'a, ComponentHost>;
type Value = Arc<[u8]>;

/// Adds the interfaces `store`, `atomics` and `batch` in both drafts. The types of all functions are the same with each backend.
pub fn add_to_linker(linker: &mut Linker<ComponentHost>, backend: KeyValueBackend) -> wasmtime::Result<()> {
    match backend {
        KeyValueBackend::Memory => memory::add_to_linker(linker),
        KeyValueBackend::Redis => redis::add_to_linker(linker),
    }
}
