//! Messages on standard output and error. A failed write (a full disk, a closed pipe) is ignored; `println!` would
//! panic.

use std::fmt::Display;
use std::io::Write as _;

use crate::{logging, memory};

/// Prints a line to standard output.
pub fn line(text: impl Display) {
    let _unheard = writeln!(std::io::stdout(), "{text}");
}

/// Prints the ready line, and returns memory that only the start needed.
pub fn ready(text: &str) {
    line(text);
    memory::settle();
}

/// Writes a line to standard error, in the format of the log.
pub fn complaint(text: &str) {
    logging::last_words(text);
}
