//! The requests of claims in one form: a request for devices of a class, or one of several alternatives.

use std::cell::OnceCell;

use api_client::informer::ObjectKey;
use k8s_openapi::api::resource::v1::{
    CapacityRequirements, DeviceClass, DeviceRequest, DeviceSelector, DeviceSubRequest, DeviceToleration, ResourceClaim,
};
use sched_framework::DraManager;

use super::capacity::{self, CapacityRequest};
use super::constraint::RequestNames;
use super::error::{AllocationError, RequestError};
use super::selectors::Compiled;

/// A request or a subrequest.
#[derive(Debug)]
pub(super) struct Request<'a> {
    /// The name of the request.
    pub name: &'a str,
    /// The name in the result: `request/subrequest` for a subrequest.
    pub full_name: String,
    pub class: &'a DeviceClass,
    /// Those of the class, then those of the claim.
    pub selectors: Vec<RequestSelector<'a>>,
    pub tolerations: &'a [DeviceToleration],
    pub admin_access: bool,
    /// The amounts of capacities that each device must give.
    pub capacity: Vec<CapacityRequest<'a>>,
    pub wanted: Wanted,
}

/// A selector that the devices of a request must match.
#[derive(Debug)]
pub(super) struct RequestSelector<'a> {
    pub expression: &'a str,
    /// The number among the selectors of the class or of the claim.
    pub index: usize,
    pub is_of_class: bool,
    /// The selector, once a device was compared with it.
    pub compiled: OnceCell<Compiled>,
}

/// How many devices a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Exactly(usize),
    All,
}

/// The alternatives of a request, the preferred one first. A request that has none is its only alternative.
pub(super) type Alternatives<'a> = Vec<Request<'a>>;

impl Request<'_> {
    pub fn names(&self) -> RequestNames<'_> {
        RequestNames { request: self.name, full: &self.full_name }
    }
}

/// The fields that requests and subrequests share.
struct Fields<'a> {
    name: &'a str,
    full_name: String,
    class: &'a str,
    selectors: &'a Option<Vec<DeviceSelector>>,
    tolerations: &'a Option<Vec<DeviceToleration>>,
    admin_access: bool,
    mode: Option<&'a str>,
    count: Option<i64>,
    capacity: Option<&'a CapacityRequirements>,
    has_derived_attributes: bool,
}

/// `namespace/name` of the claim, as messages name it.
pub(super) fn claim_name(claim: &ResourceClaim) -> String {
    ObjectKey::from(&claim.metadata).to_string()
}

/// The requests of the claim.
pub(super) fn of_claim<'a>(claim: &'a ResourceClaim, dra: &'a DraManager) -> Result<Vec<Alternatives<'a>>, AllocationError> {
    let requests = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref()?.requests.as_ref());
    requests.into_iter().flatten().map(|request| alternatives(claim, request, dra)).collect()
}

/// The name of an alternative in constraints and results.
pub(super) fn alternative_name(request: &DeviceRequest, alternative: &DeviceSubRequest) -> String {
    format!("{}/{}", request.name, alternative.name)
}

fn alternatives<'a>(
    claim: &'a ResourceClaim,
    request: &'a DeviceRequest,
    dra: &'a DraManager,
) -> Result<Alternatives<'a>, AllocationError> {
    let failed = |name: &str, reason| AllocationError::Request { claim: claim_name(claim), request: name.to_owned(), reason };
    let fields: Vec<Fields<'a>> = match (&request.exactly, &request.first_available) {
        (Some(exactly), _) => vec![Fields {
            name: &request.name,
            full_name: request.name.clone(),
            class: &exactly.device_class_name,
            selectors: &exactly.selectors,
            tolerations: &exactly.tolerations,
            admin_access: exactly.admin_access.unwrap_or_default(),
            mode: exactly.allocation_mode.as_deref(),
            count: exactly.count,
            capacity: exactly.capacity.as_ref(),
            has_derived_attributes: exactly.derived_attributes.as_ref().is_some_and(|all| !all.is_empty()),
        }],
        (None, Some(subs)) if !subs.is_empty() => {
            let of_sub = |sub: &'a DeviceSubRequest| Fields {
                name: &request.name,
                full_name: alternative_name(request, sub),
                class: &sub.device_class_name,
                selectors: &sub.selectors,
                tolerations: &sub.tolerations,
                admin_access: false,
                mode: sub.allocation_mode.as_deref(),
                count: sub.count,
                capacity: sub.capacity.as_ref(),
                has_derived_attributes: sub.derived_attributes.as_ref().is_some_and(|all| !all.is_empty()),
            };
            subs.iter().map(of_sub).collect()
        }
        _ => return Err(failed(&request.name, RequestError::Unknown)),
    };
    fields
        .into_iter()
        .map(|fields| {
            let name = fields.full_name.clone();
            of_fields(fields, dra).map_err(|reason| failed(&name, reason))
        })
        .collect()
}

fn request_selectors(selectors: &[DeviceSelector], is_of_class: bool) -> impl Iterator<Item = RequestSelector<'_>> {
    selectors.iter().enumerate().map(move |(index, selector)| RequestSelector {
        expression: selector.cel.as_ref().map_or("", |cel| cel.expression.as_str()),
        index,
        is_of_class,
        compiled: OnceCell::new(),
    })
}

fn of_fields<'a>(fields: Fields<'a>, dra: &'a DraManager) -> Result<Request<'a>, RequestError> {
    if fields.has_derived_attributes {
        return Err(RequestError::DerivedAttributes);
    }
    let selectors = fields.selectors.as_deref().unwrap_or_default();
    if let Some(index) = selectors.iter().position(|selector| selector.cel.is_none()) {
        return Err(RequestError::Selector(index));
    }
    if fields.class.is_empty() {
        return Err(RequestError::NoClassName);
    }
    let class = dra.class(fields.class).ok_or_else(|| RequestError::NoClass(fields.class.to_owned()))?;
    let wanted = match fields.mode.unwrap_or("ExactCount") {
        "ExactCount" => Wanted::Exactly(usize::try_from(fields.count.unwrap_or(1)).unwrap_or(usize::MAX)),
        "All" => Wanted::All,
        other => return Err(RequestError::Mode(other.to_owned())),
    };
    let of_class = class.spec.as_ref().and_then(|spec| spec.selectors.as_deref()).unwrap_or_default();
    let selectors = request_selectors(of_class, true).chain(request_selectors(selectors, false)).collect();
    let tolerations = fields.tolerations.as_deref().unwrap_or_default();
    let capacity = capacity::requests(fields.capacity)?;
    let Fields { name, full_name, admin_access, .. } = fields;
    Ok(Request { name, full_name, class, selectors, tolerations, admin_access, capacity, wanted })
}
