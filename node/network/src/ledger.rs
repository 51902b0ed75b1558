//! The addresses and host ports of Pods: one small file a Pod under `<state_dir>/pods`, written atomically, so that a new
//! process knows what the last one allocated, and one file with the range of these addresses. An address is reused as late as
//! possible: packets of senders that still know its old owner reach no other Pod.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use runtimes_host::files::{PRIVATE, private_dir, write_volatile};
use serde::{Deserialize, Serialize};

use crate::{HostPort, NetworkError, Protocol};

/// The file with the position at which the search for an address continues.
const LAST: &str = "last-address";
/// The file with the range that the network has.
const RANGE: &str = "range";

/// The allocation of a Pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) ip: Ipv4Addr,
    pub(crate) hostname: String,
    pub(crate) host_ports: Vec<HostPort>,
}

/// All records of a state directory.
pub(crate) struct Ledger {
    dir: PathBuf,
    records: BTreeMap<String, Record>,
    /// The addresses in the records.
    taken: HashSet<Ipv4Addr>,
    last: Option<Ipv4Addr>,
    /// The range that the network has, or had when an earlier process ended.
    range: Option<Ipv4Net>,
}

impl Ledger {
    /// Reads the files. A file that cannot be read was truncated by a power failure, which no namespace outlives either: it is
    /// removed, and its Pod is set up again when it is added.
    pub(crate) fn open(dir: &Path) -> Result<Self, NetworkError> {
        private_dir(dir).map_err(NetworkError::io(format!("making {}", dir.display())))?;
        let listing = || NetworkError::io(format!("listing {}", dir.display()));
        let mut records = BTreeMap::new();
        for entry in fs::read_dir(dir).map_err(listing())? {
            let path = entry.map_err(listing())?.path();
            if path.extension().is_some_and(|end| end == "new") {
                // A write that a kill has cut short.
                remove(&path)?;
            }
            let Some(uid) = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".json")) else { continue };
            let text = fs::read(&path).map_err(NetworkError::io(format!("reading {}", path.display())))?;
            match serde_json::from_slice::<Record>(&text) {
                Ok(record) => {
                    records.insert(uid.to_owned(), record);
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "damaged pod record removed");
                    remove(&path)?;
                }
            }
        }
        let text = |name: &str| fs::read_to_string(dir.join(name)).ok();
        let last = text(LAST).and_then(|text| text.trim().parse().ok());
        let range = text(RANGE).and_then(|text| text.trim().parse().ok());
        let taken = records.values().map(|record: &Record| record.ip).collect();
        Ok(Self { dir: dir.to_owned(), records, taken, last, range })
    }

    pub(crate) fn records(&self) -> &BTreeMap<String, Record> {
        &self.records
    }

    pub(crate) fn range(&self) -> Option<Ipv4Net> {
        self.range
    }

    /// Records the range that the network has.
    pub(crate) fn record_range(&mut self, range: Ipv4Net) -> Result<(), NetworkError> {
        if self.range != Some(range) {
            write(&self.dir.join(RANGE), range.to_string().as_bytes())?;
            self.range = Some(range);
        }
        Ok(())
    }

    /// The number of Pods that lose the network when one range replaces another: a Pod keeps its address and its gateway.
    pub(crate) fn misfits(&self, present: Ipv4Net, next: Ipv4Net) -> usize {
        let same_gateway = gateway(present) == gateway(next);
        let fits = |ip: Ipv4Addr| same_gateway && next.contains(&ip) && ip != next.network() && ip != next.broadcast();
        self.records.values().filter(|record| !fits(record.ip)).count()
    }

    pub(crate) fn get(&self, uid: &str) -> Option<&Record> {
        self.records.get(uid)
    }

    /// Allocates a Pod's address and ports; returns the same ones again when it has them.
    pub(crate) fn reserve(&mut self, uid: &str, hostname: &str, host_ports: &[HostPort], range: Ipv4Net) -> Result<Record, NetworkError> {
        let others = || self.records.iter().filter(|(other, _)| *other != uid).map(|(_, record)| record);
        if let Some(taken) = host_ports.iter().find(|port| others().any(|r| r.host_ports.iter().any(|p| collide(p, port)))) {
            return Err(NetworkError::HostPortTaken { port: taken.host_port, protocol: Protocol::as_str(taken.protocol) });
        }
        let reserved = self.records.get(uid).map(|record| record.ip);
        let ip = match reserved {
            Some(ip) => ip,
            None => pick(range, self.last, &self.taken).ok_or(NetworkError::Exhausted(range))?,
        };
        let record = Record { ip, hostname: hostname.to_owned(), host_ports: host_ports.to_vec() };
        if self.records.get(uid) != Some(&record) {
            let text = serde_json::to_vec(&record).map_err(|e| damaged(&self.path(uid), &e))?;
            write(&self.path(uid), &text)?;
            self.taken.insert(ip);
            self.records.insert(uid.to_owned(), record.clone());
        }
        if reserved.is_none() {
            self.last = Some(ip);
            write(&self.dir.join(LAST), ip.to_string().as_bytes())?;
        }
        Ok(record)
    }

    /// Forgets a Pod.
    pub(crate) fn release(&mut self, uid: &str) -> Result<(), NetworkError> {
        remove(&self.path(uid))?;
        if let Some(record) = self.records.remove(uid) {
            self.taken.remove(&record.ip);
        }
        Ok(())
    }

    fn path(&self, uid: &str) -> PathBuf {
        self.dir.join(format!("{uid}.json"))
    }
}

fn damaged(path: &Path, error: &serde_json::Error) -> NetworkError {
    NetworkError::Damaged { path: path.display().to_string(), message: error.to_string() }
}

fn write(path: &Path, text: &[u8]) -> Result<(), NetworkError> {
    write_volatile(path, text, PRIVATE).map_err(NetworkError::io(format!("writing {}", path.display())))
}

fn remove(path: &Path) -> Result<(), NetworkError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(NetworkError::io(format!("removing {}", path.display()))(error)),
        _ => Ok(()),
    }
}

/// Whether two host ports conflict: a port of all addresses conflicts with the port of each address.
fn collide(one: &HostPort, other: &HostPort) -> bool {
    let address = one.host_ip.is_none() || other.host_ip.is_none() || one.host_ip == other.host_ip;
    address && one.protocol == other.protocol && one.host_port == other.host_port
}

/// The address of the bridge: the first of the range.
pub(crate) fn gateway(range: Ipv4Net) -> Option<Ipv4Addr> {
    range.hosts().next()
}

/// The addresses that Pods may get.
pub(crate) fn usable(range: Ipv4Net) -> impl Iterator<Item = Ipv4Addr> {
    range.hosts().skip(1)
}

/// The first free address after the last allocated one; after the end of the range the search continues at its start. The first
/// address is the bridge's.
fn pick(range: Ipv4Net, last: Option<Ipv4Addr>, taken: &HashSet<Ipv4Addr>) -> Option<Ipv4Addr> {
    let free = |ip: &Ipv4Addr| !taken.contains(ip);
    let usable = || usable(range);
    let last = last.unwrap_or(Ipv4Addr::UNSPECIFIED);
    usable().filter(|ip| *ip > last).find(free).or_else(|| usable().find(free))
}

#[cfg(test)]
mod tests;
