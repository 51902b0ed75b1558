//! The node's network: a namespace, an address and a hostname for each Pod without any process to
//! hold them, the bridges that they hang on, host ports, and routes to the Pods of other nodes.
//!
//! The input is the cluster's ranges, the node's own Pod range, Pods to add and remove, and the other nodes. The output is
//! namespaces pinned as files (the runtimes join them) and the machine's network: interfaces `<prefix>-br`, `<prefix>-br1` and
//! so on with a permanent port each, `<prefix>-dns` and one veth a Pod, the nftables table `<prefix>-net`, and routes with a protocol number and a metric
//! of the cluster's own.
//! Every operation reads the present state and adds what is missing, so each may be interrupted anywhere and repeated. Left to
//! others: Services (the proxy), names (dns), which Pod runs when (the agent).
//!
//! Pods' addresses have no range on their link: every packet of a Pod goes through the node, so Services between Pods of one
//! node are translated in both directions whether or not bridged packets pass netfilter on this machine.

mod addresses;
mod check;
mod config;
mod error;
mod flows;
mod guard;
mod host;
mod ledger;
mod listeners;
mod netlink;
mod proc_mount;
mod rules;
mod sandbox;
mod segment;
mod sysctl;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::Ipv4Net;
use node_netfilter::{NetfilterError, apply};
use parking_lot::Mutex;
use runtimes_host::blocking;

pub use addresses::addresses;
pub use config::{Config, HostPort, Peer, PodNetwork};
pub use error::NetworkError;
pub use listeners::listening;
pub use node_netfilter::Protocol;
pub use sysctl::set_sysctls;

use ledger::{Ledger, Record};
use proc_mount::ProcMount;
use rules::Inputs;
use sandbox::{Plan, in_thread};

/// The longest UID; UIDs become file names.
const UID_LEN_MAX: usize = 128;
/// The kernel's limit for a hostname.
const HOSTNAME_LEN_MAX: usize = 64;

/// The network of one node.
pub struct Network {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    state: Mutex<State>,
    /// Locked while rules are computed and written, so that older rules never overwrite newer ones.
    writing: Mutex<()>,
    /// For the sysctls of Pods.
    proc_mount: ProcMount,
}

struct State {
    ledger: Ledger,
    pod_cidr: Option<Ipv4Net>,
    /// The range is about to be replaced.
    is_withdrawn: bool,
    /// The range of an earlier process, until this one has set a range.
    previous: Option<Ipv4Net>,
    nodes: Vec<Ipv4Addr>,
    /// The rules could not be written last time: a host port may still lead to a Pod that is no more.
    rules_failed: bool,
}

impl Network {
    /// Checks the configuration, the machine's features and that the ranges are free, and reads the state of an earlier
    /// process. Changes nothing but its own directory, and mounts nothing: a start that fails for another reason leaves only
    /// files.
    pub async fn new(config: Config) -> Result<Self, NetworkError> {
        config.validate()?;
        let probe = config.clone();
        in_thread(move || check::check(&probe)).await?;
        in_thread(move || {
            host::check_ranges(&config)?;
            let ledger = Ledger::open(&config.state_dir.join("pods"))?;
            let previous = ledger.range();
            let state = State { ledger, pod_cidr: None, is_withdrawn: false, previous, nodes: Vec::new(), rules_failed: false };
            let (state, writing) = (Mutex::new(state), Mutex::new(()));
            Ok(Self { shared: Arc::new(Shared { config, state, writing, proc_mount: ProcMount::default() }) })
        })
        .await
    }

    /// Sets the node's range of Pod addresses: bridges, DNS address, routes, rules. Idempotent; it repairs what other programs
    /// removed.
    ///
    /// # Errors
    /// [`NetworkError::PreviousRange`] when the range would cut off Pods with addresses of the range that an earlier process had set. That
    /// range is set again, as if it was followed by [`Network::withdraw_pod_cidr`]. The next call sets its range in any case.
    pub async fn set_pod_cidr(&self, pod_cidr: Ipv4Net) -> Result<(), NetworkError> {
        let shared = Arc::clone(&self.shared);
        in_thread(move || {
            let next = pod_cidr.trunc();
            let Some((previous, pods)) = shared.needed_range(next) else { return shared.set_range(next, false) };
            shared.set_range(previous, true)?;
            Err(NetworkError::PreviousRange { previous, next, pods })
        })
        .await
    }

