//! The administrator's kubeconfig: written at each start, and anew when its certificate is due.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use api_auth::pki::Subject;
use api_auth::{Identity, Pki};

use crate::cli;
use crate::place::Place;
use crate::renewal::{self, Kept, Renewal};

const FILE: &str = "admin.kubeconfig";
const USER: &str = "kubernetes-admin";

/// The file and whom it leads to.
pub struct AdminKubeconfig {
    place: Place,
    /// Where the API server is for whoever is on this machine.
    url: String,
    ca_pem: String,
}

/// Writes the file; answers where it is and what keeps it good.
pub fn write(place: &Place, options: &cli::ControlPlane, pki: &Arc<Pki>) -> anyhow::Result<(PathBuf, Renewal<AdminKubeconfig>)> {
    let bound = options.bind_address;
    let host = if bound.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { bound };
    let url = format!("https://{}", SocketAddr::new(host, options.secure_port));
    let admin = AdminKubeconfig { place: place.clone(), url, ca_pem: pki.ca_pem().to_owned() };
    let subject = Subject::client(USER, &["system:masters"]);
    let identity = pki.issue(&subject, renewal::VALIDITY).context("issuing the administrator's certificate")?;
    let path = place.renew_private(FILE, &admin.content(&identity)?)?;
    Ok((path, Renewal::new(Arc::clone(pki), subject, admin)))
}

impl AdminKubeconfig {
    fn content(&self, identity: &Identity) -> anyhow::Result<String> {
        let kubeconfig = api_client::connect::kubeconfig(&self.url, USER, &self.ca_pem, &identity.certificate_pem, &identity.key_pem);
        Ok(serde_json::to_string_pretty(&kubeconfig)?)
    }
}

impl Kept for AdminKubeconfig {
    fn what(&self) -> &'static str {
        "the administrator's"
    }

    /// A file that somebody has taken away, or made something else of, is left alone.
    fn present(&self) -> Option<String> {
        api_client::connect::certificate_in(&self.place.at(FILE), USER)
    }

    fn replace(&mut self, identity: Identity) -> anyhow::Result<()> {
        self.place.write_private(FILE, &self.content(&identity)?).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use api_auth::PkiConfig;

    use super::*;

    #[test]
    fn the_file_holds_what_is_renewed() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Place::open(directory.path()).expect("opens");
        let pki = Pki::open(&place.at("pki"), &PkiConfig::for_cluster("cluster.local")).expect("keys");
        let url = "https://127.0.0.1:6443".to_owned();
        let mut admin = AdminKubeconfig { place, url, ca_pem: pki.ca_pem().to_owned() };
        assert_eq!(admin.present(), None);
        let issue = || pki.issue_client(USER, &["system:masters"], renewal::VALIDITY).expect("a certificate");
        for identity in [issue(), issue()] {
            let pem = identity.certificate_pem.clone();
            admin.replace(identity).expect("written");
            assert_eq!(admin.present(), Some(pem));
        }
        std::fs::write(admin.place.at(FILE), "{}").expect("written");
        assert_eq!(admin.present(), None);
    }
}
