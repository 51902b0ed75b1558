//! What this crate promises for hostile bytes, for the fuzz targets of `tests/fuzz`: each function panics where a promise is
//! broken.

use std::io::Read as _;

use tar::Archive;

use crate::manifest;
use crate::unpack::{Records, Verdict};

/// A manifest or index, and a configuration: the results are bounded.
pub fn manifest(document: &[u8], config: &[u8]) {
    let Ok(document) = manifest::parse(document) else { return };
    if let Some(entries) = &document.manifests
        && let Ok(chosen) = manifest::choose(entries)
    {
        assert!(entries.iter().any(|entry| entry.digest == chosen.digest), "chosen from elsewhere");
    }
    let Ok((shape, config)) = manifest::shape(&document, config) else { return };
    let texts = config.entrypoint.iter().chain(&config.cmd).map(String::len).sum::<usize>();
    let variables = config.env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    assert!(texts + variables <= 256 << 10, "a configuration of {} bytes", texts + variables);
    if let manifest::Shape::Layers { layers, .. } = shape {
        assert!(layers.len() <= 128 && layers.len() == document.layers.len(), "{} layers", layers.len());
    }
}

/// An archive: every header that the library reads was checked for long records before.
pub fn archive(bytes: &[u8]) {
    let mut archive = Archive::new(Records::noting(bytes, Verdict::default()));
    let mut positions = Vec::new();
    if let Ok(entries) = archive.entries() {
        for entry in entries {
            let Ok(mut entry) = entry else { break };
            positions.push(entry.raw_header_position());
            let mut content = Vec::new();
            // An archive that ends too early is as good as any.
            let _read = entry.by_ref().take(1 << 16).read_to_end(&mut content);
        }
    }
    let records = archive.into_inner();
    for at in positions {
        assert!(records.headers().contains(&at), "a header at {at} that nobody looked at; {:?}", records.headers());
    }
}
