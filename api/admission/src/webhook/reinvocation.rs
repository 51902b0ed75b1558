//! Who is asked again when the object has changed after they saw it: webhooks, and likewise policies.
//!
//! Plugins, policies and webhooks change objects one after the other, so an early one may not have seen what a
//! later one made. Once, when some webhook changed something, all plugins run again, and of the
//! webhooks those that want to be asked again and were asked before the change.

use std::collections::BTreeSet;

use serde_json::Value;

/// What is remembered between the first and the second round.
#[derive(Debug, Default)]
pub struct Reinvocation {
    is_second: bool,
    has_changed: bool,
    /// Those asked since the last change that want to know of the next.
    asked: Vec<String>,
    /// Those that have missed a change.
    due: BTreeSet<String>,
    /// The object as it was left at the end of a round.
    left: Option<Value>,
}

impl Reinvocation {
    /// The object before the webhooks of a round are asked.
    pub fn begin(&mut self, object: Option<&Value>) {
        if self.is_second && self.left.as_ref() != object {
            self.call_again();
        }
    }

    /// Whether a webhook is to be asked in this round.
    pub fn is_due(&self, id: &str) -> bool {
        !self.is_second || self.due.contains(id)
    }

    /// A webhook has changed the object.
    pub fn changed(&mut self) {
        self.has_changed = true;
        self.call_again();
    }

    /// A webhook that wants to be asked again was asked.
    pub fn asked(&mut self, id: &str) {
        self.asked.push(id.to_owned());
    }

    /// The object after all were asked in a round.
    pub fn end(&mut self, object: Option<&Value>) {
        // Where nobody wants to be asked again, nobody compares.
        if !self.asked.is_empty() {
            self.left = object.cloned();
        }
    }

    /// Whether there is to be another round for all that take turns, because some changed something. It is
    /// the last one.
    pub fn goes_on<const N: usize>(turns: [&mut Self; N]) -> bool {
        let goes_on = turns.iter().any(|turn| turn.has_changed) && !turns.iter().any(|turn| turn.is_second);
        if goes_on {
            turns.into_iter().for_each(|turn| turn.is_second = true);
        }
        goes_on
    }

    fn call_again(&mut self) {
        self.due.extend(self.asked.drain(..));
    }
}
