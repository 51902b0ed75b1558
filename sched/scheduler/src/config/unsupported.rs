//! Fields of upstream's configuration that nothing in Skiff acts on. Their defaults are accepted, other values are rejected: a user who
//! sets them expects an effect.

use api_model::field::{FieldError, Path};
use serde_yaml::Value;

use super::document::Document;

/// Upstream's default of `parallelism`.
const PARALLELISM: i32 = 16;

/// The errors of the fields that have an effect in upstream alone.
pub(super) fn errors(document: &Document) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut forbid = |path: &Path, detail: &str| errors.push(FieldError::forbidden(path, detail));
    let connection = Path::new("clientConnection");
    for (field, _) in document.client_connection.iter().filter(|(_, value)| !is_empty(value)) {
        let path = connection.child(field.as_str().unwrap_or_default());
        forbid(&path, "Skiff's scheduler runs in the process of the API server, and has no connection to configure");
    }
    for (field, value) in
        [("enableProfiling", document.enable_profiling), ("enableContentionProfiling", document.enable_contention_profiling)]
    {
        if value == Some(true) {
            forbid(&Path::new(field), "Skiff has no profiling endpoints");
        }
    }
    if document.delay_cache_until_active {
        forbid(&Path::new("delayCacheUntilActive"), "Skiff's scheduler shares its informers with the controllers of the process");
    }
    match document.parallelism {
        None | Some(PARALLELISM) => {}
        Some(parallelism) if parallelism <= 0 => {
            let detail = "should be an integer value greater than zero";
            errors.push(FieldError::invalid(&Path::new("parallelism"), parallelism, detail));
        }
        Some(_) => errors.push(FieldError::forbidden(&Path::new("parallelism"), "Skiff evaluates the nodes of a cycle in one thread")),
    }
    errors
}

/// Whether the value is the same as none.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}
