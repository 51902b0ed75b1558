use api_model::kind::GroupResource;
use jiff::SignedDuration;

use super::*;
use crate::testing::Objects;

fn tokens() -> Tokens {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("key");
    Tokens::new(&key.serialize_pem(), TokensConfig::for_cluster("cluster.local")).expect("tokens")
}

fn view() -> Objects {
    Objects::new([
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "builder", "namespace": "ci", "uid": "sa-1" } }),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "ci", "uid": "pod-1" },
            "spec": { "serviceAccountName": "builder", "nodeName": "n1" },
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "other", "namespace": "ci", "uid": "pod-2" },
            "spec": { "serviceAccountName": "default" },
        }),
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1", "uid": "node-1" } }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "ci", "uid": "secret-1" } }),
    ])
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("in range")
}

fn own(tokens: &Tokens) -> Vec<String> {
    tokens.config().api_audiences.clone()
}

fn issue(tokens: &Tokens, spec: Value) -> String {
    let answer = tokens.request("ci", "builder", &json!({ "spec": spec }), &view(), at(0)).expect("issued");
    answer["status"]["token"].as_str().expect("token").to_owned()
}

fn pod_reference() -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-1" })
}

#[test]
fn a_pods_token_says_whose_it_is() {
    let tokens = tokens();
    let token = issue(&tokens, json!({ "expirationSeconds": 600, "boundObjectRef": pod_reference() }));
    let verified = tokens.verify(&token, &own(&tokens), at(10), &view()).expect("good");
    let user = verified.user;
    assert_eq!(user.username, "system:serviceaccount:ci:builder");
    assert_eq!(user.uid, "sa-1");
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ci"]);
    let extra = |key: &str| user.extra.get(&format!("authentication.kubernetes.io/{key}")).cloned().unwrap_or_default().join(",");
    assert_eq!([extra("pod-name"), extra("pod-uid"), extra("node-name"), extra("node-uid")], ["p", "pod-1", "n1", "node-1"]);
    assert!(extra("credential-id").starts_with("JTI="));
}

#[test]
fn claims_are_spelled_as_upstreams() {
    let tokens = tokens();
    let token = issue(&tokens, json!({ "expirationSeconds": 600, "boundObjectRef": pod_reference() }));
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).expect("payload")).expect("base64");
    let mut claims: Value = serde_json::from_slice(&payload).expect("json");
    claims["jti"] = "ID".into();
    insta::assert_json_snapshot!(claims, @r#"
    {
      "aud": [
        "https://kubernetes.default.svc.cluster.local"
      ],
      "exp": 1700000600,
      "iat": 1700000000,
      "iss": "https://kubernetes.default.svc.cluster.local",
      "jti": "ID",
      "kubernetes.io": {
        "namespace": "ci",
        "node": {
          "name": "n1",
          "uid": "node-1"
        },
        "pod": {
          "name": "p",
          "uid": "pod-1"
        },
        "serviceaccount": {
          "name": "builder",
          "uid": "sa-1"
        }
      },
      "nbf": 1700000000,
      "sub": "system:serviceaccount:ci:builder"
    }
    "#);
    let header: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').next().expect("header")).expect("base64")).expect("json");
    assert_eq!(header, json!({ "alg": "ES256", "kid": tokens.jwks()["keys"][0]["kid"] }));
}

#[test]
fn a_token_has_its_time() {
    let tokens = tokens();
    let token = issue(&tokens, json!({ "expirationSeconds": 600 }));
    let verify = |second: i64| tokens.verify(&token, &own(&tokens), at(second), &view()).map(|_| ());
    assert_eq!(verify(-61), Err(TokenError::NotYet));
    assert_eq!(verify(-60), Ok(()));
    assert_eq!(verify(660), Ok(()));
    assert_eq!(verify(661), Err(TokenError::Expired));
    assert_eq!(verify(0), Ok(()), "a verdict on time is not remembered");
}

