//! Tables of the triggers: settings that are right and wrong, and values.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::value::{Format, ValueError, find};
use super::*;

fn spec(type_: &str, metadata: Value, metric_type: &str) -> TriggerSpec {
    serde_json::from_value(json!({"type": type_, "metadata": metadata, "metricType": metric_type})).expect("a trigger")
}

fn build(type_: &str, metadata: Value, metric_type: &str) -> Result<Trigger, Message> {
    build_with(type_, metadata, metric_type, &[])
}

fn build_with(type_: &str, metadata: Value, metric_type: &str, credentials: &[(&str, &str)]) -> Result<Trigger, Message> {
    let credentials: BTreeMap<String, String> = credentials.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    Trigger::build(&Config { index: 2, namespace: "default", spec: &spec(type_, metadata, metric_type), credentials })
}

fn problem(result: Result<Trigger, Message>) -> String {
    result.err().map(String::from).unwrap_or_default()
}

fn metric(trigger: &Trigger) -> Value {
    json!(trigger.metric)
}

fn business_hours() -> Value {
    json!({"timezone": "Asia/Kolkata", "start": "30 * * * *", "end": "45 */2 * * *", "desiredReplicas": "10"})
}

#[test]
fn the_metrics_are_upstreams() {
    let external = |name: &str, target: Value| json!({"type": "External", "external": {"metric": {"name": name}, "target": target}});
    let average = |value: &str| json!({"type": "AverageValue", "averageValue": value});
    let cases = [
        ("cron", business_hours(), "", external("s2-cron-Asia-Kolkata-30xxxx-45xSl2xxx", average("1"))),
        ("cron", business_hours(), "Value", external("s2-cron-Asia-Kolkata-30xxxx-45xSl2xxx", json!({"type": "Value", "value": "1"}))),
        ("kubernetes-workload", json!({"podSelector": "app=a", "value": "0.5"}), "", external("s2-workload-default", average("500m"))),
        (
            "prometheus",
            json!({"serverAddress": "http://p", "query": "q", "threshold": "100"}),
            "",
            external("s2-prometheus", average("100")),
        ),
        (
            "metrics-api",
            json!({"url": "http://a", "valueLocation": "a.b", "targetValue": "7000"}),
            "",
            external("s2-metric-api-a-b", average("7k")),
        ),
        ("service-connections", json!({"service": "web"}), "", external("s2-connections-web", average("100"))),
        (
            "cpu",
            json!({"value": "60"}),
            "Utilization",
            json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}),
        ),
        (
            "memory",
            json!({"value": "64Mi", "containerName": "c"}),
            "AverageValue",
            json!({"type": "ContainerResource", "containerResource": {"name": "memory", "container": "c",
                "target": {"type": "AverageValue", "averageValue": "64Mi"}}}),
        ),
    ];
    for (type_, metadata, metric_type, wanted) in cases {
        let trigger = build(type_, metadata, metric_type).unwrap_or_else(|why| panic!("{type_}: {why}"));
        assert_eq!(metric(&trigger), wanted, "{type_}");
    }
}

