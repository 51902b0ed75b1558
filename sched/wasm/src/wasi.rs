//! WASI 0.2 as a plugin gets it, because the standard libraries of most languages import it whether a program needs it or not: no
//! arguments, no environment, no files, no network; clocks that stand still and random numbers that are always the same, so that the
//! results of a plugin depend on its input alone; and standard streams whose lines go to Skiff's log.
//!
//! What is not defined here ends the plugin when it is called.

use wasmtime::component::{Linker, LinkerInstance, Resource, ResourceType, Val};
use wasmtime::{Result, StoreContextMut, bail};

use crate::host::Host;

/// The bytes that a stream takes at once.
const WRITE_LEN_MAX: u64 = 4_096;
/// The most random bytes of one call.
const RANDOM_LEN_MAX: u64 = 1 << 16;
/// The number that begins the series of random numbers, and the step: those of SplitMix64.
const RANDOM_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A standard stream.
struct Stream;

/// Defines what plugins get of the interface of that name, for example `wasi:cli/stdout@0.2.6`.
pub(crate) fn define(linker: &mut Linker<Host>, name: &str) -> Result<()> {
    let interface = name.split('@').next().unwrap_or_default();
    let mut instance = linker.instance(name)?;
    // Each interface that uses the streams has the resource as a type of its own name.
    instance.resource("output-stream", ResourceType::host::<Stream>(), |_, _| Ok(()))?;
    match interface {
        "wasi:cli/environment" => environment(&mut instance),
        "wasi:cli/exit" => exit(&mut instance),
        "wasi:cli/stdout" => stream(&mut instance, "get-stdout"),
        "wasi:cli/stderr" => stream(&mut instance, "get-stderr"),
        "wasi:cli/terminal-stdin" => constant(&mut instance, "get-terminal-stdin", Val::Option(None)),
        "wasi:cli/terminal-stdout" => constant(&mut instance, "get-terminal-stdout", Val::Option(None)),
        "wasi:cli/terminal-stderr" => constant(&mut instance, "get-terminal-stderr", Val::Option(None)),
        "wasi:io/streams" => streams(&mut instance),
        "wasi:filesystem/preopens" => constant(&mut instance, "get-directories", Val::List(Vec::new())),
        "wasi:clocks/monotonic-clock" => {
            constant(&mut instance, "now", Val::U64(0))?;
            constant(&mut instance, "resolution", Val::U64(1))
        }
        "wasi:clocks/wall-clock" => {
            constant(&mut instance, "now", epoch(0))?;
            constant(&mut instance, "resolution", epoch(1))
        }
        "wasi:random/random" => random(&mut instance, "get-random-bytes", "get-random-u64"),
        "wasi:random/insecure" => random(&mut instance, "get-insecure-random-bytes", "get-insecure-random-u64"),
        "wasi:random/insecure-seed" => {
            constant(&mut instance, "insecure-seed", Val::Tuple(vec![Val::U64(RANDOM_STEP), Val::U64(!RANDOM_STEP)]))
        }
        _ => Ok(()),
    }
}

fn epoch(nanoseconds: u32) -> Val {
    Val::Record(vec![("seconds".to_owned(), Val::U64(0)), ("nanoseconds".to_owned(), Val::U32(nanoseconds))])
}

/// A function without parameters that always returns the same.
fn constant(instance: &mut LinkerInstance<'_, Host>, name: &str, value: Val) -> Result<()> {
    instance.func_new(name, move |_, _, _, results| answer(results, value.clone()))
}

fn answer(results: &mut [Val], value: Val) -> Result<()> {
    match results {
        [result] => *result = value,
        _ => bail!("a function of WASI has other results than Skiff knows"),
    }
    Ok(())
}

fn environment(instance: &mut LinkerInstance<'_, Host>) -> Result<()> {
    constant(instance, "get-environment", Val::List(Vec::new()))?;
    constant(instance, "get-arguments", Val::List(Vec::new()))?;
    constant(instance, "initial-cwd", Val::Option(None))
}

fn exit(instance: &mut LinkerInstance<'_, Host>) -> Result<()> {
    instance.func_new("exit", |_, _, _, _| bail!("the plugin called exit"))
}

fn stream(instance: &mut LinkerInstance<'_, Host>, name: &str) -> Result<()> {
    instance.func_wrap(name, |_: StoreContextMut<'_, Host>, (): ()| Ok((Resource::<Stream>::new_own(0),)))
}

fn streams(instance: &mut LinkerInstance<'_, Host>) -> Result<()> {
    let done = || Val::Result(Ok(None));
    instance.func_new("[method]output-stream.check-write", |mut store, _, params, results| {
        end_borrow(&mut store, params)?;
        answer(results, Val::Result(Ok(Some(Box::new(Val::U64(WRITE_LEN_MAX))))))
    })?;
    for name in ["write", "blocking-write-and-flush"] {
        instance.func_new(&format!("[method]output-stream.{name}"), move |mut store, _, params, results| {
            end_borrow(&mut store, params)?;
            if let [_, Val::List(bytes)] = params {
                let bytes: Vec<u8> = bytes.iter().filter_map(|byte| if let Val::U8(byte) = byte { Some(*byte) } else { None }).collect();
                store.data_mut().write(&bytes);
            }
            answer(results, done())
        })?;
    }
    for name in ["flush", "blocking-flush"] {
        instance.func_new(&format!("[method]output-stream.{name}"), move |mut store, _, params, results| {
            end_borrow(&mut store, params)?;
            answer(results, done())
        })?;
    }
    Ok(())
}

/// Gives the stream back that a method was called on.
fn end_borrow(store: &mut StoreContextMut<'_, Host>, params: &[Val]) -> Result<()> {
    match params.first() {
        Some(Val::Resource(stream)) => stream.resource_drop(store),
        _ => Ok(()),
    }
}

fn random(instance: &mut LinkerInstance<'_, Host>, bytes: &str, number: &str) -> Result<()> {
    instance.func_new(bytes, |_, _, params, results| {
        let len = if let [Val::U64(len)] = params { *len } else { 0 };
        if len > RANDOM_LEN_MAX {
            bail!("the plugin asked for {len} random bytes; at most {RANDOM_LEN_MAX} are given");
        }
        let list = (0..len).map(|index| Val::U8(mixed(index).to_le_bytes().first().copied().unwrap_or_default()));
        answer(results, Val::List(list.collect()))
    })?;
    constant(instance, number, Val::U64(mixed(0)))
}

/// The number of that index in the series of SplitMix64.
fn mixed(index: u64) -> u64 {
    let seed = index.wrapping_add(1).wrapping_mul(RANDOM_STEP);
    let seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ (seed >> 31)
}
