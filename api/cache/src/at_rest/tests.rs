//! The configuration and the ciphers alone; `tests/at_rest.rs` has the server on top.

use super::*;

/// Keys of 16, 24 and 32 bytes.
const KEY16: &str = "AAECAwQFBgcICQoLDA0ODw==";
const KEY24: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
const KEY32: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER32: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

fn configured(resources: &str, providers: &str) -> Result<AtRest, EncryptionError> {
    let header = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n";
    AtRest::parse(&format!("{header}resources: [{{resources: [{resources}], providers: [{providers}]}}]\n"))
}

fn keys(kind: &str, keys: &[(&str, &str)]) -> String {
    let keys: Vec<String> = keys.iter().map(|(name, secret)| format!("{{name: \"{name}\", secret: \"{secret}\"}}")).collect();
    format!("{{{kind}: {{keys: [{}]}}}}", keys.join(", "))
}

fn secrets() -> GroupResource {
    GroupResource::new("", "secrets")
}

const PLAIN: Bytes = Bytes::from_static(b"{\"kind\":\"Secret\"}");
const KEY: &str = "core/secrets/default/x";

#[test]
fn every_cipher_opens_what_it_sealed_and_nothing_else() {
    for (kind, key) in [
        ("aesgcm", KEY16),
        ("aesgcm", KEY24),
        ("aesgcm", KEY32),
        ("aescbc", KEY16),
        ("aescbc", KEY24),
        ("aescbc", KEY32),
        ("secretbox", KEY32),
    ] {
        let at_rest = configured("secrets", &keys(kind, &[("k1", key)])).expect("good");
        let stored = at_rest.seal(&secrets(), KEY, &PLAIN).expect("sealed");
        assert!(stored.starts_with(format!("k8s:enc:{kind}:v1:k1:").as_bytes()), "{kind}");
        assert!(!stored.windows(6).any(|window| window == b"Secret"), "{kind}");
        assert_ne!(stored, at_rest.seal(&secrets(), KEY, &PLAIN).expect("sealed"), "{kind}: never twice the same");
        assert_eq!(at_rest.open(&secrets(), KEY, &stored), Ok(Opened { bytes: PLAIN, stale: false }), "{kind}");
        if kind != "aescbc" {
            let mut changed = stored.to_vec();
            *changed.last_mut().expect("bytes") ^= 1;
            let label = format!("k8s:enc:{kind}:v1:k1");
            assert_eq!(at_rest.open(&secrets(), KEY, &changed.into()), Err(AtRestError::Decrypt(label)), "{kind}");
        }
    }
    let gcm = configured("secrets", &keys("aesgcm", &[("k1", KEY32)])).expect("good");
    let stored = gcm.seal(&secrets(), KEY, &PLAIN).expect("sealed");
    assert!(gcm.open(&secrets(), "core/secrets/default/y", &stored).is_err(), "bytes are worth nothing in another's place");
}

