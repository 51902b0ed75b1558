//! The kind of a WASM file, by its exports.

use std::fmt;
use std::str::FromStr;

/// How a guest is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A core module with `_start`: WASI preview 1.
    Module,
    /// A component with `wasi:cli/run` of WASI 0.2.
    Command,
    /// A component with `wasi:cli/run` of WASI 0.3.
    AsyncCommand,
    /// A component with `wasi:http/incoming-handler`, which is of WASI 0.2: served on a port.
    Http,
    /// A component with `wasi:http/handler`, which is of WASI 0.3: served on a port.
    Service,
    /// A component that a part of Skiff calls in its own process. No shim runs one.
    Plugin,
}

/// How the functions of a component call and are called. The settings of the engine depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Abi {
    /// One call at a time in an instance: modules, and components of WASI 0.2.
    #[default]
    Sync,
    /// The async ABI of the component model, with its streams and futures: components that use anything of WASI 0.3.
    Async,
}

impl Kind {
    /// By the names that a component exports. A component that is both a command and a server is served, and of two versions the later
    /// one counts.
    pub fn of_component<'a>(exports: impl Iterator<Item = &'a str>) -> Option<Self> {
        let kind = |name: &'a str| match (name.split('@').next()?, is_wasi_0_3(name)) {
            ("wasi:http/handler", true) => Some(Self::Service),
            ("wasi:http/incoming-handler", _) => Some(Self::Http),
            ("wasi:cli/run", true) => Some(Self::AsyncCommand),
            ("wasi:cli/run", false) => Some(Self::Command),
            _ => None,
        };
        exports.filter_map(kind).max()
    }

    /// Whether it is served on the container's ports.
    pub fn is_server(self) -> bool {
        matches!(self, Self::Http | Self::Service)
    }
}

/// Whether an interface is one of WASI 0.3.
pub fn is_wasi_0_3(interface: &str) -> bool {
    interface.starts_with("wasi:") && interface.split('@').nth(1).is_some_and(|version| version.starts_with("0.3."))
}

impl fmt::Display for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sync => "sync",
            Self::Async => "async",
        })
    }
}

impl FromStr for Abi {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Sync, Self::Async].into_iter().find(|abi| abi.to_string() == text).ok_or(())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Module => "module",
            Self::Command => "command",
            Self::AsyncCommand => "async-command",
            Self::Http => "http",
            Self::Service => "service",
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
            "async-command" => Ok(Self::AsyncCommand),
            "http" => Ok(Self::Http),
            "service" => Ok(Self::Service),
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
            (&["wasi:cli/run@0.3.0", "wasi:cli/run@0.2.0"], Some(Kind::AsyncCommand)),
            (&["wasi:cli/run@0.3.1", "wasi:http/incoming-handler@0.2.3"], Some(Kind::Http)),
            (&["wasi:http/handler@0.3.0", "wasi:http/incoming-handler@0.2.3"], Some(Kind::Service)),
            (&["wasi:http/handler@0.2.0", "other:http/handler@0.3.0"], None),
            (&["add", "wasi:cli/runner@0.2.0"], None),
            (&[], None),
        ];
        for (exports, wanted) in cases {
            assert_eq!(Kind::of_component(exports.iter().copied()), *wanted, "{exports:?}");
        }
        for kind in [Kind::Module, Kind::Command, Kind::AsyncCommand, Kind::Http, Kind::Service] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.to_string());
        }
        for abi in [Abi::Sync, Abi::Async] {
            assert_eq!(abi.to_string().parse(), Ok(abi));
        }
    }
}
