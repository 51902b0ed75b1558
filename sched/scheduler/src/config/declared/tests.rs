use api_client::error::chain;
use sched_framework::{ExternalPluginSpec, FailurePolicy, ImagePullPolicy};
use serde_json::{Value, json};

use super::*;
use crate::config::{KubeSchedulerConfiguration, KubeSchedulerProfile};

/// Parses a configuration with one profile.
fn parse(plugins: Value, plugin_config: Value) -> Result<KubeSchedulerProfile, String> {
    let profile = json!({"plugins": plugins, "pluginConfig": plugin_config});
    let file = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile]});
    let parsed = KubeSchedulerConfiguration::parse(&file.to_string()).map_err(|error| chain(&error).to_string())?;
    Ok(parsed.profiles.into_iter().next().expect("a profile"))
}

/// A declaration of `GpuLoad` with these arguments over the required ones.
fn declaration(more: Value) -> Value {
    let mut args = json!({"apiVersion": "scheduler.skiff/v1alpha1", "kind": "WasmPluginArgs", "image": "plugins/gpu:v1"});
    args.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    json!([{"name": "GpuLoad", "args": args}])
}

fn everywhere() -> Value {
    json!({"multiPoint": {"enabled": [{"name": "GpuLoad"}]}})
}

fn spec(plugins: Value, more: Value) -> ExternalPluginSpec {
    let profile = parse(plugins, declaration(more)).expect("valid");
    profile.arguments.external.into_iter().next().expect("a plugin")
}

#[test]
fn what_is_not_given_has_its_default() {
    let spec = spec(everywhere(), json!({}));
    let seconds = [spec.timeout, spec.refresh_interval].map(|time| time.as_secs());
    assert_eq!((spec.name, spec.image.as_str(), spec.args.as_str(), seconds), ("GpuLoad", "plugins/gpu:v1", "{}", [1, 30]));
    assert_eq!((spec.fuel, spec.memory_bytes, spec.failure_policy), (10_000_000, 64 << 20, FailurePolicy::Fail));
    assert_eq!((spec.pull_policy, spec.required), (ImagePullPolicy::IfNotPresent, ExternalPoints::default()));
    assert_eq!(spec.registry_config_file, None);
}

