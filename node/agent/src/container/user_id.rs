//! The user of WASM containers whose Pod and image name no user, or name root. Each Pod has its own user, so that Pods do not
//! share what the kernel counts or allows by user (signals, pipes, files). In a Pod with a user namespace, each id of the node is
//! the Pod's own anyway. Pure.

use runtimes_contract::User;
use sha2::{Digest as _, Sha256};

/// The first id of the range: above the ids of distributions and container managers (systemd lists the ranges), below the ids
/// that some programs take for negative.
pub(crate) const FIRST: u32 = 0x7000_0000;
/// The number of ids in the range. With a thousand Pods on a node the chance that two share an id is one in five hundred;
/// namespaces and the filter of system calls still separate them.
const COUNT: u32 = 0x0ffe_0000;
/// The id instead in a user namespace, which has no such ids: nobody.
const IN_NAMESPACE: u32 = 65_534;

/// A Pod's id, always the same. The group has the same number.
fn of_pod(uid: &str) -> u32 {
    let digest = Sha256::digest(format!("user of {uid}"));
    let number = digest.iter().take(8).fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
    FIRST + u32::try_from(number % u64::from(COUNT)).unwrap_or(0)
}

/// The requested user, with the Pod's own id instead of root and for ids that are not set.
pub(crate) fn never_root(requested: User, pod_uid: &str, has_user_namespace: bool) -> User {
    let own = if has_user_namespace { IN_NAMESPACE } else { of_pod(pod_uid) };
    let or_own = |id: Option<u32>| id.filter(|&id| id != 0).or(Some(own));
    User { uid: or_own(requested.uid), gid: or_own(requested.gid), groups: requested.groups }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pod_has_an_id_of_its_own_within_the_range() {
        let ids: std::collections::BTreeSet<u32> = (0..1000).map(|number| of_pod(&format!("pod-{number}"))).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| (0x7000_0000..0x7ffe_0000).contains(id)));
        assert_eq!(of_pod("u"), of_pod("u"));
    }

    #[test]
    fn root_is_the_pods_own_user() {
        let own = Some(of_pod("u"));
        let ask = |uid, gid| {
            let user = never_root(User { uid, gid, groups: vec![7] }, "u", false);
            (user.uid, user.gid, user.groups)
        };
        assert_eq!(ask(None, None), (own, own, vec![7]));
        assert_eq!(ask(Some(0), Some(0)), (own, own, vec![7]));
        assert_eq!(ask(Some(1000), Some(0)), (Some(1000), own, vec![7]));
        assert_eq!(ask(Some(1000), Some(2000)), (Some(1000), Some(2000), vec![7]));
        let inside = never_root(User { uid: Some(0), gid: Some(5), groups: Vec::new() }, "u", true);
        assert_eq!(inside, User { uid: Some(65_534), gid: Some(5), groups: Vec::new() });
    }
}
