//! x
/// x
pub struct SqliteStore;
/// x
pub struct SqliteConfig;
