//! The programs that Skiff has for containers without them: those that `kubectl cp` runs in a container. A program of the container with
//! the same name comes first.

use std::fmt;
use std::str::FromStr;

/// The argument of the shim before the name of one.
pub const BUILTIN: &str = "builtin";

/// A program that the shim itself is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// Writes and reads archives.
    Tar,
    /// Says whether a path exists.
    Test,
}

impl fmt::Display for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tar => "tar",
            Self::Test => "test",
        })
    }
}

impl FromStr for Builtin {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        [Self::Tar, Self::Test].into_iter().find(|builtin| builtin.to_string() == name).ok_or(())
    }
}
