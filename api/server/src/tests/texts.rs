//! The text of answers: fields in the order of upstream's Go types, a line feed at the end, and indented for people.

use super::*;

/// The headers and text of an answer.
async fn text_of(cluster: &Cluster, path: &str, agent: &str) -> (http::HeaderMap, String) {
    let request = Request::builder().uri(path).header(header::USER_AGENT, agent).header(header::ACCEPT_ENCODING, "gzip");
    let answer = cluster.raw(request.body(Body::empty()).expect("a request")).await;
    let (parts, body) = answer.into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    (parts.headers, String::from_utf8(bytes.to_vec()).expect("text"))
}

#[tokio::test]
async fn answers_stand_in_upstreams_order_and_end_in_a_line_feed() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({"x": "y"})).await;
    let (_, missing) = text_of(&cluster, &format!("{PODS}/x"), "kube-rs").await;
    let expected = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"pods \\\"x\\\" not found\",\
                    \"reason\":\"NotFound\",\"details\":{\"name\":\"x\",\"kind\":\"pods\"},\"code\":404}\n";
    assert_eq!(missing, expected);
    for (path, head, tail) in [
        ("/api", "{\"kind\":\"APIVersions\",\"versions\":[\"v1\"],\"serverAddressByClientCIDRs\":[{\"clientCIDR\":", "}]}\n"),
        (
            "/apis",
            "{\"kind\":\"APIGroupList\",\"apiVersion\":\"v1\",\"groups\":[{\"name\":\"apiregistration.k8s.io\",\"versions\":[{\"groupVersion\":",
            "}]}\n",
        ),
        (
            "/apis/apps/v1",
            "{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":\"apps/v1\",\"resources\":[{\"name\":",
            "}]}\n",
        ),
        (CONFIG_MAPS, "{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"", "}]}\n"),
        (
            &format!("{CONFIG_MAPS}?limit=1"),
            "{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"",
            "}]}\n",
        ),
        (&format!("{CONFIG_MAPS}/a"), "{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{", "}\n"),
        (
            "/api/v1/componentstatuses",
            "{\"kind\":\"ComponentStatusList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"",
            "}]}\n",
        ),
        ("/version", "{\n  \"major\": \"1\",\n  \"minor\": ", "\n}"),
    ] {
        let (headers, text) = text_of(&cluster, path, "kube-rs").await;
        assert!(text.starts_with(head) && text.ends_with(tail), "{path}: {text}");
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
        if let Some(length) = headers.get(header::CONTENT_LENGTH) {
            assert_eq!(length.to_str().expect("a number"), text.len().to_string(), "{path}");
        }
    }
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let request = Request::builder().uri(CONFIG_MAPS).header(header::ACCEPT, table).body(Body::empty()).expect("a request");
    let bytes = cluster.raw(request).await.into_body().collect().await.expect("a body").to_bytes();
    let text = String::from_utf8_lossy(&bytes);
    let head = "{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{\"resourceVersion\":";
    assert!(
        text.starts_with(head) && text.contains("\"columnDefinitions\":[{\"name\":\"Name\",\"type\":\"string\",\"format\":\"name\","),
        "{text}"
    );
}

