//! Files of the machine: `api-files` replaces them whole, [`remove_tree`] removes what a guest has made,
//! [`open_in_root`] opens it.

mod in_root;
mod remove;

pub use api_files::{PRIVATE, private_dir, rename, sync_parent, write_atomic, write_volatile};
pub use in_root::open_in_root;
pub use remove::remove_tree;
