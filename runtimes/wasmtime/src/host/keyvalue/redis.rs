//! The host functions of a Redis server: each of them waits for it. See [`client`] for connections and time limits, [`commands`] for what
//! the functions become.

mod client;
mod commands;
mod connection;
mod fault;
mod idle;
mod resp;

use std::sync::Arc;

use wasmtime::component::{Linker, LinkerInstance, Resource, ResourceType};

use super::store::{ENTRY_LEN, StoreFault, check};
use super::{CasError, ComponentHost, Context, CountedKeys, FIRST, KeyValue, KeyValueError, NAMES, NamedKeys, SECOND, Value};
use crate::budget::Charge;
pub use client::Client;
use commands::{Page, Swap};
use fault::Fault;

/// A guest's handle of the store.
struct Bucket(Arc<Client>);

/// A key with the value that the guest last saw.
struct Cas {
    client: Arc<Client>,
    key: String,
    /// `None`: the key did not exist.
    value: Option<Value>,
    charge: Charge,
}

/// A key and its value.
type Pair = (String, Vec<u8>);
/// The result of a function, when it is there.
type Pending<'a, T, E = KeyValueError> = Box<dyn Future<Output = wasmtime::Result<(Result<T, E>,)>> + Send + 'a>;

/// Adds the interfaces in both drafts.
pub fn add_to_linker(linker: &mut Linker<ComponentHost>) -> wasmtime::Result<()> {
    for draft in [FIRST, SECOND] {
        store_interface(&mut linker.instance(&format!("wasi:keyvalue/store@{draft}"))?)?;
        let mut batch = linker.instance(&format!("wasi:keyvalue/batch@{draft}"))?;
        batch.func_wrap_async("get-many", get_many)?;
        batch.func_wrap_async("set-many", set_many)?;
        batch.func_wrap_async("delete-many", delete_many)?;
    }
    linker.instance(&format!("wasi:keyvalue/store@{FIRST}"))?.func_wrap_async("[method]bucket.list-keys", list_counted_keys)?;
    linker.instance(&format!("wasi:keyvalue/atomics@{FIRST}"))?.func_wrap_async("increment", increment_unsigned)?;
    linker.instance(&format!("wasi:keyvalue/store@{SECOND}"))?.func_wrap_async("[method]bucket.list-keys", list_named_keys)?;
    let mut atomics = linker.instance(&format!("wasi:keyvalue/atomics@{SECOND}"))?;
    atomics.func_wrap_async("increment", increment_signed)?;
    atomics.resource("cas", ResourceType::host::<Cas>(), |mut context, handle| {
        context.data_mut().table.delete(Resource::<Cas>::new_own(handle)).map(drop).map_err(Into::into)
    })?;
    atomics.func_wrap_async("[static]cas.new", new_cas)?;
    atomics.func_wrap_async("[method]cas.current", current_of_cas)?;
    atomics.func_wrap_async("swap", swap)
}

/// What both drafts have in common of `store`.
fn store_interface(instance: &mut LinkerInstance<'_, ComponentHost>) -> wasmtime::Result<()> {
    instance.resource("bucket", ResourceType::host::<Bucket>(), |mut context, handle| {
        context.data_mut().table.delete(Resource::<Bucket>::new_own(handle)).map(drop).map_err(Into::into)
    })?;
    instance.func_wrap("open", open)?;
    instance.func_wrap_async("[method]bucket.get", get)?;
    instance.func_wrap_async("[method]bucket.set", set)?;
    instance.func_wrap_async("[method]bucket.delete", delete)?;
    instance.func_wrap_async("[method]bucket.exists", exists)
}

fn client_of(context: &Context<'_>, bucket: &Resource<Bucket>) -> wasmtime::Result<Arc<Client>> {
    Ok(context.data().table.get(bucket)?.0.clone())
}

/// The error of the interface. One of the server or of the way to it has the server's address.
fn error(client: &Client, fault: Fault) -> KeyValueError {
    match fault {
        Fault::AccessDenied => KeyValueError::AccessDenied,
        Fault::Store(_) | Fault::Full | Fault::Cursor => KeyValueError::Other(fault.to_string()),
        fault => KeyValueError::Other(format!("Redis at {}: {fault}", client.server())),
    }
}

/// Does something with the client of a bucket.
fn with<'a, T, F>(context: Context<'a>, bucket: Resource<Bucket>, work: impl FnOnce(Arc<Client>) -> F + Send + 'a) -> Pending<'a, T>
where
    T: 'a,
    F: Future<Output = Result<T, Fault>> + Send,
{
    Box::new(async move {
        let client = client_of(&context, &bucket)?;
        Ok((work(client.clone()).await.map_err(|fault| error(&client, fault)),))
    })
}

/// Opens no connection: that is for the first function that needs one.
fn open(mut context: Context<'_>, (name,): (String,)) -> wasmtime::Result<(Result<Resource<Bucket>, KeyValueError>,)> {
    let host = context.data_mut();
    let client = match &host.interfaces.keyvalue {
        KeyValue::Redis(client) if NAMES.contains(&name.as_str()) => client.clone(),
        KeyValue::Redis(_) | KeyValue::Memory(_) => return Ok((Err(KeyValueError::NoSuchStore),)),
    };
    Ok((host.table.push(Bucket(client)).map_err(|full| KeyValueError::Other(full.to_string())),))
}

