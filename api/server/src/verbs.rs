//! What can be done to objects of any kind: one file a verb. All that write go through `write.rs`.

pub(crate) mod apply;
pub(crate) mod body;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod delete_collection;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod modify;
mod owners;
pub(crate) mod patch;
pub(crate) mod recording;
pub(crate) mod update;
pub(crate) mod watch;
pub(crate) mod write;

use std::sync::Arc;

use api_admission::UnknownPlugin;

use crate::admission::Admission;
use crate::core::Core;
use crate::exclusive::Locks;
use crate::services::Allocator;

/// What a write needs beside the store.
pub(crate) struct WritePath {
    pub(crate) admission: Admission,
    /// Hands out addresses and ports of Services.
    allocator: Arc<Allocator>,
    /// Of servers that share a store.
    locks: Arc<Locks>,
}

impl WritePath {
    /// # Errors
    /// When an admission plugin that is switched off does not exist.
    pub(crate) fn new(core: &Arc<Core>) -> Result<Self, UnknownPlugin> {
        let (config, locks) = (&core.config, Locks::new(core));
        let allocator = Allocator::new(config.service_cluster_ip_range, config.service_node_port_range.clone());
        Ok(Self { admission: Admission::new(core, &locks)?, allocator, locks })
    }
}
