//! The policy `static`: a container of a Guaranteed Pod that requests a whole number of CPUs gets them alone, all others share the rest.
//! Pure.

use k8s_openapi::api::core::v1::{Container, Pod};
use thiserror::Error;

use super::cpu_set::CpuSet;
use super::options::CpuPolicyOptions;
use super::state::Assignments;
use super::topology::Topology;
use super::{distribute, take};
use crate::admit::Rejection;
use crate::container::{self, Role, resources};

/// The policy on this machine.
#[derive(Clone, Debug)]
pub(crate) struct StaticPolicy {
    topology: Topology,
    /// CPUs that no container gets alone.
    reserved: CpuSet,
    /// The same with all threads of their cores.
    reserved_cores: CpuSet,
    options: CpuPolicyOptions,
}

/// The policy cannot be used here; upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum PolicyError {
    #[error("[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero")]
    NothingReserved,
    #[error("[cpumanager] unable to reserve the required amount of CPUs (size of {all} did not equal {wanted})")]
    TooMuchReserved { all: CpuSet, wanted: usize },
    #[error("reserved-cpus: {reserved} is not a subset of online-cpus: {online}")]
    NotOnline { reserved: CpuSet, online: CpuSet },
}

/// The assignments of an earlier agent do not fit this machine; upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum MisfitError {
    #[error("default cpuset cannot be empty")]
    NothingShared,
    #[error("not all reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{shared}\"")]
    ReservedNotShared { reserved: CpuSet, shared: CpuSet },
    #[error("some of strictly reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{shared}\"")]
    ReservedShared { reserved: CpuSet, shared: CpuSet },
    #[error("pod: {pod}, container: {container} cpuset: \"{cpus}\" overlaps with default cpuset \"{shared}\"")]
    Overlap { pod: String, container: String, cpus: CpuSet, shared: CpuSet },
    #[error("current set of available CPUs \"{available}\" doesn't match with CPUs in state \"{assigned}\"")]
    OtherCpus { available: CpuSet, assigned: CpuSet },
}

/// A Pod does not get its CPUs; upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error("SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}")]
    NoWholeCores { requested: usize, per_core: usize },
    #[error(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, requested CPUs = {requested}, \
         CPUs per core = {per_core}"
    )]
    TooFewCores { available: usize, requested: usize, per_core: usize },
    #[error("not enough cpus available to satisfy request: requested={requested}, available={available}")]
    TooFew { requested: usize, available: usize },
    /// Only with strict reservation.
    #[error("not enough cpus available to satisfy request: requested={requested}, and the shared pool would have no CPU left")]
    NothingShared { requested: usize },
    /// The assignment could not be stored.
    #[error("{0}")]
    NotStored(String),
}

impl Refusal {
    /// As the Pod's status has it.
    pub(crate) fn rejection(&self) -> Rejection {
        match self {
            Self::NoWholeCores { .. } | Self::TooFewCores { .. } => {
                Rejection { reason: "SMTAlignmentError".to_owned(), message: self.to_string() }
            }
            Self::TooFew { .. } | Self::NothingShared { .. } | Self::NotStored(_) => {
                let message = format!("Allocate failed due to {self}, which is unexpected");
                Rejection { reason: "UnexpectedAdmissionError".to_owned(), message }
            }
        }
    }
}

/// How many CPUs a container has alone.
pub(crate) fn exclusive_cpus(pod: &Pod, container: &Container) -> usize {
    // As upstream, resources of a whole Pod are not for one container.
    if resources::pod_level(pod).is_some() || resources::qos(pod) != "Guaranteed" {
        return 0;
    }
    let milli = resources::cpu_milli(container);
    if milli % 1_000 == 0 { usize::try_from(milli / 1_000).unwrap_or(0) } else { 0 }
}

impl StaticPolicy {
    /// `reserved_milli` are thousandths of a CPU; a begun CPU counts. `reserved_cpus` names the reserved CPUs, if it is not empty.
    pub(crate) fn new(
        topology: Topology,
        reserved_milli: i64,
        reserved_cpus: &CpuSet,
        options: CpuPolicyOptions,
    ) -> Result<Self, PolicyError> {
        let online = topology.all();
        if !reserved_cpus.is_subset(&online) {
            return Err(PolicyError::NotOnline { reserved: reserved_cpus.clone(), online });
        }
        let wanted = usize::try_from(reserved_milli.max(0).saturating_add(999) / 1_000).unwrap_or(usize::MAX);
        if wanted == 0 {
            return Err(PolicyError::NothingReserved);
        }
        let policy = Self { topology, reserved: CpuSet::default(), reserved_cores: CpuSet::default(), options };
        let reserved = if reserved_cpus.is_empty() { policy.take(&online, wanted) } else { Some(reserved_cpus.clone()) };
        let reserved = reserved.ok_or(PolicyError::TooMuchReserved { all: online, wanted })?;
        let reserved_cores = policy.topology.whole_cores(&reserved);
        Ok(Self { reserved, reserved_cores, ..policy })
    }

