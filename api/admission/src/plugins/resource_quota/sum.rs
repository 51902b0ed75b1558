//! What many objects use together, and who knows it.

use api_model::kind::GroupResource;
use api_model::view::View;
use serde_json::Value;

use super::scope::Scopes;
use super::usage;
use crate::amount::{self, Amounts};

/// Knows what is used.
pub trait Sums {
    /// What the objects of a resource that are in a namespace and in these scopes use together, each of
    /// them counted once: as of a state in which every write is seen that was answered before the call.
    fn sum(&self, resource: &GroupResource, namespace: &str, scopes: &Scopes) -> Sum;
}

/// What some objects use together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum(Amounts);

impl Sum {
    /// One more object.
    pub fn add(&mut self, resource: &GroupResource, object: &Value) {
        amount::add(&mut self.0, &usage::amounts(resource, object));
        self.0.retain(|_, amount| *amount != 0);
    }

    /// One less, which was added in this state.
    pub fn take(&mut self, resource: &GroupResource, object: &Value) {
        let less: Amounts = usage::amounts(resource, object).into_iter().map(|(name, amount)| (name, amount.saturating_neg())).collect();
        amount::add(&mut self.0, &less);
        // Nothing is left of classes that nobody uses any more.
        self.0.retain(|_, amount| *amount != 0);
    }

    pub(super) fn amounts(&self) -> &Amounts {
        &self.0
    }
}

/// Counts all objects of a view each time: what every other way to know the sums is held against.
pub struct Counted<'a>(pub &'a dyn View);

impl Sums for Counted<'_> {
    fn sum(&self, resource: &GroupResource, namespace: &str, scopes: &Scopes) -> Sum {
        let mut sum = Sum::default();
        for object in self.0.list(resource, Some(namespace)) {
            if scopes.matches(resource, &object) {
                sum.add(resource, &object);
            }
        }
        sum
    }
}
