//! Which of several directories has a path.

use std::path::Path;

/// The one with the longest name of which the path is a part, and the path from there; `name` is the path of one.
pub fn innermost<'a, 'p, T>(all: &'a [T], name: impl Fn(&T) -> &Path, path: &'p Path) -> Option<(&'a T, &'p Path)> {
    let having = all.iter().filter(|one| path.starts_with(name(one)));
    let innermost = having.max_by_key(|one| name(one).as_os_str().len())?;
    Some((innermost, path.strip_prefix(name(innermost)).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_counts() {
        let all = ["/", "/data", "/data/deep"];
        let of =
            |path| innermost(&all, |name| Path::new(name), Path::new(path)).map(|(name, rest)| (*name, rest.to_str().unwrap_or_default()));
        assert_eq!(of("/data/deep/x/y"), Some(("/data/deep", "x/y")));
        assert_eq!(of("/data/deeper"), Some(("/data", "deeper")));
        assert_eq!(of("/data"), Some(("/data", "")));
        assert_eq!(of("/database"), Some(("/", "database")));
        assert_eq!(innermost(&all[1..], |name| Path::new(name), Path::new("/x")), None);
    }
}
