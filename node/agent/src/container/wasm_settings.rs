//! The settings of WASM containers, which are annotations under one prefix of their Pod and of its RuntimeClass. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::str::FromStr;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use runtimes_contract::{
    ContainerSpec, ContentKind, FUEL_MAX, HTTP_CONCURRENCY_MAX, HTTP_INSTANCE_IDLE_MAX_S, HTTP_INSTANCE_REQUESTS_MAX, HTTP_TIMEOUT_MAX_S,
    HttpSettings, OutboundHost, RedisServer, RedisUrlError, WasmProposal,
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
/// Whether its instances come from a pool.
const HTTP_POOLING: &str = "http-pooling";
/// The proposals that a guest may use beside those that are on by default.
const PROPOSALS: &str = "proposals";
/// How much a program, or each request of a server, may execute.
const FUEL: &str = "fuel";
/// To whom alone a guest may connect.
const OUTBOUND_HOSTS: &str = "outbound-hosts";
/// The variable that has the URL of the Redis server behind `wasi:keyvalue`.
const KEYVALUE_URL_VARIABLE: &str = "keyvalue-url-variable";

/// The settings of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WasmSettings {
    pub(crate) http: HttpSettings,
    pub(crate) proposals: BTreeSet<WasmProposal>,
    pub(crate) fuel: Option<u64>,
    pub(crate) outbound_hosts: Option<Vec<OutboundHost>>,
    pub(crate) keyvalue_url_variable: Option<String>,
}

/// The annotations of a RuntimeClass that are settings.
pub(crate) fn annotations(class: &ObjectMeta) -> BTreeMap<String, String> {
    let all = class.annotations.iter().flatten().filter(|(annotation, _)| annotation.starts_with(PREFIX));
    all.map(|(annotation, value)| (annotation.clone(), value.clone())).collect()
}

/// Reads the settings of a Pod for a container of this kind. They mean nothing to a Linux container. `class` is the Pod's RuntimeClass
/// with its settings, each of which the Pod's own annotation of the same name replaces.
pub(crate) fn read(pod: &Pod, class: Option<(&str, BTreeMap<String, String>)>, kind: ContentKind) -> Result<WasmSettings, ConfigError> {
    let mut settings = WasmSettings::default();
    if kind != ContentKind::Wasm {
        return Ok(settings);
    }
    let own = pod.metadata.annotations.as_ref();
    if let Some((class, annotations)) = class {
        let is_not_replaced = |(annotation, _): &(String, String)| own.is_none_or(|own| !own.contains_key(annotation));
        for (annotation, value) in annotations.into_iter().filter(is_not_replaced) {
            settings.set(&annotation, &value, &format!("annotation \"{annotation}\" of RuntimeClass \"{class}\""))?;
        }
    }
    for (annotation, value) in own.into_iter().flatten() {
        settings.set(annotation, value, &format!("annotation \"{annotation}\""))?;
    }
    // wasmtime does not count across stacks: a guest could compute on one for the fuel of another.
    if settings.fuel.is_some() && settings.proposals.contains(&WasmProposal::StackSwitching) {
        return Err(ConfigError(format!("annotation \"{PREFIX}{FUEL}\" bounds no guest that may use {}", WasmProposal::StackSwitching)));
    }
    Ok(settings)
}

impl WasmSettings {
    /// Puts the settings into the spec of their container, whose environment is complete.
    pub(crate) fn apply(self, spec: &mut ContainerSpec) -> Result<(), ConfigError> {
        spec.http = self.http;
        spec.proposals = self.proposals;
        spec.fuel = self.fuel;
        spec.outbound_hosts = self.outbound_hosts;
        spec.keyvalue_redis = self.keyvalue_url_variable.map(|variable| take_redis(&variable, &mut spec.env)).transpose()?;
        Ok(())
    }