/// A trigger's type, its metadata, the type of its metric, and what is wrong.
type Wrong = (&'static str, Value, &'static str, &'static str);

fn without(mut metadata: Value, name: &str) -> Value {
    metadata.as_object_mut().expect("an object").remove(name);
    metadata
}

fn with(mut metadata: Value, name: &str, value: &str) -> Value {
    metadata[name] = json!(value);
    metadata
}

fn are_wrong(cases: impl IntoIterator<Item = Wrong>) {
    for (type_, metadata, metric_type, wanted) in cases {
        assert_eq!(problem(build(type_, metadata, metric_type)), wanted);
    }
}

#[test]
fn wrong_settings_have_upstreams_words() {
    are_wrong([
        ("example-trigger", json!({}), "", "no scaler found for type: example-trigger"),
        (
            "cron",
            without(business_hours(), "timezone"),
            "",
            "error parsing cron metadata: missing required parameter \"timezone\" in [triggerMetadata]",
        ),
        ("cron", with(business_hours(), "desiredReplicas", "0"), "", "error parsing cron metadata: no desiredReplicas specified"),
        (
            "cron",
            with(business_hours(), "start", "45 */2 * * *"),
            "",
            "error parsing cron metadata: start and end can not have exactly same time input",
        ),
        (
            "cron",
            with(business_hours(), "start", "* * *"),
            "",
            "error parsing cron metadata: error parsing start schedule: expected exactly 5 fields, found 3: [* * *]",
        ),
        (
            "cron",
            with(business_hours(), "end", "@daily"),
            "",
            "error parsing cron metadata: error parsing end schedule: parser does not accept descriptors: @daily",
        ),
        (
            "cron",
            business_hours(),
            "Utilization",
            "error getting scaler metric type: 'Utilization' metric type is unsupported for external metrics, allowed values are 'Value' or 'AverageValue'",
        ),
        (
            "cpu",
            json!({"value": "60"}),
            "",
            "error parsing cpu metadata: unknown metric type: , allowed values are 'Utilization' or 'AverageValue'",
        ),
        ("cpu", json!({}), "Utilization", "error parsing cpu metadata: missing required parameter \"value\" in [triggerMetadata]"),
        (
            "kubernetes-workload",
            json!({"podSelector": "a"}),
            "",
            "error parsing kubernetes workload metadata: error parsing kubernetes workload metadata: value must be a float greater than 0",
        ),
    ]);
}

#[test]
fn wrong_settings_of_requests_have_upstreams_words() {
    let prometheus = || json!({"serverAddress": "http://p", "query": "q", "threshold": "1"});
    let api = || json!({"url": "http://a", "valueLocation": "a", "targetValue": "1"});
    are_wrong([
        (
            "prometheus",
            without(prometheus(), "query"),
            "",
            "error parsing prometheus metadata: missing required parameter \"query\" in [triggerMetadata]",
        ),
        (
            "prometheus",
            with(prometheus(), "threshold", "many"),
            "",
            "error parsing prometheus metadata: unable to set param \"threshold\" value \"many\": unable to unmarshal to field type float64",
        ),
        (
            "prometheus",
            with(prometheus(), "authModes", "bearer"),
            "",
            "error parsing prometheus metadata: bearer token=<empty> is required when bearer auth is enabled",
        ),
        (
            "prometheus",
            with(prometheus(), "authModes", "tls"),
            "",
            "error parsing prometheus metadata: cert=<empty> and key=<empty> are required when tls auth is enabled",
        ),
        (
            "prometheus",
            with(prometheus(), "customHeaders", "a"),
            "",
            "error parsing prometheus metadata: unable to set param \"customHeaders\" value \"a\": expected format key=value, got \"a\"",
        ),
        ("metrics-api", without(api(), "targetValue"), "", "error parsing metric API metadata: no targetValue given in metadata"),
        (
            "metrics-api",
            with(api(), "format", "csv"),
            "",
            "error parsing metric API metadata: parameter \"format\" value \"csv\" must be one of [json prometheus xml yaml]",
        ),
    ]);
}

#[test]
fn all_problems_of_a_trigger_are_reported_together() {
    let found = problem(build("prometheus", json!({}), ""));
    assert_eq!(found.lines().count(), 3, "{found}");
}

#[test]
fn no_credential_is_in_a_message() {
    let prometheus = json!({"serverAddress": "http://p", "query": "q", "threshold": "many", "authModes": "basic,tls"});
    let found =
        problem(build_with("prometheus", prometheus, "", &[("username", "s3cret-user"), ("password", "s3cret"), ("cert", "s3cret")]));
    assert!(found.contains("cert=<present> and key=<empty>") && !found.contains("s3cret"), "{found}");
}

#[tokio::test]
async fn no_credential_is_in_a_message_of_a_request() {
    let api = |mode: &str, method: &str| json!({"url": "http://127.0.0.1:1/", "valueLocation": "a", "targetValue": "1", "authMode": mode, "method": method});
    let sources = sources_reaching("127.0.0.0/8");
    let read = async |metadata: Value, credentials: &[(&str, &str)]| {
        let trigger = build_with("metrics-api", metadata, "", credentials).expect("a trigger");
        trigger.read(&sources, Timestamp::UNIX_EPOCH).await.expect_err("no value").to_string()
    };
    for (metadata, credentials, wanted) in [
        (api("custom", ""), [("customAuthHeader", "s3cret name"), ("customAuthValue", "s3cret")], "a header has an invalid name or value"),
        (api("custom", ""), [("customAuthHeader", "Host"), ("customAuthValue", "s3cret")], "a header has an invalid name or value"),
        (api("custom", ""), [("customAuthHeader", "X-A"), ("customAuthValue", "s3cret\r\n")], "the connection failed"),
        (api("custom", ""), [("customAuthHeader", "X-A"), ("customAuthValue", "s3\rcret")], "a header has an invalid name or value"),
        (api("apiKey", ""), [("keyParamName", "s3cret name"), ("apiKey", "s3cret")], "a header has an invalid name or value"),
        (api("apiKey", "query"), [("keyParamName", "s3cret name"), ("apiKey", "s3cret")], "the connection failed"),
        (api("bearer", ""), [("bearerToken", "s3\ncret"), ("", "")], "a header has an invalid name or value"),
        (api("tls", ""), [("cert", "s3cret"), ("key", "s3cret")], "error creating the TLS config"),
    ] {
        let message = read(metadata, &credentials).await;
        assert!(message.contains(wanted) && !message.contains("s3"), "{message}");
    }
}

#[tokio::test]
async fn cron_is_active_between_its_times() {
    let sources = sources();
    let trigger = |start: &str, end: &str, zone: &str| {
        build("cron", json!({"timezone": zone, "start": start, "end": end, "desiredReplicas": "3"}), "").expect("a trigger")
    };
    for (start, end, zone, now, wanted) in [
        ("0 8 * * *", "0 18 * * *", "UTC", "2026-01-05T12:00:00Z", Some(3)),
        ("0 8 * * *", "0 18 * * *", "UTC", "2026-01-05T07:59:59Z", None),
        ("0 8 * * *", "0 18 * * *", "UTC", "2026-01-05T08:00:00Z", Some(3)),
        ("0 8 * * *", "0 18 * * *", "UTC", "2026-01-05T18:00:00Z", None),
        ("0 8 * * *", "0 18 * * *", "Asia/Kolkata", "2026-01-05T12:31:00Z", None),
        ("0 8 * * *", "0 18 * * *", "Asia/Kolkata", "2026-01-05T02:31:00Z", Some(3)),
        // Over midnight.
        ("0 22 * * *", "0 4 * * *", "UTC", "2026-01-05T23:00:00Z", Some(3)),
        ("0 22 * * *", "0 4 * * *", "UTC", "2026-01-05T03:00:00Z", Some(3)),
        ("0 22 * * *", "0 4 * * *", "UTC", "2026-01-05T05:00:00Z", None),
        // The end never comes.
        ("0 22 * * *", "0 0 30 2 *", "UTC", "2026-01-05T23:00:00Z", None),
    ] {
        let sample = trigger(start, end, zone).read(&sources, now.parse().expect("a time")).await.expect("a value");
        let wanted = Sample { milli: wanted.unwrap_or_default() * 1_000, is_active: wanted.is_some() };
        assert_eq!(sample, wanted, "{start} to {end} in {zone} at {now}");
    }
    let error = trigger("0 8 * * *", "0 9 * * *", "Mars/Base").read(&sources, Timestamp::UNIX_EPOCH).await.expect_err("no such zone");
    assert_eq!(error, "unable to load timezone: unknown time zone Mars/Base");
}

#[tokio::test]
async fn a_workload_is_its_pods_that_have_not_ended() {
    let sources = sources();
    let pod = |name: &str, app: &str, phase: &str, node: &str| -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
            "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase}}))
        .expect("a Pod")
    };
    for (name, app, phase, node) in [
        ("a", "web", "Running", "n1"),
        ("b", "web", "Pending", ""),
        ("c", "web", "Succeeded", "n2"),
        ("d", "other", "Running", "n3"),
        ("e", "web", "Running", "n1"),
    ] {
        sources.pods.put(pod(name, app, phase, node));
    }
    for (metadata, milli, is_active) in [
        (json!({"podSelector": "app=web", "value": "1"}), 3_000, true),
        (json!({"podSelector": "app in (web,other)", "value": "1"}), 4_000, true),
        (json!({"podSelector": "app=web", "value": "1", "activationValue": "3"}), 3_000, false),
        (json!({"podSelector": "app=web", "value": "1", "groupByNode": "true"}), 1_000, true),
        (json!({"podSelector": "app=nobody", "value": "1"}), 0, false),
    ] {
        let trigger = build("kubernetes-workload", metadata.clone(), "").expect("a trigger");
        let sample = trigger.read(&sources, Timestamp::UNIX_EPOCH).await.expect("a value");
        assert_eq!(sample, Sample { milli, is_active }, "{metadata}");
    }
}

