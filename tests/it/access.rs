//! Authentication and authorization, with the real kubectl against a control plane: tokens, certificates, rights, the
//! audit log, and the encryption of Secrets on disk.

mod federation;
mod nodes;

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tests::net::Net;
use tests::{Cluster, Kubectl, eventually};

/// Text that may appear only in answers to users who may read the Secret.
const SECRET: &str = "skiff-tells-nobody";

const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, resources: [{group: '', resources: [secrets]}]}
  - {level: RequestResponse, verbs: [create, update, patch], resources: [{group: certificates.k8s.io}]}
  - {level: RequestResponse, users: [kubernetes-admin], resources: [{group: '', resources: [configmaps]}]}
";

fn encryption(name: &str, byte: u8) -> String {
    let key = STANDARD.encode([byte; 32]);
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": [{"aesgcm": {"keys": [{"name": name, "secret": key}]}}]}],
    })
    .to_string()
}

#[test]
fn who_may_do_what_is_decided_and_recorded() {
    let files = tempfile::tempdir().expect("a directory");
    let at = |name: &str| files.path().join(name);
    std::fs::write(at("encryption.yaml"), encryption("first", 1)).expect("writes");
    std::fs::write(at("policy.yaml"), POLICY).expect("writes");
    let flag = |name: &str, file: &str| format!("--{name}={}", at(file).display());
    let flags = [
        flag("encryption-provider-config", "encryption.yaml"),
        flag("audit-policy-file", "policy.yaml"),
        flag("audit-log-path", "audit.log"),
    ];
    let args: Vec<&str> = std::iter::once("server").chain(flags.iter().map(String::as_str)).collect();
    let mut cluster = Cluster::prepared(Net::alone(), &args);
    cluster.start();
    let kubectl = cluster.kubectl();
    tokens_are_made_for_accounts(&cluster, &kubectl, files.path());
    certificates_are_requested_and_approved(&cluster, &kubectl, files.path());
    rights_are_reconciled(&kubectl);
    secrets_are_unreadable_on_the_disk(&cluster, &kubectl);
    everything_was_recorded(&at("audit.log"));
    drop(kubectl);
    cluster.stop();
    std::fs::write(at("encryption.yaml"), encryption("first", 2)).expect("writes");
    cluster.start();
    let refused = cluster.kubectl().fails("get secret hidden");
    let wanted = "unable to transform key \"core/secrets/default/hidden\": failed to decrypt with key \"k8s:enc:aesgcm:v1:first\"";
    assert!(refused.contains(wanted), "{refused}");
    assert!(cluster.kubectl().ok("get configmap shown").contains("shown"), "the rest of the cluster goes on");
    cluster.stop();
    std::fs::write(at("encryption.yaml"), encryption("first", 1)).expect("writes");
    cluster.start();
    let value = cluster.kubectl().ok("get secret hidden -o jsonpath={.data.password}");
    assert_eq!(STANDARD.decode(value).expect("base64"), SECRET.as_bytes());
}

/// kubectl as a user other than the administrator.
fn kubectl_as<'a>(cluster: &'a Cluster, files: &Path, user: &Value) -> Kubectl<'a> {
    let admin = std::fs::read_to_string(cluster.data_dir().join("admin.kubeconfig")).expect("the administrator's kubeconfig");
    let mut kubeconfig: Value = serde_json::from_str(&admin).expect("JSON");
    kubeconfig["users"][0]["user"] = user.clone();
    let (_, path) = tempfile::NamedTempFile::new_in(files).and_then(|file| Ok(file.keep()?)).expect("a file");
    std::fs::write(&path, kubeconfig.to_string()).expect("writes");
    Kubectl::new(&cluster.net, path)
}

const TOKEN_SECRET: &str = "
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata: {name: lasting, annotations: {kubernetes.io/service-account.name: builder}}
";

