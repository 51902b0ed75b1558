//! Services and EndpointSlices as rules need them, and the rules made of them. A Service's rules are computed again only
//! when the Service or one of its slices changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;

use crate::Config;
use crate::external::Refusal;
use crate::machine::Machine;
use crate::rules::{RuleSet, ServiceRules, rules};
use crate::service::{Key, Service, Slice};

/// Everything that the rules follow from.
pub(crate) struct State {
    config: Config,
    services: HashMap<Key, Service>,
    slices: HashMap<Key, Slice>,
    /// Whether the first lists of both kinds are complete: rules from an incomplete list would reject packets of working
    /// Services.
    complete: bool,
    /// Names of a Service's slices.
    index: HashMap<Key, BTreeSet<String>>,
    dirty: BTreeSet<Key>,
    machine: Machine,
    rules: BTreeMap<Key, ServiceRules>,
    /// What is not served since the last call, with the Service's UID.
    refused: Vec<(Key, String, Refusal)>,
}

impl State {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            services: HashMap::new(),
            slices: HashMap::new(),
            complete: false,
            index: HashMap::new(),
            dirty: BTreeSet::new(),
            machine: Machine::default(),
            rules: BTreeMap::new(),
            refused: Vec::new(),
        }
    }

    /// Whether the next rules depend on the machine's own addresses and listeners.
    pub(crate) fn asks_machine(&self) -> bool {
        self.dirty.iter().any(|key| self.services.get(key).is_some_and(Service::meets_machine))
    }

    /// Stores the present state of the machine.
    pub(crate) fn set_machine(&mut self, machine: Machine) {
        if self.machine == machine {
            return;
        }
        self.machine = machine;
        let meeting = self.services.iter().filter(|(_, service)| service.meets_machine());
        self.dirty.extend(meeting.map(|(key, _)| key.clone()));
    }

    /// What [`State::rules`] newly does not serve: the Service, its UID, the refusal.
    pub(crate) fn take_refused(&mut self) -> Vec<(Key, String, Refusal)> {
        std::mem::take(&mut self.refused)
    }

    /// Stores the present state of a Service; `None` when it is gone.
    pub(crate) fn set_service(&mut self, key: Key, service: Option<&core::Service>) {
        let service = service.and_then(|service| Service::parse(service, &self.config));
        if replace(&mut self.services, &key, service).is_some() {
            self.dirty.insert(key);
        }
    }

    /// Stores the present state of an EndpointSlice; `None` when it is gone.
    pub(crate) fn set_slice(&mut self, key: Key, slice: Option<&discovery::EndpointSlice>) {
        let slice = slice.and_then(|slice| Slice::parse(slice, &self.config));
        let service = slice.as_ref().map(|slice| slice.service.clone());
        let Some(before) = replace(&mut self.slices, &key, slice) else { return };
        let (namespace, name) = key;
        for of in before.into_iter().map(|slice| slice.service).chain(service.clone()) {
            let belongs = service.as_ref() == Some(&of);
            let of = (namespace.clone(), of);
            let names = self.index.entry(of.clone()).or_default();
            if belongs {
                names.insert(name.clone());
            } else {
                names.remove(&name);
            }
            if names.is_empty() {
                self.index.remove(&of);
            }
            self.dirty.insert(of);
        }
    }

    /// Both first lists are complete.
    pub(crate) fn set_complete(&mut self) {
        self.complete = true;
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The rules of all Services as they should be now.
    pub(crate) fn rules(&mut self) -> RuleSet {
        for key in std::mem::take(&mut self.dirty) {
            match self.services.get(&key) {
                Some(service) => {
                    let names = self.index.get(&key).into_iter().flatten();
                    let slices: Vec<&Slice> = names.filter_map(|name| self.slices.get(&(key.0.clone(), name.clone()))).collect();
                    let rules = rules(&key, service, &slices, &self.config, &self.machine);
                    let reported = self.rules.get(&key).map(|rules| &rules.refused);
                    let new = rules.refused.iter().filter(|refusal| reported.is_none_or(|reported| !reported.contains(refusal)));
                    self.refused.extend(new.map(|refusal| (key.clone(), service.seniority.uid.clone(), *refusal)));
                    self.rules.insert(key, rules);
                }
                None => {
                    self.rules.remove(&key);
                }
            }
        }
        let mut ordered: Vec<_> =
            self.rules.iter().filter_map(|(key, rules)| Some((&self.services.get(key)?.seniority, key, rules))).collect();
        ordered.sort_unstable_by_key(|(seniority, key, _)| (*seniority, *key));
        let mut all = RuleSet::default();
        ordered.iter().for_each(|(_, _, rules)| all.merge(&rules.own));
        ordered.iter().for_each(|(_, _, rules)| all.merge(&rules.external));
        all
    }
}

/// Stores a value, or removes it. Returns the earlier value if it differs.
fn replace<T: PartialEq>(all: &mut HashMap<Key, T>, key: &Key, value: Option<T>) -> Option<Option<T>> {
    if all.get(key) == value.as_ref() {
        return None;
    }
    Some(match value {
        Some(value) => all.insert(key.clone(), value),
        None => all.remove(key),
    })
}

#[cfg(test)]
mod tests;
