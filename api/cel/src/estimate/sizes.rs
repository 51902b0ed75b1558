//! The maximum sizes of values of a schema, by its limits and the largest request.

use api_schema::{Additional, Structural};

/// Bytes of the largest request, which limits lists and texts without a limit of their own.
pub const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;
/// The maximum of bytes of a character.
const CHAR_BYTES_MAX: u64 = 4;
/// The lengths of `"2018-01-01T00:00:00Z"` and `"2018-01-01"` without their quotes, and the maximum length of a
/// duration.
const DATE_TIME_LEN: u64 = 64;
const DATE_LEN: u64 = 10;
const DURATION_LEN_MAX: u64 = 64;

/// The maximum size of a value: characters of a text, elements of a list, entries of a map; 1 for others.
pub(super) fn len_max(schema: &Structural) -> u64 {
    match schema.kind.as_str() {
        "string" if schema.int_or_string => text_max(schema),
        "string" => text_max(schema),
        "array" | "object" => elements_max(schema),
        "" if schema.int_or_string => REQUEST_BYTES_MAX - 2,
        "" => REQUEST_BYTES_MAX,
        _ => 1,
    }
}

fn text_max(schema: &Structural) -> u64 {
    if let Some(limit) = schema.limits.max_length {
        return limit.saturating_mul(CHAR_BYTES_MAX);
    }
    let longest = schema.enumeration.iter().filter_map(|value| value.as_str()).map(|text| text.len() as u64).max();
    match schema.format.as_str() {
        "date-time" => DATE_TIME_LEN,
        "date" => DATE_LEN,
        "duration" => DURATION_LEN_MAX,
        _ => longest.unwrap_or(REQUEST_BYTES_MAX - 2),
    }
}

/// The maximum number of elements or entries.
fn elements_max(schema: &Structural) -> u64 {
    let (limit, element, around) = match &schema.additional {
        // Around a value: a key of two bytes, its quotes, the colon and the comma.
        Additional::Schema(values) => (schema.limits.max_properties, Some(&**values), 6),
        _ if schema.kind == "object" => return schema.properties.len() as u64,
        // Around an element: the comma.
        _ => (schema.limits.max_items, schema.items.as_deref(), 1),
    };
    limit.unwrap_or_else(|| (REQUEST_BYTES_MAX - 2) / (element.map_or(1, bytes_min) + around))
}

/// The minimum number of bytes of a value in a request.
fn bytes_min(schema: &Structural) -> u64 {
    match schema.kind.as_str() {
        "string" if schema.format == "date-time" => 21,
        "string" if schema.format == "date" => 12,
        "string" if schema.format == "duration" => 4,
        "string" => {
            let shortest = schema.enumeration.iter().filter_map(|value| value.as_str()).map(|text| text.len() as u64).min();
            schema.limits.min_length.or(shortest).unwrap_or_default() + 2
        }
        "boolean" => 4,
        "array" => 2,
        "object" => {
            let given = |name: &&String| schema.properties.get(*name).is_some_and(|property| property.default.is_none());
            let required = schema.required.iter().filter(given).filter_map(|name| Some((name, schema.properties.get(name)?)));
            required.map(|(name, property)| name.len() as u64 + 4 + bytes_min(property)).fold(2, u64::saturating_add)
        }
        _ => 1,
    }
}

/// The maximum number of values of a schema within lists and maps: the product of their limits.
pub fn repeated(outer: u64, schema: &Structural) -> u64 {
    outer.saturating_mul(elements_max(schema).max(1))
}
