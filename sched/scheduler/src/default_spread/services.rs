//! The Services that select a Pod, found by the Pod's labels: a namespace may have thousands of Services.

use std::collections::{BTreeMap, HashMap};

use api_client::informer::ObjectKey;

type Labels = BTreeMap<String, String>;

/// The selectors of all Services.
#[derive(Default)]
pub(super) struct ServiceSelectors {
    selectors: HashMap<ObjectKey, Labels>,
    /// The Services by namespace and the first label of their selector.
    by_label: HashMap<(String, String, String), Vec<ObjectKey>>,
}

impl ServiceSelectors {
    /// Stores the selector of a Service; an empty one selects no Pod.
    pub fn set(&mut self, key: &ObjectKey, selector: Labels) {
        if let Some(before) = self.selectors.remove(key).and_then(|before| first(key, &before))
            && let Some(keys) = self.by_label.get_mut(&before)
        {
            keys.retain(|other| other != key);
            if keys.is_empty() {
                self.by_label.remove(&before);
            }
        }
        if let Some(first) = first(key, &selector) {
            self.by_label.entry(first).or_default().push(key.clone());
            self.selectors.insert(key.clone(), selector);
        }
    }

    /// The labels that the Services require which select a Pod with these labels.
    pub fn of_pod(&self, namespace: &str, labels: &Labels) -> Labels {
        if self.selectors.is_empty() {
            return Labels::new();
        }
        let keys = labels.iter().filter_map(|(key, value)| self.by_label.get(&(namespace.to_owned(), key.clone(), value.clone())));
        let selectors = keys.flatten().filter_map(|key| self.selectors.get(key));
        let selecting = selectors.filter(|selector| selector.iter().all(|(key, value)| labels.get(key) == Some(value)));
        selecting.flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

fn first(key: &ObjectKey, selector: &Labels) -> Option<(String, String, String)> {
    selector.first_key_value().map(|(label, value)| (key.namespace.clone(), label.clone(), value.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_selects_by_all_of_its_labels_until_it_changes() {
        let labels = |all: &[(&str, &str)]| all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<Labels>();
        let mut services = ServiceSelectors::default();
        let found = |services: &ServiceSelectors, all| services.of_pod("n", &labels(all)).len();
        services.set(&ObjectKey::new("n", "one"), labels(&[("app", "web"), ("tier", "front")]));
        assert_eq!(found(&services, &[("app", "web")]), 0);
        assert_eq!(found(&services, &[("app", "web"), ("tier", "front"), ("x", "y")]), 2);
        services.set(&ObjectKey::new("n", "one"), labels(&[("app", "web")]));
        assert_eq!(found(&services, &[("app", "web")]), 1);
        services.set(&ObjectKey::new("n", "one"), Labels::new());
        assert_eq!((found(&services, &[("app", "web")]), services.by_label.len()), (0, 0));
    }
}