fn tokens_are_made_for_accounts(cluster: &Cluster, kubectl: &Kubectl<'_>, files: &Path) {
    let me = kubectl.ok("auth whoami");
    for text in ["kubernetes-admin", "[system:masters system:authenticated]", "X509SHA256="] {
        assert!(me.contains(text), "{me}");
    }
    kubectl.ok("create serviceaccount builder");
    kubectl.ok("create rolebinding builders --clusterrole=view --serviceaccount=default:builder");
    kubectl.ok("create secret generic tie --from-literal=a=b");
    let token = |words: &str| kubectl.ok(&format!("create token builder {words}")).trim().to_owned();
    let with = |token: &str| kubectl_as(cluster, files, &json!({"token": token}));
    let own = with(&token("--duration=20m"));
    let who = own.ok("auth whoami -o json");
    let who: Value = serde_json::from_str(&who).expect("JSON");
    assert_eq!(who["status"]["userInfo"]["username"], "system:serviceaccount:default:builder");
    assert_eq!(
        who["status"]["userInfo"]["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"])
    );
    let list = own.ok("auth can-i --list");
    let line = |resource: &str| list.lines().find(|line| line.starts_with(resource)).map(str::to_owned);
    assert!(line("pods ").is_some_and(|line| line.ends_with("[get list watch]")), "{list}");
    assert!(line("selfsubjectreviews.authentication.k8s.io ").is_some_and(|line| line.ends_with("[create]")), "{list}");
    assert_eq!(line("secrets "), None, "{list}");
    assert_eq!(own.run(&["auth", "can-i", "delete", "pods"]).stdout, "no\n");
    assert!(own.fails("get secrets").contains("User \"system:serviceaccount:default:builder\" cannot list resource \"secrets\""));
    others_are_impersonated_by_right(kubectl, &own);
    let unauthorized = "You must be logged in to the server";
    assert!(with(&token("--audience=another")).fails("auth whoami").contains(unauthorized));
    let short = kubectl.fails("create token builder --duration=1m");
    assert!(short.contains("may not specify a duration less than 10 minutes"), "{short}");
    let tied = token("--bound-object-kind=Secret --bound-object-name=tie");
    with(&tied).ok("auth whoami");
    kubectl.ok("delete secret tie");
    assert!(with(&tied).fails("auth whoami").contains(unauthorized), "it went with what it was tied to");
    kubectl.apply(TOKEN_SECRET).ok();
    let lasting = eventually("a token in the Secret", || {
        let token = kubectl.field("secret/lasting", "/data/token");
        token.as_str().map(|token| STANDARD.decode(token).expect("base64")).ok_or_else(|| kubectl.ok("get secret lasting -o yaml"))
    });
    let lasting = String::from_utf8(lasting).expect("text");
    assert!(with(&lasting).ok("auth whoami").contains("system:serviceaccount:default:builder"));
    kubectl.ok("delete secret lasting");
    assert!(with(&lasting).fails("auth whoami").contains(unauthorized));
    // curl, because kubectl without credentials asks for a password.
    let nobody = cluster.net.run("curl", &["-sSk", "--max-time", "10", "https://127.0.0.1:6443/api/v1/namespaces/default/pods"]).ok();
    assert!(nobody.contains("User \\\"system:anonymous\\\" cannot list resource \\\"pods\\\""), "{nobody}");
}

/// `own` is kubectl as the ServiceAccount `default/builder`.
fn others_are_impersonated_by_right(kubectl: &Kubectl<'_>, own: &Kubectl<'_>) {
    let refused = own.fails("get pods --as jane");
    let builder = "User \"system:serviceaccount:default:builder\"";
    assert!(refused.contains(&format!("{builder} cannot impersonate-on:user-info:list resource \"pods\"")), "{refused}");
    kubectl.ok("create clusterrole impersonators --verb=impersonate --resource=users --resource-name=jane");
    kubectl.ok("create clusterrolebinding impersonators --clusterrole=impersonators --serviceaccount=default:builder");
    assert!(own.fails("get pods --as jane").contains("User \"jane\" cannot list resource \"pods\""));
    assert!(own.ok("auth whoami --as jane").contains("jane"));
    for words in ["--as jane --as-group system:masters", "--as jane --as-uid 7", "--as joe"] {
        assert!(own.fails(&format!("get pods {words}")).contains(builder), "{words}");
    }
}

/// The manifest of a certificate signing request, and its key in PEM.
fn request(name: &str, organization: &str, signer: &str) -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.distinguished_name.push(rcgen::DnType::OrganizationName, organization);
    let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    let manifest = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": STANDARD.encode(pem), "signerName": signer, "usages": ["digital signature", "client auth"], "expirationSeconds": 3600},
    });
    (manifest.to_string(), key.serialize_pem())
}

fn certificates_are_requested_and_approved(cluster: &Cluster, kubectl: &Kubectl<'_>, files: &Path) {
    let client = "kubernetes.io/kube-apiserver-client";
    let (jane, key) = request("jane", "devs", client);
    kubectl.apply(&jane).ok();
    assert!(kubectl.ok("get csr jane").contains("Pending"));
    assert_eq!(kubectl.ok("certificate approve jane"), "certificatesigningrequest.certificates.k8s.io/jane approved\n");
    let certificate = eventually("jane's certificate", || {
        let certificate = kubectl.field("csr/jane", "/status/certificate");
        certificate.as_str().map(str::to_owned).ok_or_else(|| kubectl.ok("describe csr jane"))
    });
    assert!(kubectl.ok("get csr jane").contains("Approved,Issued"));
    let user = json!({"client-certificate-data": certificate, "client-key-data": STANDARD.encode(key)});
    let who = kubectl_as(cluster, files, &user).ok("auth whoami -o json");
    let who: Value = serde_json::from_str(&who).expect("JSON");
    assert_eq!(who["status"]["userInfo"]["username"], "jane");
    assert_eq!(who["status"]["userInfo"]["groups"], json!(["devs", "system:authenticated"]));
    let (joe, _) = request("joe", "devs", client);
    kubectl.apply(&joe).ok();
    assert_eq!(kubectl.ok("certificate deny joe"), "certificatesigningrequest.certificates.k8s.io/joe denied\n");
    assert!(kubectl.ok("get csr joe").contains("Denied"));
    let (master, _) = request("master", "system:masters", client);
    let refused = kubectl.apply(&master).fails();
    assert!(refused.contains("use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"), "{refused}");
    let csrs = "certificatesigningrequests.certificates.k8s.io";
    kubectl.ok(&format!("create clusterrole csrs --verb=get,update --resource={csrs},{csrs}/approval"));
    kubectl.ok("create clusterrolebinding csrs --clusterrole=csrs --user=ann");
    let (more, _) = request("more", "devs", client);
    kubectl.apply(&more).ok();
    let refused = kubectl.fails("certificate approve more --as ann");
    assert!(
        refused.contains("user not permitted to approve requests with signerName \"kubernetes.io/kube-apiserver-client\""),
        "{refused}"
    );
}