/// Sealed by OpenSSL with an all-zero nonce, in the layout that upstream documents.
#[test]
fn formats_are_upstreams() {
    let at_rest = configured("secrets", &keys("aesgcm", &[("k1", KEY32)])).expect("good");
    let hex =
        |text: &str| -> Vec<u8> { (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect() };
    let sealed = [b"k8s:enc:aesgcm:v1:k1:".as_slice(), &hex(VECTOR)].concat();
    assert_eq!(at_rest.open(&secrets(), KEY, &sealed.into()), Ok(Opened { bytes: PLAIN, stale: false }));
}

const VECTOR: &str = "000000000000000000000000759edeb7db48a1872afbcc566a49e5bbaf418df7b09e43b6995c3db9a2a1af26f4";

#[test]
fn the_first_key_writes_and_all_read() {
    let old = configured("secrets", &keys("aesgcm", &[("old", KEY32)])).expect("good");
    let stored = old.seal(&secrets(), KEY, &PLAIN).expect("sealed");
    let rotated =
        configured("secrets", &format!("{}, {{identity: {{}}}}", keys("aesgcm", &[("new", OTHER32), ("old", KEY32)]))).expect("good");
    assert_eq!(rotated.open(&secrets(), KEY, &stored), Ok(Opened { bytes: PLAIN, stale: true }));
    assert_eq!(rotated.open(&secrets(), KEY, &PLAIN), Ok(Opened { bytes: PLAIN, stale: true }));
    let again = rotated.seal(&secrets(), KEY, &PLAIN).expect("sealed");
    assert!(again.starts_with(b"k8s:enc:aesgcm:v1:new:"));
    assert_eq!(rotated.open(&secrets(), KEY, &again), Ok(Opened { bytes: PLAIN, stale: false }));
    let decrypting = configured("secrets", &format!("{{identity: {{}}}}, {}", keys("aesgcm", &[("new", OTHER32)]))).expect("good");
    assert_eq!(decrypting.seal(&secrets(), KEY, &PLAIN), Ok(PLAIN));
    assert_eq!(decrypting.open(&secrets(), KEY, &again), Ok(Opened { bytes: PLAIN, stale: true }));
}

#[test]
fn what_no_key_fits_is_rejected() {
    let sealed = configured("secrets", &keys("aesgcm", &[("k1", KEY32)])).expect("good").seal(&secrets(), KEY, &PLAIN).expect("sealed");
    let wrong = configured("secrets", &keys("aesgcm", &[("k1", OTHER32)])).expect("good");
    assert_eq!(wrong.open(&secrets(), KEY, &sealed), Err(AtRestError::Decrypt("k8s:enc:aesgcm:v1:k1".to_owned())));
    let unnamed = configured("secrets", &keys("aesgcm", &[("k2", KEY32)])).expect("good");
    assert_eq!(unnamed.open(&secrets(), KEY, &sealed), Err(AtRestError::NoProvider));
    assert_eq!(unnamed.open(&secrets(), KEY, &PLAIN), Err(AtRestError::NoProvider));
    assert_eq!(AtRest::default().open(&secrets(), KEY, &sealed), Err(AtRestError::Encrypted));
    assert_eq!(AtRest::default().open(&secrets(), KEY, &PLAIN), Ok(Opened { bytes: PLAIN, stale: false }));
}

#[test]
fn resources_are_found_by_name_group_and_star() {
    let seals = |resources: &str, group: &str, resource: &str| {
        let at_rest = configured(resources, &keys("secretbox", &[("k", KEY32)])).expect("good");
        at_rest.seal(&GroupResource::new(group, resource), KEY, &PLAIN).expect("sealed") != PLAIN
    };
    for (resources, group, resource, expected) in [
        ("secrets", "", "secrets", true),
        ("secrets", "", "configmaps", false),
        ("secrets", "example.com", "secrets", false),
        ("deployments.apps", "apps", "deployments", true),
        ("'*.'", "", "configmaps", true),
        ("'*.'", "apps", "deployments", false),
        ("'*.apps'", "apps", "deployments", true),
        ("'*.apps'", "", "secrets", false),
        ("'*.*'", "", "secrets", true),
        ("'*.*'", "example.com", "things", true),
    ] {
        assert_eq!(seals(resources, group, resource), expected, "{resources} {group} {resource}");
    }
    let header = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n";
    let both = format!(
        "{header}resources: [{{resources: ['*.*'], providers: [{}]}}, {{resources: [events], providers: [{{identity: {{}}}}]}}]",
        keys("secretbox", &[("k", KEY32)])
    );
    let at_rest = AtRest::parse(&both).expect("good");
    assert_eq!(at_rest.seal(&GroupResource::new("", "events"), KEY, &PLAIN), Ok(PLAIN), "the more particular entry decides");
}

#[test]
fn broken_configurations_are_named() {
    for (resources, providers, wanted) in [
        ("", keys("aesgcm", &[("k", KEY32)]), "resources[0].resources: Required value: at least one resource is required"),
        ("secrets", String::new(), "resources[0].providers: Required value: at least one provider is required"),
        ("'*'", keys("aesgcm", &[("k", KEY32)]), "use '*.' to encrypt all the resources from core API group"),
        ("'secrets.*'", keys("aesgcm", &[("k", KEY32)]), "wildcards in the API group"),
        ("secrets, secrets", keys("aesgcm", &[("k", KEY32)]), "resources[0].resources[1]: Duplicate value: \"secrets\""),
        ("secrets", keys("aesgcm", &[]), "resources[0].providers[0].aesgcm.keys: Required value: at least one key is required"),
        ("secrets", keys("aesgcm", &[("", KEY32)]), "keys[0].name: Required value: secret must have a name"),
        ("secrets", keys("aesgcm", &[("a:b", KEY32)]), "must not contain ':'"),
        ("secrets", keys("aesgcm", &[("k", KEY32), ("k", KEY16)]), "keys[1].name: Duplicate value: \"k\""),
        ("secrets", keys("aesgcm", &[("k", "AAAA")]), "secret is not of the expected length, got 3, expected one of [16 24 32]"),
        ("secrets", keys("secretbox", &[("k", KEY16)]), "secret is not of the expected length, got 16, expected one of [32]"),
        ("secrets", keys("aesgcm", &[("k", "!")]), "secrets must be base64 encoded"),
        ("secrets", "{}".to_owned(), "provider does not contain any of the expected providers"),
        ("secrets", "{kms: {name: x}}".to_owned(), "key management services are not supported"),
    ] {
        let error = configured(resources, &providers).expect_err("bad").to_string();
        assert!(error.contains(wanted), "{error}");
        assert!(!error.contains(KEY32), "{error}");
    }
    let kind = AtRest::parse("{apiVersion: v1, kind: Secret}").expect_err("bad").to_string();
    assert!(kind.contains("not \"Secret\" in \"v1\""), "{kind}");
    assert!(matches!(configured("secrets", "{colour: {}}"), Err(EncryptionError::Unreadable(_))));
}
