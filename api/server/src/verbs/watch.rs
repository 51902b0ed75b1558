//! Changes as they happen.

use std::sync::Arc;
use std::time::Duration;

use api_clock::rand::Rng;
use axum::body::Body;
use http::{HeaderValue, Response, header};

use super::list::filter;
use crate::call::Call;
use crate::present::Presentation;
use crate::present::conversion::WatchConversion;
use crate::present::stream::{WatchBody, Wish};
use api_cache::Since;
use api_wire::accept::Answer;
use api_wire::media::Media;
use api_wire::options::ListOptions;
use api_wire::status::{ApiError, ApiResult};

/// Upstream's `--min-request-timeout`: a watch without timeout lasts once to twice as long.
const TIMEOUT_MIN: Duration = Duration::from_secs(1_800);

/// `GET` with `watch=true`.
pub(crate) async fn watch(call: &Call, options: &ListOptions) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::Watch)?;
    options.check_watch()?;
    let filter = filter(call, options)?;
    call.check_readable(filter.namespace.as_deref())?;
    let requested = options.resource_version.filter(|revision| *revision > 0);
    let since = match (options.send_initial_events, requested) {
        (Some(true), _) | (None, None) => Since::Everything,
        (Some(false), None) => Since::Now,
        (Some(false) | None, Some(revision)) => Since::Revision(revision),
    };
    if let Some(revision) = requested {
        let waited = call.core.cache.wait_for(revision).await;
        waited.map_err(|at| ApiError::too_large_version(revision, at))?;
    }
    let (conversion, filter) = WatchConversion::of(&call.served, filter);
    let started = call.served.resource.watch(filter, since, call.served.kind.namespaced, call.core.cache.applied());
    let (mut beginning, subscription) = match started {
        Ok(started) => started,
        // As upstream, the error is an event of the stream.
        Err(oldest) => {
            let error = ApiError::too_old(requested.unwrap_or_default(), oldest);
            return Ok(stream(presentation.media, Body::from(presentation.failure(&error))));
        }
    };
    if let Some(conversion) = &conversion {
        beginning = conversion.beginning(beginning).await?;
    }
    let wish = Wish {
        bookmarks: options.bookmarks,
        mark_initial_end: options.send_initial_events == Some(true) && options.bookmarks,
        conversion,
        timeout: options.timeout.unwrap_or_else(|| TIMEOUT_MIN.mul_f64(api_clock::rng().random_range(1.0..2.0))),
    };
    let media = presentation.media;
    Ok(stream(media, Body::new(WatchBody::new(presentation, Arc::clone(&call.core.cache), beginning, subscription, wish))))
}

fn stream(media: Media, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media.stream_content_type()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
