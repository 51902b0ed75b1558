//! `/metrics/kube-state-metrics`: the state of all objects as metrics, in the families of kube-state-metrics. No watch and no copy
//! of the objects is needed for it: the objects are those of the watch cache.

use std::sync::Arc;

use api_cache::{Cache, Filter};
use api_model::kind::GroupResource;
use api_state_metrics::StateMetrics;
use bytes::BytesMut;

use crate::app::App;
use api_wire::status::{ApiError, ApiResult};

/// The path.
pub(crate) const PATH: &str = "/metrics/kube-state-metrics";

/// The text of a scrape. One at a time is made: for thousands of Pods it has some ten megabytes.
pub(crate) async fn text(app: &Arc<App>) -> ApiResult<Vec<u8>> {
    let lock = Arc::clone(&app.state_metrics_lock).lock_owned().await;
    let core = Arc::clone(&app.core);
    // The client may leave: the lock is held until the text is made.
    let making = api_tasks::blocking("api-server/state-metrics", move || {
        let _lock = lock;
        render(&core.cache)
    });
    making.await.map_err(ApiError::internal)
}

fn render(cache: &Cache) -> Vec<u8> {
    let mut metrics = StateMetrics::new();
    let mut json = BytesMut::new();
    for (group, plural) in api_state_metrics::resources() {
        let resource = cache.resource(&GroupResource::new(group, plural));
        for object in resource.list(&Filter::default(), cache.applied()).items {
            json.clear();
            object.write(&mut json);
            if let Err(error) = metrics.add(group, plural, &json) {
                tracing::warn!(resource = plural, namespace = %object.namespace, name = %object.name, %error, "an object has no metrics");
            }
        }
    }
    metrics.into_text()
}
