//! No Pod is created beyond a quota.

use super::count;
use crate::history::{Change, Check, View};
use crate::object::{is_active, text};

/// Looks at the creations of Pods.
pub struct Pods;

impl Check for Pods {
    fn change(&mut self, view: &View, change: &Change) -> Result<(), String> {
        if change.key.resource != "pods" || change.old.is_some() {
            return Ok(());
        }
        let namespace = &change.key.namespace;
        let active = count(view.within("pods", namespace).filter(|pod| is_active(pod)));
        for quota in view.within("resourcequotas", namespace) {
            let hard: i64 = text(quota, "/spec/hard/pods").parse().unwrap_or(i64::MAX);
            if active > hard {
                return Err(format!("{} is Pod number {active} of a quota of {hard}", change.key));
            }
        }
        Ok(())
    }
}
