//! runc's complaints in upstream's words.

use std::path::Path;

use runtimes_contract::RuntimeError;
use serde::Deserialize;

/// One line of `runc --log-format json`.
#[derive(Deserialize)]
struct LogLine {
    level: String,
    msg: String,
}

/// Reads runc's log and returns the failure:
/// `OCI runtime create failed: runc create failed: unable to start container process: exec: "x": executable file not found in $PATH: unknown`.
/// `None` when the log has no error.
pub fn complaint(log: &Path, operation: &str) -> Option<RuntimeError> {
    let text = std::fs::read_to_string(log).ok()?;
    last_error(&text).map(|message| RuntimeError::Start(format!("OCI runtime {operation} failed: {message}: unknown")))
}

/// The last error in a log; earlier ones are its causes.
fn last_error(log: &str) -> Option<String> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<LogLine>(line).ok());
    let mut errors = lines.filter(|line| line.level == "error" || line.level == "fatal");
    errors.next_back().map(|line| line.msg.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_counts() {
        let log = concat!(
            r#"{"level":"warning","msg":"something old","time":"t"}"#,
            "\n",
            r#"{"level":"error","msg":"runc create failed: unable to start container process: exec: \"x\": executable file not found in $PATH","time":"t"}"#,
            "\nnot json\n"
        );
        let wanted = "runc create failed: unable to start container process: exec: \"x\": executable file not found in $PATH";
        assert_eq!(last_error(log).as_deref(), Some(wanted));
        assert_eq!(last_error(""), None);
        assert_eq!(last_error(r#"{"level":"info","msg":"fine"}"#), None);
    }
}
