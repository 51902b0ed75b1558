//! LimitRanges: bounds and defaults of the resources of Pods, containers and claims.

use api_model::k8s_openapi::api::core::v1::LimitRange;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, namespaced};
use crate::quantity::samples;
use crate::series::{Label, Series};

impl Kind for LimitRange {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("limitrange", self)
    }
}

const FAMILIES: &[Family<LimitRange>] = &[
    gauge("kube_limitrange", "A bound or default of a resource.", limits),
    gauge("kube_limitrange_created", "When the LimitRange was created, in Unix seconds.", created),
];

fn limits(range: &LimitRange, series: &mut Series<'_>) {
    for item in range.spec.iter().flat_map(|spec| &spec.limits) {
        for (constraint, resources) in [
            ("min", &item.min),
            ("max", &item.max),
            ("default", &item.default),
            ("defaultRequest", &item.default_request),
            ("maxLimitRequestRatio", &item.max_limit_request_ratio),
        ] {
            samples(resources, &[("type", &item.type_), ("constraint", constraint)], series);
        }
    }
}
