use api_client::error::chain;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::config::KubeSchedulerConfiguration;

fn parse(extenders: &Value) -> Result<KubeSchedulerConfiguration, String> {
    let file = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "extenders": extenders});
    KubeSchedulerConfiguration::parse(&file.to_string()).map_err(|error| chain(&error))
}

fn with(field: &str, value: &Value) -> Value {
    let mut extender = json!({"urlPrefix": "https://extender.example:8443/scheduler"});
    extender[field] = value.clone();
    extender
}

#[test]
fn what_is_not_given_has_upstreams_default() {
    let configuration = parse(&json!([{"urlPrefix": "http://127.0.0.1:8888/scheduler/"}])).expect("valid");
    let [extender] = configuration.extenders.as_slice() else { panic!("one extender") };
    assert_eq!(extender.verbs().map(|(_, verb)| verb), [""; 4]);
    assert_eq!((extender.weight, extender.http_timeout), (0, Duration::from_secs(5)));
    assert!(!extender.node_cache_capable && !extender.ignorable && extender.managed_resources.is_empty() && !extender.tls.has_files());
    assert_eq!(extender.url("filter"), "http://127.0.0.1:8888/scheduler/filter", "no two slashes");
    assert!(parse(&json!([])).expect("valid").extenders.is_empty());
}

#[test]
fn every_field_has_its_meaning() {
    let resources = json!([{"name": "example.com/gpu", "ignoredByScheduler": true}, {"name": "example.com/fpga"}]);
    let whole = json!({"urlPrefix": "http://a", "filterVerb": "f", "preemptVerb": "pre", "prioritizeVerb": "prio", "weight": 3,
        "bindVerb": "b", "enableHTTPS": false, "httpTimeout": "250ms", "nodeCacheCapable": true, "managedResources": resources,
        "ignorable": true});
    let configuration = parse(&json!([whole, {"urlPrefix": "http://b", "httpTimeout": "0s"}])).expect("valid");
    let [last, first] = configuration.extenders.as_slice() else { panic!("two extenders") };
    assert_eq!((last.name.as_str(), last.http_timeout), ("http://b", Duration::from_secs(5)), "the ignorable one goes last");
    assert_eq!(first.verbs().map(|(_, verb)| verb), ["f", "pre", "prio", "b"]);
    assert_eq!((first.weight, first.http_timeout), (3, Duration::from_millis(250)));
    assert!(first.node_cache_capable && first.ignorable && first.managed_resources.len() == 2);
    let [profile] = configuration.profiles.as_slice() else { panic!("one profile") };
    assert_eq!(profile.arguments.node_resources_fit.ignored_resources, ["example.com/gpu"]);
}

