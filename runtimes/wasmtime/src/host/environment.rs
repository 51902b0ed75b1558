//! `wasi:cli/environment`, the same for all instances of a container: they share it. The functions of wasmtime, which these replace, copy
//! all of it at each call, and a Pod has some variables for each Service.

use std::sync::Arc;

use wasmtime::StoreContextMut;
use wasmtime::component::Linker;

use super::ComponentHost;
use crate::kind::Abi;

/// The versions that wasmtime offers, with the name of the one function that they do not have in common. A guest that imports an earlier
/// version of the same series gets these.
const WASI_0_2: (&str, &str) = ("wasi:cli/environment@0.2.12", "initial-cwd");
const WASI_0_3: (&str, &str) = ("wasi:cli/environment@0.3.0", "get-initial-cwd");
/// The functions that they have in common.
const GET_ENVIRONMENT: &str = "get-environment";
const GET_ARGUMENTS: &str = "get-arguments";

type Context<'a> = StoreContextMut<'a, ComponentHost>;

/// Replaces the interface in each version of this ABI.
pub fn add_to_linker(linker: &mut Linker<ComponentHost>, abi: Abi) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    add_version(linker, WASI_0_2)?;
    if abi == Abi::Async {
        add_version(linker, WASI_0_3)?;
    }
    linker.allow_shadowing(false);
    Ok(())
}

fn add_version(linker: &mut Linker<ComponentHost>, (name, initial_cwd): (&str, &str)) -> wasmtime::Result<()> {
    let mut instance = linker.instance(name)?;
    instance.func_wrap(GET_ENVIRONMENT, |context: Context<'_>, (): ()| Ok((context.data().interfaces.variables.clone(),)))?;
    instance.func_wrap(GET_ARGUMENTS, |context: Context<'_>, (): ()| Ok((context.data().interfaces.args.clone(),)))?;
    instance.func_wrap(initial_cwd, |context: Context<'_>, (): ()| {
        let dir: Option<Arc<str>> = context.data().interfaces.working_dir.clone();
        Ok((dir,))
    })
}

#[cfg(test)]
mod tests {
    use wasmtime::Engine;

    use super::*;
    use crate::settings::{CodeSettings, config};

    #[test]
    fn the_versions_are_those_of_wasmtime() {
        let engine = Engine::new(&config(&CodeSettings::default(), Abi::Async)).unwrap();
        let mut linker = Linker::<ComponentHost>::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).unwrap();
        wasmtime_wasi::p3::add_to_linker(&mut linker).unwrap();
        for (name, initial_cwd) in [WASI_0_2, WASI_0_3] {
            let mut add = |function| linker.instance(name).unwrap().func_wrap(function, |_: Context<'_>, (): ()| Ok(()));
            for function in [GET_ENVIRONMENT, GET_ARGUMENTS, initial_cwd] {
                assert!(add(function).is_err(), "{function} of {name} is not there to be replaced");
            }
            add("what-nobody-offers").unwrap();
        }
        add_to_linker(&mut linker, Abi::Async).unwrap();
    }
}
