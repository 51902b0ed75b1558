//! Files of the machine: those that survive a power cut are `api-files`'; [`remove_tree`] removes what a guest has made.

mod remove;

pub use api_files::{PRIVATE, private_dir, rename, sync_parent, write_atomic};
pub use remove::remove_tree;
