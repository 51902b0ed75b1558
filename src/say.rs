//! Messages on standard output and error. A failed write (a full disk, a closed pipe) is ignored; `println!` would panic.

use std::io::Write as _;

use crate::{logging, memory};

/// A line on standard output.
pub fn line(text: &str) {
    let _unheard = writeln!(std::io::stdout(), "{text}");
}

/// That the start is over; what only the start needed goes.
pub fn ready(text: &str) {
    line(text);
    memory::settle();
}

/// A line on standard error, in the format of the log.
pub fn complaint(text: &str) {
    logging::last_words(text);
}
