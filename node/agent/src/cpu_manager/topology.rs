//! The CPUs of the machine and the socket, NUMA node and core of each, from the kernel's files in sysfs. Only CPUs that are online count.
//! Pure except [`read`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use thiserror::Error;

use super::cpu_set::CpuSet;

/// The part of the machine to which a CPU belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    socket: u32,
    numa: u32,
    /// The lowest CPU of the core: the kernel's numbers of cores repeat in each socket.
    core: u32,
}

/// A kind of group in which CPUs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Socket,
    Numa,
    Core,
}

/// The CPUs of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topology {
    cpus: BTreeMap<u32, Location>,
}

/// The machine's CPUs could not be learned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file} does not have {wanted}: {text:?}")]
pub(crate) struct TopologyError {
    file: String,
    wanted: &'static str,
    text: String,
}

impl Topology {
    /// All CPUs.
    pub(crate) fn all(&self) -> CpuSet {
        self.cpus.keys().copied().collect()
    }

    /// The number of the group of a CPU.
    pub(crate) fn group_of(&self, cpu: u32, level: Level) -> Option<u32> {
        let location = self.cpus.get(&cpu)?;
        Some(match level {
            Level::Socket => location.socket,
            Level::Numa => location.numa,
            Level::Core => location.core,
        })
    }

    /// All CPUs of a group.
    pub(crate) fn in_group(&self, level: Level, group: u32) -> CpuSet {
        self.cpus.keys().copied().filter(|cpu| self.group_of(*cpu, level) == Some(group)).collect()
    }

    /// The number of groups.
    pub(crate) fn count(&self, level: Level) -> usize {
        self.cpus.keys().filter_map(|cpu| self.group_of(*cpu, level)).collect::<BTreeSet<_>>().len()
    }

    /// The threads of a core, at least one.
    pub(crate) fn cpus_per_core(&self) -> usize {
        self.cpus.len().checked_div(self.count(Level::Core)).unwrap_or(1).max(1)
    }

    /// The CPUs, and those that share a core with one of them.
    pub(crate) fn whole_cores(&self, cpus: &CpuSet) -> CpuSet {
        let cores = cpus.iter().filter_map(|cpu| self.group_of(cpu, Level::Core));
        cores.flat_map(|core| self.in_group(Level::Core, core).iter().collect::<Vec<_>>()).collect()
    }

    /// From the files below `/sys/devices/system`; `file` returns the text of one by its path there.
    pub(crate) fn parse(file: &dyn Fn(&str) -> Option<String>) -> Result<Self, TopologyError> {
        let list = |path: &str| {
            let text = file(path)?;
            let error = || TopologyError { file: path.to_owned(), wanted: "a list of CPUs", text: text.clone() };
            Some(text.trim().parse::<CpuSet>().map_err(|_| error()))
        };
        let online = list("cpu/online").transpose()?.unwrap_or_default();
        if online.is_empty() {
            return Err(TopologyError { file: "cpu/online".to_owned(), wanted: "a CPU", text: String::new() });
        }
        let numa = numa_nodes(&list)?;
        let mut cpus = BTreeMap::new();
        for cpu in online.iter() {
            let of = |name: &str| format!("cpu/cpu{cpu}/topology/{name}");
            let socket = file(&of("physical_package_id")).map_or(Ok(0), |text| package(&of("physical_package_id"), &text))?;
            // Kernels before 5.3 have only the second one.
            let siblings = ["core_cpus_list", "thread_siblings_list"].into_iter().find_map(|name| list(&of(name)));
            let siblings = siblings.transpose()?.unwrap_or_default();
            let core = siblings.iter().find(|sibling| online.contains(*sibling)).unwrap_or(cpu);
            cpus.insert(cpu, Location { socket, numa: numa.get(&cpu).copied().unwrap_or(0), core });
        }
        Ok(Self { cpus })
    }
}

/// The NUMA node of each CPU. A kernel without NUMA has no such directory: all CPUs are in one node.
fn numa_nodes(list: &dyn Fn(&str) -> Option<Result<CpuSet, TopologyError>>) -> Result<BTreeMap<u32, u32>, TopologyError> {
    let mut node_of = BTreeMap::new();
    for node in list("node/online").transpose()?.unwrap_or_default().iter() {
        let cpus = list(&format!("node/node{node}/cpulist")).transpose()?.unwrap_or_default();
        node_of.extend(cpus.iter().map(|cpu| (cpu, node)));
    }
    Ok(node_of)
}

/// The number of a socket. Some virtual machines have -1: none is known.
fn package(file: &str, text: &str) -> Result<u32, TopologyError> {
    let number = text.trim().parse::<i64>().ok().and_then(|number| u32::try_from(number.max(0)).ok());
    number.ok_or_else(|| TopologyError { file: file.to_owned(), wanted: "a number", text: text.to_owned() })
}

/// Reads the machine's files.
pub(crate) fn read(sys_dir: &Path) -> Result<Topology, TopologyError> {
    Topology::parse(&|path| std::fs::read_to_string(sys_dir.join(path)).ok())
}

/// Machines for tests.
#[cfg(test)]
pub(crate) mod machines {
    use super::*;