    /// Gives no other Pod an address until [`Network::set_pod_cidr`] has set a range; Pods that have one keep it. Returns the number of
    /// Pods that the next range would cut off: those with an address outside of it, and all of them if it has another gateway.
    pub fn withdraw_pod_cidr(&self, next: Ipv4Net) -> usize {
        let mut state = self.shared.state.lock();
        state.is_withdrawn = true;
        state.pod_cidr.map_or_else(|| state.ledger.records().len(), |present| state.ledger.misfits(present, next))
    }

    /// Creates a Pod's namespaces and address, or finds the existing ones. Idempotent by `uid`. With `first_id`, the node's id of the
    /// Pod's root, a user namespace owns them; it must be the same in each call.
    pub async fn add_pod(
        &self,
        uid: &str,
        hostname: &str,
        host_ports: &[HostPort],
        first_id: Option<u32>,
    ) -> Result<PodNetwork, NetworkError> {
        check_names(uid, hostname)?;
        let (shared, uid, hostname, host_ports) = (Arc::clone(&self.shared), uid.to_owned(), hostname.to_owned(), host_ports.to_vec());
        let has_ports = !host_ports.is_empty();
        // Not on a thread of its own: an agent that starts looks at thousands of Pods.
        let (plan, built) = blocking(move || {
            let plan = Plan { first_id, ..shared.reserve(&uid, &hostname, &host_ports)? };
            let built = plan.is_built()?;
            if has_ports {
                shared.write_rules()?;
                // Senders that sent before there was a Pod reach the Pod from now on.
                if !built {
                    flows::forget(&host_ports, None);
                }
            }
            Ok::<_, NetworkError>((plan, built))
        })
        .await?;
        if !built {
            let (plan, shared) = (plan.clone(), Arc::clone(&self.shared));
            // A thread of its own: it ends up in the Pod's namespaces.
            in_thread(move || plan.build(&shared.proc_mount)).await?;
        }
        Ok(PodNetwork { ip: IpAddr::V4(plan.ip), sandbox: plan.sandbox() })
    }

    /// Creates the IPC namespace of a Pod on the node's network (`hostNetwork`), or finds the existing one, and returns its
    /// pin. Idempotent by `uid`; needs no Pod range.
    pub async fn add_host_network_pod(&self, uid: &str) -> Result<PathBuf, NetworkError> {
        check_names(uid, "")?;
        let (shared, uid) = (Arc::clone(&self.shared), uid.to_owned());
        // A thread of its own: it ends up in the Pod's namespace.
        in_thread(move || {
            {
                let _writing = shared.writing.lock();
                sandbox::prepare_dir(&shared.config.state_dir.join("ns"))?;
            }
            sandbox::build_ipc(&uid, &shared.pins(&uid))
        })
        .await
    }

    /// The name of the node's end of the interface of the Pod with that address.
    pub fn interface(&self, ip: IpAddr) -> Option<String> {
        match ip {
            IpAddr::V4(ip) => Some(host::veth(&self.shared.config.prefix, ip)),
            IpAddr::V6(_) => None,
        }
    }

    /// Whether an interface of the node is this cluster's.
    pub fn owns_interface(&self, name: &str) -> bool {
        host::owns(&self.shared.config.prefix, name)
    }

