//! Translates Go's syntax of patterns (`regexp/syntax`, with Perl's flags) to the syntax of the `regex` crate. The
//! classes `\d`, `\s`, `\w` and the boundary `\b` match ASCII only. Characters that are special only in the crate
//! become literals. Syntax that only the crate knows is rejected.

use std::collections::BTreeSet;

/// Go's maximum of a repetition count.
const REPEAT_MAX: u32 = 1_000;
/// Names of classes that are valid within a class: `[[:alpha:]]`.
const NAMED: [&str; 14] =
    ["alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word", "xdigit"];

/// A pattern with the meaning of `pattern` in Go; `None` if Go rejects the pattern. The crate itself checks open
/// braces, names of Unicode classes and the operands of repetitions.
pub(super) fn from_go(pattern: &str) -> Option<String> {
    let mut reader = Reader {
        rest: pattern,
        out: String::with_capacity(pattern.len()),
        groups: BTreeSet::new(),
        is_repeated: false,
        last_name_len: pattern.rfind(":]").map_or(usize::MAX, |at| pattern.len() - at),
    };
    while !reader.rest.is_empty() {
        reader.step()?;
    }
    Some(reader.out)
}

struct Reader<'p> {
    rest: &'p str,
    out: String,
    /// Names of groups.
    groups: BTreeSet<&'p str>,
    /// Whether the last token was a repetition.
    is_repeated: bool,
    /// Length of the pattern from its last `:]` to the end.
    last_name_len: usize,
}

