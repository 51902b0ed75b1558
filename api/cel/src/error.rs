//! Errors with the messages of cel-go.

use thiserror::Error;

/// The maximum of bytes of a message with several issues: each issue repeats its line, which may be long.
const TEXT_BYTES_MAX: usize = 256 * 1024;

/// An expression that does not parse, or that fails the check of names, functions and types.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("compilation failed: {text}")]
pub struct CompileError {
    pub(crate) text: String,
    /// Whether the machine lacks something that parsing needs.
    is_transient: bool,
}

/// An issue at an offset of the text, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Issue {
    pub(crate) at: usize,
    pub(crate) message: String,
}

impl CompileError {
    /// The issues with their positions, as cel-go prints them: the first issue, and further ones up to the maximum
    /// size.
    pub(crate) fn new(mut issues: Vec<Issue>, source: &str) -> Self {
        issues.sort_by_key(|issue| issue.at);
        let mut text = String::new();
        for issue in issues {
            let line = issue.show(source);
            if text.is_empty() {
                text = line;
            } else if text.len() + 1 + line.len() <= TEXT_BYTES_MAX {
                text.push('\n');
                text.push_str(&line);
            } else {
                break;
            }
        }
        Self::of_text(text)
    }

    /// An error of the expression.
    pub(crate) fn of_text(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_transient: false }
    }

    /// The machine has no thread to parse an expression.
    pub fn no_thread(error: &std::io::Error) -> Self {
        Self { text: format!("no thread to parse: {error}"), is_transient: true }
    }

    /// Whether the same expression may compile later: the machine lacks something now.
    pub fn is_transient(&self) -> bool {
        self.is_transient
    }

    /// The issues with their positions, without the prefix of the message.
    pub fn issues(&self) -> &str {
        &self.text
    }
}

impl Issue {
    fn show(&self, source: &str) -> String {
        let before = source.get(..self.at.min(source.len())).unwrap_or_default();
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().map_or(0, |text| text.chars().count());
        let text = source.split('\n').nth(line).unwrap_or_default();
        format!("ERROR: <input>:{}:{}: {}\n | {text}\n | {}^", line + 1, column + 1, self.message, ".".repeat(column))
    }
}

/// A failed evaluation.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EvaluateError {
    /// The cost exceeded the limit of one evaluation.
    #[error("operation cancelled: actual cost limit exceeded")]
    CallCost,
    /// The cost exceeded the budget.
    #[error("running out of cost budget")]
    OutOfBudget,
    /// A value is missing, or a function does not accept it: `no such key: x`, `division by zero` and so on.
    #[error("{0}")]
    Failed(String),
}

impl EvaluateError {
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// The error of a composed variable, for the expression that uses the variable.
    pub(crate) fn of_variable(self, name: &str) -> Self {
        match self {
            Self::Failed(message) => Self::Failed(format!("composited variable {name:?} fails to evaluate: {message}")),
            cost => cost,
        }
    }

    pub(crate) fn no_overload() -> Self {
        Self::failed("no such overload")
    }

    /// Whether the error ends the whole evaluation (`||` ignores other errors).
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(source: &str, places: impl Iterator<Item = usize>) -> String {
        let issues = places.map(|at| Issue { at, message: format!("undefined field '{at}'") }).collect();
        CompileError::new(issues, source).issues().to_owned()
    }

    #[test]
    fn the_excerpt_of_a_long_line_is_bounded() {
        let line = "x".repeat(100_000);
        let text = rendered(&line, (0..100).map(|at| at * 1_000));
        assert!(text.contains("undefined field '1000'"));
        assert!(text.len() <= TEXT_BYTES_MAX, "{}", text.len());
        // The first issue is always complete, whatever its size is.
        let longest = "ä".repeat(100_000);
        let text = rendered(&longest, [199_998, 199_999].into_iter());
        assert!(text.len() > TEXT_BYTES_MAX && text.ends_with(".^"));
        assert_eq!(text.matches("ERROR").count(), 1);
    }

    #[test]
    fn the_whole_text_of_usual_length_is_quoted() {
        let source = "a + b\n  + c";
        assert_eq!(
            rendered(source, [10, 4].into_iter()),
            "ERROR: <input>:1:5: undefined field '4'\n | a + b\n | ....^\nERROR: <input>:2:5: undefined field '10'\n |   + c\n | ....^"
        );
        assert_eq!(rendered(&"x".repeat(1_000), 0..100).matches("ERROR").count(), 100);
    }
}
