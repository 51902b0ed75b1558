//! Selectors as in the query of a request.

use api_model::selector::{FieldSelector, Selector};
use serde_json::json;

/// The printed selector parses to an equal selector with the same matches.
pub fn label(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(selector) = Selector::parse(&text) else { return };
    let rendered = selector.to_string();
    let again = Selector::parse(&rendered).unwrap_or_else(|error| panic!("{text:?} shown as {rendered:?}: {error}"));
    assert_eq!(again, selector, "{text:?} shown as {rendered:?}");
    for labels in [json!({}), json!({"a": "b", "b": "", "n": "5", "example.com/a": "x"})] {
        let object = json!({"metadata": {"labels": labels}});
        assert_eq!(again.matches(&object), selector.matches(&object));
    }
}

/// The same for field selectors.
pub fn field(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(selector) = FieldSelector::parse(&text) else { return };
    let rendered = selector.to_string();
    let again = FieldSelector::parse(&rendered).unwrap_or_else(|error| panic!("{text:?} shown as {rendered:?}: {error}"));
    assert_eq!(again, selector, "{text:?} shown as {rendered:?}");
    selector.matches(&json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n"}}));
    for term in selector.terms.iter().filter(|term| !term.negated) {
        assert!(selector.exact(&term.path).is_some());
    }
}
