//! Numbers with a check digit.

use std::sync::LazyLock;

use regex::Regex;

use super::pattern;

static CREDIT_CARD: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$",
    )
});

/// The number of a credit card; all characters other than digits are ignored.
pub(super) fn is_credit_card(text: &str) -> bool {
    let number: String = text.chars().filter(char::is_ascii_digit).collect();
    let luhn = |(index, digit): (usize, u32)| match digit * 2 {
        _ if index % 2 == 0 => digit,
        doubled if doubled >= 10 => doubled % 10 + 1,
        doubled => doubled,
    };
    CREDIT_CARD.is_match(&number) && digits(&number).rev().enumerate().map(luhn).sum::<u32>().is_multiple_of(10)
}

/// Ten digits, the last of which may be an `X`, with white space and dashes anywhere.
pub(super) fn is_isbn10(text: &str) -> bool {
    let number = bare(text);
    let value = |(index, c): (usize, char)| if index == 9 && c == 'X' { Some(10) } else { c.to_digit(10) };
    let digits: Option<Vec<u32>> = number.chars().enumerate().map(value).collect();
    let weigh = |digits: &[u32]| (1..).zip(digits).map(|(weight, digit)| weight * digit).sum::<u32>();
    digits.is_some_and(|digits| digits.len() == 10 && weigh(&digits).is_multiple_of(11))
}

/// Thirteen digits, with white space and dashes anywhere.
pub(super) fn is_isbn13(text: &str) -> bool {
    let number = bare(text);
    let sum: u32 = [1, 3].into_iter().cycle().zip(digits(&number)).map(|(factor, digit)| factor * digit).sum();
    number.len() == 13 && number.bytes().all(|b| b.is_ascii_digit()) && sum.is_multiple_of(10)
}

/// The text without white space and dashes.
fn bare(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '\t' | '\n' | '\x0c' | '\r' | ' ' | '-')).collect()
}

fn digits(text: &str) -> impl DoubleEndedIterator<Item = u32> {
    text.chars().filter_map(|c| c.to_digit(10))
}
