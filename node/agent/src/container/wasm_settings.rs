//! The settings of WASM containers, which are annotations of their Pod under one prefix. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use runtimes_contract::{ContentKind, HTTP_CONCURRENCY_MAX, WasmProposal};

use super::ConfigError;

/// The prefix of every setting.
const PREFIX: &str = "wasm.skiff.internal/";
/// The requests that a `wasi:http` server handles at once.
const HTTP_CONCURRENCY: &str = "http-concurrency";
/// The proposals that a guest may use beside those that are on by default.
const PROPOSALS: &str = "proposals";

/// The settings of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WasmSettings {
    pub(crate) http_concurrency: Option<u32>,
    pub(crate) proposals: BTreeSet<WasmProposal>,
}

/// Reads the settings of a Pod for a container of this kind. They mean nothing to a Linux container.
pub(crate) fn read(pod: &Pod, kind: ContentKind) -> Result<WasmSettings, ConfigError> {
    let mut settings = WasmSettings::default();
    if kind != ContentKind::Wasm {
        return Ok(settings);
    }
    for (annotation, value) in pod.metadata.annotations.iter().flatten() {
        match annotation.strip_prefix(PREFIX) {
            Some(HTTP_CONCURRENCY) => settings.http_concurrency = Some(http_concurrency(annotation, value)?),
            Some(PROPOSALS) => settings.proposals = proposals(annotation, value)?,
            Some(_) => return Err(ConfigError(format!("annotation \"{annotation}\" is not a setting of WebAssembly containers"))),
            None => {}
        }
    }
    Ok(settings)
}

fn http_concurrency(annotation: &str, value: &str) -> Result<u32, ConfigError> {
    let number = value.parse().ok().filter(|number| (1..=HTTP_CONCURRENCY_MAX).contains(number));
    number.ok_or_else(|| ConfigError(format!("annotation \"{annotation}\": {value:?} is not a number from 1 to {HTTP_CONCURRENCY_MAX}")))
}

/// A list with commas; spaces around a name do not count, and an empty list names nothing.
fn proposals(annotation: &str, value: &str) -> Result<BTreeSet<WasmProposal>, ConfigError> {
    let names = value.split(',').map(str::trim).filter(|_| !value.trim().is_empty());
    let parsed = names.map(|name| {
        name.parse::<WasmProposal>().map_err(|()| {
            let all = WasmProposal::ALL.map(WasmProposal::name).join(", ");
            ConfigError(format!("annotation \"{annotation}\": {name:?} is not a proposal that can be switched on; those are {all}"))
        })
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(kind: ContentKind, annotations: Value) -> Result<WasmSettings, String> {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "annotations": annotations}})).expect("a Pod");
        super::read(&pod, kind).map_err(|error| error.0)
    }

    #[test]
    fn settings_are_read_strictly() {
        let setting = |value: &str| json!({"wasm.skiff.internal/http-concurrency": value, "example.com/other": "x"});
        let concurrency = |kind, annotations| read(kind, annotations).map(|settings| settings.http_concurrency);
        assert_eq!(concurrency(ContentKind::Wasm, json!(null)), Ok(None));
        for (value, wanted) in [("1", 1), ("64", 64), ("1024", 1_024)] {
            assert_eq!(concurrency(ContentKind::Wasm, setting(value)), Ok(Some(wanted)));
        }
        for value in ["0", "1025", "-1", "", "many", "4294967297", "1.5"] {
            let message = format!("annotation \"wasm.skiff.internal/http-concurrency\": {value:?} is not a number from 1 to 1024");
            assert_eq!(concurrency(ContentKind::Wasm, setting(value)), Err(message));
        }
        let unknown = "annotation \"wasm.skiff.internal/concurrency\" is not a setting of WebAssembly containers";
        assert_eq!(concurrency(ContentKind::Wasm, json!({"wasm.skiff.internal/concurrency": "1"})), Err(unknown.to_owned()));
        assert_eq!(concurrency(ContentKind::Linux, setting("0")), Ok(None), "a Linux container beside a WASM container");
    }

    #[test]
    fn proposals_are_a_list_of_names() {
        use WasmProposal::{StackSwitching, Threads};
        let proposals = |kind, value: &str| read(kind, json!({"wasm.skiff.internal/proposals": value})).map(|settings| settings.proposals);
        let cases =
            [("", vec![]), (" ", vec![]), ("threads", vec![Threads]), ("threads, stack-switching ,threads", vec![StackSwitching, Threads])];
        for (value, wanted) in cases {
            assert_eq!(proposals(ContentKind::Wasm, value), Ok(wanted.into_iter().collect()), "{value:?}");
        }
        for (value, name) in [("gc", "gc"), ("threads,", ""), ("threads;simd", "threads;simd"), ("Threads", "Threads")] {
            let message = format!(
                "annotation \"wasm.skiff.internal/proposals\": {name:?} is not a proposal that can be switched on; \
                 those are custom-page-sizes, stack-switching, threads, wide-arithmetic"
            );
            assert_eq!(proposals(ContentKind::Wasm, value), Err(message));
        }
        assert_eq!(proposals(ContentKind::Linux, "nonsense"), Ok(BTreeSet::new()), "a Linux container beside a WASM container");
    }
}
