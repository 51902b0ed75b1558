//! The story of a server that gets all requests that its own OpenAPI documents allow, and many that they do not: no
//! answer is a server error. The real schemathesis generates the requests from a seed.

use std::path::PathBuf;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tests::run::run;
use tests::{Cluster, Net};

/// Documents of the kinds with the most rules, so that the short run reaches many rules.
const DOCUMENTS: &[&str] =
    &["apis/apps/v1", "apis/apiextensions.k8s.io/v1", "apis/rbac.authorization.k8s.io/v1", "apis/authorization.k8s.io/v1", "api/v1"];
/// Every document, for the long run.
const ALL_DOCUMENTS: &[&str] = &[
    "api/v1",
    "apis/admissionregistration.k8s.io/v1",
    "apis/apiextensions.k8s.io/v1",
    "apis/apps/v1",
    "apis/authentication.k8s.io/v1",
    "apis/authorization.k8s.io/v1",
    "apis/autoscaling/v2",
    "apis/batch/v1",
    "apis/certificates.k8s.io/v1",
    "apis/coordination.k8s.io/v1",
    "apis/discovery.k8s.io/v1",
    "apis/events.k8s.io/v1",
    "apis/flowcontrol.apiserver.k8s.io/v1",
    "apis/networking.k8s.io/v1",
    "apis/node.k8s.io/v1",
    "apis/policy/v1",
    "apis/rbac.authorization.k8s.io/v1",
    "apis/scheduling.k8s.io/v1",
    "apis/storage.k8s.io/v1",
];
/// A fixed seed: the same requests in every run.
const SEED: &str = "1";
/// Seconds for one document in the short run.
const SECONDS: &str = "5";
/// Requests that stay open, or that a node answers. They are left out.
const CONNECTIONS: &str = "/watch/|/(proxy|exec|attach|portforward|log)(/|$)";

/// Hooks that adapt schemathesis' requests and its checks of the answers.
const HOOKS: &str = r#"
import schemathesis

# Upstream answers by 500 to these faults of the client, and so word for word does this server.
UPSTREAMS_OWN = ("failed to create typed patch object",)

@schemathesis.hook
def before_call(context, case, kwargs):
    # A watch stays open.
    for name in ("watch", "timeoutSeconds"):
        (case.query or {}).pop(name, None)

@schemathesis.hook
def after_call(context, case, response):
    if response.status_code == 500 and any(text in response.text for text in UPSTREAMS_OWN):
        response.status_code = 400
"#;

#[test]
fn schemathesis_finds_no_fault_of_the_server() {
    let examples = std::env::var("SKIFF_SCHEMATHESIS_EXAMPLES").ok();
    let mut cluster = Cluster::prepared(Net::alone(), &["server"]);
    cluster.start();
    let documents = if examples.is_some() { ALL_DOCUMENTS } else { DOCUMENTS };
    for document in documents {
        let ran = run(&mut schemathesis(&cluster, document, examples.as_deref()), None);
        assert!(ran.stdout.contains(" generated"), "no request was made: {ran}");
        assert!(ran.succeeded(), "{ran}");
    }
    assert_eq!(cluster.kubectl().ok("get --raw /readyz"), "ok");
    let log = cluster.log();
    assert!(!log.contains("panicked"), "{log}");
    assert_eq!(cluster.stop(), 0, "{}", cluster.log());
    cluster.down();
}

/// The administrator's certificate and key, out of the kubeconfig, in one file.
fn admin_pem(cluster: &Cluster) -> PathBuf {
    let text = std::fs::read_to_string(cluster.data_dir().join("admin.kubeconfig")).expect("the administrator's kubeconfig");
    let kubeconfig: Value = serde_json::from_str(&text).expect("JSON");
    let data = |field: &str| STANDARD.decode(kubeconfig["users"][0]["user"][field].as_str().expect("text")).expect("base64");
    let path = cluster.data_dir().join("admin.pem");
    std::fs::write(&path, [data("client-certificate-data"), data("client-key-data")].concat()).expect("writes");
    path
}

fn schemathesis(cluster: &Cluster, document: &str, examples: Option<&str>) -> Command {
    let programs = std::env::var_os("SKIFF_SCHEMATHESIS")
        .map_or_else(|| tests::cluster::project().join("target/venv/schemathesis/bin"), PathBuf::from);
    std::fs::write(cluster.data_dir().join("hooks.py"), HOOKS).expect("writes");
    let admin = admin_pem(cluster);
    let mut command = cluster.net.command(&programs.join("st").display().to_string());
    command.arg("run").arg(format!("https://127.0.0.1:6443/openapi/v3/{document}"));
    command.arg("--tls-verify").arg(cluster.data_dir().join("pki/ca.crt"));
    command.arg("--request-cert").arg(&admin).arg("--request-cert-key").arg(&admin);
    command.args(["--checks", "not_a_server_error", "--seed", SEED, "--exclude-path-regex", CONNECTIONS, "--continue-on-failure"]);
    command.args(["--suppress-health-check", "all", "--warnings", "off", "--request-timeout", "30", "--phases", "coverage,fuzzing"]);
    match examples {
        Some(examples) => command.args(["--max-examples", examples]),
        None => command.args(["--max-examples", "2", "--max-time", SECONDS, "--no-shrink"]),
    };
    command.current_dir(cluster.data_dir()).env("SCHEMATHESIS_HOOKS", "hooks").env("PYTHONPATH", cluster.data_dir());
    command
}
