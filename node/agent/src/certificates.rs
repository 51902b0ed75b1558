//! The certificates of a node that has joined a cluster, as `/metrics` shows them: until when the client's is good, and how often a
//! renewal failed.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use api_metrics::{Families, number};
use jiff::Timestamp;
use x509_parser::pem::parse_x509_pem;

/// The state of a node's certificates, shared by their renewal and the node's server.
#[derive(Debug)]
pub struct Certificates {
    /// The end of the client certificate, in s since the epoch.
    client_not_after_s: AtomicI64,
    client_errors: AtomicU64,
    serving_errors: AtomicU64,
}

impl Certificates {
    /// With a client certificate that is good until then.
    pub(crate) fn new(client_not_after: Timestamp) -> Self {
        Self {
            client_not_after_s: AtomicI64::new(client_not_after.as_second()),
            client_errors: AtomicU64::new(0),
            serving_errors: AtomicU64::new(0),
        }
    }

    /// The client certificate was renewed.
    pub(crate) fn set_client(&self, not_after: Timestamp) {
        self.client_not_after_s.store(not_after.as_second(), Ordering::Relaxed);
    }

    /// The client certificate was not renewed.
    pub(crate) fn count_client_error(&self) {
        self.client_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The serving certificate was not renewed.
    pub(crate) fn count_serving_error(&self) {
        self.serving_errors.fetch_add(1, Ordering::Relaxed);
    }
}

/// Adds upstream's families. `joined` is that of a node that renews its certificates itself; `serving_pem` is the node's serving
/// certificate.
pub(crate) fn add_to(families: &mut Families, joined: Option<&Certificates>, serving_pem: Option<&str>, now: Timestamp) {
    let seconds_left = |not_after_s: i64| (not_after_s - now.as_second()) as f64;
    if let Some(Certificates { client_not_after_s, client_errors, serving_errors }) = joined {
        families.gauge(
            "kubelet_certificate_manager_client_ttl_seconds",
            "Seconds until the node's client certificate expires; negative after that.",
            [([], seconds_left(client_not_after_s.load(Ordering::Relaxed)))],
        );
        families.counter(
            "kubelet_certificate_manager_client_expiration_renew_errors",
            "Number of failures to renew the client certificate.",
            [([], number(client_errors.load(Ordering::Relaxed)))],
        );
        families.counter(
            "kubelet_server_expiration_renew_errors",
            "Number of failures to renew the serving certificate.",
            [([], number(serving_errors.load(Ordering::Relaxed)))],
        );
    }
    if let Some(pem) = serving_pem {
        families.gauge(
            "kubelet_certificate_manager_server_ttl_seconds",
            "Seconds until the node's serving certificate expires; negative after that, and infinite if it cannot be read.",
            [([], not_after_s(pem).map_or(f64::INFINITY, seconds_left))],
        );
    }
}

/// The end of a certificate, in s since the epoch.
fn not_after_s(pem: &str) -> Option<i64> {
    let (_, pem) = parse_x509_pem(pem.as_bytes()).ok()?;
    Some(pem.parse_x509().ok()?.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_certificate_has_its_seconds() {
        let now = Timestamp::from_second(1_000).expect("in range");
        let text = |joined: Option<&Certificates>, pem: Option<&str>| {
            let mut families = Families::default();
            add_to(&mut families, joined, pem, now);
            let text = families.text();
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(text(None, None).is_empty(), "no server, and no certificates of its own");
        let joined = Certificates::new(Timestamp::from_second(1_060).expect("in range"));
        joined.count_client_error();
        joined.count_serving_error();
        joined.count_serving_error();
        assert_eq!(
            text(Some(&joined), Some("damaged")),
            [
                "kubelet_certificate_manager_client_ttl_seconds 60",
                "kubelet_certificate_manager_client_expiration_renew_errors 1",
                "kubelet_server_expiration_renew_errors 2",
                "kubelet_certificate_manager_server_ttl_seconds inf",
            ]
        );
        joined.set_client(Timestamp::from_second(990).expect("in range"));
        assert_eq!(text(Some(&joined), None).first().map(String::as_str), Some("kubelet_certificate_manager_client_ttl_seconds -10"));
        let mut params = rcgen::CertificateParams::new(vec!["node".to_owned()]).expect("a name");
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        assert_eq!(text(None, Some(&pem)), ["kubelet_certificate_manager_server_ttl_seconds 1893455000"]);
    }
}
