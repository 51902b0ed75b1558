//! `Warning` headers, as upstream writes and bounds them.

use std::collections::HashSet;

use http::HeaderValue;

/// The highest number of characters of all texts together; beyond it each text is cut.
const WHOLE_LEN_MAX: usize = 4 * 1024;
/// The length to which a text is cut.
const CUT_LEN: usize = 256;
/// The highest number of headers. Upstream has no such limit, but clients read only so many headers of an answer: hyper reads a
/// hundred.
const HEADERS_MAX: usize = 64;

/// A header for each new text. When the texts are too long together each is cut, and there are no more headers once the cut
/// ones reach the same limit.
pub fn headers(warnings: &[String]) -> Vec<HeaderValue> {
    let mut seen = HashSet::new();
    let texts: Vec<&str> = warnings.iter().map(String::as_str).filter(|text| !text.is_empty() && seen.insert(*text)).collect();
    let length: usize = texts.iter().map(|text| text.chars().count()).sum();
    let limit = if length > WHOLE_LEN_MAX { CUT_LEN } else { length };
    let mut written = 0_usize;
    let cut = texts.into_iter().map_while(|text| {
        let rest = written < WHOLE_LEN_MAX;
        let text: String = text.chars().take(limit).collect();
        written = written.saturating_add(text.chars().count());
        rest.then_some(text)
    });
    cut.filter_map(|text| header(&text)).take(HEADERS_MAX).collect()
}

fn header(text: &str) -> Option<HeaderValue> {
    let quoted: String = text.chars().filter(|c| !c.is_control()).collect();
    let quoted = quoted.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_values(warnings: &[&str]) -> Vec<String> {
        let warnings: Vec<String> = warnings.iter().map(|&text| text.to_owned()).collect();
        headers(&warnings).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }

    #[test]
    fn texts_are_quoted_and_sent_once() {
        assert_eq!(header_values(&["a \"b\" \\c", "", "d\n", "d\n"]), [r#"299 - "a \"b\" \\c""#, r#"299 - "d""#]);
    }

    #[test]
    fn texts_are_whole_until_they_are_too_long_together() {
        let long = "ä".repeat(4_000);
        assert_eq!(header_values(&[&long, "short"]), [format!("299 - \"{long}\""), "299 - \"short\"".to_owned()]);
        let longer = "b".repeat(300);
        let cut = |letter: &str| format!("299 - \"{}\"", letter.repeat(256));
        assert_eq!(header_values(&[&long, &longer]), [cut("ä"), cut("b")]);
        let many: Vec<String> = (0..100_000).map(|at| format!("{at:0>300}")).collect();
        assert_eq!(headers(&many).len(), 16);
        let tiny: Vec<String> = (0..1_000).map(|at| at.to_string()).collect();
        assert_eq!(headers(&tiny).len(), HEADERS_MAX);
    }
}