    /// A machine by the list of CPUs of each core, of each NUMA node and of each socket.
    pub(crate) fn machine(sockets: &[&str], numa: &[&str], cores: &[&str]) -> Topology {
        let parse = |lists: &[&str]| lists.iter().map(|list| list.parse().expect("a list")).collect::<Vec<CpuSet>>();
        let (sockets, numa, cores) = (parse(sockets), parse(numa), parse(cores));
        let index = |groups: &[CpuSet], cpu: u32| u32::try_from(groups.iter().position(|group| group.contains(cpu)).expect("in one"));
        let cpus = cores.iter().flat_map(CpuSet::iter).map(|cpu| {
            let core = cores.iter().find(|core| core.contains(cpu)).and_then(|core| core.iter().next()).expect("a CPU");
            let index = |groups: &[CpuSet]| index(groups, cpu).expect("few");
            (cpu, Location { socket: index(&sockets), numa: index(&numa), core })
        });
        Topology { cpus: cpus.collect() }
    }

    /// One socket of four cores with two threads each, numbered as on most machines.
    pub(crate) fn single_socket_smt() -> Topology {
        machine(&["0-7"], &["0-7"], &["0,4", "1,5", "2,6", "3,7"])
    }

    /// Two sockets of three cores with two threads each.
    pub(crate) fn dual_socket_smt() -> Topology {
        let (even, odd) = ("0,2,4,6,8,10", "1,3,5,7,9,11");
        machine(&[even, odd], &[even, odd], &["0,6", "1,7", "2,8", "3,9", "4,10", "5,11"])
    }

    /// Two sockets of four cores without further threads.
    pub(crate) fn dual_socket() -> Topology {
        let cores = ["0", "1", "2", "3", "4", "5", "6", "7"];
        machine(&["0-3", "4-7"], &["0-3", "4-7"], &cores)
    }

    /// One socket with four NUMA nodes of four cores.
    pub(crate) fn four_nodes() -> Topology {
        let cores: Vec<String> = (0..16).map(|cpu| cpu.to_string()).collect();
        let cores: Vec<&str> = cores.iter().map(String::as_str).collect();
        machine(&["0-15"], &["0-3", "4-7", "8-11", "12-15"], &cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cpu: socket/numa/core` for each CPU.
    fn parsed(files: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let files: BTreeMap<&str, &str> = files.iter().copied().collect();
        let topology = Topology::parse(&|path| files.get(path).map(|text| format!("{text}\n"))).map_err(|error| error.to_string())?;
        Ok(topology.cpus.iter().map(|(cpu, at)| format!("{cpu}: {}/{}/{}", at.socket, at.numa, at.core)).collect())
    }

    #[test]
    fn threads_share_a_core_and_sockets_are_apart() {
        let smt = [
            ("cpu/online", "0-3"),
            ("node/online", "0-1"),
            ("node/node0/cpulist", "0,2"),
            ("node/node1/cpulist", "1,3"),
            ("cpu/cpu0/topology/physical_package_id", "0"),
            ("cpu/cpu1/topology/physical_package_id", "1"),
            ("cpu/cpu2/topology/physical_package_id", "0"),
            ("cpu/cpu3/topology/physical_package_id", "1"),
            ("cpu/cpu0/topology/core_cpus_list", "0,2"),
            ("cpu/cpu1/topology/core_cpus_list", "1,3"),
            ("cpu/cpu2/topology/core_cpus_list", "0,2"),
            ("cpu/cpu3/topology/thread_siblings_list", "1,3"),
        ];
        assert_eq!(parsed(&smt), Ok(["0: 0/0/0", "1: 1/1/1", "2: 0/0/0", "3: 1/1/1"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn what_is_offline_does_not_count() {
        let files = [
            ("cpu/online", "1,4-5"),
            ("node/online", "0"),
            ("node/node0/cpulist", "0-5"),
            ("cpu/cpu1/topology/core_cpus_list", "0-1"),
            ("cpu/cpu4/topology/core_cpus_list", "4-5"),
            ("cpu/cpu5/topology/core_cpus_list", "4-5"),
            ("cpu/cpu1/topology/physical_package_id", "-1"),
        ];
        assert_eq!(parsed(&files), Ok(["1: 0/0/1", "4: 0/0/4", "5: 0/0/4"].map(str::to_owned).to_vec()));
        assert_eq!(parsed(&[("cpu/online", "0-1")]), Ok(["0: 0/0/0", "1: 0/0/1"].map(str::to_owned).to_vec()), "one core a CPU");
    }

    #[test]
    fn a_machine_that_cannot_be_read_is_an_error() {
        assert_eq!(parsed(&[]), Err("cpu/online does not have a CPU: \"\"".to_owned()));
        let odd = [("cpu/online", "0"), ("cpu/cpu0/topology/physical_package_id", "x")];
        assert_eq!(parsed(&odd), Err("cpu/cpu0/topology/physical_package_id does not have a number: \"x\\n\"".to_owned()));
        let odd = [("cpu/online", "0"), ("node/online", "0"), ("node/node0/cpulist", "all")];
        assert_eq!(parsed(&odd), Err("node/node0/cpulist does not have a list of CPUs: \"all\\n\"".to_owned()));
    }

    #[test]
    fn this_machine_is_one() {
        let topology = read(Path::new("/sys/devices/system")).expect("this machine");
        assert!(!topology.all().is_empty() && topology.count(Level::Core) <= topology.all().len());
        assert!(read(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn groups_are_counted_and_completed() {
        let smt = machines::dual_socket_smt();
        let set = |text: &str| text.parse::<CpuSet>().expect("a list");
        assert_eq!([smt.count(Level::Socket), smt.count(Level::Numa), smt.count(Level::Core), smt.cpus_per_core()], [2, 2, 6, 2]);
        assert_eq!(smt.whole_cores(&set("0,7")), set("0-1,6-7"));
        assert_eq!(smt.in_group(Level::Socket, 1), set("1,3,5,7,9,11"));
    }
}
