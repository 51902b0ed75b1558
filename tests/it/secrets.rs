//! The log never contains a secret, at any level. The story puts markers into every place for secrets: Secrets, tokens,
//! passwords, headers, environments, keys. Then it searches the most verbose log of server and node for each marker, in
//! plain and in encoded form.

use std::fs;
use std::path::Path;

use tests::run::eventually;
use tests::{Cluster, Kubectl, Net};

use crate::registry::{LOCKED, PASSWORDS, Registry};

const PODS: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {password: marker-secret-data-7c1e}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {url: marker-config-value-7c1e}
---
apiVersion: v1
kind: Pod
metadata: {name: linux}
spec:
  runtimeClassName: runc
  terminationGracePeriodSeconds: 1
  containers:
    - name: c
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sleep, "1000000"]
      env:
        - {name: LITERAL, value: marker-literal-variable-7c1e}
        - {name: PASSWORD, valueFrom: {secretKeyRef: {name: hidden, key: password}}}
        - {name: SETTING, valueFrom: {configMapKeyRef: {name: settings, key: url}}}
      volumeMounts: [{name: hidden, mountPath: /hidden}]
      readinessProbe: {exec: {command: ["true"]}}
  volumes: [{name: hidden, secret: {secretName: hidden}}]
---
apiVersion: v1
kind: Pod
metadata: {name: wasm}
spec:
  runtimeClassName: wasmtime
  containers:
    - name: c
      image: samples/web:latest
      imagePullPolicy: Never
      env:
        - {name: LITERAL, value: marker-literal-variable-7c1e}
        - {name: PASSWORD, valueFrom: {secretKeyRef: {name: hidden, key: password}}}
      volumeMounts: [{name: hidden, mountPath: /hidden}]
      readinessProbe:
        httpGet: {path: /, port: 8080, httpHeaders: [{name: Authorization, value: Bearer marker-probe-header-7c1e}]}
  volumes: [{name: hidden, secret: {secretName: hidden}}]
---
apiVersion: v1
kind: Pod
metadata: {name: pulling}
spec:
  runtimeClassName: runc
  imagePullSecrets: [{name: harbour}]
  containers: [{name: c, image: "127.0.0.1:5001/nothing:v1", imagePullPolicy: Always}]
"#;

/// A Secret that is rejected: its text is in an error.
const REFUSED: &str = r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "refused"}, "stringData": {"a b": "marker-refused-7c1e"},
    "data": {"c": "marker refused, too 7c1e"}}"#;

#[test]
fn nothing_secret_is_logged() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up", "--log=trace"]);
    cluster.start();
    cluster.load_samples();
    let registry = Registry::start(&cluster.net, LOCKED, Some(PASSWORDS));
    let mut markers: Vec<(String, String)> = [
        ("data of a Secret", "marker-secret-data-7c1e"),
        ("data of a Secret, changed", "marker-patched-7c1e"),
        ("a refused Secret", "marker-refused-7c1e"),
        ("a refused Secret, malformed", "marker refused, too 7c1e"),
        ("a ConfigMap in an environment", "marker-config-value-7c1e"),
        ("an environment", "marker-literal-variable-7c1e"),
        ("a probe's header", "marker-probe-header-7c1e"),
        ("a bearer token", "marker-bearer-7c1e"),
        ("a password in a header", "bWFya2VyLXVzZXI6bWFya2VyLWJhc2lj"),
        ("a registry's password", "open sesame"),
        ("a registry's password in a header", "c2FpbG9yOm9wZW4gc2VzYW1l"),
    ]
    .map(|(what, marker)| (what.to_owned(), marker.to_owned()))
    .into();
    {
        let kubectl = cluster.kubectl();
        use_secrets(&cluster, &kubectl, &mut markers);
    }
    markers.extend(keys(cluster.data_dir()));
    let encoded: Vec<_> = markers.iter().map(|(what, marker)| (format!("{what}, encoded"), base64(marker))).collect();
    markers.extend(encoded);
    assert_eq!(cluster.stop(), 0);
    drop(registry);

    let log = cluster.log();
    // The most verbose level is on, and the search finds known text.
    assert!(log.contains("TRACE") && log.contains("node server listens"), "{} bytes of log", log.len());
    let found: Vec<String> = markers
        .iter()
        .filter_map(|(what, marker)| {
            let line = log.lines().find(|line| line.contains(marker.as_str()))?;
            Some(format!("{what}: {}", line.chars().take(400).collect::<String>()))
        })
        .collect();
    assert!(found.is_empty(), "in the log:\n{}", found.join("\n"));
}

