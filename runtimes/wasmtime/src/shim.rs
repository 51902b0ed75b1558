//! shim
/// main
pub fn main() {}