    /// Frees everything of a Pod; does nothing for one that does not exist.
    pub async fn remove_pod(&self, uid: &str) -> Result<(), NetworkError> {
        check_names(uid, "")?;
        let (shared, uid) = (Arc::clone(&self.shared), uid.to_owned());
        in_thread(move || {
            let record: Option<Record> = shared.state.lock().ledger.get(&uid).cloned();
            // The kernel removes the veth with its namespace, later and many at once.
            sandbox::remove(&shared.pins(&uid), None)?;
            if let Some(record) = &record {
                let pod_cidr = shared.state.lock().pod_cidr;
                host::forget_pod(&shared.config, pod_cidr, record.ip)?;
            }
            let record = record.filter(|record| !record.host_ports.is_empty());
            let rules_failed = {
                let mut state = shared.state.lock();
                state.ledger.release(&uid)?;
                state.rules_failed
            };
            if record.is_some() || rules_failed {
                shared.write_rules()?;
            }
            if let Some(record) = &record {
                flows::forget(&record.host_ports, Some(record.ip));
            }
            Ok(())
        })
        .await
    }

    /// The UIDs of all Pods that have something here, also incomplete ones.
    pub async fn pods(&self) -> Result<Vec<String>, NetworkError> {
        let shared = Arc::clone(&self.shared);
        in_thread(move || {
            let mut uids = sandbox::pinned(&shared.config.state_dir.join("ns"))?;
            uids.extend(shared.state.lock().ledger.records().keys().cloned());
            uids.sort_unstable();
            uids.dedup();
            Ok(uids)
        })
        .await
    }

    /// Replaces the whole set of routes to other nodes' Pods, and touches no other routes. Where the kernel rejects some
    /// routes, the others are set all the same.
    pub async fn set_routes(&self, peers: &[Peer]) -> Result<(), NetworkError> {
        let (shared, peers) = (Arc::clone(&self.shared), peers.to_vec());
        in_thread(move || {
            let pod_cidr = shared.state.lock().pod_cidr;
            let done = host::set_routes(&shared.config, pod_cidr, &peers);
            let refused: Vec<Ipv4Addr> = match &done {
                Ok(()) => Vec::new(),
                Err(NetworkError::Routes(refused)) => refused.iter().map(|(_, via, _)| *via).collect(),
                Err(_) => return done,
            };
            // Nodes write their addresses themselves. An address that is not a neighbour's belongs to another machine, which
            // Pods could not reach any more after such a route.
            let mut nodes: Vec<Ipv4Addr> = peers.iter().map(|peer| peer.via).filter(|via| !refused.contains(via)).collect();
            nodes.sort_unstable();
            nodes.dedup();
            let changed = {
                let mut state = shared.state.lock();
                std::mem::replace(&mut state.nodes, nodes.clone()) != nodes || state.rules_failed
            };
            if changed {
                shared.write_rules()?;
            }
            done
        })
        .await
    }

    /// Removes everything: Pods, interfaces, routes, rules, state. May be repeated. Only the sysctl `net.ipv4.ip_forward`
    /// stays.
    pub async fn remove_all(&self) -> Result<(), NetworkError> {
        remove(&self.shared.config.prefix, &self.shared.config.state_dir).await
    }
}

/// The number of Pods that a range has addresses for.
pub fn pod_addresses(range: Ipv4Net) -> u32 {
    u32::try_from(ledger::usable(range).count()).unwrap_or(u32::MAX)
}

/// [`Network::remove_all`] without a [`Network`]: needs nothing of the machine, and works with an incomplete state directory.
pub async fn remove(prefix: &str, state_dir: &Path) -> Result<(), NetworkError> {
    let (prefix, state_dir) = (prefix.to_owned(), state_dir.to_owned());
    in_thread(move || {
        sandbox::remove_dir(&state_dir.join("ns"))?;
        host::remove(&prefix)?;
        let table = format!("{prefix}-net");
        match apply(&(rules::removal(&table) + &guard::removal(&table))) {
            // Without nft there were never any rules.
            Err(NetfilterError::Missing(_)) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
        for dir in [state_dir.join("pods"), state_dir] {
            match std::fs::remove_dir_all(&dir) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(NetworkError::io(format!("removing {}", dir.display()))(error));
                }
                _ => {}
            }
        }
        Ok(())
    })
    .await
}

impl Shared {
    fn pins(&self, uid: &str) -> PathBuf {
        self.config.state_dir.join("ns").join(uid)
    }

