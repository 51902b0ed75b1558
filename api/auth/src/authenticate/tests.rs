use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::prelude::parse_x509_pem;

use super::*;
use crate::pki::{Pki, PkiConfig};
use crate::testing::Objects;
use crate::tokens::TokensConfig;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("in range")
}

fn authenticator(anonymous: bool) -> Authenticator {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("key");
    let tokens = Tokens::new(&key.serialize_pem(), TokensConfig::for_cluster("cluster.local")).expect("tokens");
    let fixed = StaticTokens::parse("secret,alice,1,\"devs,ops\"").expect("good");
    Authenticator::new(fixed, Arc::new(tokens), anonymous)
}

fn account() -> Value {
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "builder", "namespace": "ci", "uid": "sa-1" } })
}

/// The Secret of a bootstrap token, with some fields replaced. A field with an empty value is left out.
fn bootstrap(changes: &[(&str, &str)]) -> Value {
    let mut fields = vec![
        ("token-id", "abcdef"),
        ("token-secret", "0123456789abcdef"),
        ("usage-bootstrap-authentication", "true"),
        ("expiration", "2024-01-01T00:00:00Z"),
        ("auth-extra-groups", "system:bootstrappers:kubeadm:default-node-token"),
    ];
    for (key, value) in changes {
        fields.retain(|(k, _)| k != key);
        fields.push((key, value));
    }
    let data: serde_json::Map<String, Value> =
        fields.iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| ((*k).to_owned(), STANDARD.encode(v).into())).collect();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": { "name": "bootstrap-token-abcdef", "namespace": "kube-system" }, "data": data,
    })
}

fn bearer<'a>(token: &'a str) -> Credentials<'a> {
    Credentials { bearer: Some(token), ..Credentials::default() }
}

#[test]
fn nobody_is_anonymous_where_that_is_allowed() {
    let user = authenticator(true).authenticate(&Credentials::default(), &Objects::default(), at(0)).expect("anonymous");
    assert_eq!(user, UserInfo::new("system:anonymous", &["system:unauthenticated"]));
    assert!(authenticator(false).authenticate(&Credentials::default(), &Objects::default(), at(0)).is_err());
}

#[test]
fn static_tokens_name_users() {
    let authenticator = authenticator(true);
    let user = authenticator.authenticate(&bearer("secret"), &Objects::default(), at(0)).expect("alice");
    assert_eq!((user.username.as_str(), user.uid.as_str()), ("alice", "1"));
    assert_eq!(user.groups, ["devs", "ops", "system:authenticated"]);
}

#[test]
fn a_wrong_token_is_never_anonymous() {
    let authenticator = authenticator(true);
    for token in ["", "secre", "secret2", "abcdef.0123456789abcdef", "a.b.c"] {
        let error = authenticator.authenticate(&bearer(token), &Objects::default(), at(0)).expect_err("refused");
        assert_eq!(error.to_string(), "Unauthorized");
    }
}

#[test]
fn service_account_tokens_name_accounts() {
    let authenticator = authenticator(true);
    let view = Objects::new([account()]);
    let answer = authenticator.tokens().request("ci", "builder", &json!({}), &view, at(0)).expect("issued");
    let token = answer["status"]["token"].as_str().expect("token");
    let user = authenticator.authenticate(&bearer(token), &view, at(0)).expect("good");
    assert_eq!(user.username, "system:serviceaccount:ci:builder");
    assert!(user.in_group("system:authenticated"));
    let error = authenticator.authenticate(&bearer(token), &view, at(7200)).expect_err("expired");
    assert_eq!(error.reason, "service account token has expired");
}

