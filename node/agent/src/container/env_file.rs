//! Variables from a file that another container of the Pod wrote (`fileKeyRef`, KEP-3721). The file has a part of the syntax of a
//! POSIX shell: `NAME='value'`, where the value may have several lines, comments, and blank lines. Reading is bounded; parsing is
//! pure.

use std::path::Path;

use k8s_openapi::api::core::v1::FileKeySelector;
use thiserror::Error;

use super::{ConfigError, inside};

/// The longest file that is read.
const LEN_MAX: u64 = 1 << 20;

/// Why a file is not one of variables. The words are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
enum SyntaxError {
    #[error("invalid environment variable format at line {0}: missing '='")]
    NoEquals(usize),
    #[error("invalid environment variable format at line {0}: empty variable name")]
    NoName(usize),
    #[error("invalid environment variable format at line {0}: whitespace before '=' is not allowed")]
    Whitespace(usize),
    #[error("invalid environment variable format at line {0}: value must be enclosed in single quotes")]
    NoQuote(usize),
    #[error("invalid environment variable format at line {0}: unexpected content after closing quote")]
    AfterQuote(usize),
    #[error("invalid environment variable format starting at line {0}: unclosed single quote")]
    Unclosed(usize),
}

/// The text of a file. Blocks. `dir` is the directory of the volume, which the Pod's containers write.
pub(crate) fn read(dir: &Path, path: &str) -> Result<String, ConfigError> {
    let bytes = inside::read(dir, path, LEN_MAX + 1).map_err(|error| unreadable(path, &error.to_string()))?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > LEN_MAX) {
        return Err(unreadable(path, &format!("longer than {LEN_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| unreadable(path, "not UTF-8"))
}

fn unreadable(path: &str, why: &str) -> ConfigError {
    ConfigError(format!("couldn't parse env file {path:?}: {why}"))
}

/// The value of a key in the text of its file; `None` when it is optional and the file has none.
pub(crate) fn selected(text: &str, wanted: &FileKeySelector) -> Result<Option<String>, ConfigError> {
    match value(text, &wanted.key).map_err(|error| unreadable(&wanted.path, &error.to_string()))? {
        // As upstream, an empty value counts as none.
        Some(value) if !value.is_empty() => Ok(Some(value)),
        _ if wanted.optional == Some(true) => Ok(None),
        _ => Err(ConfigError(format!("environment variable key {:?} not found in file {:?}", wanted.key, wanted.path))),
    }
}

/// The first value of a key. As upstream, the lines after it are not looked at.
fn value(text: &str, key: &str) -> Result<Option<String>, SyntaxError> {
    let blank = [' ', '\t'];
    let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).enumerate().map(|(index, line)| (index + 1, line));
    while let Some((number, line)) = lines.next() {
        let line = line.trim_start_matches(blank);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, assigned) = line.split_once('=').ok_or(SyntaxError::NoEquals(number))?;
        match name.trim_end_matches(blank) {
            "" => return Err(SyntaxError::NoName(number)),
            trimmed if trimmed != name => return Err(SyntaxError::Whitespace(number)),
            _ => {}
        }
        // As in a shell: `NAME= 'value'` sets NAME to nothing.
        if assigned.starts_with(blank) {
            if name == key {
                return Ok(None);
            }
            continue;
        }
        let mut rest = assigned.strip_prefix('\'').ok_or(SyntaxError::NoQuote(number))?;
        let mut value = String::new();
        let (mut end, after) = loop {
            if let Some((last, after)) = rest.split_once('\'') {
                value.push_str(last);
                break (number, after);
            }
            value.push_str(rest);
            value.push('\n');
            (_, rest) = lines.next().ok_or(SyntaxError::Unclosed(number))?;
        };
        end += value.matches('\n').count();
        let after = after.trim_start_matches(blank);
        if !after.is_empty() && !after.starts_with('#') {
            return Err(SyntaxError::AfterQuote(end));
        }
        if name == key {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_quotes_and_stay_as_they_are() {
        let text = "# comment\n\n  \t\nA='1'\n\tB='$A \\n # x' # comment\nC='one\n  two'\r\nD= 'lost'\nA='2'\nE='unclosed\n";
        let of = |key: &str| value(text, key);
        for (key, wanted) in [("A", Some("1")), ("B", Some("$A \\n # x")), ("C", Some("one\n  two")), ("D", None)] {
            assert_eq!(of(key), Ok(wanted.map(str::to_owned)), "{key}");
        }
        assert_eq!(of("Z"), Err(SyntaxError::Unclosed(10)), "only a key that is not there has the whole file read");
    }

    #[test]
    fn what_a_shell_would_read_otherwise_is_an_error() {
        for (text, wanted) in [
            ("A", SyntaxError::NoEquals(1)),
            ("\n='1'", SyntaxError::NoName(2)),
            ("A ='1'", SyntaxError::Whitespace(1)),
            ("A=1", SyntaxError::NoQuote(1)),
            ("A=\"1\"", SyntaxError::NoQuote(1)),
            ("A=", SyntaxError::NoQuote(1)),
            ("B='1'x", SyntaxError::AfterQuote(1)),
            ("B='1\n2'x", SyntaxError::AfterQuote(2)),
            ("B='1'\\''2'", SyntaxError::AfterQuote(1)),
            ("B='1", SyntaxError::Unclosed(1)),
        ] {
            assert_eq!(value(text, "A"), Err(wanted), "{text:?}");
        }
        assert_eq!(value("", "A"), Ok(None));
    }

    #[test]
    fn a_file_is_read_inside_its_volume_and_within_bounds() {
        let dir = tempfile::tempdir().expect("a directory");
        let volume = dir.path().join("volume");
        std::fs::create_dir(&volume).expect("making");
        std::fs::write(dir.path().join("outside"), "A='outside'").expect("writing");
        std::fs::write(volume.join("outside"), "A='inside'").expect("writing");
        std::fs::write(volume.join("long"), vec![b'\n'; 1 + (1 << 20)]).expect("writing");
        std::fs::write(volume.join("bytes"), b"A='\xff'").expect("writing");
        std::os::unix::fs::symlink("/outside", volume.join("link")).expect("linking");
        nix::unistd::mkfifo(&volume.join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let of = |path: &str, key: &str, optional: bool| {
            let wanted = FileKeySelector { key: key.into(), path: path.into(), volume_name: "v".into(), optional: Some(optional) };
            read(&volume, &wanted.path).and_then(|text| selected(&text, &wanted)).map_err(|error| error.0)
        };
        assert_eq!(of("link", "A", false), Ok(Some("inside".to_owned())), "an absolute link starts at the volume");
        assert_eq!(of("outside", "B", true), Ok(None));
        assert_eq!(of("outside", "B", false), Err("environment variable key \"B\" not found in file \"outside\"".to_owned()));
        for (path, why) in [("absent", "No such file"), ("long", "longer than"), ("bytes", "not UTF-8"), ("pipe", "regular"), (".", "")] {
            let refused = of(path, "A", true).expect_err("a refusal");
            assert!(refused.starts_with(&format!("couldn't parse env file {path:?}: ")) && refused.contains(why), "{refused}");
        }
    }
}
