//! The deletion of all objects of a selection, one after the other.

use axum::body::Body;
use http::{Response, StatusCode};

use super::delete::{delete_object, options};
use super::list::page;
use crate::admission::Admission;
use crate::call::Call;
use crate::present::Presentation;
use crate::present::list::respond;
use api_wire::accept::Answer;
use api_wire::options::ListOptions;
use api_wire::status::ApiResult;

/// `DELETE` of a collection. Returns the deleted objects.
pub(crate) async fn delete_collection(admission: &Admission, call: &mut Call, bytes: &[u8]) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::List)?;
    let options = options(call, bytes)?;
    let page = page(call, &ListOptions::parse(&call.query)?).await?;
    for object in &page.items {
        match delete_object(admission, call, &object.name, &options).await {
            // Somebody else deleted it meanwhile.
            Err(error) if error.code() == StatusCode::NOT_FOUND => {}
            outcome => {
                outcome?;
            }
        }
    }
    Ok(respond(&presentation, page).await)
}
