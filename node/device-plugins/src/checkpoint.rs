//! The file of allocations, from which a node that starts again knows which container has which devices. Upstream's file lies in the
//! directory of the plugins and is a Go program's dump; this one is Skiff's own and lies with the node's data.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::allocations::{Allocation, Allocations};
use crate::wire::ContainerAllocateResponse;

/// What the file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// The boot of the machine in which it was written. No container outlives its boot.
    pub(crate) boot_id: String,
    /// The directory in which the node listened for plugins.
    pub(crate) dir: Option<PathBuf>,
    /// The resources that had a plugin.
    pub(crate) resources: BTreeSet<String>,
    pub(crate) allocations: Allocations,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    /// SHA-256 of the data as it is written, in hexadecimal digits.
    checksum: String,
    data: Data,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Data {
    boot_id: String,
    dir: Option<PathBuf>,
    resources: BTreeSet<String>,
    entries: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    pod_uid: String,
    container: String,
    resource: String,
    devices: BTreeSet<String>,
    /// The plugin's answer, as protobuf in base64.
    response: String,
}

impl Data {
    fn checksum(&self) -> Result<String, String> {
        let bytes = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        let mut text = String::new();
        for byte in Sha256::digest(bytes) {
            write!(text, "{byte:02x}").map_err(|error| error.to_string())?;
        }
        Ok(text)
    }
}

impl Checkpoint {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let entries = self.allocations.entries().map(|(pod_uid, container, resource, allocation)| Entry {
            pod_uid: pod_uid.to_owned(),
            container: container.to_owned(),
            resource: resource.to_owned(),
            devices: allocation.devices.clone(),
            response: STANDARD.encode(allocation.response.encode_to_vec()),
        });
        let data =
            Data { boot_id: self.boot_id.clone(), dir: self.dir.clone(), resources: self.resources.clone(), entries: entries.collect() };
        let document = Document { checksum: data.checksum()?, data };
        serde_json::to_vec(&document).map_err(|error| error.to_string())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let Document { checksum, data } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if data.checksum()? != checksum {
            return Err("checkpoint is corrupted".to_owned());
        }
        let mut allocations = Allocations::default();
        for Entry { pod_uid, container, resource, devices, response } in data.entries {
            let response = STANDARD.decode(response).map_err(|error| error.to_string())?;
            let response = ContainerAllocateResponse::decode(response.as_slice()).map_err(|error| error.to_string())?;
            allocations.insert(&pod_uid, &container, &resource, Allocation { devices, response });
        }
        Ok(Self { boot_id: data.boot_id, dir: data.dir, resources: data.resources, allocations })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::DeviceSpec;

    fn checkpoint() -> Checkpoint {
        let device = DeviceSpec { container_path: "/dev/a".to_owned(), host_path: "/dev/b".to_owned(), permissions: "rw".to_owned() };
        let envs = [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "ä".to_owned())].into();
        let response = ContainerAllocateResponse { envs, devices: vec![device], ..ContainerAllocateResponse::default() };
        let mut allocations = Allocations::default();
        let devices = ["d0".to_owned(), "d1".to_owned()].into();
        allocations.insert("uid", "c", "example.com/thing", Allocation { devices, response });
        let resources = ["example.com/gone".to_owned(), "example.com/thing".to_owned()].into();
        Checkpoint { boot_id: "boot".to_owned(), dir: Some("/plugins".into()), resources, allocations }
    }

    #[test]
    fn the_file_is_read_as_it_was_written() {
        let written = checkpoint();
        let bytes = written.encode().expect("bytes");
        assert_eq!(Checkpoint::decode(&bytes), Ok(written));
    }

    #[test]
    fn a_changed_or_shortened_file_is_no_checkpoint() {
        let bytes = checkpoint().encode().expect("bytes");
        for len in 0..bytes.len() {
            assert!(Checkpoint::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        let text = String::from_utf8(bytes).expect("text");
        let other = text.replace("d1", "d2");
        assert_ne!(other, text);
        assert_eq!(Checkpoint::decode(other.as_bytes()), Err("checkpoint is corrupted".to_owned()));
    }
}
