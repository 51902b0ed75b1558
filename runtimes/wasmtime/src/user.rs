//! The user that a container runs as. The agent gives the log file to this user, and the shim changes to it. The shim of a Pod with a user
//! namespace does not enter that: its process has the ids of the node which are the Pod's, and no capability in any namespace.

use runtimes_contract::{ContainerSpec, RuntimeError, User, UserNamespace};

use crate::NOBODY;

/// User and group id as the spec has them. Root becomes nobody: a guest must not have root's privileges on the node.
pub fn ids(user: &User) -> (u32, u32) {
    let not_root = |id: Option<u32>| id.filter(|&id| id != 0).unwrap_or(NOBODY);
    (not_root(user.uid), not_root(user.gid))
}

/// The ids of the node behind user, group and further groups.
///
/// # Errors
/// [`RuntimeError::Unsupported`] for an id that the Pod's user namespace does not have.
pub fn node_ids(spec: &ContainerSpec) -> Result<User, RuntimeError> {
    let (uid, gid) = owner(spec)?;
    let groups: Result<_, _> = spec.user.groups.iter().map(|&group| id_on_node(spec.sandbox.user.as_ref(), group)).collect();
    Ok(User { uid: Some(uid), gid: Some(gid), groups: groups? })
}

/// The ids of the node behind user and group.
///
/// # Errors
/// As [`node_ids`].
pub fn owner(spec: &ContainerSpec) -> Result<(u32, u32), RuntimeError> {
    let (uid, gid) = ids(&spec.user);
    let namespace = spec.sandbox.user.as_ref();
    Ok((id_on_node(namespace, uid)?, id_on_node(namespace, gid)?))
}

fn id_on_node(namespace: Option<&UserNamespace>, id: u32) -> Result<u32, RuntimeError> {
    let Some(namespace) = namespace else { return Ok(id) };
    let outside = || RuntimeError::Unsupported(format!("the user namespace of the Pod (hostUsers: false) has no user or group {id}"));
    namespace.id_on_node(id).ok_or_else(outside)
}

#[cfg(test)]
mod tests {
    use runtimes_battery::plain_spec;

    use super::*;

    #[test]
    fn root_is_nobody() {
        let ids = |uid, gid| ids(&User { uid, gid, groups: vec![] });
        assert_eq!(ids(Some(0), Some(0)), (NOBODY, NOBODY));
        assert_eq!(ids(None, None), (NOBODY, NOBODY));
        assert_eq!(ids(Some(1000), Some(0)), (1000, NOBODY));
        assert_eq!(ids(Some(1000), Some(2000)), (1000, 2000));
    }

    #[test]
    fn the_ids_of_a_user_namespace_are_others_on_the_node() {
        let mut spec = plain_spec("c");
        spec.user = User { uid: Some(1000), gid: None, groups: vec![7, 0] };
        let of = |spec: &ContainerSpec| node_ids(spec).map_err(|error| error.to_string());
        assert_eq!(of(&spec), Ok(User { uid: Some(1000), gid: Some(NOBODY), groups: vec![7, 0] }));
        spec.sandbox.user = Some(UserNamespace { path: "/ns".into(), first_id: 131_072 });
        assert_eq!(of(&spec), Ok(User { uid: Some(132_072), gid: Some(131_072 + NOBODY), groups: vec![131_079, 131_072] }));
        spec.user.groups = vec![65_536];
        assert_eq!(of(&spec), Err("the user namespace of the Pod (hostUsers: false) has no user or group 65536".to_owned()));
    }
}
