//! From Go's syntax of patterns to that of the `regex` crate: the classes `\d`, `\s`, `\w` and the boundary
//! `\b` know ASCII alone, and what is special only to the crate stands for itself.

/// The most that Go repeats anything.
const REPEAT_MAX: u32 = 1_000;
/// Characters of a repetition that are looked at: more digits make no number that Go takes.
const REPEAT_LEN_MAX: usize = 20;

/// A pattern that matches here what `pattern` matches in Go; none where Go repeats nothing so often.
pub(super) fn from_go(pattern: &str) -> Option<String> {
    let mut out = String::with_capacity(pattern.len());
    let mut letters = pattern.chars().peekable();
    let mut class = Class::Outside;
    while let Some(letter) = letters.next() {
        match (letter, class) {
            ('\\', _) => match letters.next() {
                Some('Q') => quoted(&mut letters, &mut out),
                Some(escaped) => {
                    out.push_str(&escape(escaped));
                    // The braces of `\p{Greek}` and `\x{2028}` belong to the escape.
                    if matches!(escaped, 'p' | 'P' | 'x') && letters.peek() == Some(&'{') {
                        through('}', &mut letters, &mut out);
                    }
                }
                None => out.push('\\'),
            },
            ('[', Class::Outside) => {
                out.push('[');
                if letters.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                class = Class::Start;
                continue;
            }
            ('[', _) if letters.peek() == Some(&':') => {
                // A named class goes through up to its own end.
                out.push('[');
                through(']', &mut letters, &mut out);
            }
            ('[', _) => out.push_str("\\["),
            (']', Class::Start) => out.push_str("\\]"),
            (']', Class::Inside) => {
                out.push(']');
                class = Class::Outside;
            }
            ('&' | '~', Class::Start | Class::Inside) => {
                out.push('\\');
                out.push(letter);
            }
            ('{', Class::Outside) => match repetition(letters.clone()) {
                Some((min, max)) if min.max(max) > REPEAT_MAX || max < min => return None,
                Some(_) => out.push('{'),
                None => out.push_str("\\{"),
            },
            // Two of them would be a difference of classes.
            ('-', Class::Inside) if letters.peek() == Some(&'-') => out.push_str("\\-"),
            _ => out.push(letter),
        }
        if matches!(class, Class::Start) {
            class = Class::Inside;
        }
    }
    Some(out)
}

/// Takes over what comes up to an end, and the end with it.
fn through(end: char, letters: &mut impl Iterator<Item = char>, out: &mut String) {
    for letter in letters {
        out.push(letter);
        if letter == end {
            break;
        }
    }
}

/// The least and the most of `n}`, `n,}` or `n,m}`; none where a brace stands for itself.
fn repetition(letters: impl Iterator<Item = char>) -> Option<(u32, u32)> {
    let text: String = letters.take(REPEAT_LEN_MAX).collect();
    let (inner, _) = text.split_once('}')?;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        is_number.then(|| text.parse().unwrap_or(u32::MAX))
    };
    match inner.split_once(',') {
        None => number(inner).map(|count| (count, count)),
        Some((min, "")) => number(min).map(|min| (min, min)),
        Some((min, max)) => Some((number(min)?, number(max)?)),
    }
}

#[derive(Clone, Copy)]
enum Class {
    Outside,
    /// Where a closing bracket stands for itself.
    Start,
    Inside,
}

fn escape(escaped: char) -> String {
    match escaped {
        'd' => "[0-9]".to_owned(),
        'D' => "[^0-9]".to_owned(),
        'w' => "[0-9A-Za-z_]".to_owned(),
        'W' => "[^0-9A-Za-z_]".to_owned(),
        's' => "[\\t\\n\\x0c\\r ]".to_owned(),
        'S' => "[^\\t\\n\\x0c\\r ]".to_owned(),
        'b' => "(?-u:\\b)".to_owned(),
        'B' => "(?-u:\\B)".to_owned(),
        other => format!("\\{other}"),
    }
}

/// `\Q…\E`: text that stands for itself.
fn quoted(letters: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    let mut text = String::new();
    for letter in letters.by_ref() {
        text.push(letter);
        if text.ends_with("\\E") {
            text.truncate(text.len() - 2);
            break;
        }
    }
    out.push_str(&regex::escape(&text));
}

#[cfg(test)]
mod tests {
    use super::super::{WRITTEN_BYTES_MAX, compile};

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        for (pattern, text, matches) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^[\w-]+$", "a_b-c", true),
            (r"^[[]a[]]$", "[a]", true),
            (r"^[]a]+$", "a]", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "web-1", true),
            (r"^.$", "ä", true),
            (r"\bfoo\b", "a foo b", true),
            (r"^[+--]$", "-", true),
            // A brace that repeats nothing stands for itself.
            (r"^{$", "{", true),
            (r"^a{$", "a{", true),
            (r"^a{,2}$", "a{,2}", true),
            (r"^a{,2}$", "aa", false),
            (r"^a{x}b{02}$", "a{x}b{02}", true),
            (r"^${name}", "$", false),
            (r"^\{a}[{]{2}$", "{a}{{", true),
            (r"^a{2}b{1,}c{0,2}$", "aabbcc", true),
            (r"^a{2}$", "a{2}", false),
            // One that belongs to an escape does neither.
            (r"^\p{Greek}+$", "αβγ", true),
            (r"^\p{Greek}+$", "abc", false),
            (r"^\p{Greek}{2}{$", "αβ{", true),
            (r"^\P{L}$", "1", true),
            (r"^\P{L}$", "a", false),
            (r"^\pL{2}$", "aä", true),
            (r"^[\p{Greek}\x{41}]+$", "αA", true),
            (r"^\x{41}$", "A", true),
            (r"^\x{41}{2}$", "AA", true),
            (r"^\x41$", "A", true),
            (r"^\x{2028}$", "\u{2028}", true),
            (r"^\x{1F600}$", "\u{1F600}", true),
            (r"^\\x{2}$", "\\xx", true),
            (r"^\\p{L}$", r"\p{L}", true),
        ] {
            let regex = compile(pattern, WRITTEN_BYTES_MAX).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(regex.is_match(text), matches, "{pattern} on {text}");
        }
    }

    #[test]
    fn what_would_grow_without_bound_is_no_pattern() {
        for pattern in ["a{1001}", "a{2,1}", "a{1,99999999999}", r"\x{41}{1001}", r"\p{L", r"\x{110000}"] {
            assert!(compile(pattern, WRITTEN_BYTES_MAX).is_err(), "{pattern}");
        }
        for pattern in ["(((a{100}){100}){100}){100}".to_owned(), "(".repeat(10_000), format!("{}a{}", "(".repeat(500), ")".repeat(500))] {
            assert!(compile(&pattern, WRITTEN_BYTES_MAX).is_err());
        }
    }
}
