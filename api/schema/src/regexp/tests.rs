//! Patterns with their meaning in Go.

use super::{SCHEMA_BYTES_MAX, compile};

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
        // A brace that is no repetition is a literal.
        (r"^{$", "{", true),
        (r"^a{$", "a{", true),
        (r"^a{,2}$", "a{,2}", true),
        (r"^a{,2}$", "aa", false),
        (r"^a{x}b{02}$", "a{x}b{02}", true),
        (r"^${name}", "$", false),
        (r"^\{a}[{]{2}$", "{a}{{", true),
        (r"^a{2}b{1,}c{0,2}$", "aabbcc", true),
        (r"^a{2}$", "a{2}", false),
        // A brace that belongs to an escape is neither a repetition nor a literal.
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
        let regex = compile(pattern, SCHEMA_BYTES_MAX).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        assert_eq!(regex.is_match(text), matches, "{pattern} on {text}");
    }
}

#[test]
fn what_would_grow_without_bound_is_no_pattern() {
    for pattern in ["a{1001}", "a{2,1}", "a{1,99999999999}", r"\x{41}{1001}", r"\p{L", r"\x{110000}"] {
        assert!(compile(pattern, SCHEMA_BYTES_MAX).is_err(), "{pattern}");
    }
    for pattern in ["(((a{100}){100}){100}){100}".to_owned(), "(".repeat(10_000), format!("{}a{}", "(".repeat(500), ")".repeat(500))] {
        assert!(compile(&pattern, SCHEMA_BYTES_MAX).is_err());
    }
}

#[test]
fn what_go_takes_is_taken() {
    for (pattern, text, matches) in [
        (r"^[\w.-]{1,253}$", "a.b-c", true),
        (r"^\w{1,1000}$", "word", true),
        (r"^\w{1,1000}$", "wörd", false),
        (r"^[\p{L}\p{N}_ -]{1,63}$", "größe 1_b", true),
        (r"^[\p{L}\p{N}_ -]{1,63}$", "a.b", false),
        (r"^[\w-.]+$", "a-.b", true),
        (r"^[\w-/]+$", "a-/b", true),
        (r"^[a-zA-Z\d-_]+$", "a1-_", true),
        (r"^[a-zA-Z\d-_]+$", "a.", false),
        (r"^[^[]*$", "a]b", true),
        (r"^[^[]*$", "a[b", false),
        (r"^{.*}$", "{x}", true),
        (r"^\<a\>$", "<a>", true),
        (r"^\_\%\-$", "_%-", true),
        (r"^[a-z&&b]+$", "a&z", true),
        (r"^[a~~b]+$", "~", true),
        (r"^\077\101$", "?A", true),
        (r"^[\060-\071]+$", "09", true),
        (r"^\a\v\f\x7F$", "\u{7}\u{b}\u{c}\u{7f}", true),
        (r"^\p{^L}+$", "12", true),
        (r"^[\D\S]$", "1", true),
        (r"^[^\W]$", "_", true),
        (r"^[[:^digit:][:word:]]+$", "a1", true),
        (r"^[[:a]+$", "a:[", true),
        (r"^(?P<y>[0-9]{4})-(?<m>[0-9]{2})$", "2024-01", true),
        (r"(?i)^abc$", "ABC", true),
        (r"^(?i-s:A)b$", "ab", true),
        (r"^(?ii)a(?)b$", "AB", true),
        (r"^(?s:.)$", "\n", true),
        (r"^a+?b*?c??d{2}?$", "abcdd", true),
        (r"^a]}$", "a]}", true),
        (r"\Ba\B", "bab", true),
        (r"\b{start}", "a {start}", false),
    ] {
        let regex = compile(pattern, SCHEMA_BYTES_MAX).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(regex.is_match(text), matches, "{pattern} on {text}");
    }
}

#[test]
fn what_go_refuses_is_rejected() {
    for pattern in [
        "a**",
        "a+*",
        "a?+",
        "a*??",
        "a{2}{3}",
        "a{2}*",
        "a{2000}",
        "a{99999999999999999999999}",
        "(?x)a",
        "(?u)a",
        "(?-u:a)",
        "(?R)a",
        "(?i-)a",
        "(?=a)",
        "(?<!a)",
        "(?#a)",
        "(?P=a)",
        "(?P<a>b)(?P<a>c)",
        r"\1",
        r"\8",
        r"\q",
        r"\é",
        r"\Z",
        r"\C",
        r"\E",
        r"\u0041",
        r"\x4",
        r"\x{}",
        r"\x{+41}",
        r"\p{sc=Greek}",
        r"\p{}",
        "[a",
        "[]",
        "[z-a]",
        r"[a-\d]",
        r"[\b]",
        r"[\Qa]",
        "[[:unknown:]]",
        "(",
        ")",
        "*",
        r"\",
    ] {
        assert!(compile(pattern, SCHEMA_BYTES_MAX).is_err(), "{pattern}");
    }
}

#[test]
fn long_patterns_are_read_in_time_linear_in_them() {
    for repeated in ["[[:", "{1", "[a", r"\Q", "(?P<a", "a{2}"] {
        assert!(compile(&format!("({}", repeated.repeat(50_000)), SCHEMA_BYTES_MAX).is_err(), "{repeated}");
    }
}
