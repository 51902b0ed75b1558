//! The labels of the namespaces.

use std::collections::{BTreeMap, HashMap};

/// The labels of each namespace, by its name.
#[derive(Clone, Debug, Default)]
pub struct NamespaceLabels(HashMap<String, BTreeMap<String, String>>);

impl NamespaceLabels {
    /// Stores the labels of a namespace; `None` removes a namespace that is gone.
    pub fn set(&mut self, namespace: &str, labels: Option<BTreeMap<String, String>>) {
        match labels {
            Some(labels) => self.0.insert(namespace.to_owned(), labels),
            None => self.0.remove(namespace),
        };
    }

    /// The labels of a namespace; none when the namespace does not exist.
    pub fn of_namespace(&self, namespace: &str) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.0.get(namespace).unwrap_or(&NONE)
    }
}
