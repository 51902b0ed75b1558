//! `test`: whether a path exists.

use std::io;
use std::path::Path;

use super::{Files, Messages, TROUBLE};

/// Its arguments.
const USAGE: &str = "Skiff's own test knows -d PATH, -e PATH and -f PATH alone";

/// Returns 0 for yes, 1 for no.
pub fn run(args: &[String], files: &Files, messages: &mut Messages) -> i32 {
    let [flag, path] = args else {
        messages.complain(format!("{args:?}"), &io::Error::other(USAGE));
        return TROUBLE;
    };
    let metadata = files.locate(Path::new(path)).and_then(|location| location.dir.metadata(location.path)).ok();
    let is_so = match flag.as_str() {
        "-d" => metadata.is_some_and(|metadata| metadata.is_dir()),
        "-e" => metadata.is_some(),
        "-f" => metadata.is_some_and(|metadata| metadata.is_file()),
        _ => {
            messages.complain(format!("{flag:?}"), &io::Error::other(USAGE));
            return TROUBLE;
        }
    };
    i32::from(!is_so)
}