    /// Reads one annotation, which errors call `name`.
    fn set(&mut self, annotation: &str, value: &str, name: &str) -> Result<(), ConfigError> {
        let bounded = |max| number(name, value, max).map(Some);
        let http = &mut self.http;
        match annotation.strip_prefix(PREFIX) {
            Some(HTTP_CONCURRENCY) => http.concurrency = bounded(HTTP_CONCURRENCY_MAX)?,
            Some(HTTP_ANSWER_TIMEOUT) => http.answer_timeout_s = bounded(HTTP_TIMEOUT_MAX_S)?,
            Some(HTTP_REQUEST_TIMEOUT) => http.request_timeout_s = bounded(HTTP_TIMEOUT_MAX_S)?,
            Some(HTTP_INSTANCE_REQUESTS) => http.instance_requests = bounded(HTTP_INSTANCE_REQUESTS_MAX)?,
            Some(HTTP_INSTANCE_IDLE) => http.instance_idle_s = bounded(HTTP_INSTANCE_IDLE_MAX_S)?,
            Some(HTTP_POOLING) => http.pooling = Some(boolean(name, value)?),
            Some(PROPOSALS) => self.proposals = proposals(name, value)?,
            Some(FUEL) => self.fuel = Some(number(name, value, FUEL_MAX)?),
            Some(OUTBOUND_HOSTS) => self.outbound_hosts = Some(outbound_hosts(name, value)?),
            // Empty is for a Pod whose RuntimeClass names a variable.
            Some(KEYVALUE_URL_VARIABLE) => self.keyvalue_url_variable = Some(value.to_owned()).filter(|variable| !variable.is_empty()),
            Some(_) => return Err(ConfigError(format!("{name} is not a setting of WebAssembly containers"))),
            None => {}
        }
        Ok(())
    }
}

/// Takes the Redis server of a container out of its environment: its guest gets the store, and not the password. No message repeats the
/// value.
fn take_redis(variable: &str, env: &mut Vec<(String, String)>) -> Result<RedisServer, ConfigError> {
    let mut url = None;
    env.retain_mut(|(name, value)| {
        let is_other = name != variable;
        if !is_other {
            url = Some(std::mem::take(value));
        }
        is_other
    });
    let annotation = format!("annotation \"{PREFIX}{KEYVALUE_URL_VARIABLE}\"");
    let url = url.ok_or_else(|| ConfigError(format!("{annotation}: the container has no variable {variable:?}")))?;
    url.parse().map_err(|error: RedisUrlError| {
        ConfigError(format!("{annotation}: variable {variable:?} is not the URL of a Redis server: {error}"))
    })
}

/// A number from 1.
fn number<T: FromStr + PartialOrd + From<u8> + Display>(name: &str, value: &str, max: T) -> Result<T, ConfigError> {
    let bounds = T::from(1_u8)..=max;
    let number = value.parse::<T>().ok().filter(|number| bounds.contains(number));
    number.ok_or_else(|| ConfigError(format!("{name}: {value:?} is not a number from 1 to {}", bounds.end())))
}

fn boolean(name: &str, value: &str) -> Result<bool, ConfigError> {
    value.parse().map_err(|_| ConfigError(format!("{name}: {value:?} is neither \"true\" nor \"false\"")))
}

/// The parts of a list with commas; spaces around a part do not count, and an empty list has none.
fn parts(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|_| !value.trim().is_empty())
}

/// An empty list allows nothing.
fn outbound_hosts(setting: &str, value: &str) -> Result<Vec<OutboundHost>, ConfigError> {
    parts(value).map(|host| host.parse().map_err(|error| ConfigError(format!("{setting}: {error}")))).collect()
}

