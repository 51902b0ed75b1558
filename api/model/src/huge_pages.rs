//! Huge pages as resources: the kernel reserves them by size, and each size is a resource such as `hugepages-2Mi`.

use crate::quantity;

/// The first part of the resources' names.
pub const PREFIX: &str = "hugepages-";
/// Billionths of a byte, as [`quantity`] counts.
const NANO: i128 = 1_000_000_000;

/// Whether a resource is one of huge pages.
pub fn is_huge_page(resource: &str) -> bool {
    resource.starts_with(PREFIX)
}

/// The bytes of a page of the resource; `None` for other resources and for a size that is no positive number.
pub fn page_bytes(resource: &str) -> Option<u64> {
    let size = quantity::value(resource.strip_prefix(PREFIX)?).ok()?;
    u64::try_from(size).ok().filter(|size| *size > 0)
}

/// The name of the resource with pages of that size.
pub fn resource(page_bytes: u64) -> String {
    format!("{PREFIX}{}", bytes_text(page_bytes))
}

/// The text of a number of bytes, as upstream writes amounts of huge pages.
pub fn bytes_text(bytes: u64) -> String {
    quantity::binary_text(i128::from(bytes) * NANO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_size_of_the_page() {
        for (bytes, name) in [(64 << 10, "hugepages-64Ki"), (2 << 20, "hugepages-2Mi"), (1 << 30, "hugepages-1Gi")] {
            assert_eq!((resource(bytes).as_str(), page_bytes(name)), (name, Some(bytes)));
        }
        assert_eq!(page_bytes("hugepages-2048Ki"), Some(2 << 20), "another text of the same size");
        for name in ["memory", "hugepages-", "hugepages-0", "hugepages--2Mi", "hugepages-big", "x/hugepages-2Mi"] {
            assert_eq!(page_bytes(name), None, "{name}");
        }
        assert_eq!([bytes_text(0), bytes_text(32 << 20)], ["0", "32Mi"]);
    }
}
