//! The labels of the namespaces.

use std::collections::{BTreeMap, HashMap};

/// The labels of each namespace, by its name.
#[derive(Clone, Debug, Default)]
pub struct NamespaceLabels(HashMap<String, BTreeMap<String, String>>);

impl NamespaceLabels {
    /// Stores the labels of a namespace; `None` removes a namespace that is gone. Returns whether they are other ones than before.
    pub fn set(&mut self, namespace: &str, labels: Option<BTreeMap<String, String>>) -> bool {
        if labels.as_ref() == self.0.get(namespace) {
            return false;
        }
        match labels {
            Some(labels) => self.0.insert(namespace.to_owned(), labels),
            None => self.0.remove(namespace),
        };
        true
    }

    /// The labels of a namespace; none when the namespace does not exist.
    pub fn of_namespace(&self, namespace: &str) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.0.get(namespace).unwrap_or(&NONE)
    }
}
