//! The settings of WASM containers, which are annotations of their Pod under one prefix. Pure.

use k8s_openapi::api::core::v1::Pod;
use runtimes_contract::{ContentKind, HTTP_CONCURRENCY_MAX};

use super::ConfigError;

/// The prefix of every setting.
const PREFIX: &str = "wasm.skiff.internal/";
/// The requests that a `wasi:http` server handles at once.
const HTTP_CONCURRENCY: &str = "http-concurrency";

/// The settings of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WasmSettings {
    pub(crate) http_concurrency: Option<u32>,
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(kind: ContentKind, annotations: Value) -> Result<Option<u32>, String> {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "annotations": annotations}})).expect("a Pod");
        super::read(&pod, kind).map(|settings| settings.http_concurrency).map_err(|error| error.0)
    }

    #[test]
    fn settings_are_read_strictly() {
        let setting = |value: &str| json!({"wasm.skiff.internal/http-concurrency": value, "example.com/other": "x"});
        assert_eq!(read(ContentKind::Wasm, json!(null)), Ok(None));
        for (value, wanted) in [("1", 1), ("64", 64), ("1024", 1_024)] {
            assert_eq!(read(ContentKind::Wasm, setting(value)), Ok(Some(wanted)));
        }
        for value in ["0", "1025", "-1", "", "many", "4294967297", "1.5"] {
            let message = format!("annotation \"wasm.skiff.internal/http-concurrency\": {value:?} is not a number from 1 to 1024");
            assert_eq!(read(ContentKind::Wasm, setting(value)), Err(message));
        }
        let unknown = "annotation \"wasm.skiff.internal/concurrency\" is not a setting of WebAssembly containers";
        assert_eq!(read(ContentKind::Wasm, json!({"wasm.skiff.internal/concurrency": "1"})), Err(unknown.to_owned()));
        assert_eq!(read(ContentKind::Linux, setting("0")), Ok(None), "a Linux container beside a WASM container");
    }
}
