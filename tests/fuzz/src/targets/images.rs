//! Data from a registry: manifests, configurations, layers.

use super::documents;

/// A tar archive, as it is and with corrected checksums: the rejection of a changed header for its checksum tests
/// nothing more.
pub fn archive(input: &[u8]) {
    node_images::promises::archive(input);
    let mut mended = input.to_vec();
    for block in mended.chunks_exact_mut(512) {
        let sum: u32 = block.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) }).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    node_images::promises::archive(&mended);
}

/// A manifest and a configuration.
pub fn manifest(input: &[u8]) {
    let parts = documents(input);
    node_images::promises::manifest(parts[0], parts.get(1).copied().unwrap_or_default());
}