#[tokio::test]
async fn who_asks_and_peoples_tools_get_indented_json() {
    let cluster = cluster().await;
    for index in 0..40 {
        cluster.config_map(&format!("m{index}"), json!({"x": "y".repeat(60)})).await;
    }
    let (one, list, watch) = (format!("{CONFIG_MAPS}/m1"), CONFIG_MAPS.to_owned(), format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1"));
    for path in [&one, &list, &format!("{PODS}/x"), "/api", "/apis/apps/v1", "/apis/nothing"] {
        let (_, compact) = text_of(&cluster, path, "kube-rs").await;
        let (_, refused) = text_of(&cluster, &format!("{path}?pretty=false"), "curl/7.88.1").await;
        assert_eq!(refused.lines().count(), 1, "{path}");
        for (path, agent) in
            [(path.to_string(), "curl/7.88.1"), (format!("{path}?pretty=true"), "kube-rs"), (format!("{path}?pretty=1"), "Mozilla/5.0")]
        {
            let (headers, text) = text_of(&cluster, &path, agent).await;
            assert!(text.starts_with("{\n  \"kind\": \"") && text.ends_with("\n}"), "{path}: {text}");
            assert_eq!(headers.get(header::CONTENT_ENCODING), None);
            let (pretty, plain): (Value, Value) =
                (serde_json::from_str(&text).expect("JSON"), serde_json::from_str(&compact).expect("JSON"));
            assert_eq!(pretty, plain, "{path}");
        }
    }
    // A stream has one event a line for every client, and YAML stays YAML.
    let (_, events) = text_of(&cluster, &watch, "curl/7.88.1").await;
    assert_eq!(events.lines().count(), 40);
    assert!(events.lines().all(|line| line.starts_with("{\"type\":\"ADDED\",\"object\":{\"kind\":\"ConfigMap\",")), "{events}");
    let request = Request::builder().uri(&one).header(header::ACCEPT, "application/yaml").header(header::USER_AGENT, "curl/7.88.1");
    let bytes = cluster.raw(request.body(Body::empty()).expect("a request")).await.into_body().collect().await.expect("a body").to_bytes();
    assert!(bytes.starts_with(b"apiVersion: v1\n"), "{bytes:?}");
    let request = Request::builder().method(Method::HEAD).uri(&one).header(header::USER_AGENT, "curl/7.88.1");
    let head = cluster.raw(request.body(Body::empty()).expect("a request")).await;
    let (_, whole) = text_of(&cluster, &one, "curl/7.88.1").await;
    assert_eq!(head.headers()[header::CONTENT_LENGTH].to_str().expect("a number"), whole.len().to_string());
}

#[tokio::test]
async fn what_every_cluster_has_is_the_servers_own() {
    let cluster = cluster().await;
    for path in [
        "/api/v1/namespaces",
        "/api/v1/services",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
        "/apis/apiregistration.k8s.io/v1/apiservices",
    ] {
        let list = cluster.get(path).await.ok();
        for item in list["items"].as_array().expect("items") {
            let managers: Vec<&Value> =
                item["metadata"]["managedFields"].as_array().into_iter().flatten().map(|entry| &entry["manager"]).collect();
            assert!(!managers.is_empty() && managers.iter().all(|manager| *manager == "kube-apiserver"), "{path}: {item}");
        }
    }
}

#[tokio::test]
async fn mistakes_are_reported_in_gos_words() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let strategic = "application/strategic-merge-patch+json";
    let merge = "application/merge-patch+json";
    let json_patch = "application/json-patch+json";
    let no_map = "cannot unmarshal array into Go value of type map[string]interface {}";
    for (method, path, media, body, code, wanted) in [
        (Method::POST, CONFIG_MAPS, "application/json", "a", 400, "invalid character 'a' looking for beginning of value"),
        (Method::POST, CONFIG_MAPS, "application/json", "{\"kind\" \"x\"}", 400, "invalid character '\"' after object key"),
        (Method::PATCH, &path, merge, "{a", 400, "error decoding patch: invalid character 'a' looking for beginning of object key string"),
        (Method::PATCH, &path, strategic, "{\"a\":", 400, "unexpected end of JSON input"),
        (Method::PATCH, &path, strategic, "[]", 400, &format!("json: {no_map}")),
        (Method::PATCH, &path, merge, "[]", 400, &format!("error decoding patch: json: {no_map}")),
        (
            Method::PATCH,
            &path,
            json_patch,
            "{}",
            400,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            Method::PATCH,
            &path,
            json_patch,
            "[{\"op\":1}]",
            400,
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        ),
        (Method::PATCH, &path, strategic, "{\"data\":\"x\"}", 422, ": cannot restore map from string"),
        (Method::PATCH, &path, strategic, "{\"metadata\":{\"finalizers\":{}}}", 422, ": cannot restore slice from map"),
        (Method::PATCH, &path, strategic, "{\"metadata\":[]}", 422, ": cannot restore struct from: slice"),
        (Method::PATCH, &path, strategic, "{\"data\":{\"a\":1}}", 422, ": cannot convert int64 to string"),
        (Method::PATCH, &path, strategic, "{\"immutable\":\"x\"}", 422, ": unrecognized type: bool"),
        (Method::PATCH, &path, merge, "{\"data\":\"x\"}", 422, "json: cannot unmarshal string into Go struct field"),
    ] {
        let answer = cluster.request(method.clone(), path, media, body).await;
        assert_eq!(answer.status.as_u16(), code, "{body}: {answer:?}");
        assert!(answer.refusal().1.contains(wanted), "{body}: {answer:?}");
    }
    let answer = cluster.get(&format!("{CONFIG_MAPS}?labelSelector=a%20in%20(b")).await;
    assert_eq!(answer.refusal(), (400, "unable to parse requirement: found '', expected: ',' or ')'"));
}