/// Sends each marker through the places for its kind.
fn use_secrets(cluster: &Cluster, kubectl: &Kubectl<'_>, markers: &mut Vec<(String, String)>) {
    kubectl.until_usable("default");
    kubectl
        .run(&[
            "create",
            "secret",
            "docker-registry",
            "harbour",
            "--docker-server=127.0.0.1:5001",
            "--docker-username=sailor",
            "--docker-password=open sesame",
        ])
        .ok();
    kubectl.apply(PODS).ok();
    kubectl.with_input("create --validate=false -f -", REFUSED).fails();
    kubectl.run(&["patch", "secret", "hidden", "--type=merge", "-p", r#"{"stringData": {"more": "marker-patched-7c1e"}}"#]).ok();
    kubectl.ok("get secret hidden -o yaml");
    for pod in ["linux", "wasm"] {
        kubectl.until_ready(pod);
    }
    eventually("the registry was asked", || {
        let events = kubectl.ok("events --for pod/pulling");
        if events.contains("Failed to pull image") { Ok(()) } else { Err(events) }
    });
    let said = kubectl.run(&["exec", "linux", "--", "sh", "-c", "echo $PASSWORD"]).ok();
    assert!(said.contains("marker-secret-data"), "the Secret has arrived: {said}");

    let token = kubectl.ok("create token default");
    let token = token.trim();
    let server = kubectl.ok("config view -o jsonpath={.clusters[0].cluster.server}");
    for header in [format!("Bearer {token}"), "Bearer marker-bearer-7c1e".to_owned(), "Basic bWFya2VyLXVzZXI6bWFya2VyLWJhc2lj".to_owned()] {
        let header = format!("Authorization: {header}");
        for protocol in ["--http1.1", "--http2"] {
            cluster
                .net
                .run("curl", &["-sk", protocol, "-o", "/dev/null", "-H", &header, &format!("{server}/api/v1/namespaces/default/secrets")])
                .ok();
        }
    }
    markers.extend(token.split('.').skip(1).map(|part| ("a ServiceAccount's token".to_owned(), part.to_owned())));
    let join = cluster.skiff(&["token", "create"]).ok();
    let secret = join.trim().rsplit(['.', ':']).next().unwrap_or_default();
    assert!(secret.len() >= 8, "{join}");
    markers.push(("a join token".to_owned(), secret.to_owned()));
}

/// The second line of each private key below a directory, also of the keys in kubeconfigs.
fn keys(dir: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("lists").flatten() {
        let path = entry.path();
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() && !path.ends_with("images") && !path.ends_with("compiled") {
            found.extend(keys(&path));
        }
        let Some(text) = kind.is_file().then(|| fs::read_to_string(&path).ok()).flatten() else { continue };
        if let Some((_, key)) = text.split_once("PRIVATE KEY-----\n") {
            found.push((path.display().to_string(), key.lines().next().unwrap_or_default().to_owned()));
        }
        if let Some((_, key)) = text.split_once("client-key-data:") {
            found.push((path.display().to_string(), key.trim().chars().take(200).collect()));
        }
    }
    found
}

fn base64(text: &str) -> String {
    use std::fmt::Write as _;
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    // Only whole groups, because the last group depends on what follows.
    for group in text.as_bytes().chunks_exact(3) {
        let bits = group.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        for shift in [18, 12, 6, 0] {
            write!(encoded, "{}", char::from(LETTERS[bits >> shift & 63])).expect("a string");
        }
    }
    encoded
}

#[test]
fn the_search_knows_what_is_encoded() {
    assert_eq!(base64("marker-user:marker-basic"), "bWFya2VyLXVzZXI6bWFya2VyLWJhc2lj");
    assert_eq!(base64("ab"), "");
}
