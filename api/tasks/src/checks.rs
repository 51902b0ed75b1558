//! The response of a health endpoint, with upstream's text.

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The check passed.
    Ok,
    /// The check failed.
    Failed,
    /// The client excluded it from the result.
    Excluded,
}

/// The response of a health endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthReport {
    /// Whether no check failed.
    pub is_healthy: bool,
    /// The body.
    pub text: String,
}

/// The response of an endpoint such as `livez` to the results of its checks. It does not contain the reasons, because a
/// client that may read the endpoint may not always read the log.
pub fn report(endpoint: &str, checks: &[(&str, Check)], is_verbose: bool) -> HealthReport {
    let line = |(name, check): &(&str, Check)| match check {
        Check::Ok => format!("[+]{name} ok\n"),
        Check::Excluded => format!("[+]{name} excluded: ok\n"),
        Check::Failed => format!("[-]{name} failed: reason withheld\n"),
    };
    let lines: String = checks.iter().map(line).collect();
    let is_healthy = !checks.iter().any(|(_, check)| *check == Check::Failed);
    let text = match is_healthy {
        false => format!("{lines}{endpoint} check failed\n"),
        true if is_verbose => format!("{lines}{endpoint} check passed\n"),
        true => "ok".to_owned(),
    };
    HealthReport { is_healthy, text }
}
