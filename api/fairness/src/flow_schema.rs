//! A FlowSchema: the requests that match it, their flows, and its priority level.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use api_model::request::{Attributes, UserInfo};
use http::HeaderValue;

use crate::level::Level;
use crate::rule::Rule;
use crate::stats::Stats;

/// One FlowSchema with its priority level.
pub struct FlowSchema {
    /// Name.
    pub name: String,
    /// The schema's uid for `X-Kubernetes-PF-FlowSchema-UID`; empty if the schema is not stored.
    pub uid: HeaderValue,
    /// The level's uid for `X-Kubernetes-PF-PriorityLevel-UID`; empty if the level is not stored.
    pub level_uid: HeaderValue,
    pub(crate) precedence: i64,
    pub(crate) distinguisher: Distinguisher,
    pub(crate) rules: Vec<Rule>,
    pub(crate) level: Arc<Level>,
    pub(crate) stats: Arc<Stats>,
}

impl std::fmt::Debug for FlowSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowSchema").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How the requests of a schema are divided into flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distinguisher {
    None,
    ByUser,
    ByNamespace,
}

impl From<&str> for Distinguisher {
    fn from(kind: &str) -> Self {
        match kind {
            "ByUser" => Self::ByUser,
            "ByNamespace" => Self::ByNamespace,
            _ => Self::None,
        }
    }
}

impl FlowSchema {
    /// Name of the priority level.
    pub fn level_name(&self) -> &str {
        &self.level.name
    }

    pub(crate) fn matches(&self, user: &UserInfo, attributes: &Attributes) -> bool {
        self.rules.iter().any(|rule| rule.matches(user, attributes))
    }

    /// The hash that identifies a request's flow.
    pub(crate) fn flow(&self, user: &UserInfo, attributes: &Attributes) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.name.hash(&mut hasher);
        match self.distinguisher {
            Distinguisher::None => {}
            Distinguisher::ByUser => user.username.hash(&mut hasher),
            Distinguisher::ByNamespace => attributes.namespace.hash(&mut hasher),
        }
        hasher.finish()
    }
}
