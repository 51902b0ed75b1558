//! Who is entered in `managedFields` for a write.

use api_model::meta;
use api_rules::apply::{self, Target, Writer};
use jiff::Timestamp;
use serde_json::Value;

use crate::call::Call;
use crate::registry::Internal;
use api_wire::options::{FIELD_MANAGER_LEN_MAX, WriteOptions};

/// The manager of requests that name none and have no User-Agent.
const UNKNOWN: &str = "unknown";

/// Whether a write is still to be entered.
#[derive(Clone, Debug)]
pub(crate) enum Recording {
    /// As the update of this manager.
    By(String),
    /// Whoever made the object has entered it.
    Done,
    /// So has the apply of this manager, who may take from others where `force` says so.
    Applied { manager: String, force: bool },
}

impl Recording {
    /// The update of the manager that the request names, else of the program that sent it.
    pub(crate) fn of(call: &Call, options: &WriteOptions) -> Self {
        let named = (!options.field_manager.is_empty()).then(|| options.field_manager.clone());
        Self::By(named.unwrap_or_else(|| program(call)))
    }

    /// That of an apply.
    pub(crate) fn applied(options: &WriteOptions) -> Self {
        Self::Applied { manager: options.field_manager.clone(), force: options.force }
    }

    /// Enters what `new` changes in `old`, or brings where there is none.
    pub(crate) fn enter(&self, call: &Call, old: Option<&Internal>, new: &mut Internal) {
        let Self::By(manager) = self else { return };
        let (served, writer) = (&call.served, Writer { manager, now: &meta::time(Timestamp::now()) });
        if !served.is_recorded_externally() {
            return apply::record(&Target::new(&served.stored, call.sub()), old.map(|old| &**old), new, writer);
        }
        let (before, mut after) = (old.map(|old| served.external(old)), served.external(new).into_value());
        apply::record(&Target::new(&served.kind, call.sub()), before.as_deref(), &mut after, writer);
        match after.pointer_mut("/metadata/managedFields").map(Value::take) {
            Some(entries) => meta::set(new, "managedFields", entries),
            None => meta::unset(new, "managedFields"),
        }
    }
}

/// The first part of the User-Agent, without what cannot be printed and no longer than a manager may be.
fn program(call: &Call) -> String {
    let agent = call.headers.get(http::header::USER_AGENT).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let agent = String::from_utf8_lossy(agent);
    let mut name = String::new();
    for c in agent.split('/').next().unwrap_or_default().chars().filter(|c| !c.is_control()) {
        if name.len() + c.len_utf8() > FIELD_MANAGER_LEN_MAX {
            break;
        }
        name.push(c);
    }
    if name.is_empty() { UNKNOWN.to_owned() } else { name }
}
