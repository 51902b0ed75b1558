//! Token cleaner: removes bootstrap tokens when they run out.
//!
//! Watches Secrets of that type in kube-system; deletes those whose `expiration` is past. Touches no other Secret.

use std::sync::Arc;
use std::time::Duration;

use api_client::informer::{Change, Informer, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;

use super::{NAMESPACE, expiration};
use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, writes};

/// The controller; its keys are Secrets' names.
pub struct TokenCleaner {
    client: kube::Client,
    secrets: Informer<Secret>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("token_cleaner"));
    let secrets = context.feed_selected(super::SECRETS, &queue, |change: &Change<Secret>| {
        let own = change.new.iter().filter(|secret| meta::namespace(&secret.metadata) == NAMESPACE);
        own.map(|secret| meta::name(&secret.metadata).to_owned()).collect()
    });
    context.run(Arc::new(TokenCleaner { client: context.client(), secrets }), queue);
}

/// How long the token is still valid; `None` for ever.
fn stays(secret: &Secret, now: Timestamp) -> Option<Duration> {
    expiration(secret).map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

impl Controller for TokenCleaner {
    const NAME: &'static str = "token-cleaner-controller";
    const WORKERS: usize = 1;
    type Key = String;

    async fn reconcile(&self, key: &String) -> Result<Next, Failure> {
        let Some(secret) = self.secrets.get(&ObjectKey::new(NAMESPACE, key)) else { return Ok(Next::OnChange) };
        match stays(&secret, api_clock::now()) {
            None => Ok(Next::OnChange),
            Some(left) if !left.is_zero() => Ok(Next::After(left)),
            Some(_) => {
                writes::delete(&self.client, secret.as_ref(), DeleteParams::default()).await?;
                tracing::info!(secret = key, "expired bootstrap token removed");
                Ok(Next::OnChange)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::token;
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_stay_until_they_run_out() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().expect("a time");
        for (expiration, expected) in [
            (json!({}), None),
            (json!({"expiration": ""}), None),
            (json!({"expiration": "2026-01-02T00:01:00Z"}), Some(60)),
            (json!({"expiration": "2026-01-02T01:01:00+01:00"}), Some(60)),
            (json!({"expiration": "2026-01-02T00:00:00Z"}), Some(0)),
            (json!({"expiration": "2025-01-02T00:00:00Z"}), Some(0)),
            (json!({"expiration": "soon"}), Some(0)),
        ] {
            assert_eq!(stays(&token("abcdef", expiration.clone()), now), expected.map(Duration::from_secs), "{expiration}");
        }
    }
}
