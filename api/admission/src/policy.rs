//! Admission policies without I/O: the requests that a policy matches, the evaluation of its expressions, and the result.
//! The server applies the changes of a mutating policy to the object.
//!
//! A policy has an effect only through a binding, which selects requests and parameters. The order, the messages and the
//! reasons are those of upstream's `admission/plugin/policy`.

mod change;
mod checked;
mod compiled;
mod conditions;
mod evaluate;
mod failures;
mod findings;
mod hooks;
mod matching;
mod params;

pub use change::Change;
pub use checked::{Checked, error_type};
pub(crate) use conditions::Conditions;
pub use evaluate::Activation;
pub use failures::Failures;
pub use findings::Findings;
pub use hooks::{Binding, Bindings, Hook, Policy};
pub use matching::Match;
pub use params::{ParamError, ParamKind, Params};

#[cfg(test)]
mod tests;
