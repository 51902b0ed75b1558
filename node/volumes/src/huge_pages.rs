//! The size of the pages behind an `emptyDir` of huge pages: the one in the medium, or the only one that the Pod requests. The size of
//! the volume. Pure.

use std::collections::{BTreeMap, BTreeSet};

use api_model::{huge_pages, quantity};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::VolumeError;

/// The medium with pages of the size that the Pod requests.
const MEDIUM: &str = "HugePages";
/// Before the size of the pages in a medium that names it.
const MEDIUM_PREFIX: &str = "HugePages-";

/// Whether a medium is one of huge pages.
pub(crate) fn is_medium(medium: &str) -> bool {
    medium == MEDIUM || medium.starts_with(MEDIUM_PREFIX)
}

/// The bytes of a page of the medium. The words of the errors are upstream's.
pub(crate) fn page_bytes(medium: &str, pod: &Pod) -> Result<u64, VolumeError> {
    let requested = requested_sizes(pod);
    let size = match medium.strip_prefix(MEDIUM_PREFIX) {
        None if requested.len() > 1 => {
            let words = format!("medium: {medium} can't be used if container requests multiple huge page sizes");
            return Err(VolumeError::BadField(words));
        }
        None => requested.first().copied(),
        Some(size) => {
            let size = quantity::value(size).map_err(|error| VolumeError::BadField(error.to_string()))?;
            u64::try_from(size).ok().filter(|size| requested.contains(size))
        }
    };
    let missing = || format!("medium {medium}: hugePages storage requested, but there is no resource request for huge pages");
    size.ok_or_else(|| VolumeError::BadField(missing()))
}

/// The bytes of a volume: the lower of its own limit and the Pod's for pages of the size, but at least one page. `None` without limits.
pub(crate) fn size_bytes(page_bytes: u64, declared: Option<u64>, pod: &Pod) -> Option<u64> {
    let of_pod = pod.spec.as_ref().and_then(|spec| huge_pages::limits_of_pod(spec).get(&page_bytes).copied());
    declared.into_iter().chain(of_pod).min().map(|bytes| bytes.max(page_bytes))
}

/// The sizes of the pages that the containers and the whole Pod request.
fn requested_sizes(pod: &Pod) -> BTreeSet<u64> {
    let Some(spec) = &pod.spec else { return BTreeSet::new() };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let resources = containers.filter_map(|container| container.resources.as_ref()).chain(&spec.resources);
    let sizes = |list: &BTreeMap<String, Quantity>| list.keys().filter_map(|name| huge_pages::page_bytes(name)).collect::<Vec<_>>();
    resources.filter_map(|resources| resources.requests.as_ref()).flat_map(sizes).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The size, or the error, for a Pod whose containers request these resources.
    fn size(medium: &str, containers: &[&str], init: &[&str], whole: &[&str]) -> Result<u64, String> {
        let requests = |names: &[&str]| json!({"requests": names.iter().map(|name| (*name, "2Gi")).collect::<BTreeMap<_, _>>()});
        let list = |all: &[&str]| all.iter().map(|name| json!({"name": "c", "resources": requests(&[name])})).collect::<Vec<Value>>();
        let spec = json!({"containers": list(containers), "initContainers": list(init), "resources": requests(whole)});
        let pod = serde_json::from_value(json!({"spec": spec})).expect("a Pod");
        page_bytes(medium, &pod).map_err(|error| error.to_string())
    }

    #[test]
    fn the_size_is_the_mediums_or_the_only_one_requested() {
        let (small, large) = ("hugepages-2Mi", "hugepages-1Gi");
        let (mib, gib) = (Ok(2 << 20), Ok(1 << 30));
        for (medium, containers, init, whole, wanted) in [
            ("HugePages", &[small][..], &[][..], &[][..], &mib),
            ("HugePages", &["memory", small], &[small], &[], &mib),
            ("HugePages", &["memory"], &[large], &[], &gib),
            ("HugePages", &["memory"], &[], &[small], &mib),
            ("HugePages-2Mi", &[small, large], &[], &[], &mib),
            ("HugePages-1Gi", &[small, large], &[], &[], &gib),
            ("HugePages-2048Ki", &[small], &[], &[], &mib),
        ] {
            assert_eq!(&size(medium, containers, init, whole), wanted, "{medium} {containers:?} {init:?} {whole:?}");
        }
        let several = "medium: HugePages can't be used if container requests multiple huge page sizes";
        assert_eq!(size("HugePages", &[small, large], &[], &[]), Err(several.to_owned()));
        assert_eq!(size("HugePages", &[small], &[], &[large]), Err(several.to_owned()));
        for (medium, containers) in [("HugePages", ["memory"]), ("HugePages-1Gi", [small]), ("HugePages-0", [small])] {
            let none = format!("medium {medium}: hugePages storage requested, but there is no resource request for huge pages");
            assert_eq!(size(medium, &containers, &[], &[]), Err(none));
        }
        assert!(size("HugePages-big", &[small], &[], &[]).is_err_and(|error| error.starts_with("quantities must match")));
    }

    #[test]
    fn a_volume_has_the_lower_limit_and_at_least_one_page() {
        let (page, mib) = (2 << 20, 1 << 20);
        let of_pod = |limits: Value| serde_json::from_value(json!({"spec": {"containers": [], "resources": {"limits": limits}}}));
        for (limit, declared, wanted) in [
            (Some("8Mi"), None, Some(8 * mib)),
            (Some("8Mi"), Some(3 * mib), Some(3 * mib)),
            (Some("8Mi"), Some(16 * mib), Some(8 * mib)),
            (Some("8Mi"), Some(1), Some(page)),
            (Some("0"), None, Some(page)),
            (None, Some(1), Some(page)),
            (None, Some(5 * mib), Some(5 * mib)),
            (None, None, None),
        ] {
            let limits = limit.map_or(json!({"hugepages-1Gi": "1Gi"}), |limit| json!({"hugepages-2Mi": limit}));
            let pod: Pod = of_pod(limits).expect("a Pod");
            assert_eq!(size_bytes(page, declared, &pod), wanted, "{limit:?} {declared:?}");
        }
    }

    #[test]
    fn media_of_huge_pages_have_their_names() {
        assert!(["HugePages", "HugePages-2Mi"].into_iter().all(is_medium));
        assert!(!["", "Memory", "HugePagesOfMine", "hugepages"].into_iter().any(is_medium));
    }
}
