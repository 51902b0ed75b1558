//! The Pods of a gang are bound when there are as many as the gang needs, and a gang that does not fit as a whole has no Pod on a node. A
//! binding may fail, or a Pod may leave after it: then a part of a gang is bound for a while, as upstream.

use super::{Recent, count, is_present};
use crate::history::{Change, Check, View};
use crate::object::{is_active, is_impossible, number, pod_group, text};

/// Looks at the bindings of the Pods of gangs.
#[derive(Default)]
pub struct Bindings {
    /// The Pods of each group, by `namespace/name`.
    pods: Recent,
    /// The Pods that each gang needs; 0 when it is gone.
    least: Recent,
}

impl Check for Bindings {
    fn change(&mut self, view: &View, change: &Change) -> Result<(), String> {
        match change.key.resource.as_str() {
            "podgroups" => {
                let least = change.new.as_ref().and_then(|group| number(group, "/spec/schedulingPolicy/gang/minCount"));
                self.least.add(&format!("{}/{}", change.key.namespace, change.key.name), least.unwrap_or(0), view.now);
                Ok(())
            }
            "pods" => self.pod(view, change),
            _ => Ok(()),
        }
    }
}

impl Bindings {
    fn pod(&mut self, view: &View, change: &Change) -> Result<(), String> {
        let Some(name) = change.new.as_ref().or(change.old.as_ref()).and_then(|pod| pod_group(pod)) else { return Ok(()) };
        let key = format!("{}/{name}", change.key.namespace);
        let pods = view.within("pods", &change.key.namespace).filter(|pod| pod_group(pod) == Some(name) && is_active(pod));
        self.pods.add(&key, count(pods), view.now);
        let (Some(old), Some(new)) = (&change.old, &change.new) else { return Ok(()) };
        if text(old, "/spec/nodeName") == text(new, "/spec/nodeName") {
            return Ok(());
        }
        if self.least.values(&key, view.now).next().is_none() {
            return Err(format!("{} is bound before there is a group {key}", change.key));
        }
        if view.get("podgroups", &change.key.namespace, name).is_some_and(|group| is_impossible(group)) {
            return Err(format!("{} is bound, and a Pod of its gang fits nowhere", change.key));
        }
        let (pods, least) = (self.pods.max(&key, view.now), self.least.min(&key, view.now));
        if pods < least && is_present(view, "scheduler") {
            return Err(format!("{} is bound: its gang has {pods} Pods and needs {least}", change.key));
        }
        Ok(())
    }
}
