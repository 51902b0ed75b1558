//! The total usage of objects, and the trait of its sources.

use api_model::kind::GroupResource;
use api_model::view::View;
use serde_json::Value;

use super::scope::Scopes;
use super::usage;
use crate::amount::{self, Amounts};

/// A source of the usage.
pub trait Sums {
    /// The total usage of the objects of a resource in a namespace and in the given scopes. Each object counts once.
    /// The sum includes every write that was answered before the call.
    fn sum(&self, resource: &GroupResource, namespace: &str, scopes: &Scopes) -> Sum;
}

/// The total usage of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum(Amounts);

impl Sum {
    /// Adds an object.
    pub fn add(&mut self, resource: &GroupResource, object: &Value) {
        amount::add(&mut self.0, &usage::amounts(resource, object));
        self.0.retain(|_, amount| *amount != 0);
    }

    /// Removes an object, which must be the same value that was added.
    pub fn take(&mut self, resource: &GroupResource, object: &Value) {
        let less: Amounts = usage::amounts(resource, object).into_iter().map(|(name, amount)| (name, amount.saturating_neg())).collect();
        amount::add(&mut self.0, &less);
        // Names of storage classes that are no longer used do not stay in the map.
        self.0.retain(|_, amount| *amount != 0);
    }

    pub(super) fn amounts(&self) -> &Amounts {
        &self.0
    }
}

/// Counts all objects of a view at each call. The tests compare other sources with it.
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
