//! Guests that run once, from start to end: preview 1 modules, and commands of WASI 0.2 and 0.3.

use std::future::poll_fn;

use runtimes_contract::Exit;
use wasmtime::component::Component;
use wasmtime::{Engine, Module, Store, UpdateDeadline};
use wasmtime_wasi::{p2, p3};

use super::guest::{Guest, ended};
use super::signals;
use crate::host::{ComponentHost, ModuleHost, component_linker, module_linker};
use crate::kind::{Abi, Kind};

/// Runs a module's `_start`.
pub async fn module(engine: &Engine, module: &Module, guest: &Guest) -> Exit {
    ended(guest, until_stopped(run_module(engine, module, guest)).await)
}

/// Runs a component's `wasi:cli/run`.
pub async fn component(engine: &Engine, component: &Component, (kind, abi): (Kind, Abi), guest: &Guest) -> Exit {
    ended(guest, until_stopped(run_component(engine, component, (kind, abi), guest)).await)
}

async fn run_module(engine: &Engine, module: &Module, guest: &Guest) -> wasmtime::Result<i32> {
    let linker = module_linker(engine)?;
    let mut store = Store::new(engine, ModuleHost { wasi: guest.module_wasi()?, limits: guest.limits() });
    store.limiter(|host| &mut host.limits);
    guest.set_fuel(&mut store)?;
    stop_at_signal(&mut store)?;
    let instance = linker.instantiate_async(&mut store, module).await?;
    store.data_mut().limits.count_all();
    let start = instance.get_typed_func::<(), ()>(&mut store, "_start")?;
    start.call_async(&mut store, ()).await?;
    Ok(0)
}

async fn run_component(engine: &Engine, component: &Component, (kind, abi): (Kind, Abi), guest: &Guest) -> wasmtime::Result<i32> {
    let linker = component_linker(engine, abi, guest.keyvalue())?;
    let mut store = Store::new(engine, guest.component_host()?);
    store.limiter(|host| &mut host.limits);
    guest.set_fuel(&mut store)?;
    stop_at_signal(&mut store)?;
    let result = if kind == Kind::AsyncCommand {
        let command = p3::bindings::Command::instantiate_async(&mut store, component, &linker).await?;
        store.data_mut().limits.count_all();
        run_concurrently(&mut store, &command).await?
    } else {
        let command = p2::bindings::Command::instantiate_async(&mut store, component, &linker).await?;
        store.data_mut().limits.count_all();
        command.wasi_cli_run().call_run(&mut store).await?
    };
    match result {
        Ok(()) => Ok(0),
        Err(()) => Ok(1),
    }
}

/// Runs a command until it has nothing left to do: it may continue when its result is there.
async fn run_concurrently(store: &mut Store<ComponentHost>, command: &p3::bindings::Command) -> wasmtime::Result<Result<(), ()>> {
    let running = store.run_concurrent(async |accessor| {
        let result = command.wasi_cli_run().call_run(accessor).await?;
        poll_fn(|context| accessor.poll_no_interesting_tasks(context)).await;
        Ok(result)
    });
    running.await?
}

/// A guest that waits in a host call stays there; the epoch stops one that computes.
async fn until_stopped(run: impl Future<Output = wasmtime::Result<i32>>) -> wasmtime::Result<i32> {
    tokio::select! {
        biased;
        result = run => result,
        stopped = signals::stopped() => Ok(128 + stopped?),
    }
}

/// The epoch advances only when a signal arrives; there are no ticks while a guest runs.
fn stop_at_signal<T>(store: &mut Store<T>) -> wasmtime::Result<()> {
    let stop = || match signals::stopping() {
        Some(signal) => Err(wasmtime::Error::msg(format!("stopped by signal {signal}"))),
        None => Ok(()),
    };
    store.epoch_deadline_callback(move |_| stop().map(|()| UpdateDeadline::Continue(1)));
    store.set_epoch_deadline(1);
    // A signal that arrived before the deadline was set has advanced the epoch already.
    stop()
}
