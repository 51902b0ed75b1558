//! Limits the size of the compile cache: images come and go, and each version of wasmtime compiles everything again. The time
//! of the note beside the code is the time of its last use; the code's own times stay unchanged, because a change of them means
//! that the code must be verified again.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::look::Note;

/// How long code stays after better code of its module is there: a shim that starts now may be about to map it.
const SUPERSEDED_STAYS: Duration = Duration::from_secs(600);

/// Records that an artifact is used now. One that is being removed is compiled again at the next start.
pub(super) fn note_use(note: &Path) {
    let noted = File::options().write(true).open(note).and_then(|file| file.set_modified(SystemTime::now()));
    if let Err(error) = noted {
        tracing::debug!(note = %note.display(), %error, "use of a compiled module not noted");
    }
}

/// One artifact with its note.
struct CachedArtifact {
    key: String,
    used: SystemTime,
    len: u64,
    superseded_by: Option<String>,
}

/// Removes the artifacts that were not used for the longest time until at most `bytes_max` are left, code without a note, and code
/// that better code has superseded. `fresh` stays: it was compiled for a caller that waits.
pub(super) fn sweep(dir: &Path, fresh: &str, bytes_max: u64, now: SystemTime) -> io::Result<()> {
    let (mut notes, mut codes) = (Vec::new(), HashSet::new());
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let Some(key) = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned) else { continue };
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => notes.extend(look(&path, key)),
            Some("cwasm") => drop(codes.insert(key)),
            _ => {}
        }
    }
    // The note is written first, so code without a note belongs to no module. A note without code may be about to get it; what a killed
    // process left is removed when the cache is opened.
    let noted: HashSet<&str> = notes.iter().map(|one| one.key.as_str()).collect();
    let lost = |key: &&String| !noted.contains(key.as_str()) && !dir.join(format!("{key}.json")).exists();
    codes.iter().filter(lost).try_for_each(|key| remove(&dir.join(format!("{key}.cwasm"))))?;
    notes.retain(|one| codes.contains(&one.key));
    let is_superseded = |one: &CachedArtifact| {
        let is_unused = now.duration_since(one.used).is_ok_and(|age| age >= SUPERSEDED_STAYS);
        is_unused && one.superseded_by.as_ref().is_some_and(|key| codes.contains(key))
    };
    notes.sort_by_key(|one| (!is_superseded(one), one.used));
    let mut bytes: u64 = notes.iter().map(|one| one.len).sum();
    for one in notes.iter().filter(|one| one.key != fresh) {
        if bytes <= bytes_max && !is_superseded(one) {
            continue;
        }
        for extension in ["cwasm", "json"] {
            remove(&dir.join(format!("{}.{extension}", one.key)))?;
        }
        bytes = bytes.saturating_sub(one.len);
    }
    Ok(())
}

/// A note that cannot be read belongs to no trusted code.
fn look(path: &PathBuf, key: String) -> Option<CachedArtifact> {
    let used = fs::metadata(path).and_then(|meta| meta.modified()).ok()?;
    let note: Note = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    Some(CachedArtifact { key, used, len: note.len, superseded_by: note.superseded_by })
}

/// Another sweep may have been faster.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: String| dir.path().join(name);
        for (age_s, key) in [(40, "old"), (30, "used"), (20, "young"), (50, "fresh")] {
            fs::write(at(format!("{key}.cwasm")), [0; 10]).unwrap();
            fs::write(at(format!("{key}.json")), "{\"kind\":\"module\",\"len\":10,\"sha256\":\"\"}").unwrap();
            let when = SystemTime::now() - Duration::from_secs(age_s);
            File::options().write(true).open(at(format!("{key}.json"))).unwrap().set_modified(when).unwrap();
        }
        fs::write(at("lost.cwasm".into()), "no note").unwrap();
        fs::write(at("coming.json".into()), "{\"kind\":\"module\",\"len\":10,\"sha256\":\"\"}").unwrap();
        note_use(&at("used.json".into()));
        sweep(dir.path(), "fresh", 25, SystemTime::now()).unwrap();
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["coming.json", "fresh.cwasm", "fresh.json", "used.cwasm", "used.json"]);
    }
    #[test]
    fn code_that_is_superseded_goes_when_no_start_can_be_about_to_map_it() {
        let dir = tempfile::tempdir().unwrap();
        let (now, at) = (SystemTime::now(), |name: &str| dir.path().join(name));
        for (age_s, key, superseded_by) in [(700, "quick", "full"), (500, "just-used", "full"), (700, "alone", "absent"), (700, "full", "")]
        {
            fs::write(at(&format!("{key}.cwasm")), [0; 10]).unwrap();
            let note = format!("{{\"kind\":\"module\",\"len\":10,\"sha256\":\"\",\"superseded_by\":\"{superseded_by}\"}}");
            fs::write(at(&format!("{key}.json")), note).unwrap();
            let note = File::options().write(true).open(at(&format!("{key}.json"))).unwrap();
            note.set_modified(now - Duration::from_secs(age_s)).unwrap();
        }
        sweep(dir.path(), "new", 1_000, now).unwrap();
        let left = ["quick", "just-used", "alone", "full"].map(|key| at(&format!("{key}.cwasm")).exists());
        assert_eq!(left, [false, true, true, true]);
        sweep(dir.path(), "new", 1_000, now + Duration::from_secs(200)).unwrap();
        assert!(!at("just-used.json").exists());
    }
}
