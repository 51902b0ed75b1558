//! The host functions of the store in memory: none of them waits.

use std::sync::Arc;

use wasmtime::component::{Linker, LinkerInstance, Resource, ResourceType};

use super::store::{Cas, Store};
use super::{CasError, ComponentHost, Context, CountedKeys, FIRST, KeyValue, KeyValueError, NAMES, NamedKeys, SECOND, Value};

/// A guest's handle of the store.
struct Bucket(Arc<Store>);

type Answer<T, E = KeyValueError> = wasmtime::Result<(Result<T, E>,)>;

/// Adds the interfaces in both drafts.
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
    let KeyValue::Memory(store) = &host.interfaces.keyvalue else { return Ok((Err(KeyValueError::NoSuchStore),)) };
    let bucket = Bucket(store.clone());
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

fn swap(mut context: Context<'_>, (cas, value): (Resource<Cas>, Vec<u8>)) -> Answer<(), CasError<Resource<Cas>>> {
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