#[test]
fn bootstrap_tokens_are_read_from_their_secret() {
    let good = "abcdef.0123456789abcdef";
    let user = |secret: Value, token: &str| {
        authenticator(true).authenticate(&bearer(token), &Objects::new([secret]), at(0)).ok().map(|u| (u.username, u.groups))
    };
    let groups =
        ["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"].map(str::to_owned).to_vec();
    assert_eq!(user(bootstrap(&[]), good), Some(("system:bootstrap:abcdef".to_owned(), groups)));
    assert!(user(bootstrap(&[("expiration", "")]), good).is_some(), "need not expire");
    assert!(user(bootstrap(&[("auth-extra-groups", "")]), good).is_some(), "need not have groups");

    assert_eq!(user(bootstrap(&[]), "abcdef.0123456789abcdee"), None, "wrong secret");
    assert_eq!(user(bootstrap(&[]), "ABCDEF.0123456789abcdef"), None, "wrong form");
    let refused: &[(&str, &str)] = &[
        ("expiration", "2023-01-01T00:00:00Z"),
        ("expiration", "soon"),
        ("usage-bootstrap-authentication", ""),
        ("usage-bootstrap-authentication", "false"),
        ("token-id", "abcdeg"),
        ("auth-extra-groups", "system:masters"),
        ("auth-extra-groups", "system:bootstrappers:"),
    ];
    for change in refused {
        assert_eq!(user(bootstrap(&[*change]), good), None, "{change:?}");
    }
    let mut opaque = bootstrap(&[]);
    opaque["type"] = "Opaque".into();
    assert_eq!(user(opaque, good), None);
    let mut deleted = bootstrap(&[]);
    deleted["metadata"]["deletionTimestamp"] = "2023-01-01T00:00:00Z".into();
    assert_eq!(user(deleted, good), None);
}

#[test]
fn certificates_name_users_and_win_over_tokens() {
    let dir = tempfile::tempdir().expect("dir");
    let pki = Pki::open(dir.path(), &PkiConfig::for_cluster("cluster.local")).expect("opens");
    let identity = pki.issue_client("jane", &["a", "b"], Duration::from_secs(3600)).expect("issues");
    let der = parse_x509_pem(identity.certificate_pem.as_bytes()).expect("pem").1.contents;
    let credentials = Credentials { client_certificate: Some(&der), bearer: Some("wrong") };
    let user = authenticator(false).authenticate(&credentials, &Objects::default(), at(0)).expect("jane");
    assert_eq!((user.username.as_str(), user.groups.join(",").as_str()), ("jane", "a,b,system:authenticated"));
    assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256="));

    let nameless = pki.issue_client("", &["system:masters"], Duration::from_secs(3600)).expect("issues");
    let der = parse_x509_pem(nameless.certificate_pem.as_bytes()).expect("pem").1.contents;
    assert_eq!(certificate_user(&der), None);
}

#[test]
fn reviews_tell_whose_a_token_is() {
    let authenticator = authenticator(true);
    let view = Objects::new([account()]);
    let review = |spec: Value| authenticator.token_review(&json!({ "kind": "TokenReview", "spec": spec }), &view, at(0))["status"].clone();
    assert_eq!(
        review(json!({ "token": "secret" })),
        json!({
            "authenticated": true,
            "user": { "username": "alice", "uid": "1", "groups": ["devs", "ops", "system:authenticated"] },
            "audiences": ["https://kubernetes.default.svc.cluster.local"],
        })
    );
    assert_eq!(review(json!({ "token": "wrong" })), json!({ "user": {} }));
    let elsewhere = review(json!({ "token": "secret", "audiences": ["vault"] }));
    assert!(elsewhere.get("authenticated").is_none() && elsewhere["error"].is_string());

    let request = json!({ "spec": { "audiences": ["vault"] } });
    let issued = authenticator.tokens().request("ci", "builder", &request, &view, at(0)).expect("issued");
    let token = issued["status"]["token"].as_str().expect("token");
    assert_eq!(review(json!({ "token": token, "audiences": ["vault"] }))["audiences"], json!(["vault"]));
    assert!(review(json!({ "token": token }))["error"].is_string(), "not for the API server");
}
