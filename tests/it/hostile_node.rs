//! The story of a hostile node: an attacker has its machine, its join token, its certificates and its address, and
//! attacks the cluster with the real kubectl. A child module tests one aim of the attacker.

mod certificates;
mod joining;
mod objects;
mod reach;
mod volumes;

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tests::{Cluster, Kubectl, Net, eventually};

/// The address of an honest node. No machine has it.
const VICTIM_IP: &str = "192.168.78.9";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

const OBJECTS: &str = "
apiVersion: v1
kind: Node
metadata: {name: victim}
spec: {taints: [{key: dedicated, value: vault, effect: NoSchedule}]}
---
apiVersion: v1
kind: Secret
metadata: {name: theirs}
stringData: {password: not-for-you}
---
apiVersion: v1
kind: Secret
metadata: {name: ours}
stringData: {password: for-our-pod}
---
apiVersion: v1
kind: Pod
metadata: {name: theirs}
spec:
  nodeName: victim
  containers: [{name: c, image: i, envFrom: [{secretRef: {name: theirs}}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: free}
spec: {schedulerName: nobody, containers: [{name: c, image: i}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: victim, namespace: kube-node-lease}
spec: {holderIdentity: victim}
";

const OWN_POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: own, labels: {shared: yes-it-is}}
spec:
  nodeName: evil
  containers: [{name: c, image: i, envFrom: [{secretRef: {name: ours}}]}]
";

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: shared}
spec: {selector: {shared: yes-it-is}, ports: [{port: 80}]}
";

/// A control plane and, on the same network, the attacker's machine.
struct Story {
    server: Cluster,
    machine: Net,
    files: tempfile::TempDir,
    _switch: Net,
}

#[test]
fn a_hostile_node_gains_nothing() {
    let mut nets = Net::joined(2).into_iter();
    let mut next = || nets.next().expect("a namespace");
    // Without that controller: it would evict the Pods, because the story has no kubelet that reports.
    let mut server = Cluster::prepared(next(), &["server", "--controllers=*,-node-lifecycle-controller"]);
    server.start();
    let story = Story { server, machine: next(), files: tempfile::tempdir().expect("a directory"), _switch: next() };
    let admin = story.server.kubectl();
    admin.until_usable("default");
    admin.apply(OBJECTS).ok();
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": VICTIM_IP}]}});
    admin.ok(&format!("patch node victim --subresource=status --type=merge -p {addresses}"));
    let evil = joining::with_the_join_token(&story, &admin);
    objects::it_registers_as_it_is(&admin, &evil.kubectl);
    admin.apply(OWN_POD).ok();
    objects::it_reads_and_writes_what_is_its_own(&admin, &evil);
    certificates::it_is_nobody_else(&admin, &evil);
    volumes::its_volumes_are_on_no_other_node(&admin, &evil);
    reach::it_leads_the_server_nowhere(&admin, &evil);
}

/// An attacker with the node's certificate, on its machine.
struct Evil<'s> {
    story: &'s Story,
    kubectl: Kubectl<'s>,
    /// Certificate and key.
    pem: std::path::PathBuf,
}

