//! Objects of a kind: all of them, a selection, a page, or as they were.

use std::sync::Arc;

use api_model::selector::{FieldSelector, FieldTerm};
use axum::body::Body;
use http::Response;

use crate::app::Call;
use crate::cache::{Filter, Page, Place};
use crate::registry::Served;
use crate::status::{ApiError, ApiResult};
use crate::wire::accept::Answer;
use crate::wire::list::{Token, respond};
use crate::wire::options::{ListOptions, Match};
use crate::wire::present::Presentation;

/// `GET` of a collection.
pub(crate) async fn list(call: &Call) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::List)?;
    let options = ListOptions::parse(&call.query)?;
    let page = page(call, &options).await?;
    Ok(respond(&presentation, page).await)
}

/// The objects that a list means.
pub(crate) async fn page(call: &Call, options: &ListOptions) -> ApiResult<Page> {
    options.check_list()?;
    let filter = filter(call, options)?;
    call.check_readable(filter.namespace.as_deref())?;
    if let Some(token) = &options.continue_token {
        return next_page(call, options, &filter, &Token::decode(token)?);
    }
    let asked = options.resource_version.filter(|revision| *revision > 0);
    if let Some(revision) = asked {
        let waited = call.app.cache.wait_for(revision).await;
        waited.map_err(|at| ApiError::too_large_version(revision, at))?;
    }
    // A limit without a match is exact, as it was before there were matches.
    let exact = match options.version_match {
        Some(how) => how == Match::Exact,
        None => options.limit.is_some(),
    };
    match (asked.filter(|_| exact), options.limit) {
        (Some(revision), limit) => past(call, &filter, revision, None, limit).ok_or_else(|| too_old(call, revision)),
        (None, None) => Ok(call.served.resource.list(&filter, call.app.cache.applied())),
        (None, limit) => Ok(now(call, &filter, None, limit)),
    }
}

fn next_page(call: &Call, options: &ListOptions, filter: &Filter, token: &Token) -> ApiResult<Page> {
    if options.resource_version.is_some_and(|revision| revision > 0) {
        return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
    }
    let place = token.place();
    match token.revision() {
        Some(revision) => {
            let page = past(call, filter, revision, Some(&place), options.limit);
            page.ok_or_else(|| ApiError::continue_expired(token.inconsistent().encode()))
        }
        None => Ok(now(call, filter, Some(&place), options.limit)),
    }
}

fn past(call: &Call, filter: &Filter, revision: u64, behind: Option<&Place>, limit: Option<usize>) -> Option<Page> {
    call.served.resource.past(filter, revision, behind, limit)
}

fn now(call: &Call, filter: &Filter, behind: Option<&Place>, limit: Option<usize>) -> Page {
    call.served.resource.present(filter, call.app.cache.applied(), behind, limit)
}

fn too_old(call: &Call, revision: u64) -> ApiError {
    ApiError::too_old(revision, crate::cache::TooOld { oldest: call.served.resource.revision() })
}

/// What a list or watch is about. Fields that the kind does not offer are refused.
pub(crate) fn filter(call: &Call, options: &ListOptions) -> ApiResult<Filter> {
    let namespace = (call.served.kind.namespaced && !call.namespace.is_empty()).then(|| call.namespace.clone());
    let mut fields = stored_fields(&call.served, &options.fields)?;
    if !call.name.is_empty() {
        // `/watch/…/NAME`: the caller was authorized for that object alone.
        fields.terms.push(FieldTerm { path: "metadata.name".to_owned(), value: call.name.clone(), negated: false });
    }
    Ok(Filter { namespace, labels: options.labels.clone(), fields, kind: Some(Arc::clone(&call.served.stored)) })
}

fn stored_fields(served: &Served, fields: &FieldSelector) -> ApiResult<FieldSelector> {
    let offered = api_rules::field_selectors(&served.kind);
    let mut terms = fields.terms.clone();
    for term in &mut terms {
        let stored = match &served.conversion {
            Some(conversion) => (conversion.stored_field)(&term.path),
            None => offered.iter().copied().find(|path| *path == term.path),
        };
        let stored = stored.map(str::to_owned);
        match stored {
            Some(path) => term.path = path,
            None => {
                let message = match offered.len() {
                    // Upstream's kinds without fields of their own have one wording, the others another.
                    0..=2 => format!("\"{}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", term.path),
                    _ => format!("field label not supported: {}", term.path),
                };
                return Err(ApiError::bad_request(message));
            }
        }
    }
    Ok(FieldSelector { terms })
}