const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: default}
rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: zoe}]
";

fn rights_are_reconciled(kubectl: &Kubectl<'_>) {
    kubectl.with_input("auth reconcile -f -", RIGHTS).ok();
    assert_eq!(kubectl.run(&["auth", "can-i", "get", "pods", "--as", "zoe"]).stdout, "yes\n");
    assert_eq!(kubectl.run(&["auth", "can-i", "list", "pods", "--as", "zoe"]).stdout, "no\n");
    let more = RIGHTS.replace("verbs: [get]", "verbs: [get, list]");
    let output = kubectl.with_input("auth reconcile -f -", &more).ok();
    assert!(output.contains("role.rbac.authorization.k8s.io/reader reconciled"), "{output}");
    assert_eq!(kubectl.run(&["auth", "can-i", "list", "pods", "--as", "zoe"]).stdout, "yes\n");
    let label = "rbac.example.com/aggregate-to-all=true";
    kubectl.ok(&format!("create clusterrole all --aggregation-rule={label}"));
    kubectl.ok("create clusterrole part --verb=get --resource=nodes");
    kubectl.ok(&format!("label clusterrole part {label}"));
    kubectl.until("clusterrole/all", "/rules/0/resources/0", "nodes");
}

fn secrets_are_unreadable_on_the_disk(cluster: &Cluster, kubectl: &Kubectl<'_>) {
    kubectl.ok(&format!("create secret generic hidden --from-literal=password={SECRET}"));
    kubectl.ok("create configmap shown --from-literal=a=skiff-tells-everybody");
    let disk: Vec<u8> = std::fs::read_dir(cluster.data_dir())
        .expect("a directory")
        .map(|file| file.expect("a file").path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("state.db")))
        .flat_map(|path| std::fs::read(path).expect("readable"))
        .collect();
    let holds = |text: &str| disk.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("skiff-tells-everybody") && holds("k8s:enc:aesgcm:v1:first:"), "the right files are looked at");
    assert!(!holds(SECRET) && !holds(&STANDARD.encode(SECRET)));
}

fn everything_was_recorded(log: &Path) {
    let events = || -> Vec<Value> {
        let text = std::fs::read_to_string(log).expect("the audit log");
        // The last line may not be complete yet.
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    };
    let is = |event: &Value, user: &str, verb: &str, reference: &str| -> bool {
        let part = |field: &str| event["objectRef"][field].as_str().unwrap_or_default();
        let named = [part("resource"), part("name"), part("subresource")].join("/");
        event["user"]["username"] == user && event["verb"] == verb && named.trim_end_matches('/') == reference
    };
    let event = |user: &str, verb: &str, reference: &str| {
        eventually(&format!("{user}'s {verb} of {reference} in the audit log"), || {
            let events = events();
            events.iter().find(|event| is(event, user, verb, reference)).cloned().ok_or_else(|| format!("{} events", events.len()))
        })
    };
    let admin = "kubernetes-admin";
    let hidden = event(admin, "create", "secrets/hidden");
    assert_eq!((&hidden["level"], &hidden["stage"]), (&"Metadata".into(), &"ResponseComplete".into()));
    assert_eq!(hidden["sourceIPs"].as_array().map(Vec::len), Some(1), "{hidden}");
    assert!(hidden["userAgent"].as_str().is_some_and(|agent| agent.starts_with("kubectl")), "{hidden}");
    let recorded = event(admin, "create", "configmaps/shown");
    assert_eq!(recorded["requestObject"]["data"]["a"], "skiff-tells-everybody");
    assert_eq!(recorded["responseObject"]["metadata"]["name"], "shown");
    let approved = event(admin, "update", "certificatesigningrequests/jane/approval");
    assert_eq!(approved["requestObject"]["status"]["conditions"][0]["type"], "Approved");
    let refused = event("system:serviceaccount:default:builder", "list", "secrets");
    assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(refused["responseStatus"]["reason"], "Forbidden");
    let text = std::fs::read_to_string(log).expect("the audit log");
    assert!(!text.contains(SECRET) && !text.contains(&STANDARD.encode(SECRET)));
    assert!(!text.contains("\"RequestReceived\""), "left out by the policy");
}
