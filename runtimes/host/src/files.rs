//! Files of the machine: `api-files` has those that survive a power cut, [`remove_tree`] removes what a guest has made.

mod remove;

pub use api_files::{PRIVATE, private_dir, rename, sync_parent, write_atomic};
pub use remove::remove_tree;