#[test]
fn a_token_is_for_its_audiences() {
    let tokens = tokens();
    let token = issue(&tokens, json!({ "audiences": ["vault", "other"] }));
    let verify = |audiences: &[&str]| {
        let audiences: Vec<String> = audiences.iter().map(|&a| a.to_owned()).collect();
        tokens.verify(&token, &audiences, at(0), &view()).map(|v| v.audiences)
    };
    assert_eq!(verify(&["vault", "third"]), Ok(vec!["vault".to_owned()]));
    assert!(matches!(verify(&["https://kubernetes.default.svc.cluster.local"]), Err(TokenError::Audience(..))));
}

#[test]
fn a_token_dies_with_what_it_is_bound_to() {
    let tokens = tokens();
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "name": "p" });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "secret-1" });
    let node = json!({ "apiVersion": "v1", "kind": "Node", "name": "n1" });
    for (reference, resource, namespace, name) in [
        (&Value::Null, "serviceaccounts", "ci", "builder"),
        (&pod, "serviceaccounts", "ci", "builder"),
        (&pod, "pods", "ci", "p"),
        (&secret, "secrets", "ci", "s"),
        (&node, "nodes", "", "n1"),
    ] {
        let token = issue(&tokens, json!({ "boundObjectRef": reference }));
        let mut view = view();
        assert!(tokens.verify(&token, &own(&tokens), at(1), &view).is_ok(), "{resource}");
        view.remove(&GroupResource::new("", resource), namespace, name);
        assert_eq!(tokens.verify(&token, &own(&tokens), at(1), &view), Err(TokenError::Invalidated), "{resource} {reference}");
    }
    let token = issue(&tokens, json!({ "boundObjectRef": pod }));
    let mut without_node = view();
    without_node.remove(&GroupResource::new("", "nodes"), "", "n1");
    assert!(tokens.verify(&token, &own(&tokens), at(1), &without_node).is_ok(), "a Pod's token outlives the Node it names");
}

#[test]
fn a_token_dies_with_a_new_uid_and_a_minute_after_deletion() {
    let tokens = tokens();
    let token = issue(&tokens, json!({}));
    let account = |uid: &str, deleted: Value| {
        let metadata = json!({ "name": "builder", "namespace": "ci", "uid": uid, "deletionTimestamp": deleted });
        Objects::new([json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata })])
    };
    let verify = |view: &Objects| tokens.verify(&token, &own(&tokens), at(600), view).map(|_| ());
    assert_eq!(verify(&account("sa-1", Value::Null)), Ok(()));
    assert_eq!(verify(&account("sa-2", Value::Null)), Err(TokenError::Invalidated));
    assert_eq!(verify(&account("sa-1", api_model::meta::time(at(550)).into())), Ok(()));
    assert_eq!(verify(&account("sa-1", api_model::meta::time(at(530)).into())), Err(TokenError::Invalidated));
}

#[test]
fn forged_and_foreign_tokens_are_rejected() {
    let (tokens, other) = (tokens(), tokens());
    let token = issue(&tokens, json!({}));
    let verify = |token: &str| tokens.verify(token, &own(&tokens), at(0), &view()).map(|_| ());
    assert_eq!(verify(&token), Ok(()));
    assert_eq!(verify(&issue(&other, json!({}))), Err(TokenError::Malformed), "another key");

    let parts: Vec<&str> = token.split('.').collect();
    let mut claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).expect("base64")).expect("json");
    claims["sub"] = "system:serviceaccount:kube-system:admin".into();
    let payload = URL_SAFE_NO_PAD.encode(claims.to_string());
    assert_eq!(verify(&format!("{}.{payload}.{}", parts[0], parts[2])), Err(TokenError::Malformed), "changed claims");
    let none = URL_SAFE_NO_PAD.encode(json!({ "alg": "none" }).to_string());
    assert_eq!(verify(&format!("{none}.{}.", parts[1])), Err(TokenError::Malformed), "no signature");
    let hmac = URL_SAFE_NO_PAD.encode(json!({ "alg": "HS256" }).to_string());
    assert_eq!(verify(&format!("{hmac}.{}.{}", parts[1], parts[2])), Err(TokenError::Malformed), "another algorithm");

    claims["iss"] = "https://elsewhere".into();
    let payload = URL_SAFE_NO_PAD.encode(claims.to_string());
    assert_eq!(verify(&format!("{}.{payload}.{}", parts[0], parts[2])), Err(TokenError::Foreign));
    for nonsense in ["", "a.b", "a.b.c", "....", &"x".repeat(20_000)] {
        assert_eq!(verify(nonsense), Err(TokenError::Foreign));
    }
}