    /// The CPUs on which containers run.
    fn usable(&self) -> CpuSet {
        let all = self.topology.all();
        if self.options.strict_reservation { all.difference(&self.reserved) } else { all }
    }

    /// The assignments of a node without containers.
    pub(crate) fn initial(&self) -> Assignments {
        Assignments { shared: self.usable(), ..Assignments::default() }
    }

    /// The CPUs that a container may still get alone.
    pub(crate) fn available(&self, assigned: &Assignments) -> CpuSet {
        assigned.shared.difference(&self.reserved)
    }

    /// Whether the assignments of an earlier agent still fit.
    pub(crate) fn check(&self, assigned: &Assignments) -> Result<(), MisfitError> {
        let (shared, reserved) = (&assigned.shared, &self.reserved);
        if shared.is_empty() {
            return Err(MisfitError::NothingShared);
        }
        let both = reserved.intersection(shared);
        if self.options.strict_reservation && !both.is_empty() {
            return Err(MisfitError::ReservedShared { reserved: both, shared: shared.clone() });
        }
        if !self.options.strict_reservation && both != *reserved {
            return Err(MisfitError::ReservedNotShared { reserved: reserved.clone(), shared: shared.clone() });
        }
        for (pod, containers) in &assigned.exclusive {
            if let Some((container, cpus)) = containers.iter().find(|(_, cpus)| cpus.overlaps(shared)) {
                let (pod, container) = (pod.clone(), container.clone());
                return Err(MisfitError::Overlap { pod, container, cpus: cpus.clone(), shared: shared.clone() });
            }
        }
        let (available, all) = (self.usable(), shared.union(&assigned.all_exclusive()));
        if all == available { Ok(()) } else { Err(MisfitError::OtherCpus { available, assigned: all }) }
    }

    /// The assignments with those of a Pod; the same when it has all of its own already. `tried` counts its containers with CPUs of
    /// their own up to the first one that gets none.
    pub(crate) fn allocate(&self, pod: &Pod, assigned: &Assignments, tried: &mut u64) -> Result<Assignments, Refusal> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let mut next = assigned.clone();
        // The CPUs of init containers that will have ended.
        let mut reusable = CpuSet::default();
        for (role, container) in pod.spec.iter().flat_map(container::all) {
            let count = exclusive_cpus(pod, container);
            if count == 0 {
                continue;
            }
            *tried += 1;
            let cpus = match next.of(&uid, &container.name) {
                Some(present) => present.clone(),
                None => self.choose(&next, &reusable, count)?,
            };
            next.shared = next.shared.difference(&cpus);
            reusable = if role == Role::Init { reusable.union(&cpus) } else { reusable.difference(&cpus) };
            next.exclusive.entry(uid.clone()).or_default().insert(container.name.clone(), cpus);
        }
        Ok(next)
    }

    fn choose(&self, assigned: &Assignments, reusable: &CpuSet, requested: usize) -> Result<CpuSet, Refusal> {
        let per_core = self.topology.cpus_per_core();
        let mut free = self.available(assigned).union(reusable);
        if self.options.full_pcpus_only {
            if !requested.is_multiple_of(per_core) {
                return Err(Refusal::NoWholeCores { requested, per_core });
            }
            // A core of which one thread is reserved is no whole core.
            free = free.difference(&self.reserved_cores);
            if requested > free.len() {
                return Err(Refusal::TooFewCores { available: free.len(), requested, per_core });
            }
        }
        let available = free.len();
        let cpus = self.take(&free, requested).ok_or(Refusal::TooFew { requested, available })?;
        // The others would have no CPU to run on.
        if assigned.shared.is_subset(&cpus) {
            return Err(Refusal::NothingShared { requested });
        }
        Ok(cpus)
    }

    fn take(&self, free: &CpuSet, count: usize) -> Option<CpuSet> {
        if self.options.distribute_across_numa {
            let group = if self.options.full_pcpus_only { self.topology.cpus_per_core() } else { 1 };
            return distribute::distributed(&self.topology, free, count, group);
        }
        take::packed(&self.topology, free, count)
    }
}

#[cfg(test)]
mod tests;
