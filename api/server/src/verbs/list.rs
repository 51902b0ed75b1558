//! Lists of objects: all of them, a selection, a page, or an earlier state.

use std::sync::Arc;

use api_model::selector::{FieldSelector, FieldTerm};
use axum::body::Body;
use http::Response;

use crate::call::Call;
use crate::conversion::Converter;
use crate::present::Presentation;
use crate::present::list::{Token, respond};
use crate::registry::Served;
use api_cache::{Behind, Filter, Page};
use api_wire::accept::Answer;
use api_wire::options::{ListOptions, Match};
use api_wire::status::{ApiError, ApiResult};

/// `GET` of a collection.
pub(crate) async fn list(call: &Call) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::List)?;
    let options = ListOptions::parse(&call.query)?;
    let page = page(call, &options).await?;
    Ok(respond(&presentation, page).await)
}

/// The objects of a list, in the version of the call. Where a webhook converts, selectors are applied after the conversion, so that
/// pages may be shorter than their limit.
pub(crate) async fn page(call: &Call, options: &ListOptions) -> ApiResult<Page> {
    options.check_list()?;
    let filter = filter(call, options)?;
    let is_after = call.served.converter().is_some_and(Converter::changes_selection) && !filter.is_plain();
    let mut page = match is_after {
        true => stored_page(call, options, &filter.by_name_only()).await?,
        false => stored_page(call, options, &filter).await?,
    };
    page.items = call.served.in_version(page.items).await?;
    if is_after {
        page.items.retain(|object| filter.matches(object));
        page.remaining = None;
    }
    Ok(page)
}

async fn stored_page(call: &Call, options: &ListOptions, filter: &Filter) -> ApiResult<Page> {
    call.check_readable(filter.namespace.as_deref())?;
    if let Some(token) = &options.continue_token {
        return next_page(call, options, filter, &Token::decode(token)?);
    }
    let requested = options.resource_version.filter(|revision| *revision > 0);
    if let Some(revision) = requested {
        let waited = call.core.cache.wait_for(revision).await;
        waited.map_err(|at| ApiError::too_large_version(revision, at))?;
    }
    // A limit without `resourceVersionMatch` means `Exact`, as upstream.
    let exact = match options.version_match {
        Some(ref how) => *how == Match::Exact,
        None => options.limit.is_some(),
    };
    match (requested.filter(|_| exact), options.limit) {
        (Some(revision), limit) => past(call, filter, revision, None, limit).ok_or_else(ApiError::list_too_old),
        (None, None) => Ok(call.served.resource.list(filter, call.core.cache.applied())),
        (None, limit) => Ok(now(call, filter, None, limit)),
    }
}

fn next_page(call: &Call, options: &ListOptions, filter: &Filter, token: &Token) -> ApiResult<Page> {
    if options.resource_version.is_some_and(|revision| revision > 0) {
        return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
    }
    let behind = token.behind();
    match token.revision() {
        Some(revision) => {
            let page = past(call, filter, revision, Some(&behind), options.limit);
            page.ok_or_else(|| ApiError::continue_expired(token.inconsistent().encode()))
        }
        None => Ok(now(call, filter, Some(&behind), options.limit)),
    }
}

fn past(call: &Call, filter: &Filter, revision: u64, behind: Option<&Behind>, limit: Option<usize>) -> Option<Page> {
    (revision >= call.core.cache.lists_from()).then(|| call.served.resource.past(filter, revision, behind, limit))?
}

fn now(call: &Call, filter: &Filter, behind: Option<&Behind>, limit: Option<usize>) -> Page {
    call.served.resource.present(filter, call.core.cache.applied(), behind, limit)
}

/// The filter of a list or watch. Field selectors that the kind does not have are rejected.
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
                    // Upstream has one message for built-in kinds without fields of their own, and another for all other kinds.
                    0..=2 if served.custom.is_none() => {
                        format!("\"{}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", term.path)
                    }
                    _ => format!("field label not supported: {}", term.path),
                };
                return Err(ApiError::bad_request(message));
            }
        }
    }
    Ok(FieldSelector { terms })
}
