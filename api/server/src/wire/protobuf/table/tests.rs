use api_model::kind::builtin;

use super::super::ListForm;
use super::*;

#[test]
fn every_message_has_its_parts() {
    for (id, message) in &MESSAGES.by_id {
        assert_eq!(message.fields().len(), message.text.split_whitespace().count(), "{id}");
    }
}

#[test]
fn no_name_and_no_number_stands_twice() {
    for (id, message) in &MESSAGES.by_id {
        let fields = message.fields();
        for (at, field) in fields.iter().enumerate() {
            let others = || fields.iter().skip(at + 1);
            assert!(others().all(|other| other.name != field.name || field.name.is_empty()), "{id} {}", field.name);
            assert!(others().all(|other| other.tag != field.tag || field.tag == 0), "{id} {}", field.tag);
        }
    }
}

/// A kind without a form is served as JSON alone: of these there should be few.
#[test]
fn kinds_without_a_form() {
    let without: Vec<String> = builtin()
        .iter()
        .filter(|kind| root(&kind.api_version(), &kind.kind).is_none())
        .map(|kind| format!("{} {}", kind.api_version(), kind.kind))
        .collect();
    insta::assert_snapshot!(without.join("\n"), @"");
}

#[test]
fn every_kind_with_a_form_has_a_form_of_lists() {
    for kind in builtin().iter().filter(|kind| kind.allows("list") && root(&kind.api_version(), &kind.kind).is_some()) {
        assert!(ListForm::of(&kind.api_version(), &kind.list_kind()).is_ok(), "{kind:?}");
    }
}

/// Fields that are newer than the definitions of which the table is made: objects that have them cannot be
/// sent as protobuf.
#[test]
fn fields_without_a_number() {
    let mut found: Vec<String> = MESSAGES
        .by_id
        .iter()
        .flat_map(|(id, message)| {
            let fields = message.fields().iter().filter(|field| matches!(field.kind, Kind::Unnumbered));
            fields.map(move |field| format!("{id} {}", field.name))
        })
        .collect();
    found.sort();
    insta::assert_snapshot!(found.join("\n"));
}
