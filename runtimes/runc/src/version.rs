//! The known vulnerabilities of a runc, by its version. Pure. Distributions fix older versions without another number, so this
//! is a hint to users and decides nothing.

/// First versions of each line without CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881.
const MENDED: [(u64, u64, u64); 3] = [(1, 2, 8), (1, 3, 3), (1, 4, 0)];

/// The version, when it has known vulnerabilities: the first line of `runc --version` is `runc version 1.1.5+ds1`.
pub fn with_known_holes(said: &str) -> Option<&str> {
    let version = said.lines().next()?.strip_prefix("runc version ")?.trim();
    let number = version.split(['+', '-', '~']).next()?;
    let mut parts = number.split('.').map(|part| part.parse::<u64>().ok());
    let (major, minor, patch) = (parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0));
    let in_line = MENDED.iter().find(|mended| (mended.0, mended.1) == (major, minor));
    let is_open = in_line.map_or((major, minor) < (1, 2), |mended| patch < mended.2);
    is_open.then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_known_holes_are_reported() {
        for (version, wanted) in [
            ("1.1.5+ds1", true),
            ("1.2.7", true),
            ("1.2.8", false),
            ("1.3.0-rc.1", true),
            ("1.3.4+dev", false),
            ("1.4.0", false),
            ("2.0.0", false),
        ] {
            let said = format!("runc version {version}\ncommit: x\n");
            assert_eq!(with_known_holes(&said), wanted.then_some(version), "{version}");
        }
        assert_eq!(with_known_holes("crun version 1.8"), None);
    }
}