impl<'p> Reader<'p> {
    fn step(&mut self) -> Option<()> {
        let was_repeated = std::mem::take(&mut self.is_repeated);
        let letter = self.next()?;
        match letter {
            '\\' => self.escape(),
            '[' => self.class(),
            '(' => self.group(),
            '*' | '+' | '?' => {
                self.out.push(letter);
                self.repeated(was_repeated)
            }
            '{' => match counts(self.rest) {
                Some((min, max, rest)) if max.is_none_or(|max| min <= max) && min.max(max.unwrap_or(0)) <= REPEAT_MAX => {
                    let inner = self.rest.strip_suffix(rest)?;
                    self.out.push('{');
                    self.out.push_str(inner);
                    self.rest = rest;
                    self.repeated(was_repeated)
                }
                Some(_) => None,
                None => self.literal('{'),
            },
            _ => {
                self.out.push(letter);
                Some(())
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.rest.chars().next()?;
        self.rest = self.rest.get(letter.len_utf8()..)?;
        Some(letter)
    }

    fn takes(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn literal(&mut self, letter: char) -> Option<()> {
        self.out.push_str(&regex::escape(letter.encode_utf8(&mut [0; 4])));
        Some(())
    }

    /// After a repetition operator. Another repetition may not follow directly.
    fn repeated(&mut self, was_repeated: bool) -> Option<()> {
        if self.takes("?") {
            self.out.push('?');
        }
        self.is_repeated = true;
        (!was_repeated).then_some(())
    }

    /// After a backslash outside of a class.
    fn escape(&mut self) -> Option<()> {
        if self.takes("Q") {
            // All characters up to `\E` are literals.
            let (text, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
            self.out.push_str(&regex::escape(text));
            self.rest = rest;
            return Some(());
        }
        for (name, boundary) in [("A", r"\A"), ("z", r"\z"), ("b", r"(?-u:\b)"), ("B", r"(?-u:\B)")] {
            if self.takes(name) {
                self.out.push_str(boundary);
                return Some(());
            }
        }
        if self.known_class()? {
            return Some(());
        }
        let letter = self.escaped()?;
        self.literal(letter)
    }

    /// After a backslash: returns whether it read a Perl or Unicode class.
    fn known_class(&mut self) -> Option<bool> {
        for (name, class) in PERL {
            if self.takes(name) {
                self.out.push_str(class);
                return Some(true);
            }
        }
        let is_negated = self.rest.starts_with('P');
        if !self.takes("p") && !self.takes("P") {
            return Some(false);
        }
        let name = if self.takes("{") {
            let (name, rest) = self.rest.split_once('}')?;
            self.rest = rest;
            name
        } else {
            let all = self.rest;
            self.next()?;
            all.strip_suffix(self.rest)?
        };
        let (is_negated, name) = name.strip_prefix('^').map_or((is_negated, name), |name| (!is_negated, name));
        // With `=` and similar characters, the crate supports properties that Go does not.
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return None;
        }
        self.out.push_str(if is_negated { "\\P{" } else { "\\p{" });
        self.out.push_str(name);
        self.out.push('}');
        Some(true)
    }

    /// After a backslash: the escaped character.
    fn escaped(&mut self) -> Option<char> {
        let letter = self.next()?;
        match letter {
            // A single digit other than 0 would be a back-reference.
            '1'..='7' if !self.rest.starts_with(is_octal) => None,
            '0'..='7' => {
                let mut code = letter.to_digit(8)?;
                for _ in 0..2 {
                    if self.rest.starts_with(is_octal) {
                        code = code * 8 + self.next()?.to_digit(8)?;
                    }
                }
                char::from_u32(code)
            }
            'x' if self.takes("{") => {
                let (digits, rest) = self.rest.split_once('}')?;
                self.rest = rest;
                hexadecimal(digits)
            }
            'x' => {
                let (digits, rest) = self.rest.split_at_checked(2)?;
                self.rest = rest;
                hexadecimal(digits)
            }
            'a' => Some('\x07'),
            'f' => Some('\x0c'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\x0b'),
            _ => (letter.is_ascii() && !letter.is_ascii_alphanumeric()).then_some(letter),
        }
    }

    /// After an opening parenthesis. No caller uses group names, so the translation omits them.
    fn group(&mut self) -> Option<()> {
        self.out.push('(');
        if !self.takes("?") {
            return Some(());
        }
        if self.takes("P<") || self.takes("<") {
            let (name, rest) = self.rest.split_once('>')?;
            self.rest = rest;
            let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            return (is_name && self.groups.insert(name)).then_some(());
        }
        let at = self.rest.find([':', ')'])?;
        let (flags, rest) = self.rest.split_at_checked(at)?;
        self.rest = rest;
        let is_group = self.takes(":");
        self.flags(flags)?;
        if is_group {
            self.out.push(':');
        }
        Some(())
    }

    /// The flags `i-s` of `(?i-s:…)` and of `(?i-s)`.
    fn flags(&mut self, flags: &str) -> Option<()> {
        let (on, off) = flags.split_once('-').map_or((flags, None), |(on, off)| (on, Some(off)));
        let all_known = |flags: &str| flags.chars().all(|flag| "imsU".contains(flag));
        if !all_known(on) || off.is_some_and(|off| off.is_empty() || !all_known(off)) {
            return None;
        }
        let off = off.unwrap_or_default();
        self.out.push('?');
        self.out.extend("imsU".chars().filter(|flag| on.contains(*flag) && !off.contains(*flag)));
        if !off.is_empty() {
            self.out.push('-');
            self.out.extend("imsU".chars().filter(|flag| off.contains(*flag)));
        }
        if on.is_empty() && off.is_empty() && self.rest.starts_with(')') {
            // `(?)` has no effect; the crate's syntax for it is `(?:)`.
            self.out.push(':');
        }
        Some(())
    }

    /// After an opening bracket.
    fn class(&mut self) -> Option<()> {
        self.out.push('[');
        if self.takes("^") {
            self.out.push('^');
        }
        let mut is_first = true;
        while is_first || !self.takes("]") {
            is_first = false;
            self.class_item()?;
        }
        self.out.push(']');
        Some(())
    }

    fn class_item(&mut self) -> Option<()> {
        if self.rest.starts_with("[:") && self.rest.len() - 2 >= self.last_name_len {
            let (name, rest) = self.rest.get(2..)?.split_once(":]")?;
            if !NAMED.contains(&name.strip_prefix('^').unwrap_or(name)) {
                return None;
            }
            self.rest = rest;
            self.out.push_str(&format!("[:{name}:]"));
            return Some(());
        }
        let all = self.rest;
        if self.takes("\\") {
            if self.known_class()? {
                return Some(());
            }
            self.rest = all;
        }
        let from = self.class_char()?;
        self.literal(from)?;
        // A minus at the end of a class is a literal.
        if self.rest.starts_with('-') && !self.rest.starts_with("-]") && self.rest.len() > 1 {
            self.takes("-");
            let to = self.class_char()?;
            self.out.push('-');
            self.literal(to)?;
        }
        Some(())
    }

    fn class_char(&mut self) -> Option<char> {
        match self.next()? {
            '\\' => self.escaped(),
            letter => Some(letter),
        }
    }
}

/// Perl's classes after a backslash, in a form that is valid inside and outside of other classes.
const PERL: [(&str, &str); 6] = [
    ("d", "[0-9]"),
    ("D", "[^0-9]"),
    ("w", "[0-9A-Za-z_]"),
    ("W", "[^0-9A-Za-z_]"),
    ("s", "[\\t\\n\\x0c\\r ]"),
    ("S", "[^\\t\\n\\x0c\\r ]"),
];

fn is_octal(letter: char) -> bool {
    letter.is_digit(8)
}

fn hexadecimal(digits: &str) -> Option<char> {
    let is_number = digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_number.then(|| u32::from_str_radix(digits, 16).ok().and_then(char::from_u32))?
}

/// The minimum and the maximum of `n}`, `n,}` or `n,m}`, and the text after it; `None` if the brace is a literal.
fn counts(text: &str) -> Option<(u32, Option<u32>, &str)> {
    let (min, rest) = number(text)?;
    let (max, rest) = match rest.strip_prefix(',') {
        None => (Some(min), rest),
        Some(rest) if rest.starts_with('}') => (None, rest),
        Some(rest) => number(rest).map(|(max, rest)| (Some(max), rest))?,
    };
    Some((min, max, rest.strip_prefix('}')?))
}

fn number(text: &str) -> Option<(u32, &str)> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = text.strip_suffix(rest)?;
    let is_number = !digits.is_empty() && (digits == "0" || !digits.starts_with('0'));
    is_number.then(|| (digits.parse().unwrap_or(u32::MAX), rest))
}
