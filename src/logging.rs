//! The log on standard error. By default text for people: one line an event whatever its fields contain, with colours
//! only on a terminal. Or JSON.

use std::io::{self, IsTerminal as _, Write};
use std::sync::OnceLock;

use anyhow::Context as _;
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines for people.
    Text,
    /// A JSON object a line.
    Json,
}

/// The chosen format.
static FORMAT: OnceLock<Format> = OnceLock::new();

/// Starts logging.
///
/// # Errors
/// When the filter cannot be parsed.
pub fn init(filter: &str, format: Format) -> anyhow::Result<()> {
    // The DNS library logs every query at `info`; a user who wants this must name the library in the filter. The
    // websocket library logs all data at `trace`, also Secrets that `exec` reads, so it stays at `debug` whatever the
    // general level is.
    let directives = format!("hickory_server=warn,hickory_resolver=warn,hickory_proto=warn,{filter},tungstenite=debug");
    let env_filter = EnvFilter::try_new(directives).with_context(|| format!("--log {filter:?}"))?;
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty()) || !io::stderr().is_terminal();
    // An event that cannot be written (a full disk) is lost. A message about that would panic in the code that logs.
    let log = tracing_subscriber::fmt().with_env_filter(env_filter).log_internal_errors(false);
    match format {
        Format::Text => log.with_ansi(!is_plain).with_writer(OneLine { keeps_escapes: !is_plain }).init(),
        Format::Json => log.json().flatten_event(true).with_writer(io::stderr).init(),
    }
    // This is the only call, so setting the format cannot fail.
    let _set = FORMAT.set(format);
    Ok(())
}

/// Writes the final error of a process, in the format of the log.
pub fn last_words(text: &str) {
    let line = match FORMAT.get() {
        Some(Format::Json) => {
            let (level, time) = ("ERROR", jiff::Timestamp::now().to_string());
            format!("{}\n", serde_json::json!({"timestamp": time, "level": level, "message": text, "target": "skiff"}))
        }
        Some(Format::Text) | None => one_line(&format!("skiff: {}\n", text.trim_end()), false),
    };
    // A write to a closed pipe fails; the failure is ignored.
    let _unheard = io::stderr().write_all(line.as_bytes());
}

/// Standard error. Each event becomes one line.
#[derive(Clone, Copy)]
struct OneLine {
    /// Whether escapes stay, because colours are escape sequences.
    keeps_escapes: bool,
}

impl<'a> MakeWriter<'a> for OneLine {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

impl Write for OneLine {
    /// The formatter writes each event with one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        io::stderr().write_all(one_line(&text, self.keeps_escapes).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The same text with its control characters escaped, except the newline at its end.
fn one_line(text: &str, keeps_escapes: bool) -> String {
    let (body, end) = text.strip_suffix('\n').map_or((text, ""), |body| (body, "\n"));
    let mut line = String::with_capacity(text.len());
    for found in body.chars() {
        match found {
            '\t' => line.push(found),
            '\u{1b}' if keeps_escapes => line.push(found),
            // Separators that some readers treat as the end of a line.
            '\u{2028}' | '\u{2029}' => line.extend(found.escape_default()),
            _ if found.is_control() => line.extend(found.escape_default()),
            _ => line.push(found),
        }
    }
    line.push_str(end);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_it_holds() {
        for (text, expected) in [
            ("an event\n", "an event\n"),
            ("a\nforged line\r\n", "a\\nforged line\\r\n"),
            ("a\u{1b}[2Jcleared screen\n", "a\\u{1b}[2Jcleared screen\n"),
            ("two\u{2028}lines\u{85}\n", "two\\u{2028}lines\\u{85}\n"),
            ("tab\tand ümlaut", "tab\tand ümlaut"),
        ] {
            assert_eq!(one_line(text, false), expected);
        }
        assert_eq!(one_line("\u{1b}[31mred\u{1b}[0m\n", true), "\u{1b}[31mred\u{1b}[0m\n");
    }
}
