//! What the proxy knows: Services and EndpointSlices as last seen, and the rules made of them.
//! Events change it; a Service's rules are made anew only when it or one of its slices changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;

use crate::Config;
use crate::external::Refusal;
use crate::machine::Machine;
use crate::rules::{RuleSet, ServiceRules, rules};
use crate::service::{Key, Service, Slice};

/// Objects of one kind, by namespace and name, with the replacement that a new list builds up.
struct Seen<T> {
    current: HashMap<Key, T>,
    listing: Option<HashMap<Key, T>>,
    complete: bool,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self { current: HashMap::new(), listing: None, complete: false }
    }
}

impl<T: PartialEq> Seen<T> {
    /// Takes in an event; tells every object that changed as it was and as it is.
    fn apply<K: kube::Resource>(&mut self, event: Event<K>, parse: impl Fn(&K) -> Option<T>, mut changed: impl FnMut(&Key, &T)) {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            Event::Init => self.listing = Some(HashMap::new()),
            Event::InitApply(object) => {
                if let Some(value) = parse(&object) {
                    self.listing.get_or_insert_default().insert(key(&object), value);
                }
            }
            Event::InitDone => {
                let listed = self.listing.take().unwrap_or_default();
                for (key, was) in &self.current {
                    if listed.get(key) != Some(was) {
                        changed(key, was);
                    }
                }
                for (key, is) in &listed {
                    if self.current.get(key) != Some(is) {
                        changed(key, is);
                    }
                }
                (self.current, self.complete) = (listed, true);
            }
            Event::Apply(object) => {
                let (key, value) = (key(&object), parse(&object));
                if self.current.get(&key) == value.as_ref() {
                    return;
                }
                if let Some(is) = &value {
                    changed(&key, is);
                }
                let was = match value {
                    Some(value) => self.current.insert(key.clone(), value),
                    None => self.current.remove(&key),
                };
                if let Some(was) = was {
                    changed(&key, &was);
                }
            }
            Event::Delete(object) => {
                let key = key(&object);
                if let Some(was) = self.current.remove(&key) {
                    changed(&key, &was);
                }
            }
        }
    }
}

/// The proxy's whole knowledge.
pub(crate) struct State {
    config: Config,
    services: Seen<Service>,
    slices: Seen<Slice>,
    /// Names of a Service's slices.
    index: HashMap<Key, BTreeSet<String>>,
    dirty: BTreeSet<Key>,
    machine: Machine,
    rules: BTreeMap<Key, ServiceRules>,
    /// What is not served since it was last asked, with the Service's UID.
    refused: Vec<(Key, String, Refusal)>,
}

impl State {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            services: Seen::default(),
            slices: Seen::default(),
            index: HashMap::new(),
            dirty: BTreeSet::new(),
            machine: Machine::default(),
            rules: BTreeMap::new(),
            refused: Vec::new(),
        }
    }

    /// Whether the next rules depend on what the machine has itself.
    pub(crate) fn asks_machine(&self) -> bool {
        self.dirty.iter().any(|key| self.services.current.get(key).is_some_and(Service::meets_machine))
    }

    /// Takes in the machine as it is now.
    pub(crate) fn set_machine(&mut self, machine: Machine) {
        if self.machine == machine {
            return;
        }
        self.machine = machine;
        let meeting = self.services.current.iter().filter(|(_, service)| service.meets_machine());
        self.dirty.extend(meeting.map(|(key, _)| key.clone()));
    }

    /// What [`State::rules`] newly refused to serve: the Service, its UID, the refusal.
    pub(crate) fn take_refused(&mut self) -> Vec<(Key, String, Refusal)> {
        std::mem::take(&mut self.refused)
    }

    pub(crate) fn service(&mut self, event: Event<core::Service>) {
        let (config, dirty) = (&self.config, &mut self.dirty);
        self.services.apply(
            event,
            |service| Service::parse(service, config),
            |key, _| {
                dirty.insert(key.clone());
            },
        );
    }

    pub(crate) fn slice(&mut self, event: Event<discovery::EndpointSlice>) {
        let config = &self.config;
        let mut touched: Vec<(Key, Key)> = Vec::new();
        self.slices.apply(
            event,
            |slice| Slice::parse(slice, config),
            |key, slice| {
                touched.push(((key.0.clone(), slice.service.clone()), key.clone()));
            },
        );
        for (service, slice) in touched {
            let names = self.index.entry(service.clone()).or_default();
            if self.slices.current.get(&slice).is_some_and(|s| s.service == service.1) {
                names.insert(slice.1);
            } else {
                names.remove(&slice.1);
            }
            if names.is_empty() {
                self.index.remove(&service);
            }
            self.dirty.insert(service);
        }
    }

    /// Whether both first lists are complete: rules from half a list would refuse what works.
    pub(crate) fn is_complete(&self) -> bool {
        self.services.complete && self.slices.complete
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The rules of all Services as they should be now.
    pub(crate) fn rules(&mut self) -> RuleSet {
        for key in std::mem::take(&mut self.dirty) {
            match self.services.current.get(&key) {
                Some(service) => {
                    let names = self.index.get(&key).into_iter().flatten();
                    let slices: Vec<&Slice> = names.filter_map(|name| self.slices.current.get(&(key.0.clone(), name.clone()))).collect();
                    let rules = rules(&key, service, &slices, &self.config, &self.machine);
                    let known = self.rules.get(&key).map(|rules| &rules.refused);
                    let new = rules.refused.iter().filter(|refusal| known.is_none_or(|known| !known.contains(refusal)));
                    self.refused.extend(new.map(|refusal| (key.clone(), service.seniority.uid.clone(), *refusal)));
                    self.rules.insert(key, rules);
                }
                None => {
                    self.rules.remove(&key);
                }
            }
        }
        let mut ordered: Vec<_> =
            self.rules.iter().filter_map(|(key, rules)| Some((&self.services.current.get(key)?.seniority, key, rules))).collect();
        ordered.sort_unstable_by_key(|(seniority, key, _)| (*seniority, *key));
        let mut all = RuleSet::default();
        ordered.iter().for_each(|(_, _, rules)| all.merge(&rules.own));
        ordered.iter().for_each(|(_, _, rules)| all.merge(&rules.external));
        all
    }
}

#[cfg(test)]
mod tests;
