//! Renews certificates that this process issues for others, long before they expire. The API server renews its own
//! certificates.

use std::sync::Arc;
use std::time::Duration;

use api_auth::pki::Subject;
use api_auth::{Identity, Pki};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

/// Validity of an issued certificate.
pub const VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often certificates are checked: they are due for renewal months before they expire.
const LOOK_EVERY: Duration = Duration::from_secs(12 * 3600);

/// Where a certificate is stored.
pub trait CertificateStore: Send + 'static {
    /// The owner of the certificate, for messages.
    fn what(&self) -> &'static str;
    /// The present certificate, PEM. None if there is none any more; then nothing is renewed.
    fn present(&self) -> Option<String>;
    /// Replaces the certificate.
    fn replace(&mut self, identity: Identity) -> anyhow::Result<()>;
}

/// One certificate and its store.
pub struct Renewal<K> {
    pki: Arc<Pki>,
    subject: Subject,
    store: K,
}

impl<K: CertificateStore> Renewal<K> {
    /// The renewal of the certificate for that subject.
    pub fn new(pki: Arc<Pki>, subject: Subject, store: K) -> Self {
        Self { pki, subject, store }
    }

    /// Checks until cancelled. If a renewal fails, the certificate stays until the next check.
    pub async fn run(mut self, clock: impl Fn() -> Timestamp + Send, cancel: CancellationToken) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                () = cancel.cancelled() => return Ok(()),
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            match self.look(clock()) {
                Ok(false) => {}
                Ok(true) => tracing::info!(what = self.store.what(), "certificate renewed"),
                Err(error) => tracing::error!(what = self.store.what(), error = format!("{error:#}"), "a certificate is not renewed"),
            }
        }
    }

    /// Renews the certificate if it is due at that time; returns whether it was due.
    fn look(&mut self, now: Timestamp) -> anyhow::Result<bool> {
        match self.store.present() {
            Some(pem) if self.pki.is_due(&pem, now) => {
                self.store.replace(self.pki.issue_at(&self.subject, VALIDITY, now)?)?;
                Ok(true)
            }
            Some(_) | None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use api_auth::PkiConfig;
    use api_auth::pki::read_certificate;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[derive(Clone, Default)]
    struct MemoryStore(Arc<Mutex<(Option<String>, u32)>>);

    impl CertificateStore for MemoryStore {
        fn what(&self) -> &'static str {
            "a test's"
        }

        fn present(&self) -> Option<String> {
            self.0.lock().expect("whole").0.clone()
        }

        fn replace(&mut self, identity: Identity) -> anyhow::Result<()> {
            let mut stored = self.0.lock().expect("whole");
            stored.1 += 1;
            anyhow::ensure!(stored.1 != 1, "the first attempt fails");
            stored.0 = Some(identity.certificate_pem);
            Ok(())
        }
    }

    /// The clock moves by three years.
    #[tokio::test(start_paused = true)]
    async fn what_is_issued_is_good_for_as_long_as_the_process_runs() {
        let directory = tempfile::tempdir().expect("a directory");
        let pki = Arc::new(Pki::open(directory.path(), &PkiConfig::for_cluster("cluster.local")).expect("keys"));
        let (began, beginning) = (tokio::time::Instant::now(), Timestamp::now());
        let clock = move || beginning.saturating_add(began.elapsed()).expect("a time");
        let subject = Subject::client("kubernetes-admin", &["system:masters"]);
        let stored = MemoryStore::default();
        stored.0.lock().expect("whole").0 = Some(pki.issue_at(&subject, VALIDITY, beginning).expect("a certificate").certificate_pem);
        let (cancel, renewal) = (CancellationToken::new(), Renewal::new(pki, subject, stored.clone()));
        let running = tokio::spawn(renewal.run(clock, cancel.clone()));
        let first = stored.present();
        tokio::time::sleep(200 * DAY).await;
        assert_eq!(stored.present(), first, "it is good for long yet");
        for _ in 0..300 {
            tokio::time::sleep(3 * DAY).await;
            let present = read_certificate(&stored.present().expect("there")).expect("a certificate");
            let left = present.not_after.duration_since(clock());
            assert!(left > jiff::SignedDuration::from_hours(24 * 80), "{left}");
            assert_eq!(
                (present.common_name.as_str(), present.organizations.as_slice()),
                ("kubernetes-admin", &["system:masters".to_owned()][..])
            );
        }
        let attempts = stored.0.lock().expect("whole").1;
        assert!((4..=6).contains(&attempts), "{attempts}");
        // A user who removes the certificate does not want it renewed.
        stored.0.lock().expect("whole").0 = None;
        tokio::time::sleep(400 * DAY).await;
        assert_eq!(stored.present(), None);
        cancel.cancel();
        running.await.expect("no panic").expect("ended as told");
    }
}
