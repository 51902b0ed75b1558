//! From Go's syntax of patterns to that of the `regex` crate: the classes `\d`, `\s`, `\w` and the boundary
//! `\b` know ASCII alone, and what is special only to the crate stands for itself.

/// A pattern that matches here what `pattern` matches in Go.
pub(super) fn from_go(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut letters = pattern.chars().peekable();
    let mut class = Class::Outside;
    while let Some(letter) = letters.next() {
        match (letter, class) {
            ('\\', _) => match letters.next() {
                Some('Q') => quoted(&mut letters, &mut out),
                Some(escaped) => out.push_str(&escape(escaped)),
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
                for inner in letters.by_ref() {
                    out.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
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
            // Two of them would be a difference of classes.
            ('-', Class::Inside) if letters.peek() == Some(&'-') => out.push_str("\\-"),
            _ => out.push(letter),
        }
        if matches!(class, Class::Start) {
            class = Class::Inside;
        }
    }
    out
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
        ] {
            let regex = compile(pattern, WRITTEN_BYTES_MAX).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(regex.is_match(text), matches, "{pattern} on {text}");
        }
    }

    #[test]
    fn what_would_grow_without_bound_is_no_pattern() {
        for pattern in ["(((a{100}){100}){100}){100}".to_owned(), "(".repeat(10_000), format!("{}a{}", "(".repeat(500), ")".repeat(500))] {
            assert!(compile(&pattern, WRITTEN_BYTES_MAX).is_err());
        }
    }
}