    /// The range of an earlier process, and the number of Pods that need it because the next range would cut them off. One that is not in
    /// the cluster's range any more is of no use.
    fn needed_range(&self, next: Ipv4Net) -> Option<(Ipv4Net, usize)> {
        let state = self.state.lock();
        let previous = state.previous.filter(|previous| *previous != next && self.config.cluster_cidr.contains(previous))?;
        let pods = state.ledger.misfits(previous, next);
        (pods > 0).then_some((previous, pods))
    }

    /// Sets the node's range. Blocks; the calling thread is in the node's namespaces.
    fn set_range(&self, pod_cidr: Ipv4Net, is_withdrawn: bool) -> Result<(), NetworkError> {
        let config = &self.config;
        let pods: Vec<_> = {
            let state = self.state.lock();
            state.ledger.records().iter().map(|(uid, record)| (record.ip, uid.clone())).collect()
        };
        sandbox::prepare_dir(&config.state_dir.join("ns"))?;
        apply(&guard::script(config, pod_cidr)?)?;
        host::configure(config, pod_cidr, &pods)?;
        {
            let mut state = self.state.lock();
            state.ledger.record_range(pod_cidr)?;
            (state.pod_cidr, state.is_withdrawn) = (Some(pod_cidr), is_withdrawn);
            if !is_withdrawn {
                // Pods get addresses of this range from now on, also if a later step fails.
                state.previous = None;
            }
        }
        self.write_rules()?;
        host::route_localhost(config, pod_cidr)?;
        self.state.lock().previous = None;
        Ok(())
    }

    fn reserve(&self, uid: &str, hostname: &str, host_ports: &[HostPort]) -> Result<Plan, NetworkError> {
        let mut state = self.state.lock();
        let pod_cidr = state.pod_cidr.ok_or(NetworkError::NoPodCidr)?;
        if state.is_withdrawn && state.ledger.get(uid).is_none() {
            return Err(NetworkError::Withdrawn(pod_cidr));
        }
        // A Pod that has its ports keeps them, whichever program listens by now.
        if state.ledger.get(uid).is_none_or(|record| record.host_ports != host_ports) {
            listeners::check(&self.config, host_ports)?;
        }
        let gateway = ledger::gateway(pod_cidr).ok_or(NetworkError::NoPodCidr)?;
        let record = state.ledger.reserve(uid, hostname, host_ports, pod_cidr)?;
        Ok(Plan {
            dir: self.pins(uid),
            uid: uid.to_owned(),
            hostname: record.hostname,
            ip: record.ip,
            gateway,
            veth: host::veth(&self.config.prefix, record.ip),
            bridge: segment::bridge(&self.config.prefix, pod_cidr, record.ip),
            first_id: None,
        })
    }

    /// Decides and writes the whole table from the present state. Blocks; the calling thread is in
    /// the node's namespaces.
    fn write_rules(&self) -> Result<(), NetworkError> {
        let _writing = self.writing.lock();
        let inputs = {
            let state = self.state.lock();
            let records = state.ledger.records().values();
            // A new process that does not know the range yet keeps the rules of the last one.
            let Some(pod_cidr) = state.pod_cidr else { return Ok(()) };
            Inputs {
                pod_cidr,
                nodes: state.nodes.clone(),
                host_ports: records.flat_map(|record| record.host_ports.iter().map(|port| (port.clone(), record.ip))).collect(),
            }
        };
        let written = apply(&rules::script(&self.config, &inputs));
        self.state.lock().rules_failed = written.is_err();
        Ok(written?)
    }
}

fn check_names(uid: &str, hostname: &str) -> Result<(), NetworkError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if uid.is_empty() || uid.len() > UID_LEN_MAX || !uid.chars().all(fits) {
        return Err(NetworkError::Invalid(format!("Pod UID {uid:?} cannot be a file name")));
    }
    if hostname.len() > HOSTNAME_LEN_MAX {
        return Err(NetworkError::Invalid(format!("hostname {hostname:?} is longer than {HOSTNAME_LEN_MAX} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