#[test]
fn prometheus_has_one_value() {
    let parse = |ignores: &str| {
        let metadata = json!({"serverAddress": "http://p", "query": "q", "threshold": "1", "ignoreNullValues": ignores});
        let spec = spec("prometheus", metadata, "");
        Prometheus::parse(&Config { index: 0, namespace: "default", spec: &spec, credentials: BTreeMap::new() }).expect("a trigger")
    };
    let result = |result: Value| json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string();
    let vector = |value: Value| result(json!([{"metric": {}, "value": [1.5, value]}]));
    for (body, lenient, strict) in [
        (vector(json!("2.5")), "2.5", "2.5"),
        (vector(json!("NaN")), "0", "prometheus query returns NaN"),
        (vector(json!("+Inf")), "0", "prometheus query returns inf"),
        (vector(json!(null)), "-1", "-1"),
        (
            vector(json!("abc")),
            "prometheus query q returned a value that is no number",
            "prometheus query q returned a value that is no number",
        ),
        (result(json!([])), "0", "prometheus metrics 'prometheus' target may be lost, the result is empty"),
        (result(json!([{"value": []}])), "0", "prometheus metrics 'prometheus' target may be lost, the value list is empty"),
        (
            result(json!([{"value": [1]}])),
            "prometheus query q didn't return enough values",
            "prometheus query q didn't return enough values",
        ),
        (result(json!([{}, {}])), "prometheus query q returned multiple elements", "prometheus query q returned multiple elements"),
        ("<html>secret</html>".to_owned(), "the answer is no result of an instant query", "the answer is no result of an instant query"),
    ] {
        for (ignores, wanted) in [("true", lenient), ("false", strict)] {
            let value = parse(ignores).value(body.as_bytes()).map_or_else(String::from, |value| value.to_string());
            assert_eq!(value, wanted, "{body} {ignores}");
        }
    }
}

