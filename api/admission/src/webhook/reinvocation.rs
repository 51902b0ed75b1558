//! Reinvocation of webhooks and policies whose object changed after their call.
//!
//! Plugins, policies and webhooks change the object one after the other, so an early one may have missed a later change.
//! After a webhook changed something, all plugins run once more, and so do the webhooks with `reinvocationPolicy: IfNeeded`
//! that were called before the change.

use std::collections::BTreeSet;

use serde_json::Value;

/// The state between the first and the second round.
#[derive(Debug, Default)]
pub struct Reinvocation {
    is_second: bool,
    has_changed: bool,
    /// Reinvocable webhooks that were called since the last change.
    invoked: Vec<String>,
    /// Reinvocable webhooks that missed a change.
    due: BTreeSet<String>,
    /// The object at the end of a round.
    left: Option<Value>,
}

impl Reinvocation {
    /// Records the object before the webhooks of a round.
    pub fn begin(&mut self, object: Option<&Value>) {
        if self.is_second && self.left.as_ref() != object {
            self.call_again();
        }
    }

    /// Whether a webhook is called in this round.
    pub fn is_due(&self, id: &str) -> bool {
        !self.is_second || self.due.contains(id)
    }

    /// Records that a webhook changed the object.
    pub fn changed(&mut self) {
        self.has_changed = true;
        self.call_again();
    }

    /// Records the call of a reinvocable webhook.
    pub fn invoked(&mut self, id: &str) {
        self.invoked.push(id.to_owned());
    }

    /// Records the object at the end of a round.
    pub fn end(&mut self, object: Option<&Value>) {
        // Without reinvocable webhooks no comparison is needed.
        if !self.invoked.is_empty() {
            self.left = object.cloned();
        }
    }

    /// Whether there is a second round, because some webhook changed the object. It is the last one.
    pub fn goes_on<const N: usize>(webhooks: [&mut Self; N]) -> bool {
        let goes_on = webhooks.iter().any(|webhook| webhook.has_changed) && !webhooks.iter().any(|webhook| webhook.is_second);
        if goes_on {
            webhooks.into_iter().for_each(|webhook| webhook.is_second = true);
        }
        goes_on
    }

    fn call_again(&mut self) {
        self.due.extend(self.invoked.drain(..));
    }
}
