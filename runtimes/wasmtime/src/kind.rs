//! The kind of a WASM file, by its exports.

use std::fmt;
use std::str::FromStr;

/// How a guest is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A core module with `_start`: WASI preview 1.
    Module,
    /// A component with `wasi:cli/run`: WASI preview 2.
    Command,
    /// A component with `wasi:http/incoming-handler`: served on a port.
    Http,
    /// A component that a part of Skiff calls in its own process. No shim runs one.
    Plugin,
}

impl Kind {
    /// By the names that a component exports. A component that is both a command and a server is served.
    pub fn of_component<'a>(exports: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut kind = None;
        for name in exports {
            match name.split('@').next() {
                Some("wasi:http/incoming-handler") => return Some(Self::Http),
                Some("wasi:cli/run") => kind = Some(Self::Command),
                _ => {}
            }
        }
        kind
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Module => "module",
            Self::Command => "command",
            Self::Http => "http",
            Self::Plugin => "plugin",
        })
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "module" => Ok(Self::Module),
            "command" => Ok(Self::Command),
            "http" => Ok(Self::Http),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_tell_the_kind() {
        let cases: &[(&[&str], Option<Kind>)] = &[
            (&["wasi:cli/run@0.2.0"], Some(Kind::Command)),
            (&["wasi:cli/run@0.2.0", "wasi:http/incoming-handler@0.2.12"], Some(Kind::Http)),
            (&["wasi:http/incoming-handler@0.2.3"], Some(Kind::Http)),
            (&["add", "wasi:cli/runner@0.2.0"], None),
            (&[], None),
        ];
        for (exports, wanted) in cases {
            assert_eq!(Kind::of_component(exports.iter().copied()), *wanted, "{exports:?}");
        }
        for kind in [Kind::Module, Kind::Command, Kind::Http] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
    }
}