#[test]
fn a_value_is_found_at_its_location() {
    let json = r#"{"a": {"b.c": [1, {"d": "2.5k"}]}, "text": "two", "yes": true}"#;
    let yaml = "a:\n  b: [1, {d: 250m}]\n";
    let text = "# TYPE up gauge\nup{job=\"a\",x=\"q\\\"}\"} 1\nup{job=\"b\"} 2.5 1700000000\nplain 7\n";
    for (format, body, location, wanted) in [
        (Format::Json, json, r"a.b\.c.0", "1"),
        (Format::Json, json, r"a.b\.c.1.d", "2500"),
        (Format::Json, json, r"a.b\.c.#", "2"),
        (Format::Json, json, "text", "valueLocation \"text\" points to a string that is not parseable as a Quantity"),
        (Format::Json, json, "yes", "valueLocation \"yes\" must point to a numeric value or a string parseable as a Quantity, got True"),
        (Format::Json, json, "a", "valueLocation \"a\" must point to a numeric value or a string parseable as a Quantity, got JSON"),
        (
            Format::Json,
            json,
            "none.at.all",
            "valueLocation \"none.at.all\" must point to a numeric value or a string parseable as a Quantity, got Null",
        ),
        (Format::Json, json, "a.#(x>1)", "valueLocation \"a.#(x>1)\" has an unsupported expression"),
        (Format::Json, "root:x:0:0:", "a", "the answer is no valid JSON"),
        (Format::Yaml, yaml, "a.b.1.d", "0.25"),
        (Format::Yaml, yaml, "a.c", "key 'c' not found in path 'a.c'"),
        (Format::Yaml, "a: [1, *b]", "a", "the answer is no valid YAML"),
        (Format::Prometheus, text, "plain", "7"),
        (Format::Prometheus, text, "up{job=\"b\"}", "2.5"),
        (Format::Prometheus, text, "up{job=\"a\", x=\"q\\\"}\"}", "1"),
        (Format::Prometheus, text, "up{job=\"z\"}", "value up{job=\"z\"} not found"),
        (Format::Prometheus, text, "up{job!=\"z\"}", "value up{job!=\"z\"} not found"),
    ] {
        let found = find(body.as_bytes(), location, format).map_or_else(|error| error.to_string(), |value| value.to_string());
        assert_eq!(found, wanted, "{location}");
    }
}

#[test]
fn hostile_yaml_costs_little() {
    let nested = format!("a: {}", "[".repeat(super::super::http::BODY_BYTES_MAX - 3));
    let copies = format!("[&a \"{}\"{}]", "x".repeat(512 << 10), ", *a".repeat(130_000));
    for body in [nested, copies] {
        let start = std::time::Instant::now();
        assert_eq!(find(body.as_bytes(), "0", Format::Yaml), Err(ValueError::Invalid("YAML")));
        // Without bounds, minutes and 68 GB.
        assert!(start.elapsed() < Duration::from_secs(20), "took {:?}", start.elapsed());
    }
}

#[test]
fn the_name_of_a_metric_is_bounded() {
    let api = |location: &str| json!({"url": "http://a", "valueLocation": location, "targetValue": "1"});
    assert!(build("metrics-api", api(&"a".repeat(1_024)), "").is_ok());
    let found = problem(build("metrics-api", api(&"a".repeat(1_025)), ""));
    assert_eq!(found, "error parsing metric API metadata: parameter \"valueLocation\" is longer than 1024 bytes");
}

fn sources() -> Sources {
    sources_reaching("255.255.255.255/32")
}

/// Sources that reach the addresses of a range.
pub fn sources_reaching(range: &str) -> Sources {
    let allowed = vec![range.parse().expect("a range")];
    let (services, slices) = (Informer::detached(), Informer::detached());
    let addresses = crate::keda::address::Addresses::new(services, slices, "cluster.local", Default::default(), allowed);
    let reports = Reports { leases: Informer::detached(), nodes: Informer::detached(), services: Informer::detached() };
    Sources { pods: Informer::detached(), http: Http::new(addresses), reports }
}
