//! The user that a container runs as. The agent gives the log file to this user, and the shim changes to it.

use runtimes_contract::User;

use crate::NOBODY;

/// User and group id. Root becomes nobody: a guest must not have root's privileges on the node.
pub fn ids(user: &User) -> (u32, u32) {
    let not_root = |id: Option<u32>| id.filter(|&id| id != 0).unwrap_or(NOBODY);
    (not_root(user.uid), not_root(user.gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_nobody() {
        let ids = |uid, gid| ids(&User { uid, gid, groups: vec![] });
        assert_eq!(ids(Some(0), Some(0)), (NOBODY, NOBODY));
        assert_eq!(ids(None, None), (NOBODY, NOBODY));
        assert_eq!(ids(Some(1000), Some(0)), (1000, NOBODY));
        assert_eq!(ids(Some(1000), Some(2000)), (1000, 2000));
    }
}
