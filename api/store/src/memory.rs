//! x
/// x
pub struct MemoryStore;
