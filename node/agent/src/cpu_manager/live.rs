//! The containers that may run, and the CPUs to which each was bound. Pure.

use std::collections::BTreeMap;

use runtimes_contract::ContainerId;

use super::cpu_set::CpuSet;
use super::state::Assignments;

/// One container.
#[derive(Clone, Debug)]
struct Container {
    uid: String,
    name: String,
    handler: String,
    /// The CPUs that were set last; `None` when they are not known.
    cpus: Option<CpuSet>,
    /// Whether its start is over.
    started: bool,
}

/// The containers by their ids.
#[derive(Clone, Debug, Default)]
pub(super) struct Containers(BTreeMap<ContainerId, Container>);

/// The CPUs that a container is to have.
fn wanted<'a>(container: &Container, assigned: &'a Assignments) -> &'a CpuSet {
    assigned.of(&container.uid, &container.name).unwrap_or(&assigned.shared)
}

impl Containers {
    /// See [`CpuManager::begin`](super::CpuManager::begin).
    pub(super) fn begin(&mut self, uid: &str, name: &str, id: &ContainerId, handler: &str, assigned: &Assignments) -> (CpuSet, bool) {
        let own = assigned.of(uid, name);
        let cpus = own.unwrap_or(&assigned.shared).clone();
        let (uid, name, handler) = (uid.to_owned(), name.to_owned(), handler.to_owned());
        self.0.insert(id.clone(), Container { uid, name, handler, cpus: Some(cpus.clone()), started: false });
        (cpus, own.is_some())
    }

    pub(super) fn adopt(&mut self, uid: &str, name: &str, id: &ContainerId, handler: &str) {
        let (uid, name, handler) = (uid.to_owned(), name.to_owned(), handler.to_owned());
        self.0.insert(id.clone(), Container { uid, name, handler, cpus: None, started: true });
    }

    pub(super) fn started(&mut self, id: &ContainerId) {
        if let Some(container) = self.0.get_mut(id) {
            container.started = true;
        }
    }

    pub(super) fn forget(&mut self, id: &ContainerId) {
        self.0.remove(id);
    }

    /// Whether another container is being started on one of these CPUs.
    pub(super) fn starts_on(&self, cpus: &CpuSet, id: &ContainerId) -> bool {
        let starts = |container: &Container| !container.started && container.cpus.as_ref().is_some_and(|its| its.overlaps(cpus));
        self.0.iter().any(|(other, container)| other != id && starts(container))
    }

    /// The containers that run and have other CPUs than they are to have: id, runtime handler, CPUs.
    pub(super) fn due(&self, assigned: &Assignments) -> Vec<(ContainerId, String, CpuSet)> {
        let due = self.0.iter().filter(|(_, container)| is_due(container, assigned));
        due.map(|(id, container)| (id.clone(), container.handler.clone(), wanted(container, assigned).clone())).collect()
    }

    /// Whether there is any.
    pub(super) fn has_due(&self, assigned: &Assignments) -> bool {
        self.0.values().any(|container| is_due(container, assigned))
    }

    /// The container has these CPUs now.
    pub(super) fn bound(&mut self, id: &ContainerId, cpus: CpuSet) {
        if let Some(container) = self.0.get_mut(id) {
            container.cpus = Some(cpus);
        }
    }

    /// Nothing is known of the CPUs that started containers have.
    pub(super) fn unsettle(&mut self) {
        self.0.values_mut().filter(|container| container.started).for_each(|container| container.cpus = None);
    }
}

fn is_due(container: &Container, assigned: &Assignments) -> bool {
    container.started && container.cpus.as_ref() != Some(wanted(container, assigned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().expect("a list")
    }

    fn id(name: &str) -> ContainerId {
        ContainerId(name.to_owned())
    }

    fn assigned(shared: &str, own: &[(&str, &str)]) -> Assignments {
        let mut all = Assignments { shared: set(shared), ..Assignments::default() };
        for (uid, cpus) in own {
            all.exclusive.entry((*uid).to_owned()).or_default().insert("c".to_owned(), set(cpus));
        }
        all
    }

    fn due(containers: &Containers, assigned: &Assignments) -> Vec<String> {
        let due = containers.due(assigned);
        assert_eq!(containers.has_due(assigned), !due.is_empty());
        due.into_iter().map(|(id, handler, cpus)| format!("{handler} {id}: {cpus}")).collect()
    }

    #[test]
    fn who_runs_on_what_has_become_anothers_is_due() {
        let (before, after) = (assigned("0-3", &[]), assigned("0-1", &[("own", "2-3")]));
        let mut containers = Containers::default();
        assert_eq!(containers.begin("pool", "c", &id("a"), "runc", &before), (set("0-3"), false));
        containers.started(&id("a"));
        assert_eq!(due(&containers, &before), [""; 0]);
        assert_eq!(containers.begin("own", "c", &id("b"), "wasmtime", &after), (set("2-3"), true));
        assert_eq!(due(&containers, &after), ["runc a: 0-1"]);
        containers.bound(&id("a"), set("0-1"));
        assert_eq!(due(&containers, &after), [""; 0]);
        containers.unsettle();
        assert_eq!(due(&containers, &after), ["runc a: 0-1"], "the one that is being started has what it was created with");
        containers.adopt("own", "c", &id("b"), "wasmtime");
        assert_eq!(due(&containers, &after), ["runc a: 0-1", "wasmtime b: 2-3"]);
        containers.forget(&id("a"));
        assert_eq!(due(&containers, &after), ["wasmtime b: 2-3"]);
    }

    #[test]
    fn starts_on_the_same_cpus_are_waited_for() {
        let (before, after) = (assigned("0-3", &[]), assigned("0-1", &[("own", "2-3")]));
        let mut containers = Containers::default();
        containers.begin("pool", "c", &id("early"), "runc", &before);
        containers.begin("pool", "c", &id("late"), "runc", &after);
        containers.begin("own", "c", &id("b"), "runc", &after);
        assert!(containers.starts_on(&set("2-3"), &id("b")));
        assert_eq!(due(&containers, &after), [""; 0], "its cgroup may not exist yet");
        containers.started(&id("early"));
        assert!(!containers.starts_on(&set("2-3"), &id("b")), "neither the one that is created now nor the container itself");
        assert_eq!(due(&containers, &after), ["runc early: 0-1"]);
    }
}
