//! The WebAssembly proposals that a container uses only when a setting says so.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A proposal that is off by default. Proposals without a name here are on for every container, or cannot be used at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WasmProposal {
    /// Memories with pages of one byte.
    CustomPageSizes,
    /// Continuations: several stacks in one instance.
    StackSwitching,
    /// Atomic instructions, and memories of the type `shared`.
    Threads,
    /// Additions and multiplications of 128-bit numbers.
    WideArithmetic,
}

impl WasmProposal {
    /// Each of them, in the order of their names.
    pub const ALL: [Self; 4] = [Self::CustomPageSizes, Self::StackSwitching, Self::Threads, Self::WideArithmetic];

    /// The name of its repository below `github.com/WebAssembly`.
    pub fn name(self) -> &'static str {
        match self {
            Self::CustomPageSizes => "custom-page-sizes",
            Self::StackSwitching => "stack-switching",
            Self::Threads => "threads",
            Self::WideArithmetic => "wide-arithmetic",
        }
    }
}

impl fmt::Display for WasmProposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WasmProposal {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|proposal| proposal.name() == text).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_settings_and_of_the_record() {
        for proposal in WasmProposal::ALL {
            assert_eq!(proposal.to_string().parse(), Ok(proposal));
            assert_eq!(serde_json::to_value(proposal).unwrap(), proposal.name());
        }
        assert_eq!("Threads".parse::<WasmProposal>(), Err(()));
        assert!(WasmProposal::ALL.is_sorted_by_key(|proposal| proposal.name()));
    }
}
