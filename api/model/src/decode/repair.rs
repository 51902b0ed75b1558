//! Repairs JSON that is not valid text: bytes that are not UTF-8, and escapes of a single surrogate (`\ud83d` alone), which
//! come from clients that cut a message within an emoji. Go's decoder reads both as U+FFFD.

use std::borrow::Cow;

/// The body as Go reads it; `None` where it has no such flaw.
pub fn repaired(body: &[u8]) -> Option<String> {
    let text = as_text(body);
    let escapes = with_whole_escapes(&text);
    match (escapes, text) {
        (Some(text), _) | (None, Cow::Owned(text)) => Some(text),
        (None, Cow::Borrowed(_)) => None,
    }
}

/// Replaces each byte that belongs to no character by U+FFFD.
fn as_text(mut body: &[u8]) -> Cow<'_, str> {
    let mut text = String::new();
    loop {
        match std::str::from_utf8(body) {
            Ok(rest) if text.is_empty() => return Cow::Borrowed(rest),
            Ok(rest) => return Cow::Owned(text + rest),
            Err(error) => {
                let (good, bad) = body.split_at_checked(error.valid_up_to()).unwrap_or_default();
                text.push_str(std::str::from_utf8(good).unwrap_or_default());
                text.push(char::REPLACEMENT_CHARACTER);
                body = bad.get(1..).unwrap_or_default();
            }
        }
    }
}

/// Replaces escapes of single surrogates; `None` where there are none.
fn with_whole_escapes(text: &str) -> Option<String> {
    let (mut out, mut rest, mut is_changed) = (String::new(), text, false);
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at_checked(at)?;
        out.push_str(before);
        let taken = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => {
                is_changed = true;
                out.push(char::REPLACEMENT_CHARACTER);
                rest = escape.get(6..)?;
                continue;
            }
            // The backslash and the escaped character.
            _ => 1 + escape.chars().nth(1).map_or(0, char::len_utf8),
        };
        let (sequence, after) = escape.split_at_checked(taken)?;
        out.push_str(sequence);
        rest = after;
    }
    out.push_str(rest);
    is_changed.then_some(out)
}

/// The code of an escape such as `\u0041` at the start of the text.
fn unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))
}
