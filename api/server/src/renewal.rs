//! Certificates of the server's own, renewed before they expire while it runs: the one that it shows to clients, the one
//! that it shows to nodes, and the front proxy's. Connections that are open are not touched.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::app::App;
use crate::tls::ServingCertificate;
use api_upstream::tls::{self, TlsError};

/// How often certificates are looked at. They are renewed weeks before they expire.
const LOOK_EVERY: Duration = Duration::from_secs(12 * 3_600);

/// Looks until the server stops.
pub(crate) async fn run(app: Arc<App>, shown: Arc<ServingCertificate>) {
    loop {
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let looking = Arc::clone(&app);
        let shown = Arc::clone(&shown);
        // Files are read, and written where a certificate is due.
        let looked = api_tasks::blocking("api-server/certificates", move || renew(&looking, &shown, Timestamp::now())).await;
        if let Err(error) = looked {
            tracing::error!(%error, "looking at the certificates failed");
        }
    }
}

/// Renews what is due by then. What cannot be renewed stays as it is until the next look.
pub(crate) fn renew(app: &App, shown: &ServingCertificate, now: Timestamp) {
    let pki = match app.config.pki.reopened_at(now) {
        Ok(pki) => pki,
        Err(error) => return tracing::error!(%error, "the certificates could not be looked at"),
    };
    let taken = shown.take_up(&pki).and_then(|()| -> Result<(), TlsError> {
        app.node_tls.store(Arc::new(tls::node_connector(&pki)?));
        app.aggregation.renew(Arc::new(pki));
        Ok(())
    });
    if let Err(error) = taken {
        tracing::error!(%error, "a renewed certificate is not taken up");
    }
}