#[test]
fn requests_are_answered_with_defaults() {
    let tokens = tokens();
    let answer = tokens.request("ci", "builder", &json!({ "spec": {} }), &view(), at(0)).expect("issued");
    assert_eq!(answer["spec"]["audiences"], json!(tokens.config().api_audiences));
    assert_eq!(answer["spec"]["expirationSeconds"], 3600);
    assert_eq!(answer["status"]["expirationTimestamp"], api_model::meta::time(at(3600)));
}

/// A kubelet requests 3607 seconds. Such a token stays valid for clients that never read the file again.
#[test]
fn the_kubelets_tokens_live_on() {
    let tokens = tokens();
    let spec = json!({ "expirationSeconds": 3607, "boundObjectRef": pod_reference() });
    let answer = tokens.request("ci", "builder", &json!({ "spec": spec }), &view(), at(0)).expect("issued");
    assert_eq!(answer["status"]["expirationTimestamp"], api_model::meta::time(at(3607)), "told: read it again");
    let token = answer["status"]["token"].as_str().expect("token");
    assert!(tokens.verify(token, &own(&tokens), at(300 * 24 * 3600), &view()).is_ok());
    let year = SignedDuration::from_hours(24 * 365 + 1).as_secs();
    assert_eq!(tokens.verify(token, &own(&tokens), at(year), &view()), Err(TokenError::Expired));
}

#[test]
fn bad_requests_are_rejected_in_upstreams_words() {
    let tokens = tokens();
    let reference = |kind: &str, name: &str, uid: &str| json!({ "apiVersion": "v1", "kind": kind, "name": name, "uid": uid });
    let cases = [
        ("nobody", json!({}), "serviceaccounts \"nobody\" not found"),
        (
            "builder",
            json!({ "expirationSeconds": 10 }),
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 10: may not specify a duration less than 10 minutes",
        ),
        (
            "builder",
            json!({ "expirationSeconds": 5_000_000_000_i64 }),
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 5000000000: may not specify a duration larger than 2^32 seconds",
        ),
        ("builder", json!({ "boundObjectRef": reference("Pod", "gone", "") }), "pods \"gone\" not found"),
        (
            "builder",
            json!({ "boundObjectRef": reference("Pod", "other", "") }),
            "cannot bind token for serviceaccount \"builder\" to pod running with different serviceaccount name.",
        ),
        (
            "builder",
            json!({ "boundObjectRef": reference("Pod", "p", "pod-9") }),
            "Operation cannot be fulfilled on pods \"p\": the UID in the bound object reference (pod-9) does not match the UID in record. The object might have been deleted and then recreated",
        ),
        ("builder", json!({ "boundObjectRef": reference("Service", "x", "") }), "cannot bind token to object of type /v1, Kind=Service"),
    ];
    for (account, spec, wanted) in cases {
        let error = tokens.request("ci", account, &json!({ "spec": spec }), &view(), at(0)).expect_err("refused");
        assert_eq!(error.to_string(), wanted);
    }
}

#[test]
fn discovery_names_the_key() {
    let tokens = tokens();
    let key = &tokens.jwks()["keys"][0];
    assert_eq!(key["kty"], "EC");
    assert_eq!([key["x"].as_str().map(str::len), key["y"].as_str().map(str::len)], [Some(43), Some(43)]);
    let jwk: jsonwebtoken::jwk::Jwk = serde_json::from_value(key.clone()).expect("a JWK");
    let decoding = DecodingKey::from_jwk(&jwk).expect("a key");
    let mut validation = Validation::new(Algorithm::ES256);
    validation.validate_exp = false;
    validation.validate_aud = false;
    let token = issue(&tokens, json!({}));
    assert!(jsonwebtoken::decode::<Claims>(&token, &decoding, &validation).is_ok(), "others can check tokens with it");
    assert_eq!(tokens.discovery()["jwks_uri"], "https://kubernetes.default.svc.cluster.local/openid/v1/jwks");
}
