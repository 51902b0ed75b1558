//! Names of fields in expressions. As upstream, names that are no identifiers are escaped.

/// Reserved words of CEL.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

const ESCAPES: [(&str, &str); 4] = [("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")];

/// Whether a word is reserved in CEL.
pub fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// The name of a field in expressions.
pub fn escape(field: &str) -> String {
    if is_reserved(field) {
        return format!("__{field}__");
    }
    if !field.contains("__") && !field.contains(['.', '-', '/']) {
        return field.to_owned();
    }
    field.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}

/// The field of a name in expressions.
pub fn unescape(name: &str) -> String {
    if let Some(word) = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"))
        && is_reserved(word)
    {
        return word.to_owned();
    }
    let mut out = String::new();
    let mut rest = name;
    while let Some(letter) = rest.chars().next() {
        match ESCAPES.iter().find_map(|(escaped, plain)| Some((rest.strip_prefix(escaped)?, plain))) {
            Some((after, plain)) => {
                out.push_str(plain);
                rest = after;
            }
            None => {
                out.push(letter);
                rest = rest.get(letter.len_utf8()..).unwrap_or_default();
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_way_there_and_back() {
        for (field, name) in [
            ("size", "size"),
            ("max-surge", "max__dash__surge"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("x__y", "x__underscores__y"),
            ("namespace", "__namespace__"),
        ] {
            assert_eq!(escape(field), name);
            assert_eq!(unescape(name), field);
        }
    }
}