#[test]
fn what_is_given_counts() {
    let by_name = json!({"score": {"enabled": [{"name": "GpuLoad", "weight": 20}]}, "permit": {"enabled": [{"name": "GpuLoad"}]}});
    let spec = spec(
        by_name,
        json!({"imagePullPolicy": "Always", "failurePolicy": "Ignore", "fuel": 5, "memory": "1Mi", "timeout": "20ms",
            "refreshInterval": "0", "registryConfigFile": "/etc/r.json", "args": {"label": "a", "list": [1, 2.5, null]}}),
    );
    assert_eq!((spec.pull_policy, spec.failure_policy, spec.fuel), (ImagePullPolicy::Always, FailurePolicy::Ignore, 5));
    assert_eq!((spec.memory_bytes, spec.timeout.as_millis(), spec.refresh_interval.as_secs()), (1 << 20, 20, 0));
    assert_eq!(spec.args, r#"{"label":"a","list":[1,2.5,null]}"#);
    assert_eq!(spec.required, ExternalPoints { filter: false, score: true, permit: true });
    assert_eq!(spec.registry_config_file.as_deref(), Some(std::path::Path::new("/etc/r.json")));
    for (image, wanted) in [
        ("a", ImagePullPolicy::Always),
        ("host:5000/a", ImagePullPolicy::Always),
        ("host:5000/a:latest", ImagePullPolicy::Always),
        ("host:5000/a:v1", ImagePullPolicy::IfNotPresent),
        ("a@sha256:00", ImagePullPolicy::IfNotPresent),
    ] {
        assert_eq!(self::spec(everywhere(), json!({"image": image})).pull_policy, wanted, "{image}");
    }
}

#[test]
fn a_declared_plugin_is_enabled_like_any_other() {
    let profile = parse(everywhere(), declaration(json!({}))).expect("valid");
    assert_eq!((profile.plugins.filter.last(), profile.plugins.permit.as_slice()), (Some(&"GpuLoad"), ["GpuLoad"].as_slice()));
    assert_eq!(profile.plugins.score.last(), Some(&("GpuLoad", 1)));
    let score = json!({"score": {"enabled": [{"name": "GpuLoad", "weight": 20}], "disabled": [{"name": "*"}]}});
    let profile = parse(score, declaration(json!({}))).expect("valid");
    assert_eq!((profile.plugins.score.as_slice(), profile.plugins.permit.len()), ([("GpuLoad", 20)].as_slice(), 0));
    assert!(!profile.plugins.filter.contains(&"GpuLoad"));
}

#[test]
fn errors_name_the_field_and_the_reason() {
    for (more, wanted) in [
        (json!({"image": ""}), "profiles[0].pluginConfig[0].args.image: Required value"),
        (json!({"apiVersion": "v1"}), "args.apiVersion: Unsupported value: \"v1\": supported values: \"scheduler.skiff/v1alpha1\""),
        (json!({"imagePullPolicy": "Sometimes"}), "args.imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\""),
        (json!({"failurePolicy": "Retry"}), "args.failurePolicy: Unsupported value: \"Retry\": supported values: \"Fail\", \"Ignore\""),
        (json!({"fuel": 0}), "args.fuel: Invalid value: 0: must be greater than 0"),
        (json!({"memory": "2Gi"}), "args.memory: Invalid value: \"2Gi\": must be greater than 0 and at most 1Gi"),
        (json!({"memory": "much"}), "args.memory: Invalid value: \"much\""),
        (json!({"timeout": "1h"}), "args.timeout: Invalid value: \"1h\": must be greater than 0 and at most 2s"),
        (json!({"timeout": "soon"}), "args.timeout: Invalid value: \"soon\": time: invalid duration"),
        (json!({"refreshInterval": "10ms"}), "args.refreshInterval: Invalid value: \"10ms\": must be 0, or at least 1s"),
        (
            json!({"imagePullPolicy": "Never", "registryConfigFile": "f"}),
            "args.registryConfigFile: Forbidden: an image with imagePullPolicy Never is not fetched",
        ),
        (json!({"registryConfigFile": ""}), "args.registryConfigFile: Invalid value: \"\": must be the path of a file"),
        (json!({"registryConfigFile": ["f"]}), "decoding args for plugin GpuLoad: invalid type: sequence, expected path string"),
        (json!({"fule": 1}), "decoding .profiles[0].pluginConfig[0]: decoding args for plugin GpuLoad: unknown field `fule`"),
    ] {
        let error = parse(everywhere(), declaration(more)).expect_err(wanted);
        assert!(error.contains(wanted), "{wanted}\n{error}");
    }
    let error = parse(json!({}), declaration(json!({}))).expect_err("unused");
    assert!(error.contains("the profile enables the plugin GpuLoad neither at multiPoint nor at one of filter, score, permit"), "{error}");
    for (point, interface) in [("bind", "Bind"), ("reserve", "Reserve"), ("preBind", "PreBind"), ("postBind", "PostBind")] {
        let error = parse(json!({point: {"enabled": [{"name": "GpuLoad"}]}}), declaration(json!({}))).expect_err("no such extension point");
        assert!(error.contains(&format!("plugin \"GpuLoad\" does not extend {interface}Plugin plugin")), "{error}");
    }
    let error = parse(everywhere(), json!([])).expect_err("undeclared");
    assert!(error.contains("PreFilterPlugin \"GpuLoad\" does not exist"), "{error}");
    let mut taken = declaration(json!({}));
    taken[0]["name"] = json!("VolumeZone");
    let error = parse(json!({}), taken).expect_err("upstream's");
    assert!(error.contains("pluginConfig[0].name: Invalid value: \"VolumeZone\": is the name of a plugin of Kubernetes"), "{error}");
}