#[test]
fn errors_name_the_field_and_the_reason() {
    let managed = |names: &[&str]| json!(names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>());
    let cases = [
        (json!([{}]), "extenders[0].urlPrefix: Invalid value: \"\": must be a URL"),
        (json!([{"urlPrefix": "ftp://a"}]), "extenders[0].urlPrefix: Invalid value: \"ftp://a\": must be a URL"),
        (json!([{"urlPrefix": "/filter"}]), "extenders[0].urlPrefix: Invalid value: \"/filter\""),
        (json!([{"urlPrefix": "http://a?b"}]), "extenders[0].urlPrefix: Invalid value: \"http://a?b\""),
        (json!([{"urlPrefix": "http://me:secret@a"}]), "extenders[0].urlPrefix: Forbidden: must not contain a user"),
        (json!([with("filterVerb", &json!("a b"))]), "extenders[0].filterVerb: Invalid value: \"a b\""),
        (
            json!([with("prioritizeVerb", &json!("prioritize"))]),
            "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
        ),
        (
            json!([{"urlPrefix": "http://a", "bindVerb": "b"}, {"urlPrefix": "http://b", "bindVerb": "b"}]),
            "extenders: Invalid value: \"found 2 extenders implementing bind\": only one extender can implement bind",
        ),
        (
            json!([with("managedResources", &managed(&["cpu"]))]),
            "extenders[0].managedResources[0].name: Invalid value: \"cpu\": is an invalid extended resource name",
        ),
        (
            json!([with("managedResources", &managed(&["kubernetes.io/foo"]))]),
            "extenders[0].managedResources[0].name: Invalid value: \"kubernetes.io/foo\": is an invalid extended resource name",
        ),
        (
            json!([with("managedResources", &managed(&["foo/"]))]),
            "extenders[0].managedResources[0].name: Invalid value: \"foo/\": name part",
        ),
        (
            json!([with("managedResources", &managed(&["a.io/b"])), with("managedResources", &managed(&["c.io/d", "a.io/b"]))]),
            "extenders[1].managedResources[1].name: Invalid value: \"a.io/b\": duplicate extender managed resource name",
        ),
        (json!([with("httpTimeout", &json!("-1s"))]), "extenders[0].httpTimeout: Invalid value: \"-1s\": must be greater"),
        (json!([with("httpTimeout", &json!("soon"))]), "extenders[0].httpTimeout: Invalid value: \"soon\": time: invalid duration"),
        (json!([with("httpTimeout", &json!("2h"))]), "extenders[0].httpTimeout: Invalid value: \"2h\": must be less"),
        (json!([with("verb", &json!("x"))]), "unknown field `verb`"),
        (json!([with("enableHttps", &json!(true))]), "unknown field `enableHttps`"),
        (json!([{"urlPrefix": "http://a", "enableHTTPS": true}]), "extenders[0].enableHTTPS: Forbidden: needs a urlPrefix"),
        (json!([{"urlPrefix": "http://a", "tlsConfig": {}}]), "extenders[0].tlsConfig: Forbidden: needs a urlPrefix"),
    ];
    for (extenders, wanted) in cases {
        let error = parse(&extenders).expect_err(wanted);
        assert!(error.contains(wanted), "{extenders}\n{error}");
    }
}

#[test]
fn the_settings_of_a_connection_are_checked_at_the_start() {
    let key = rcgen::generate_simple_self_signed(["extender.example".to_owned()]).expect("a certificate");
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let (cert, private) = (key.cert.pem(), key.signing_key.serialize_pem());
    let (cert_file, key_file, absent) = (file("cert", &cert), file("key", &private), dir.path().join("none").display().to_string());
    let base64 = |text: &str| BASE64_STANDARD.encode(text);
    let tls = |tls: Value| parse(&json!([with("tlsConfig", &tls)]));
    for valid in [
        json!({"caFile": cert_file, "certFile": cert_file, "keyFile": key_file, "serverName": "other.example"}),
        json!({"caData": base64(&cert), "certData": base64(&cert), "keyData": base64(&private)}),
        json!({"caData": base64(&cert), "caFile": absent}),
        json!({"insecure": true}),
    ] {
        let configuration = tls(valid.clone()).unwrap_or_else(|error| panic!("{valid}: {error}"));
        let has_files = valid.get("certFile").is_some();
        assert_eq!(configuration.extenders.first().map(|extender| extender.tls.has_files()), Some(has_files), "{valid}");
        assert!(!format!("{configuration:?}").contains("PRIVATE"), "the key stays out of logs");
    }
    let insecure_flag =
        "extenders[0].tlsConfig.insecure: Forbidden: specifying a root certificates file with the insecure flag is not allowed";
    for (invalid, wanted) in [
        (json!({"insecure": true, "caData": base64(&cert)}), insecure_flag),
        (json!({"caFile": absent}), "extenders[0].tlsConfig: Forbidden: open "),
        (json!({"caData": base64("x")}), "extenders[0].tlsConfig: Forbidden: unable to load root certificates: no valid certificate"),
        (json!({"caData": "?"}), "extenders[0].tlsConfig.caData: Invalid value: \"\": must be base64"),
        (json!({"insecure": true, "certFile": cert_file}), "extenders[0].tlsConfig.keyFile: Required value"),
        (json!({"insecure": true, "keyFile": key_file}), "extenders[0].tlsConfig.certFile: Required value"),
        (
            json!({"insecure": true, "certData": base64(&cert), "keyData": base64("x")}),
            "extenders[0].tlsConfig: Forbidden: unusable certificate, key or name",
        ),
        (json!({"insecure": true, "serverName": "not a name"}), "extenders[0].tlsConfig: Forbidden: unusable certificate, key or name"),
    ] {
        let error = tls(invalid.clone()).expect_err(wanted);
        assert!(error.contains(wanted), "{invalid}\n{error}");
    }
}