impl Evil<'_> {
    /// Patches a status as a node does. kubectl would read the status first, which a node may not. Returns code and
    /// body.
    fn patch_status(&self, path: &str, kind: &str, patch: &Value) -> (u16, String) {
        let url = format!("https://{}:6443{path}/status", self.story.server.net.ip);
        let (pem, media) = (self.pem.display().to_string(), format!("Content-Type: application/{kind}-patch+json"));
        let args = ["-sSk", "--max-time", "20", "-w", "\n%{http_code}", "--cert", &pem, "--key", &pem, "-X", "PATCH", "-H", &media];
        let said = self.story.machine.run("curl", &[&args[..], &["-d", &patch.to_string(), &url]].concat()).ok();
        let (body, code) = said.rsplit_once('\n').expect("a code");
        (code.parse().expect("a number"), body.to_owned())
    }

    /// Reports the address of the node's server.
    #[track_caller]
    fn claims(&self, addresses: &[(&str, &str)], port: u16) {
        let addresses: Vec<Value> = addresses.iter().map(|(kind, address)| json!({"type": kind, "address": address})).collect();
        let patch = json!({"status": {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
        let (code, body) = self.patch_status("/api/v1/nodes/evil", "merge", &patch);
        assert_eq!(code, 200, "{body}");
    }

    /// Reports the status of the node's Pod.
    #[track_caller]
    fn says_of_its_pod(&self, patch: &Value) {
        let (code, body) = self.patch_status("/api/v1/namespaces/default/pods/own", "merge", patch);
        assert_eq!(code, 200, "{body}");
    }
}

impl Story {
    /// kubectl as that user, on the machine.
    fn kubectl_as(&self, user: &Value) -> Kubectl<'_> {
        self.kubectl_from(&self.machine, user)
    }

    /// kubectl as that user, elsewhere on the network.
    fn kubectl_from<'a>(&self, net: &'a Net, user: &Value) -> Kubectl<'a> {
        let admin = std::fs::read_to_string(self.server.data_dir().join("admin.kubeconfig")).expect("the administrator's kubeconfig");
        let mut kubeconfig: Value = serde_json::from_str(&admin).expect("JSON");
        kubeconfig["users"][0]["user"] = user.clone();
        kubeconfig["clusters"][0]["cluster"]["server"] = format!("https://{}:6443", self.server.net.ip).into();
        Kubectl::new(net, keep(self.files.path(), &kubeconfig.to_string()))
    }
}

fn keep(files: &Path, text: &str) -> std::path::PathBuf {
    let (_, path) = tempfile::NamedTempFile::new_in(files).and_then(|file| Ok(file.keep()?)).expect("a file");
    std::fs::write(&path, text).expect("writes");
    path
}

/// The contents of a request for a certificate.
struct Wanted<'w> {
    /// The object's name.
    name: &'w str,
    signer: &'w str,
    common_name: &'w str,
    organization: &'w str,
    /// DNS names and addresses.
    names: &'w [&'w str],
}

/// The manifest of a request, and its key in PEM.
fn request(wanted: &Wanted<'_>) -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, wanted.organization);
    params.distinguished_name.push(rcgen::DnType::CommonName, wanted.common_name);
    let names = wanted.names.iter().map(|name| match name.parse() {
        Ok(address) => rcgen::SanType::IpAddress(address),
        Err(_) => rcgen::SanType::DnsName((*name).try_into().expect("a name")),
    });
    params.subject_alt_names = names.collect();
    let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    let usage = if wanted.signer == SERVING_SIGNER { "server auth" } else { "client auth" };
    let manifest = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": wanted.name},
        "spec": {"request": STANDARD.encode(pem), "signerName": wanted.signer, "usages": ["digital signature", usage]},
    });
    (manifest.to_string(), key.serialize_pem())
}

/// The certificate, as soon as it is signed.
#[track_caller]
fn signed(admin: &Kubectl<'_>, name: &str) -> String {
    eventually(&format!("the certificate of {name}"), || {
        let certificate = admin.field(&format!("csr/{name}"), "/status/certificate");
        certificate.as_str().map(str::to_owned).ok_or_else(|| admin.ok(&format!("describe csr {name}")))
    })
}

/// Waits for the event that says why a request needs a person's approval; then nobody has approved it.
#[track_caller]
fn left_to_a_person(admin: &Kubectl<'_>, name: &str, why: &str) {
    let words = format!("get events --field-selector=involvedObject.name={name},reason=ApprovalRequired -o jsonpath={{.items[*].message}}");
    eventually(&format!("{name} is left to a person: {why}"), || {
        let output = admin.ok(&words);
        if output.contains(why) { Ok(()) } else { Err(format!("{output}\n{}", admin.run(&["describe", "csr", name]))) }
    });
    for field in ["/status/conditions", "/status/certificate"] {
        assert_eq!(admin.field(&format!("csr/{name}"), field), Value::Null, "{name}");
    }
}
