//! The huge pages that the kernel has, by size.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use api_model::huge_pages::PREFIX;

/// The bytes of all pages of a size, by the bytes of one, from a directory such as `/sys/kernel/mm/hugepages`. A size without pages counts,
/// with 0; what cannot be read does not.
pub(super) fn read(dir: &Path) -> BTreeMap<u64, u64> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let page_bytes = page_bytes(entry.file_name().to_str()?)?;
        let pages: u64 = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?.trim().parse().ok()?;
        Some((page_bytes, pages.saturating_mul(page_bytes)))
    });
    sizes.collect()
}

/// The size in a name such as `hugepages-2048kB`, which begins as the resource does.
fn page_bytes(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.strip_suffix("kB")?.parse::<u64>().ok()?.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_its_bytes() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, pages) in [("hugepages-2048kB", "16\n"), ("hugepages-1048576kB", "0\n"), ("hugepages-64kB", "?"), ("other", "7\n")] {
            let size = dir.path().join(name);
            fs::create_dir(&size).expect("a directory");
            fs::write(size.join("nr_hugepages"), pages).expect("a file");
        }
        assert_eq!(read(dir.path()), BTreeMap::from([(2 << 20, 32 << 20), (1 << 30, 0)]));
        assert!(read(&dir.path().join("absent")).is_empty(), "a kernel without huge pages");
    }
}
