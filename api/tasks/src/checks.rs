//! The answer of a health endpoint, as upstream words it.

/// What came of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// It passed.
    Ok,
    /// It did not.
    Failed,
    /// Whoever asks does not want it to count.
    Excluded,
}

/// The text that answers for all checks of an endpoint (`livez`), as an error when one of them failed. Reasons are for
/// the log: whoever may ask need not be who may know.
///
/// # Errors
/// The text, when a check failed.
pub fn report(endpoint: &str, checks: &[(&str, Check)], is_verbose: bool) -> Result<String, String> {
    let line = |(name, check): &(&str, Check)| match check {
        Check::Ok => format!("[+]{name} ok\n"),
        Check::Excluded => format!("[+]{name} excluded: ok\n"),
        Check::Failed => format!("[-]{name} failed: reason withheld\n"),
    };
    let lines: String = checks.iter().map(line).collect();
    match checks.iter().any(|(_, check)| *check == Check::Failed) {
        true => Err(format!("{lines}{endpoint} check failed\n")),
        false if is_verbose => Ok(format!("{lines}{endpoint} check passed\n")),
        false => Ok("ok".to_owned()),
    }
}
