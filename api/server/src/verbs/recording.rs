//! The manager that a write enters in `managedFields`.

use api_model::meta;
use api_rules::apply::{self, Target, Writer};
use serde_json::Value;

use crate::call::Call;
use crate::registry::Internal;
use api_wire::options::{FIELD_MANAGER_LEN_MAX, WriteOptions};

/// The manager of requests that name none and have no User-Agent.
const UNKNOWN: &str = "unknown";

/// The entry of a write.
#[derive(Clone, Debug)]
pub(crate) enum Recording {
    /// An update of this manager.
    By(String),
    /// None: the object has its entries already.
    Done,
    /// None: the apply of this manager made it. With `force` it may take fields from others.
    Applied { manager: String, force: bool },
}

impl Recording {
    /// An update of the manager that the request names, or of the program that sent the request.
    pub(crate) fn of(call: &Call, options: &WriteOptions) -> Self {
        let named = (!options.field_manager.is_empty()).then(|| options.field_manager.clone());
        Self::By(named.unwrap_or_else(|| program(call)))
    }

    /// The entry of an apply.
    pub(crate) fn applied(options: &WriteOptions) -> Self {
        Self::Applied { manager: options.field_manager.clone(), force: options.force }
    }

    /// Enters the fields that `new` changes in `old`, or all fields of a new object.
    pub(crate) fn enter(&self, call: &Call, old: Option<&Internal>, new: &mut Internal) {
        let Self::By(manager) = self else { return };
        let (served, writer) = (&call.served, Writer { manager, now: &meta::time(api_clock::now()) });
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

/// The first part of the User-Agent, without characters that cannot be printed, and no longer than the name of a manager may be.
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
