//! Sums by topology domain: all nodes with the same value of a label are one domain.

use std::collections::{BTreeMap, HashMap};

/// The sum of each domain, by the key of the node label and its value.
#[derive(Debug, Default)]
pub(super) struct TopologySums(HashMap<String, HashMap<String, i64>>);

impl TopologySums {
    /// Adds to the domain of a node with these labels. A node without the label is in no domain.
    pub(super) fn add(&mut self, key: &str, labels: &BTreeMap<String, String>, number: i64) {
        let Some(value) = labels.get(key) else { return };
        if !self.0.contains_key(key) {
            self.0.insert(key.to_owned(), HashMap::new());
        }
        let Some(domains) = self.0.get_mut(key) else { return };
        match domains.get_mut(value) {
            Some(sum) => *sum += number,
            None => {
                domains.insert(value.clone(), number);
            }
        }
    }

    /// Whether no domain has a sum.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sum of the domain that a node with these labels is in; 0 if it is in none.
    pub(super) fn get(&self, key: &str, labels: &BTreeMap<String, String>) -> i64 {
        let sum = self.0.get(key).and_then(|domains| domains.get(labels.get(key)?));
        sum.copied().unwrap_or(0)
    }

    /// The sums of all domains that a node with these labels is in.
    pub(super) fn of_node<'s>(&'s self, labels: &'s BTreeMap<String, String>) -> impl Iterator<Item = i64> + 's {
        self.0.iter().filter_map(|(key, domains)| domains.get(labels.get(key)?).copied())
    }
}
