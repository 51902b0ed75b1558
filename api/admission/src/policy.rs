//! Admission policies as values: which requests each is about, what its expressions yield, and what comes
//! of that. What a mutating policy wants changed is put into the object by the server.
//!
//! A policy does nothing by itself: a binding puts it in force, for some requests and with parameters. The
//! order, the words and the reasons are those of upstream's `admission/plugin/policy`.

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
pub use params::{ParamKind, Params};

#[cfg(test)]
mod tests;
