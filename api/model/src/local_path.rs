//! The contract between the provisioner of `local-path` volumes, which makes the objects, and the node agents, which make and
//! remove the directories.

/// The provisioner that StorageClasses name.
pub const PROVISIONER: &str = "skiff.internal/local-path";
/// The built-in StorageClass.
pub const CLASS: &str = "local-path";
/// On a Node: the directory that has one directory a volume.
pub const DIRECTORY: &str = "skiff.internal/local-path";
/// On a Node: whether its file system enforces the capacity of volumes; see [`capacity`].
pub const CAPACITY: &str = "skiff.internal/local-path-capacity";
/// On a PersistentVolume: the node that has its directory.
pub const NODE: &str = "skiff.internal/local-path-node";
/// The path of a node's server below which a `DELETE` removes the directory of a volume, and a `PUT` of the PersistentVolume gives it the
/// object's capacity.
pub const DIRECTORIES: &str = "localVolumes";

/// The prefix of the names of provisioned volumes; the UID of the claim follows.
const PREFIX: &str = "pvc-";

/// The name of the volume for a claim.
pub fn volume_name(claim_uid: &str) -> String {
    format!("{PREFIX}{claim_uid}")
}

/// The value of [`CAPACITY`].
pub fn capacity(is_enforced: bool) -> &'static str {
    if is_enforced { "enforced" } else { "not-enforced" }
}

/// Whether a name is one of [`volume_name`], and so the name of one directory: the prefix, then hexadecimal digits and dashes.
pub fn is_volume_name(name: &str) -> bool {
    let uid = name.strip_prefix(PREFIX).unwrap_or_default();
    !uid.is_empty() && uid.len() <= 64 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_directory() {
        assert!(is_volume_name(&volume_name("0a1b2c3d-0000-4000-8000-000000000001")));
        for name in ["", "pvc-", "pvc-..", "pvc-a/../b", "../pvc-a", "x", ".", "pvc-a\0", "pvc-A g"] {
            assert!(!is_volume_name(name), "{name:?}");
        }
    }
}
