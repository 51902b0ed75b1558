//! The ids of Pods with a user namespace (`hostUsers: false`), as the kubelet's user namespace manager has them: each Pod has a range of
//! 65,536 ids of the node for itself, the same for users and groups. The range is in the file `userns` of the Pod's directory, in the
//! kubelet's form, before anything uses it. A new agent reads the files of all Pods, so that a range belongs to one Pod until its
//! directory is removed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use runtimes_contract::USER_NAMESPACE_IDS;
use runtimes_host::files::{PRIVATE, private_dir, write_atomic};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::container::FIRST_ID_OF_WASM;

/// The file in a Pod's directory.
const FILE: &str = "userns";
/// Most bytes of such a file that are read.
const FILE_LEN_MAX: u64 = 4096;
/// Ranges by their numbers: the first ids of the node belong to no Pod, and those from [`FIRST_ID_OF_WASM`] on to WASM containers.
const RANGES: std::ops::Range<u32> = 1..FIRST_ID_OF_WASM / USER_NAMESPACE_IDS;

/// Why a Pod has no range.
#[derive(Debug, Error)]
pub(crate) enum RangeError {
    #[error("create user namespace: could not find an empty slot to allocate a user namespace: all {0} are used by other Pods")]
    None(u32),
    #[error("user namespace: {}: {fault}; delete the Pod, so that its replacement gets a range of its own", .path.display())]
    Invalid { path: PathBuf, fault: FileFault },
    /// Its range may be any.
    #[error(
        "create user namespace: the range of Pod {uid} is not known, because {} is not valid, and no other Pod may get the same; delete that \
         Pod", .path.display()
    )]
    OtherUnknown { uid: String, path: PathBuf },
    #[error("create user namespace: writing {}", .path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// What is wrong with a file; upstream's words, as far as upstream has them.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum FileFault {
    #[error("invalid user namespace mappings file: {0}")]
    Unreadable(String),
    #[error("invalid user namespace configuration: no more than one mapping allowed.")]
    Mappings,
    #[error("invalid user namespace configuration: GID and UID mapping should be identical")]
    Differ,
    #[error("invalid user namespace configuration: UID 0 must be mapped")]
    NoRoot,
    #[error("wrong user namespace length {0}")]
    Length(u32),
    #[error("wrong user namespace offset specified {0}")]
    Offset(u32),
    #[error("id {0} is out of range")]
    OutOfRange(u32),
    #[error("different user namespace range already used by this Pod")]
    Other,
    #[error("the range is already taken")]
    Taken,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mappings {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// The ranges of the node's Pods.
#[derive(Debug)]
pub(crate) struct UserNamespaces {
    /// The directory of the directories of Pods.
    pods: PathBuf,
    /// The number of ranges that are given out.
    count: u32,
    ranges: Mutex<Ranges>,
}

/// Numbers of ranges by the UIDs of Pods; `None` is one that is not known.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<String, Option<u32>>);

impl UserNamespaces {
    /// Reads the ranges of the Pods that have one. `pods` has a directory for each Pod, by its UID. Blocks.
    pub(crate) fn open(pods: PathBuf, pods_max: u32) -> io::Result<Self> {
        let (count, mut ranges) = (pods_max.min(RANGES.end - RANGES.start), Ranges::default());
        for entry in fs::read_dir(&pods)? {
            let Ok(uid) = entry?.file_name().into_string() else { continue };
            let read = read(&pods.join(&uid).join(FILE));
            match read.and_then(|range| range.map(|range| ranges.record(&uid, range)).transpose()) {
                Ok(_) => {}
                Err(fault) => {
                    tracing::warn!(uid, %fault, "the user namespace of a Pod is not known; no Pod gets a new one until it is deleted");
                    ranges.0.insert(uid, None);
                }
            }
        }
        Ok(Self { pods, count, ranges: Mutex::new(ranges) })
    }

    /// The first id of a Pod's range, which is its own from now on. Blocks.
    pub(crate) fn first_id(&self, uid: &str) -> Result<u32, RangeError> {
        let dir = self.pods.join(uid);
        let path = dir.join(FILE);
        let invalid = |fault| RangeError::Invalid { path: path.clone(), fault };
        let recorded = read(&path).map_err(invalid)?;
        let mut ranges = self.ranges.lock();
        if let Some(range) = recorded {
            ranges.record(uid, range).map_err(invalid)?;
            return Ok(range * USER_NAMESPACE_IDS);
        }
        if let Some(other) = ranges.unknown() {
            return Err(RangeError::OtherUnknown { uid: other.to_owned(), path: self.pods.join(other).join(FILE) });
        }
        // One whose file is gone keeps its range.
        let known = ranges.0.get(uid).copied().flatten();
        let range = known.or_else(|| ranges.free(self.count)).ok_or(RangeError::None(self.count))?;
        // Nobody else gets it while the file is written, and nobody waits for that.
        ranges.0.insert(uid.to_owned(), Some(range));
        drop(ranges);
        let written = private_dir(&dir).and_then(|()| write(&path, range));
        written.map_err(|source| {
            if known.is_none() {
                self.release(uid);
            }
            RangeError::Write { path, source }
        })?;
        Ok(range * USER_NAMESPACE_IDS)
    }

    /// The Pod's directory is gone: its range may be another Pod's.
    pub(crate) fn release(&self, uid: &str) {
        self.ranges.lock().0.remove(uid);
    }
}

impl Ranges {
    fn record(&mut self, uid: &str, range: u32) -> Result<(), FileFault> {
        let taken = |(other, number): (&String, &Option<u32>)| other != uid && *number == Some(range);
        match self.0.get(uid) {
            Some(Some(before)) if *before == range => Ok(()),
            Some(Some(_)) => Err(FileFault::Other),
            _ if self.0.iter().any(taken) => Err(FileFault::Taken),
            _ => {
                self.0.insert(uid.to_owned(), Some(range));
                Ok(())
            }
        }
    }

    /// A Pod whose range is not known.
    fn unknown(&self) -> Option<&str> {
        self.0.iter().find(|(_, range)| range.is_none()).map(|(uid, _)| uid.as_str())
    }

    fn free(&self, count: u32) -> Option<u32> {
        let used: std::collections::BTreeSet<u32> = self.0.values().copied().flatten().collect();
        (RANGES.start..RANGES.start + count).find(|range| !used.contains(range))
    }
}

fn write(path: &Path, range: u32) -> io::Result<()> {
    let mapping = Mapping { host_id: range * USER_NAMESPACE_IDS, container_id: 0, length: USER_NAMESPACE_IDS };
    let mappings = Mappings { uid_mappings: vec![mapping.clone()], gid_mappings: vec![mapping] };
    write_atomic(path, &serde_json::to_vec(&mappings)?, PRIVATE)
}

/// The number of the range in a file; `None` without a file.
fn read(path: &Path) -> Result<Option<u32>, FileFault> {
    use std::io::Read as _;
    let mut text = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(FILE_LEN_MAX).read_to_end(&mut text));
    match read {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(FileFault::Unreadable(error.to_string())),
        Ok(_) => parse(&text).map(Some),
    }
}

fn parse(text: &[u8]) -> Result<u32, FileFault> {
    let mappings: Mappings = serde_json::from_slice(text).map_err(|error| FileFault::Unreadable(error.to_string()))?;
    let [mapping] = mappings.uid_mappings.as_slice() else { return Err(FileFault::Mappings) };
    if mappings.gid_mappings.as_slice() != [mapping.clone()] {
        return Err(FileFault::Differ);
    }
    let (range, rest) = (mapping.host_id / USER_NAMESPACE_IDS, mapping.host_id % USER_NAMESPACE_IDS);
    match mapping {
        Mapping { container_id: 1.., .. } => Err(FileFault::NoRoot),
        Mapping { length, .. } if *length != USER_NAMESPACE_IDS => Err(FileFault::Length(*length)),
        Mapping { host_id, .. } if rest != 0 => Err(FileFault::Offset(*host_id)),
        Mapping { host_id, .. } if !RANGES.contains(&range) => Err(FileFault::OutOfRange(*host_id)),
        _ => Ok(range),
    }
}

#[cfg(test)]
mod tests;
