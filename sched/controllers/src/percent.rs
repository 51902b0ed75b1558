//! A number, or a share of a total in percent: upstream's `GetScaledValueFromIntOrPercent`.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Where a fraction of a Pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// To the number below.
    Down,
    /// To the number above.
    Up,
}

/// The number, or the percentage of `total`; 0 when unreadable.
pub fn scaled(value: &IntOrString, total: i32, round: Round) -> i32 {
    let percent = match value {
        IntOrString::Int(number) => return (*number).max(0),
        IntOrString::String(text) => text.strip_suffix('%').and_then(|p| p.parse::<i64>().ok()).unwrap_or(0),
    };
    let product = percent.max(0).saturating_mul(i64::from(total.max(0)));
    let rounded = if round == Round::Up { product.saturating_add(99) / 100 } else { product / 100 };
    i32::try_from(rounded).unwrap_or(i32::MAX)
}
