//! Where the project is.

use std::path::{Path, PathBuf};

/// The project's directory.
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project's directory").to_owned()
}
