//! `fieldPath` of a validation rule: the field of the error, relative to the schema of the rule.

use api_model::field::Path;
use api_model::message::Message;
use api_schema::{Additional, Structural};

/// Parses a path such as `.a.b` or `['a']` and checks it against the schema.
pub fn read(text: &str, schema: &Structural) -> Result<Path, Message> {
    let (mut path, mut schema, mut rest) = (Path::default(), schema, text);
    while !rest.is_empty() {
        let (name, after) = step(rest)?;
        let missing = || Message::from("does not refer to a valid field");
        (path, schema) = match &schema.additional {
            _ if !schema.properties.is_empty() => (path.child(&name), schema.properties.get(&name).ok_or_else(missing)?),
            Additional::Schema(values) => (path.key(&name), &**values),
            _ => return Err(missing()),
        };
        rest = after;
    }
    Ok(path)
}

/// The first name, and the rest.
fn step(text: &str) -> Result<(String, &str), Message> {
    if let Some(after) = text.strip_prefix('.') {
        let end = after.find(['.', '[', ']']).unwrap_or(after.len());
        let (name, rest) = after.split_at(end);
        return if name.is_empty() { Err("unexpected end of JSON path".into()) } else { Ok((name.to_owned(), rest)) };
    }
    let Some(after) = text.strip_prefix('[') else { return Err(format!("expected [ or . but got: {text}").into()) };
    let Some(quoted) = after.strip_prefix('\'') else {
        return Err(match after.split(['.', '[', ']']).next() {
            None | Some("") => "unexpected end of JSON path".into(),
            Some(name) => format!("expected single quoted string but got {name}").into(),
        });
    };
    let mut name = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\'' => {
                let rest = quoted.get(at + 1..).unwrap_or_default();
                return match rest.strip_prefix(']') {
                    Some(rest) => Ok((name, rest)),
                    None if rest.is_empty() => Err("unexpected end of JSON path".into()),
                    None => Err(format!("expected ] but got {rest}").into()),
                };
            }
            '\\' => name.push(escaped(letters.next().map(|(_, letter)| letter))?),
            letter => name.push(letter),
        }
    }
    Err(format!("expected single quoted string but got '{quoted}").into())
}

fn escaped(letter: Option<char>) -> Result<char, Message> {
    Ok(match letter {
        Some('a') => '\x07',
        Some('b') => '\x08',
        Some('f') => '\x0c',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('v') => '\x0b',
        Some(same @ ('\'' | '\\')) => same,
        Some(other) => return Err(format!("invalid string literal: invalid escape char \\{other}").into()),
        None => return Err("unexpected end of JSON path".into()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_name_fields_of_the_schema() {
        let schema = Structural::parse(&json!({"type": "object", "properties": {
            "a": {"type": "object", "properties": {"b.c": {"type": "string"}, "d": {"type": "string"}}},
            "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        }}));
        for (text, wanted) in [
            (".a.d", Ok("a.d")),
            (".a['b.c']", Ok("a.b.c")),
            (".m['k'].x", Ok("m[k].x")),
            (".m.k.x", Ok("m[k].x")),
            (".a.nope", Err("does not refer to a valid field")),
            ("a", Err("expected [ or . but got: a")),
            (".", Err("unexpected end of JSON path")),
            (".a[0]", Err("expected single quoted string but got 0")),
            (".a['b", Err("expected single quoted string but got 'b")),
        ] {
            let result = read(text, &schema).map(|path| path.to_string());
            assert_eq!(result.as_deref().map_err(|why| &**why), wanted, "{text}");
        }
    }
}
