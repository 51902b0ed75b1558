//! The settings of WASM containers, which are annotations of their Pod under one prefix. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use runtimes_contract::{
    ContentKind, HTTP_CONCURRENCY_MAX, HTTP_INSTANCE_IDLE_MAX_S, HTTP_INSTANCE_REQUESTS_MAX, HTTP_TIMEOUT_MAX_S, HttpSettings, WasmProposal,
};

use super::ConfigError;

/// The prefix of every setting.
const PREFIX: &str = "wasm.skiff.internal/";
/// The requests that a `wasi:http` server handles at once.
const HTTP_CONCURRENCY: &str = "http-concurrency";
/// How long its guest may be silent.
const HTTP_ANSWER_TIMEOUT: &str = "http-answer-timeout-seconds";
/// How long a request may take in all.
const HTTP_REQUEST_TIMEOUT: &str = "http-request-timeout-seconds";
/// The requests that one instance handles.
const HTTP_INSTANCE_REQUESTS: &str = "http-instance-requests";
/// How long an instance waits for its next request.
const HTTP_INSTANCE_IDLE: &str = "http-instance-idle-seconds";
/// The proposals that a guest may use beside those that are on by default.
const PROPOSALS: &str = "proposals";

/// The settings of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WasmSettings {
    pub(crate) http: HttpSettings,
    pub(crate) proposals: BTreeSet<WasmProposal>,
}

/// Reads the settings of a Pod for a container of this kind. They mean nothing to a Linux container.
pub(crate) fn read(pod: &Pod, kind: ContentKind) -> Result<WasmSettings, ConfigError> {
    let mut settings = WasmSettings::default();
    if kind != ContentKind::Wasm {
        return Ok(settings);
    }
    for (annotation, value) in pod.metadata.annotations.iter().flatten() {
        let number = |max| number(annotation, value, max).map(Some);
        let http = &mut settings.http;
        match annotation.strip_prefix(PREFIX) {
            Some(HTTP_CONCURRENCY) => http.concurrency = number(HTTP_CONCURRENCY_MAX)?,
            Some(HTTP_ANSWER_TIMEOUT) => http.answer_timeout_s = number(HTTP_TIMEOUT_MAX_S)?,
            Some(HTTP_REQUEST_TIMEOUT) => http.request_timeout_s = number(HTTP_TIMEOUT_MAX_S)?,
            Some(HTTP_INSTANCE_REQUESTS) => http.instance_requests = number(HTTP_INSTANCE_REQUESTS_MAX)?,
            Some(HTTP_INSTANCE_IDLE) => http.instance_idle_s = number(HTTP_INSTANCE_IDLE_MAX_S)?,
            Some(PROPOSALS) => settings.proposals = proposals(annotation, value)?,
            Some(_) => return Err(ConfigError(format!("annotation \"{annotation}\" is not a setting of WebAssembly containers"))),
            None => {}
        }
    }
    Ok(settings)
}

/// A number from 1.
fn number(annotation: &str, value: &str, max: u32) -> Result<u32, ConfigError> {
    let number = value.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| ConfigError(format!("annotation \"{annotation}\": {value:?} is not a number from 1 to {max}")))
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
        let concurrency = |kind, annotations| read(kind, annotations).map(|settings| settings.http.concurrency);
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
    fn each_setting_of_http_has_its_bound() {
        type Setting = (&'static str, u32, fn(&HttpSettings) -> Option<u32>);
        let settings: [Setting; 5] = [
            ("http-concurrency", 1_024, |http| http.concurrency),
            ("http-answer-timeout-seconds", 86_400, |http| http.answer_timeout_s),
            ("http-request-timeout-seconds", 86_400, |http| http.request_timeout_s),
            ("http-instance-requests", 1_000_000, |http| http.instance_requests),
            ("http-instance-idle-seconds", 3_600, |http| http.instance_idle_s),
        ];
        for (name, max, setting) in settings {
            let annotation = format!("wasm.skiff.internal/{name}");
            for value in [1, max] {
                let settings = read(ContentKind::Wasm, json!({&annotation: value.to_string()})).expect("settings");
                assert_eq!(setting(&settings.http), Some(value), "{name}");
            }
            for value in ["0".to_owned(), (max + 1).to_string(), "1s".to_owned()] {
                let message = format!("annotation \"{annotation}\": {value:?} is not a number from 1 to {max}");
                assert_eq!(read(ContentKind::Wasm, json!({&annotation: value})).expect_err("out of range"), message);
            }
        }
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