fn proposals(setting: &str, value: &str) -> Result<BTreeSet<WasmProposal>, ConfigError> {
    let parsed = parts(value).map(|name| {
        name.parse::<WasmProposal>().map_err(|()| {
            let all = WasmProposal::ALL.map(WasmProposal::name).join(", ");
            ConfigError(format!("{setting}: {name:?} is not a proposal that can be switched on; those are {all}"))
        })
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(kind: ContentKind, annotations: Value) -> Result<WasmSettings, String> {
        read_with(None, kind, annotations)
    }

    /// With the annotations of a RuntimeClass `fast`.
    fn read_with(class: Option<Value>, kind: ContentKind, own: Value) -> Result<WasmSettings, String> {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "annotations": own}})).expect("a Pod");
        let class = class.map(|annotations| {
            let meta = serde_json::from_value(json!({"name": "fast", "annotations": annotations})).expect("metadata");
            ("fast", super::annotations(&meta))
        });
        super::read(&pod, class, kind).map_err(|error| error.0)
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
    fn fuel_and_stack_switching_exclude_each_other() {
        let class = Some(json!({"wasm.skiff.internal/proposals": "stack-switching"}));
        let message = "annotation \"wasm.skiff.internal/fuel\" bounds no guest that may use stack-switching";
        assert_eq!(read_with(class, ContentKind::Wasm, json!({"wasm.skiff.internal/fuel": "9"})), Err(message.to_owned()));
    }

    #[test]
    fn hosts_are_a_list_that_may_be_empty() {
        let setting = |value: &str| json!({"wasm.skiff.internal/outbound-hosts": value});
        let hosts = |value: &str| {
            let settings = read(ContentKind::Wasm, setting(value))?;
            Ok::<_, String>(settings.outbound_hosts.map(|hosts| hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")))
        };
        assert_eq!(read(ContentKind::Wasm, json!({})).expect("settings").outbound_hosts, None);
        assert_eq!(hosts("").expect("settings").as_deref(), Some(""));
        assert_eq!(hosts("*.example.com:443, 10.0.0.0/8").expect("settings").as_deref(), Some("*.example.com:443 10.0.0.0/8"));
        let message = "annotation \"wasm.skiff.internal/outbound-hosts\": \"http://a\": \"//a\" is not a port";
        assert_eq!(hosts("b,http://a"), Err(message.to_owned()));
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

    #[test]
    fn fuel_and_pooling_are_read_strictly() {
        let max = i64::MAX.to_string();
        let fuel = |value: &str| read(ContentKind::Wasm, json!({"wasm.skiff.internal/fuel": value})).map(|settings| settings.fuel);
        for value in ["1", "1000000000", &max] {
            assert_eq!(fuel(value), Ok(value.parse().ok()));
        }
        for value in ["0", "9223372036854775808", "-1", "", "1e9"] {
            let message = format!("annotation \"wasm.skiff.internal/fuel\": {value:?} is not a number from 1 to {max}");
            assert_eq!(fuel(value), Err(message));
        }
        let pooling =
            |value: &str| read(ContentKind::Wasm, json!({"wasm.skiff.internal/http-pooling": value})).map(|settings| settings.http.pooling);
        assert_eq!((pooling("true"), pooling("false")), (Ok(Some(true)), Ok(Some(false))));
        for value in ["", "False", "0", "no"] {
            let message = format!("annotation \"wasm.skiff.internal/http-pooling\": {value:?} is neither \"true\" nor \"false\"");
            assert_eq!(pooling(value), Err(message));
        }
        assert_eq!(read(ContentKind::Wasm, json!(null)), Ok(WasmSettings::default()));
    }

    #[test]
    fn the_url_of_a_redis_server_leaves_the_environment_and_stays_out_of_messages() {
        let variable = |kind, annotations| read(kind, annotations).map(|settings| settings.keyvalue_url_variable);
        let setting = |value: &str| json!({"wasm.skiff.internal/keyvalue-url-variable": value});
        assert_eq!(variable(ContentKind::Wasm, setting("REDIS_URL")), Ok(Some("REDIS_URL".to_owned())));
        for nothing in [json!(null), setting("")] {
            assert_eq!(variable(ContentKind::Wasm, nothing), Ok(None));
        }
        assert_eq!(variable(ContentKind::Linux, setting("REDIS_URL")), Ok(None), "a Linux container beside a WASM container");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        // The variables of an image may have one name twice; the last one counts.
        let mut env = vec![pair("REDIS_URL", "redis://image"), pair("A", "1"), pair("REDIS_URL", "redis://:secret@shop/2"), pair("B", "2")];
        let server = take_redis("REDIS_URL", &mut env).map_err(|error| error.0);
        assert_eq!(server, Ok("redis://:secret@shop/2".parse().expect("a URL")));
        assert_eq!(env, [pair("A", "1"), pair("B", "2")]);
        let prefix = "annotation \"wasm.skiff.internal/keyvalue-url-variable\": ";
        let fault = |variable, env: &[(String, String)]| take_redis(variable, &mut env.to_vec()).expect_err("a fault").0;
        assert_eq!(fault("REDIS_URL", &env), format!("{prefix}the container has no variable \"REDIS_URL\""));
        assert_eq!(
            fault("URL", &[pair("URL", "rediss://:secret@shop")]),
            format!(
                "{prefix}variable \"URL\" is not the URL of a Redis server: it begins with rediss://, and Redis over TLS is not offered"
            )
        );
        for url in
            ["", "secret", "http://:secret@shop", "redis://:secret@shop:secret", "redis://:secret@shop/secret", "redis://secret@shop"]
        {
            let message = fault("URL", &[pair("URL", url)]);
            assert!(message.starts_with(&format!("{prefix}variable \"URL\" is not")) && !message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn the_settings_of_the_runtime_class_hold_where_the_pod_has_none() {
        let class = json!({
            "wasm.skiff.internal/fuel": "7", "wasm.skiff.internal/proposals": "threads", "wasm.skiff.internal/http-concurrency": "2",
            "example.com/other": "x",
        });
        let with = |own: Value| read_with(Some(class.clone()), ContentKind::Wasm, own).expect("settings");
        let all = |settings: WasmSettings| (settings.fuel, settings.proposals.len(), settings.http.concurrency, settings.http.pooling);
        assert_eq!(all(with(json!(null))), (Some(7), 1, Some(2), None));
        let own = json!({
            "wasm.skiff.internal/fuel": "9", "wasm.skiff.internal/proposals": "", "wasm.skiff.internal/http-pooling": "false",
        });
        assert_eq!(all(with(own)), (Some(9), 0, Some(2), Some(false)));
        let nothing = read_with(Some(class.clone()), ContentKind::Linux, json!(null));
        assert_eq!(nothing, Ok(WasmSettings::default()), "a Linux container beside a WASM container");
    }

    #[test]
    fn a_wrong_setting_of_the_runtime_class_is_named_unless_the_pod_replaces_it() {
        let with = |class: Value, own: Value| read_with(Some(class), ContentKind::Wasm, own).map(|settings| settings.fuel);
        let wrong = json!({"wasm.skiff.internal/fuel": "much"});
        let message =
            format!("annotation \"wasm.skiff.internal/fuel\" of RuntimeClass \"fast\": \"much\" is not a number from 1 to {}", i64::MAX);
        assert_eq!(with(wrong.clone(), json!(null)), Err(message));
        assert_eq!(with(wrong, json!({"wasm.skiff.internal/fuel": "3"})), Ok(Some(3)));
        let unknown = "annotation \"wasm.skiff.internal/speed\" of RuntimeClass \"fast\" is not a setting of WebAssembly containers";
        assert_eq!(with(json!({"wasm.skiff.internal/speed": "1"}), json!(null)), Err(unknown.to_owned()));
        // The Pod's own fault is its own.
        let message = format!("annotation \"wasm.skiff.internal/fuel\": \"\" is not a number from 1 to {}", i64::MAX);
        assert_eq!(with(json!({"wasm.skiff.internal/fuel": "7"}), json!({"wasm.skiff.internal/fuel": ""})), Err(message));
    }
}
