use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::EncodingKey;
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::json;

use super::*;

const ISSUER: &str = "https://issuer.example.com";

/// A provider with one P-256 key.
struct Provider {
    key: EncodingKey,
    id: String,
    jwk: Value,
}

fn provider(id: &str) -> Provider {
    let key = KeyPair::generate().expect("a key");
    let point = key.der_bytes();
    let jwk = json!({
        "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": id,
        "x": URL_SAFE_NO_PAD.encode(&point[1..33]), "y": URL_SAFE_NO_PAD.encode(&point[33..65]),
    });
    Provider { key: EncodingKey::from_ec_pem(key.serialize_pem().as_bytes()).expect("a key"), id: id.to_owned(), jwk }
}

impl Provider {
    fn token(&self, changes: Value) -> String {
        let now = Timestamp::now().as_second();
        let mut claims = json!({"iss": ISSUER, "aud": "skiff", "sub": "jane", "exp": now + 60, "iat": now});
        for (claim, value) in changes.as_object().expect("claims") {
            match value {
                Value::Null => claims.as_object_mut().expect("claims").remove(claim),
                value => claims.as_object_mut().expect("claims").insert(claim.clone(), value.clone()),
            };
        }
        let header = Header { kid: Some(self.id.clone()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, &claims, &self.key).expect("signed")
    }
}

fn config() -> OidcConfig {
    OidcConfig { signing_algs: vec!["ES256".to_owned()], ..OidcConfig::new(ISSUER, "skiff") }
}

fn oidc(config: OidcConfig, keys: &[&Provider]) -> Oidc {
    let oidc = Oidc::new(config, || {}).expect("good");
    let keys: Vec<&Value> = keys.iter().map(|provider| &provider.jwk).collect();
    oidc.set_keys(json!({"keys": keys}).to_string().as_bytes()).expect("keys");
    oidc
}

fn ask(oidc: &Oidc, token: &str) -> Result<UserInfo, OidcError> {
    oidc.user(token, Timestamp::now())
}

#[test]
fn claims_become_a_user() {
    let provider = provider("a");
    let good = json!({"email": "jane@example.com", "email_verified": true, "groups": ["devs", "ops"], "jti": "7"});
    let cases = [
        (config(), "https://issuer.example.com#jane", &[][..]),
        (OidcConfig { username_prefix: "-".to_owned(), ..config() }, "jane", &[]),
        (OidcConfig { username_prefix: "oidc:".to_owned(), ..config() }, "oidc:jane", &[]),
        (OidcConfig { username_claim: "email".to_owned(), ..config() }, "jane@example.com", &[]),
        (
            OidcConfig {
                username_prefix: "-".to_owned(),
                groups_claim: "groups".to_owned(),
                groups_prefix: "oidc:".to_owned(),
                ..config()
            },
            "jane",
            &["oidc:devs", "oidc:ops"],
        ),
    ];
    for (config, name, groups) in cases {
        let user = ask(&oidc(config.clone(), &[&provider]), &provider.token(good.clone())).expect("good");
        assert_eq!(
            (user.username.as_str(), user.groups.iter().map(String::as_str).collect::<Vec<_>>()),
            (name, groups.to_vec()),
            "{config:?}"
        );
        assert_eq!(user.extra["authentication.kubernetes.io/credential-id"], ["JTI=7"]);
    }
    let one = OidcConfig { groups_claim: "role".to_owned(), ..config() };
    assert_eq!(ask(&oidc(one, &[&provider]), &provider.token(json!({"role": "solo"}))).expect("good").groups, ["solo"]);
    let many = provider.token(json!({"aud": ["other", "skiff"]}));
    assert!(ask(&oidc(config(), &[&provider]), &many).is_ok(), "one of several audiences");
}

#[test]
fn bad_tokens_are_rejected() {
    let (own, other) = (provider("a"), provider("a"));
    let now = Timestamp::now().as_second();
    let refusal = |config: OidcConfig, token: &str| ask(&oidc(config, &[&own]), token).expect_err("bad").to_string();
    for (changes, wanted) in [
        (json!({"exp": now - 1}), "token is expired"),
        (json!({"exp": null}), "token is expired"),
        (json!({"nbf": now + 600}), "before the nbf"),
        (json!({"aud": "another"}), "expected audience \"skiff\" got [\"another\"]"),
        (json!({"sub": null}), "parse username claims \"sub\": claim not present"),
        (json!({"iss": "https://evil.example.com"}), "not a token of this issuer"),
    ] {
        let why = refusal(config(), &own.token(changes));
        assert!(why.contains(wanted), "{why}");
    }
    assert!(refusal(config(), &other.token(json!({}))).contains("failed to verify id token signature"));
    let email = OidcConfig { username_claim: "email".to_owned(), ..config() };
    assert!(refusal(email, &own.token(json!({"email": "a@b", "email_verified": false}))).contains("email not verified"));
    let required = OidcConfig { required_claims: BTreeMap::from([("team".to_owned(), "x".to_owned())]), ..config() };
    assert!(refusal(required.clone(), &own.token(json!({}))).contains("required claim team not present"));
    assert!(refusal(required, &own.token(json!({"team": "y"}))).contains("required claim team value does not match"));
    let rsa = OidcConfig { signing_algs: vec!["RS256".to_owned()], ..config() };
    assert!(refusal(rsa, &own.token(json!({}))).contains("unsupported algorithm"));
}

#[test]
fn a_remembered_token_runs_out_all_the_same() {
    let provider = provider("a");
    let oidc = oidc(config(), &[&provider]);
    let token = provider.token(json!({}));
    assert!(ask(&oidc, &token).is_ok());
    let later = Timestamp::now() + SignedDuration::from_secs(120);
    assert!(matches!(oidc.user(&token, later), Err(OidcError::Expired(_))));
}

#[test]
fn new_keys_replace_old_ones_and_unknown_ones_are_reported() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let oidc = Oidc::new(config(), move || {
        count.fetch_add(1, Ordering::Relaxed);
    })
    .expect("good");
    let (old, new) = (provider("old"), provider("new"));
    assert_eq!(ask(&oidc, &old.token(json!({}))), Err(OidcError::NotReady));
    oidc.set_keys(json!({"keys": [{"kty": 7}, old.jwk]}).to_string().as_bytes()).expect("keys, one of them of a strange kind");
    let token = old.token(json!({}));
    assert!(ask(&oidc, &token).is_ok());
    assert_eq!(requests.load(Ordering::Relaxed), 0);
    assert!(matches!(ask(&oidc, &new.token(json!({}))), Err(OidcError::Signature(_))));
    assert_eq!(requests.load(Ordering::Relaxed), 1);
    oidc.set_keys(json!({"keys": [new.jwk]}).to_string().as_bytes()).expect("keys");
    assert!(ask(&oidc, &new.token(json!({}))).is_ok());
    assert!(ask(&oidc, &token).is_err(), "what was remembered went with the key");
    assert!(oidc.set_keys(b"{}").is_err());
    assert!(ask(&oidc, &new.token(json!({}))).is_ok(), "bad keys change nothing");
}

#[test]
fn unsafe_providers_are_rejected() {
    let refused = |config| Oidc::new(config, || {}).err().expect("bad").to_string();
    assert!(refused(OidcConfig { issuer_url: "http://x".to_owned(), ..config() }).contains("https"));
    assert!(refused(OidcConfig { client_id: String::new(), ..config() }).contains("client ID"));
    assert!(refused(OidcConfig { signing_algs: vec!["HS256".to_owned()], ..config() }).contains("HS256"));
}
