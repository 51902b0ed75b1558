//! The administrator's kubeconfig: written at each start. A running server replaces its certificate before that
//! expires.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use api_auth::pki::{Subject, read_certificate};
use api_auth::{Identity, Pki};
use api_client::connect::{self, InlineUser};

use crate::cli;
use crate::data_dir::DataDir;
use crate::renewal::{self, CertificateStore, Renewal};

const FILE: &str = "admin.kubeconfig";
const USER: &str = "kubernetes-admin";

/// The kubeconfig file, which an administrator may have edited, and the user of its certificate.
pub struct AdminKubeconfig {
    data_dir: DataDir,
    pki: Arc<Pki>,
    subject: Subject,
}

/// Writes the file; returns its path and the task that renews its certificate.
pub fn write(data_dir: &DataDir, options: &cli::ControlPlane, pki: &Arc<Pki>) -> anyhow::Result<(PathBuf, Renewal<AdminKubeconfig>)> {
    // The API server's address for clients on this machine.
    let bound = options.bind_address;
    let host = if bound.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { bound };
    let url = format!("https://{}", SocketAddr::new(host, options.secure_port));
    let subject = subject();
    let identity = pki.issue(&subject, renewal::VALIDITY).context("issuing the administrator's certificate")?;
    let path = data_dir.renew_private(FILE, &content(&url, pki, &identity)?)?;
    let admin = AdminKubeconfig { data_dir: data_dir.clone(), pki: Arc::clone(pki), subject: subject.clone() };
    Ok((path, Renewal::new(Arc::clone(pki), subject, admin)))
}

fn subject() -> Subject {
    Subject::client(USER, &["system:masters"])
}

fn content(url: &str, pki: &Pki, identity: &Identity) -> anyhow::Result<String> {
    let kubeconfig = connect::kubeconfig(url, USER, pki.ca_pem(), &identity.certificate_pem, &identity.key_pem);
    Ok(serde_json::to_string_pretty(&kubeconfig)?)
}

impl AdminKubeconfig {
    /// The file's text, and the user in it with a certificate that this cluster issued for the administrator, under any
    /// name. Of several such users, the one whose certificate expires first.
    fn found(&self) -> Option<(String, InlineUser)> {
        let content = std::fs::read_to_string(self.data_dir.at(FILE)).ok()?;
        let ours = connect::inline_users(&content).into_iter().filter(|user| self.pki.has_issued(&user.certificate_pem, &self.subject));
        let user = ours.min_by_key(|user| read_certificate(&user.certificate_pem).map(|info| info.not_after).ok())?;
        Some((content, user))
    }
}

impl CertificateStore for AdminKubeconfig {
    fn what(&self) -> &'static str {
        "the administrator's"
    }

    /// None if the file is gone, or if no user in it has a certificate of this cluster's administrator. Then nothing is
    /// renewed.
    fn present(&self) -> Option<String> {
        self.found().map(|(_, user)| user.certificate_pem)
    }

    /// Replaces certificate and key, and nothing else in the file.
    fn replace(&mut self, identity: Identity) -> anyhow::Result<()> {
        let (content, user) = self.found().with_context(|| format!("{FILE} has no administrator any more"))?;
        let content = user.replaced_in(&content, &identity.certificate_pem, &identity.key_pem);
        let content = content.with_context(|| format!("{FILE} is written in a way that cannot be edited"))?;
        self.data_dir.write_private(FILE, &content).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use api_auth::PkiConfig;

    use super::*;

    const URL: &str = "https://127.0.0.1:6443";

    fn open(directory: &tempfile::TempDir) -> AdminKubeconfig {
        let data_dir = DataDir::open(directory.path()).expect("opens");
        let pki = Arc::new(Pki::open(&data_dir.at("pki"), &PkiConfig::for_cluster("cluster.local")).expect("keys"));
        AdminKubeconfig { data_dir, pki, subject: subject() }
    }

    fn issue(pki: &Pki, subject: &Subject) -> Identity {
        pki.issue(subject, renewal::VALIDITY).expect("a certificate")
    }

    /// A user entry in YAML, as in a kubeconfig.
    fn user(name: &str, identity: &Identity) -> String {
        let kubeconfig = connect::kubeconfig(URL, name, "", &identity.certificate_pem, &identity.key_pem);
        let users = serde_json::to_value(kubeconfig).expect("JSON")["users"].take();
        let data = |field: &str| users[0]["user"][field].as_str().expect("text").to_owned();
        let (certificate, key) = (data("client-certificate-data"), data("client-key-data"));
        format!("- name: {name}\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n")
    }

    #[test]
    fn the_file_holds_what_is_renewed() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut admin = open(&directory);
        assert_eq!(admin.present(), None);
        let first = issue(&admin.pki, &admin.subject);
        let written = content(URL, &admin.pki, &first).expect("a kubeconfig");
        std::fs::write(admin.data_dir.at(FILE), written).expect("written");
        for _ in 0..2 {
            let identity = issue(&admin.pki, &admin.subject);
            let wanted = content(URL, &admin.pki, &identity).expect("a kubeconfig");
            admin.replace(identity.clone()).expect("written");
            assert_eq!(admin.present(), Some(identity.certificate_pem));
            assert_eq!(std::fs::read_to_string(admin.data_dir.at(FILE)).expect("there"), wanted);
        }
        std::fs::write(admin.data_dir.at(FILE), "{}").expect("written");
        assert_eq!(admin.present(), None);
    }

    #[test]
    fn what_was_edited_stays() {
        let (directory, elsewhere) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let (mut admin, other) = (open(&directory), open(&elsewhere));
        let (old, new) = (issue(&admin.pki, &admin.subject), issue(&admin.pki, &admin.subject));
        let foreign = issue(&other.pki, &other.subject);
        let developer = issue(&admin.pki, &Subject::client("dev", &["developers"]));
        let text = |ours: &Identity| {
            let users = format!("{}{}{}", user("kubernetes-admin", &foreign), user("me", ours), user("dev", &developer));
            format!(
                "# mine\napiVersion: v1\nkind: Config\ncurrent-context: far\nclusters:\n\
                 - name: here\n  cluster: {{server: 'https://cluster.example.com:443'}}\n\
                 - name: far\n  cluster: {{server: 'https://far.example.com'}}\n\
                 contexts:\n- name: far\n  context: {{cluster: far, user: kubernetes-admin, namespace: x}}\nusers:\n{users}"
            )
        };
        std::fs::write(admin.data_dir.at(FILE), text(&old)).expect("written");
        assert_eq!(admin.present().as_ref(), Some(&old.certificate_pem));
        admin.replace(new.clone()).expect("written");
        assert_eq!(std::fs::read_to_string(admin.data_dir.at(FILE)).expect("there"), text(&new));
    }

    #[test]
    fn a_file_that_lets_nobody_in_here_is_left_alone() {
        let (directory, elsewhere) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let (mut admin, other) = (open(&directory), open(&elsewhere));
        let written = content(URL, &other.pki, &issue(&other.pki, &other.subject)).expect("a kubeconfig");
        std::fs::write(admin.data_dir.at(FILE), &written).expect("written");
        assert_eq!(admin.present(), None);
        admin.replace(issue(&admin.pki, &admin.subject)).expect_err("nothing to replace");
        assert_eq!(std::fs::read_to_string(admin.data_dir.at(FILE)).expect("there"), written);
    }
}