fn get(context: Context<'_>, (bucket, key): (Resource<Bucket>, String)) -> Pending<'_, Option<Vec<u8>>> {
    with(context, bucket, |client| async move { client.get(&key).await })
}

fn set(context: Context<'_>, (bucket, key, value): (Resource<Bucket>, String, Vec<u8>)) -> Pending<'_, ()> {
    with(context, bucket, |client| async move { client.set(&key, &value).await })
}

fn delete(context: Context<'_>, (bucket, key): (Resource<Bucket>, String)) -> Pending<'_, ()> {
    with(context, bucket, |client| async move { client.delete(&[key]).await })
}

fn exists(context: Context<'_>, (bucket, key): (Resource<Bucket>, String)) -> Pending<'_, bool> {
    with(context, bucket, |client| async move { client.exists(&key).await })
}

fn list_counted_keys(context: Context<'_>, (bucket, cursor): (Resource<Bucket>, Option<u64>)) -> Pending<'_, CountedKeys> {
    with(context, bucket, move |client| async move {
        let Page { keys, cursor } = client.keys(cursor.unwrap_or(0)).await?;
        Ok(CountedKeys { keys, cursor })
    })
}

fn list_named_keys(context: Context<'_>, (bucket, cursor): (Resource<Bucket>, Option<String>)) -> Pending<'_, NamedKeys> {
    with(context, bucket, |client| async move {
        let after = cursor.map_or(Ok(0), |cursor| cursor.parse().map_err(|_| Fault::Cursor))?;
        let Page { keys, cursor } = client.keys(after).await?;
        Ok(NamedKeys { keys, cursor: cursor.map(|cursor| cursor.to_string()) })
    })
}

fn get_many(context: Context<'_>, (bucket, keys): (Resource<Bucket>, Vec<String>)) -> Pending<'_, Vec<Option<Pair>>> {
    with(context, bucket, |client| async move {
        let values = client.get_many(&keys).await?;
        Ok(keys.into_iter().zip(values).map(|(key, value)| value.map(|value| (key, value))).collect())
    })
}

fn set_many(context: Context<'_>, (bucket, pairs): (Resource<Bucket>, Vec<Pair>)) -> Pending<'_, ()> {
    with(context, bucket, |client| async move { client.set_many(&pairs).await })
}

fn delete_many(context: Context<'_>, (bucket, keys): (Resource<Bucket>, Vec<String>)) -> Pending<'_, ()> {
    with(context, bucket, |client| async move { client.delete(&keys).await })
}

/// Redis has signed numbers: a sum that stays negative is stored, and the guest gets the error.
fn increment_unsigned(context: Context<'_>, (bucket, key, delta): (Resource<Bucket>, String, u64)) -> Pending<'_, u64> {
    with(context, bucket, move |client| async move {
        let delta = i64::try_from(delta).map_err(|_| StoreFault::Range)?;
        Ok(u64::try_from(client.increment(&key, delta).await?).map_err(|_| StoreFault::Range)?)
    })
}

fn increment_signed(context: Context<'_>, (bucket, key, delta): (Resource<Bucket>, String, i64)) -> Pending<'_, i64> {
    with(context, bucket, move |client| async move { client.increment(&key, delta).await })
}

fn new_cas(mut context: Context<'_>, (bucket, key): (Resource<Bucket>, String)) -> Pending<'_, Resource<Cas>> {
    Box::new(async move {
        let client = client_of(&context, &bucket)?;
        let cas = match Cas::new(client.clone(), key).await {
            Ok(cas) => cas,
            Err(fault) => return Ok((Err(error(&client, fault)),)),
        };
        Ok((context.data_mut().table.push(cas).map_err(|full| KeyValueError::Other(full.to_string())),))
    })
}

fn current_of_cas(mut context: Context<'_>, (cas,): (Resource<Cas>,)) -> Pending<'_, Option<Value>> {
    Box::new(async move {
        let cas = context.data_mut().table.get_mut(&cas)?;
        Ok((cas.current().await.map_err(|fault| error(&cas.client, fault)),))
    })
}

fn swap(mut context: Context<'_>, (cas, value): (Resource<Cas>, Vec<u8>)) -> Pending<'_, (), CasError<Resource<Cas>>> {
    Box::new(async move {
        let mut cas = context.data_mut().table.delete(cas)?;
        let swapped = match cas.swap(&value).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(match context.data_mut().table.push(cas) {
                Ok(renewed) => CasError::Failed(renewed),
                Err(full) => CasError::Store(KeyValueError::Other(full.to_string())),
            }),
            Err(fault) => Err(CasError::Store(error(&cas.client, fault))),
        };
        Ok((swapped,))
    })
}

impl Cas {
    async fn new(client: Arc<Client>, key: String) -> Result<Self, Fault> {
        check(&key)?;
        let charge = client.charge(ENTRY_LEN + key.len())?;
        let mut cas = Self { client, key, value: None, charge };
        cas.current().await?;
        Ok(cas)
    }

    /// The value now, which is from now on the one that must not have changed.
    async fn current(&mut self) -> Result<Option<Value>, Fault> {
        let value = self.client.get(&self.key).await?;
        self.expect(value)
    }

    /// Stores a value unless the present one is another than expected. Returns whether it did; if not, the handle is of the present value.
    async fn swap(&mut self, value: &[u8]) -> Result<bool, Fault> {
        match self.client.swap(&self.key, self.value.as_deref(), value).await? {
            Swap::Stored => Ok(true),
            Swap::Changed(present) => self.expect(present).map(|_| false),
        }
    }

    /// The value counts as memory as long as the handle has it.
    fn expect(&mut self, value: Option<Vec<u8>>) -> Result<Option<Value>, Fault> {
        let bytes = ENTRY_LEN + self.key.len() + value.as_ref().map_or(0, Vec::len);
        if !self.charge.resize(bytes) {
            return Err(Fault::Full);
        }
        self.value = value.map(Value::from);
        Ok(self.value.clone())
    }
}
