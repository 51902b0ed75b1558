//! Renewal of the server's own certificates while it runs: the one for clients, the one for nodes, and the front proxy's. Open
//! connections go on with the old ones.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::aggregation::Aggregation;
use crate::connect::Connector;
use crate::tls::ServingCertificate;
use api_upstream::tls::{self, TlsError};

/// The interval at which certificates are checked. They are renewed weeks before they expire.
const LOOK_EVERY: Duration = Duration::from_secs(12 * 3_600);

/// Checks the certificates until the server stops.
pub(crate) async fn run(connector: Arc<Connector>, aggregation: Arc<Aggregation>, serving: Arc<ServingCertificate>) {
    let shutdown = &aggregation.core.shutdown;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let (connector, aggregation, serving) = (Arc::clone(&connector), Arc::clone(&aggregation), Arc::clone(&serving));
        // This reads files, and writes those of certificates that are due.
        let looked = api_tasks::blocking("api-server/certificates", move || {
            renew(&connector, &aggregation, &serving, api_clock::now());
        })
        .await;
        if let Err(error) = looked {
            tracing::error!(%error, "looking at the certificates failed");
        }
    }
}

/// Renews the certificates that are due at this time. A certificate that cannot be renewed stays until the next check.
pub(crate) fn renew(connector: &Connector, aggregation: &Aggregation, serving: &ServingCertificate, now: Timestamp) {
    let pki = match aggregation.core.config.pki.reopened_at(now) {
        Ok(pki) => pki,
        Err(error) => return tracing::error!(%error, "the certificates could not be looked at"),
    };
    let taken = serving.take_up(&pki).and_then(|()| -> Result<(), TlsError> {
        connector.renew(tls::node_connector(&pki)?);
        aggregation.renew(Arc::new(pki));
        Ok(())
    });
    if let Err(error) = taken {
        tracing::error!(%error, "a renewed certificate is not taken up");
    }
}
