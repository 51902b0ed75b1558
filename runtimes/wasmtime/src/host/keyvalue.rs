//! `wasi:keyvalue`: one store in memory for each container, which its instances share and which ends with it. Two drafts of the
//! interface are offered; they differ in the cursor of `list-keys` and in `atomics`.

pub mod store;

use std::sync::Arc;

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Linker, LinkerInstance, Lower, Resource, ResourceType};

use super::ComponentHost;
use store::{Cas, Store, StoreFault};

/// The drafts.
const FIRST: &str = "0.2.0-draft";
const SECOND: &str = "0.2.0-draft2";
/// The names by which a guest opens the store.
const NAMES: [&str; 2] = ["", "default"];

/// `error` of the interface.
#[derive(ComponentType, Lower)]
#[component(variant)]
enum KeyValueError {
    #[component(name = "no-such-store")]
    NoSuchStore,
    #[component(name = "access-denied")]
    #[expect(dead_code, reason = "a container's store is for all of its guests")]
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
enum CasError {
    #[component(name = "store-error")]
    Store(KeyValueError),
    #[component(name = "cas-failed")]
    Failed(Resource<Cas>),
}

/// `key-response` of the first draft: a cursor counts keys.
#[derive(ComponentType, Lower)]
#[component(record)]
struct CountedKeys {
    keys: Vec<String>,
    cursor: Option<u64>,
}

/// `key-response` of the second draft: a cursor is the last key.
#[derive(ComponentType, Lower)]
#[component(record)]
struct NamedKeys {
    keys: Vec<String>,
    cursor: Option<String>,
}

/// A guest's handle of the store.
struct Bucket(Arc<Store>);

type Context<'a> = StoreContextMut<'a, ComponentHost>;
type Answer<T, E = KeyValueError> = wasmtime::Result<(Result<T, E>,)>;
type Value = Arc<[u8]>;

/// Adds the interfaces `store`, `atomics` and `batch` in both drafts.
pub fn add_to_linker(linker: &mut Linker<ComponentHost>) -> wasmtime::Result<()> {
    for draft in [FIRST, SECOND] {
        store_interface(&mut linker.instance(&format!("wasi:keyvalue/store@{draft}"))?)?;
        let mut batch = linker.instance(&format!("wasi:keyvalue/batch@{draft}"))?;
        batch.func_wrap("get-many", get_many)?;
        batch.func_wrap("set-many", set_many)?;
        batch.func_wrap("delete-many", delete_many)?;
    }
    linker.instance(&format!("wasi:keyvalue/store@{FIRST}"))?.func_wrap("[method]bucket.list-keys", list_counted_keys)?;
    linker.instance(&format!("wasi:keyvalue/atomics@{FIRST}"))?.func_wrap("increment", increment_unsigned)?;
    linker.instance(&format!("wasi:keyvalue/store@{SECOND}"))?.func_wrap("[method]bucket.list-keys", list_named_keys)?;
    let mut atomics = linker.instance(&format!("wasi:keyvalue/atomics@{SECOND}"))?;
    atomics.func_wrap("increment", increment_signed)?;
    atomics.resource("cas", ResourceType::host::<Cas>(), |mut context, handle| {
        context.data_mut().table.delete(Resource::<Cas>::new_own(handle)).map(drop).map_err(Into::into)
    })?;
    atomics.func_wrap("[static]cas.new", new_cas)?;
    atomics.func_wrap("[method]cas.current", current_of_cas)?;
    atomics.func_wrap("swap", swap)
}

/// What both drafts have in common of `store`.
fn store_interface(instance: &mut LinkerInstance<'_, ComponentHost>) -> wasmtime::Result<()> {
    instance.resource("bucket", ResourceType::host::<Bucket>(), |mut context, handle| {
        context.data_mut().table.delete(Resource::<Bucket>::new_own(handle)).map(drop).map_err(Into::into)
    })?;
    instance.func_wrap("open", open)?;
    instance.func_wrap("[method]bucket.get", get)?;
    instance.func_wrap("[method]bucket.set", set)?;
    instance.func_wrap("[method]bucket.delete", delete)?;
    instance.func_wrap("[method]bucket.exists", exists)
}

fn store_of(context: &Context<'_>, bucket: &Resource<Bucket>) -> wasmtime::Result<Arc<Store>> {
    Ok(context.data().table.get(bucket)?.0.clone())
}

fn open(mut context: Context<'_>, (name,): (String,)) -> Answer<Resource<Bucket>> {
    if !NAMES.contains(&name.as_str()) {
        return Ok((Err(KeyValueError::NoSuchStore),));
    }
    let host = context.data_mut();
    let bucket = Bucket(host.interfaces.keyvalue.clone());
    Ok((host.table.push(bucket).map_err(|full| KeyValueError::Other(full.to_string())),))
}

fn get(context: Context<'_>, (bucket, key): (Resource<Bucket>, String)) -> Answer<Option<Value>> {
    Ok((Ok(store_of(&context, &bucket)?.get(&key)),))
}

fn set(context: Context<'_>, (bucket, key, value): (Resource<Bucket>, String, Vec<u8>)) -> Answer<()> {
    Ok((store_of(&context, &bucket)?.set(key, value).map_err(Into::into),))
}

fn delete(context: Context<'_>, (bucket, key): (Resource<Bucket>, String)) -> Answer<()> {
    store_of(&context, &bucket)?.delete(&key);
    Ok((Ok(()),))
}

fn exists(context: Context<'_>, (bucket, key): (Resource<Bucket>, String)) -> Answer<bool> {
    Ok((Ok(store_of(&context, &bucket)?.get(&key).is_some()),))
}

fn list_counted_keys(context: Context<'_>, (bucket, cursor): (Resource<Bucket>, Option<u64>)) -> Answer<CountedKeys> {
    let skipped = cursor.unwrap_or(0);
    let page = store_of(&context, &bucket)?.keys(None, usize::try_from(skipped).unwrap_or(usize::MAX));
    let cursor = page.has_more.then(|| skipped.saturating_add(u64::try_from(page.keys.len()).unwrap_or(u64::MAX)));
    Ok((Ok(CountedKeys { keys: page.keys, cursor }),))
}

fn list_named_keys(context: Context<'_>, (bucket, cursor): (Resource<Bucket>, Option<String>)) -> Answer<NamedKeys> {
    let page = store_of(&context, &bucket)?.keys(cursor.as_deref(), 0);
    let cursor = page.keys.last().filter(|_| page.has_more).cloned();
    Ok((Ok(NamedKeys { keys: page.keys, cursor }),))
}

/// A value stands for itself as often as its key is in the list: it is copied into the guest's memory only.
fn get_many(context: Context<'_>, (bucket, keys): (Resource<Bucket>, Vec<String>)) -> Answer<Vec<Option<(String, Value)>>> {
    let store = store_of(&context, &bucket)?;
    Ok((Ok(keys.into_iter().map(|key| store.get(&key).map(|value| (key, value))).collect()),))
}

fn set_many(context: Context<'_>, (bucket, pairs): (Resource<Bucket>, Vec<(String, Vec<u8>)>)) -> Answer<()> {
    let store = store_of(&context, &bucket)?;
    Ok((pairs.into_iter().try_for_each(|(key, value)| store.set(key, value)).map_err(Into::into),))
}

fn delete_many(context: Context<'_>, (bucket, keys): (Resource<Bucket>, Vec<String>)) -> Answer<()> {
    let store = store_of(&context, &bucket)?;
    keys.iter().for_each(|key| store.delete(key));
    Ok((Ok(()),))
}

fn increment_unsigned(context: Context<'_>, (bucket, key, delta): (Resource<Bucket>, String, u64)) -> Answer<u64> {
    Ok((store_of(&context, &bucket)?.increment(key, delta).map_err(Into::into),))
}

fn increment_signed(context: Context<'_>, (bucket, key, delta): (Resource<Bucket>, String, i64)) -> Answer<i64> {
    Ok((store_of(&context, &bucket)?.increment(key, delta).map_err(Into::into),))
}

fn new_cas(mut context: Context<'_>, (bucket, key): (Resource<Bucket>, String)) -> Answer<Resource<Cas>> {
    let cas = match Store::cas(&store_of(&context, &bucket)?, key) {
        Ok(cas) => cas,
        Err(fault) => return Ok((Err(fault.into()),)),
    };
    Ok((context.data_mut().table.push(cas).map_err(|full| KeyValueError::Other(full.to_string())),))
}

fn current_of_cas(mut context: Context<'_>, (cas,): (Resource<Cas>,)) -> Answer<Option<Value>> {
    Ok((Ok(context.data_mut().table.get_mut(&cas)?.current()),))
}

fn swap(mut context: Context<'_>, (cas, value): (Resource<Cas>, Vec<u8>)) -> Answer<(), CasError> {
    let table = &mut context.data_mut().table;
    let mut cas = table.delete(cas)?;
    let swapped = match cas.swap(value) {
        Ok(true) => Ok(()),
        Ok(false) => Err(match table.push(cas) {
            Ok(renewed) => CasError::Failed(renewed),
            Err(full) => CasError::Store(KeyValueError::Other(full.to_string())),
        }),
        Err(fault) => Err(CasError::Store(fault.into())),
    };
    Ok((swapped,))
}
