//! Makes inputs from other inputs. It changes, moves and doubles bytes. Where an input is JSON, it also changes whole
//! values, so that most results still get past the parser.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value};

use crate::INPUT_LEN_MAX;
use crate::targets::{BETWEEN, documents};

/// Maximum number of changes in one input.
const CHANGES_MAX: usize = 6;
/// Maximum number of earlier inputs (the corpus among them) that are mutated further.
const POOL_MAX: usize = 256;

/// Texts that parsers often handle wrongly.
const ODD: &[&str] = &[
    "",
    " ",
    "\0",
    "..",
    "/",
    "~0",
    "~1",
    "-",
    "-1",
    "0",
    "9223372036854775807",
    "18446744073709551616",
    "1e999",
    "-0",
    "0.1",
    "null",
    "true",
    "é",
    "\u{fffd}",
    "\u{202e}",
    "a=b",
    "!",
    ",",
    "\\",
    "\"",
    "{",
    "}",
    "[",
    "]",
    ":",
    "&a",
    "*a",
    "<<",
    "$patch",
    "name",
    "key",
    "=",
    "!=",
];

pub struct Mutator {
    random: StdRng,
    pool: Vec<Vec<u8>>,
    words: &'static [&'static str],
}

impl Mutator {
    pub fn new(seed: u64, corpus: &[Vec<u8>], words: &'static [&'static str]) -> Self {
        let pool = if corpus.is_empty() { vec![Vec::new()] } else { corpus.to_vec() };
        Self { random: StdRng::seed_from_u64(seed), pool, words }
    }

    /// The next input.
    pub fn next(&mut self) -> Vec<u8> {
        let mut input = self.pool.choose(&mut self.random).cloned().unwrap_or_default();
        for _ in 0..self.random.random_range(1..=CHANGES_MAX) {
            input = match self.random.random_bool(0.7) {
                true => self.changed_values(&input).unwrap_or(input),
                false => self.changed_bytes(input),
            };
        }
        input.truncate(INPUT_LEN_MAX);
        // Some inputs are kept, to be changed further.
        if self.random.random_ratio(1, 16) {
            if self.pool.len() < POOL_MAX {
                self.pool.push(input.clone());
            } else {
                let at = self.random.random_range(0..self.pool.len());
                self.pool[at] = input.clone();
            }
        }
        input
    }

    fn word(&mut self) -> &'static str {
        let own = !self.words.is_empty() && self.random.random_bool(0.7);
        (if own { self.words } else { ODD }).choose(&mut self.random).copied().unwrap_or_default()
    }

    fn position(&mut self, len: usize) -> usize {
        self.random.random_range(0..=len)
    }

    fn changed_bytes(&mut self, mut input: Vec<u8>) -> Vec<u8> {
        let (a, b) = (self.position(input.len()), self.position(input.len()));
        let (from, to) = (a.min(b), a.max(b));
        match self.random.random_range(0..6) {
            0 if !input.is_empty() => {
                let at = self.random.random_range(0..input.len());
                input[at] ^= 1 << self.random.random_range(0..8);
            }
            1 => drop(input.drain(from..to)),
            2 => {
                let part = input[from..to].to_vec();
                let at = self.position(input.len());
                input.splice(at..at, part);
            }
            3 => {
                let other = self.pool.choose(&mut self.random).cloned().unwrap_or_default();
                let (c, d) = (self.position(other.len()), self.position(other.len()));
                input.splice(from..to, other[c.min(d)..c.max(d)].iter().copied());
            }
            4 => {
                let byte = self.random.random();
                input.insert(from, byte);
            }
            _ => {
                let word = self.word().bytes();
                input.splice(from..from, word);
            }
        }
        input
    }

    /// The input with one of its documents changed; `None` if the chosen document is not JSON.
    fn changed_values(&mut self, input: &[u8]) -> Option<Vec<u8>> {
        let mut parts: Vec<Vec<u8>> = documents(input).into_iter().map(<[u8]>::to_vec).collect();
        let at = self.random.random_range(0..parts.len());
        let mut value: Value = serde_json::from_slice(&parts[at]).ok()?;
        let donor = self.donor();
        self.change(&mut value, donor);
        parts[at] = value.to_string().into_bytes();
        Some(parts.join(BETWEEN))
    }

    /// A value from another input, or a random one.
    fn donor(&mut self) -> Value {
        let other = self.pool.choose(&mut self.random).cloned().unwrap_or_default();
        let other = documents(&other).choose(&mut self.random).and_then(|document| serde_json::from_slice(document).ok());
        match other {
            Some(value) if self.random.random_bool(0.5) => self.part_of(value),
            _ => self.leaf(),
        }
    }

    fn part_of(&mut self, value: Value) -> Value {
        if self.random.random_bool(0.3) {
            return value;
        }
        let next = match &value {
            Value::Array(items) => items.choose(&mut self.random).cloned(),
            Value::Object(fields) => fields.values().collect::<Vec<_>>().choose(&mut self.random).map(|&value| value.clone()),
            _ => None,
        };
        match next {
            Some(next) => self.part_of(next),
            None => value,
        }
    }

    fn leaf(&mut self) -> Value {
        match self.random.random_range(0..8) {
            0 => Value::Null,
            1 => self.random.random::<bool>().into(),
            2 => self.random.random_range(-2..100_i64).into(),
            3 => [i64::MIN, i64::MAX, i64::from(i32::MAX) + 1, -1].choose(&mut self.random).copied().into(),
            4 => Value::Array(Vec::new()),
            5 => Value::Object(Map::new()),
            _ => self.word().into(),
        }
    }

    /// Changes the value, or a random value inside it.
    fn change(&mut self, value: &mut Value, donor: Value) {
        let deeper = self.random.random_bool(0.8);
        match value {
            Value::Array(items) if deeper && !items.is_empty() => {
                let at = self.random.random_range(0..items.len());
                self.change(&mut items[at], donor);
            }
            Value::Object(fields) if deeper && !fields.is_empty() => {
                let at = self.random.random_range(0..fields.len());
                if let Some(value) = fields.values_mut().nth(at) {
                    self.change(value, donor);
                }
            }
            Value::Array(items) => {
                let at = self.position(items.len());
                match self.random.random_range(0..4) {
                    0 => items.insert(at, donor),
                    1 if at < items.len() => drop(items.remove(at)),
                    2 if at < items.len() => items.push(items[at].clone()),
                    _ => *value = donor,
                }
            }
            Value::Object(fields) => {
                let at = self.position(fields.len());
                let key = fields.keys().nth(at).cloned();
                let word = self.word().to_owned();
                match (self.random.random_range(0..4), key) {
                    (0, Some(key)) => drop(fields.remove(&key)),
                    (1, Some(key)) => drop(fields.remove(&key).and_then(|value| fields.insert(word, value))),
                    (2, Some(key)) => drop(fields.insert(key, donor)),
                    (3, _) => *value = donor,
                    _ => drop(fields.insert(word, donor)),
                }
            }
            Value::String(text) if self.random.random_bool(0.5) => {
                let at = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect::<Vec<_>>();
                let at = at.choose(&mut self.random).copied().unwrap_or_default();
                let word = self.word();
                text.insert_str(at, word);
            }
            _ => *value = donor,
        }
    }
}
