//! `wasi:config/store`: a guest reads its container's environment by it, which is where the values of ConfigMaps and Secrets are
//! (`env`, `envFrom`). It offers nothing that `wasi:cli/environment` does not.

use std::sync::Arc;

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Linker, Lower};

use super::ComponentHost;

/// The versions that toolchains generate imports for, with the same functions. `runtime` is the interface's earlier name.
const INSTANCES: [&str; 4] = [
    "wasi:config/store@0.2.0-rc.1",
    "wasi:config/store@0.2.0-draft",
    "wasi:config/store@0.2.0-draft-2024-09-27",
    "wasi:config/runtime@0.2.0-draft",
];

/// `error` of the interface.
#[derive(ComponentType, Lower)]
#[component(variant)]
#[expect(dead_code, reason = "an environment can always be read")]
enum ConfigError {
    #[component(name = "upstream")]
    Upstream(String),
    #[component(name = "io")]
    Io(String),
}

type Context<'a> = StoreContextMut<'a, ComponentHost>;
type Answer<T> = wasmtime::Result<(Result<T, ConfigError>,)>;

/// Adds the interface in each version.
pub fn add_to_linker(linker: &mut Linker<ComponentHost>) -> wasmtime::Result<()> {
    for name in INSTANCES {
        let mut instance = linker.instance(name)?;
        instance.func_wrap("get", get)?;
        instance.func_wrap("get-all", get_all)?;
    }
    Ok(())
}

fn get(context: Context<'_>, (key,): (String,)) -> Answer<Option<String>> {
    let variables = &context.data().interfaces.variables;
    Ok((Ok(variables.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone())),))
}

fn get_all(context: Context<'_>, (): ()) -> Answer<Arc<[(String, String)]>> {
    Ok((Ok(context.data().interfaces.variables.clone()),))
}
