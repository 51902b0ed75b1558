//! `wasi:logging`: each message is one line of the container's log, with its level and context.

use std::fmt::Write as _;

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker};

use super::ComponentHost;

/// The versions that toolchains generate imports for.
const INSTANCES: [&str; 2] = ["wasi:logging/logging@0.1.0-draft", "wasi:logging/logging"];
/// The most bytes of a context, and of a message, in a line. A line of the log has at most 16 KiB, and longer ones are cut into several.
const CONTEXT_LEN_MAX: usize = 256;
const MESSAGE_LEN_MAX: usize = 15 << 10;

/// `level` of the interface.
#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[allow(dead_code, reason = "lifting makes the values")]
enum Level {
    #[component(name = "trace")]
    Trace,
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
    #[component(name = "critical")]
    Critical,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Critical => "critical",
        }
    }
}

/// Adds the interface in each version.
pub fn add_to_linker(linker: &mut Linker<ComponentHost>) -> wasmtime::Result<()> {
    for name in INSTANCES {
        linker.instance(name)?.func_wrap("log", log)?;
    }
    Ok(())
}

fn log(context: StoreContextMut<'_, ComponentHost>, (level, about, message): (Level, String, String)) -> wasmtime::Result<()> {
    (context.data().interfaces.log)(&line(level, &about, &message));
    Ok(())
}

/// One line, whatever is in the message: a newline in it must not begin a line that looks like another message.
fn line(level: Level, about: &str, message: &str) -> String {
    let mut line = format!("[{}] ", level.name());
    if !about.is_empty() {
        append(&mut line, about, CONTEXT_LEN_MAX);
        line.push_str(": ");
    }
    append(&mut line, message, MESSAGE_LEN_MAX);
    line.push('\n');
    line
}

/// Appends a text without control characters, up to so many bytes of output.
fn append(line: &mut String, text: &str, len_max: usize) {
    let end = line.len() + len_max;
    for (at, letter) in text.char_indices() {
        let before = line.len();
        if letter.is_control() && letter != '\t' {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
        if line.len() > end {
            line.truncate(before);
            // Writing to a string cannot fail.
            let _ = write!(line, "... ({} more bytes)", text.len() - at);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_with_level_and_context() {
        for (level, about, message, wanted) in [
            (Level::Info, "", "started", "[info] started\n"),
            (Level::Warn, "cart", "low\tstock", "[warn] cart: low\tstock\n"),
            (Level::Trace, "", "", "[trace] \n"),
            (Level::Debug, "a\nb", "one\r\n[error] forged\u{1b}[2J", "[debug] a\\nb: one\\r\\n[error] forged\\u{1b}[2J\n"),
            (Level::Critical, "", "größe", "[critical] größe\n"),
        ] {
            assert_eq!(line(level, about, message), wanted);
        }
    }

    #[test]
    fn a_long_message_is_cut_and_says_so() {
        for letter in ["x", "ß", "\n"] {
            let text = letter.repeat(1 << 20);
            let line = line(Level::Error, &text, &text);
            assert!(line.len() <= 16 << 10, "{} bytes", line.len());
            assert!(line.ends_with(" more bytes)\n") && line.lines().count() == 1, "{line:?}");
        }
        let whole = "x".repeat(MESSAGE_LEN_MAX);
        assert_eq!(line(Level::Error, "", &whole), format!("[error] {whole}\n"));
    }
}
