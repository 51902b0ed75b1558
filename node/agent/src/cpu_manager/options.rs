//! The settings of the CPU manager, as upstream's kubelet has them.

use std::collections::BTreeMap;
use std::str::FromStr;

use api_model::go::parse_bool;
use thiserror::Error;

/// Which containers get CPUs of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuManagerPolicy {
    /// None do: all run on all CPUs.
    #[default]
    None,
    /// Those of Guaranteed Pods with a whole number of CPUs.
    Static,
}

impl CpuManagerPolicy {
    /// Its name in flags and in the state file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Static => "static",
        }
    }
}

/// The value of a flag that is not accepted; upstream's words where it has them.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CpuManagerError {
    /// No such policy.
    #[error("unknown policy: \"{0}\"")]
    Policy(String),
    /// Not of the form `name=value`.
    #[error("malformed pair, expect string=string: {0:?}")]
    Malformed(String),
    /// No such option.
    #[error("unknown CPU Manager Policy option: {0:?}")]
    Unknown(String),
    /// An option of upstream's that this node does not have.
    #[error(
        "CPU Manager Policy option {0:?} is not supported by this node; it has full-pcpus-only, distribute-cpus-across-numa and strict-cpu-reservation"
    )]
    Unsupported(String),
    /// Not true or false.
    #[error("bad value for option {name:?}: {value:?} is neither true nor false")]
    Value {
        /// The option.
        name: String,
        /// Its value.
        value: String,
    },
}

impl FromStr for CpuManagerPolicy {
    type Err = CpuManagerError;

    fn from_str(text: &str) -> Result<Self, CpuManagerError> {
        let all = [Self::None, Self::Static];
        all.into_iter().find(|policy| policy.name() == text).ok_or_else(|| CpuManagerError::Policy(text.to_owned()))
    }
}

/// The options of the policy `static`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuPolicyOptions {
    /// Only whole cores are given (`full-pcpus-only`).
    pub(crate) full_pcpus_only: bool,
    /// What needs several NUMA nodes is divided evenly (`distribute-cpus-across-numa`).
    pub(crate) distribute_across_numa: bool,
    /// No container runs on the reserved CPUs (`strict-cpu-reservation`).
    pub(crate) strict_reservation: bool,
    /// As they were given.
    given: BTreeMap<String, String>,
}

/// Options that need the topology manager, or a sort order that this node does not have.
const UNSUPPORTED: [&str; 3] = ["align-by-socket", "distribute-cpus-across-cores", "prefer-align-cpus-by-uncorecache"];

impl CpuPolicyOptions {
    /// The options in upstream's words (Go's `map[…]`), unless there are none.
    pub(crate) fn given(&self) -> Option<String> {
        let pairs: Vec<_> = self.given.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        (!pairs.is_empty()).then(|| format!("map[{}]", pairs.join(" ")))
    }
}

/// `name=value,…`
impl FromStr for CpuPolicyOptions {
    type Err = CpuManagerError;

    fn from_str(text: &str) -> Result<Self, CpuManagerError> {
        let mut options = Self::default();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| CpuManagerError::Malformed(pair.to_owned()))?;
            let (name, value) = (name.trim(), value.trim());
            let on = || parse_bool(value).ok_or_else(|| CpuManagerError::Value { name: name.to_owned(), value: value.to_owned() });
            match name {
                "full-pcpus-only" => options.full_pcpus_only = on()?,
                "distribute-cpus-across-numa" => options.distribute_across_numa = on()?,
                "strict-cpu-reservation" => options.strict_reservation = on()?,
                _ if UNSUPPORTED.contains(&name) => return Err(CpuManagerError::Unsupported(name.to_owned())),
                _ => return Err(CpuManagerError::Unknown(name.to_owned())),
            }
            options.given.insert(name.to_owned(), value.to_owned());
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_upstreams_names() {
        let parse = |text: &str| text.parse::<CpuManagerPolicy>().map_err(|error| error.to_string());
        assert_eq!([parse("none"), parse("static")], [Ok(CpuManagerPolicy::None), Ok(CpuManagerPolicy::Static)]);
        assert_eq!(parse("Static"), Err("unknown policy: \"Static\"".to_owned()));
    }

    #[test]
    fn options_are_known_or_an_error() {
        let parse = |text: &str| text.parse::<CpuPolicyOptions>().map_err(|error| error.to_string());
        let all = parse("full-pcpus-only=true, distribute-cpus-across-numa=1,strict-cpu-reservation=false").expect("options");
        assert!(all.full_pcpus_only && all.distribute_across_numa && !all.strict_reservation);
        assert_eq!(all.given().as_deref(), Some("map[distribute-cpus-across-numa:1 full-pcpus-only:true strict-cpu-reservation:false]"));
        assert_eq!(parse("").map(|options| options.given()), Ok(None));
        for (text, wanted) in [
            ("full-pcpus-only", "malformed pair, expect string=string: \"full-pcpus-only\""),
            ("full-pcpus-only=yes", "bad value for option \"full-pcpus-only\": \"yes\" is neither true nor false"),
            ("fast=true", "unknown CPU Manager Policy option: \"fast\""),
        ] {
            assert_eq!(parse(text), Err(wanted.to_owned()));
        }
        for name in UNSUPPORTED {
            let error = parse(&format!("{name}=true")).expect_err("refused");
            assert!(error.starts_with(&format!("CPU Manager Policy option {name:?} is not supported by this node")), "{error}");
        }
    }
}
