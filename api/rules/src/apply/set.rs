//! Sets of fields, for example of a manager or of a change. A set is a tree, as in `fieldsV1`. Every level is sorted, so that
//! two sets are joined in one pass.

use std::fmt;
use std::iter::{Peekable, from_fn};

use serde_json::{Map, Value};

/// One step of a path, in the form of `fieldsV1`: `f:FIELD`, `k:{"KEY":VALUE,…}` for an element of a list with keys,
/// `v:VALUE` for an element of a set, `i:INDEX`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Element(String);

impl Element {
    /// A field of an object or an entry of a map.
    pub fn field(name: &str) -> Self {
        Self(["f:", name].concat())
    }

    /// The element of a list with these keys.
    pub fn keys(keys: Map<String, Value>) -> Self {
        Self(format!("k:{}", Value::Object(keys)))
    }

    /// The element of a set with this value.
    pub fn value(value: &Value) -> Self {
        Self(format!("v:{value}"))
    }

    /// The element at that index of a list.
    pub(super) fn index(at: usize) -> Self {
        Self(format!("i:{at}"))
    }

    /// Parses the written form; `None` where it is not valid.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (form, rest) = text.split_once(':')?;
        match form {
            "f" => Some(Self(text.to_owned())),
            // Serialized again, so that equal elements have equal text.
            "k" => serde_json::from_str(rest).ok().map(Self::keys),
            "v" => serde_json::from_str(rest).ok().map(|value: Value| Self::value(&value)),
            "i" => rest.parse::<i64>().ok().map(|index| Self(format!("i:{index}"))),
            _ => None,
        }
    }

    /// The name of a field; `None` for elements of lists.
    pub(super) fn name(&self) -> Option<&str> {
        self.0.strip_prefix("f:")
    }

    /// The written form.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// As messages name it: `.field`, `[key="value"]`, `[="value"]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (form, rest) = self.0.split_once(':').unwrap_or(("f", &self.0));
        match form {
            "f" => write!(f, ".{rest}"),
            "k" => {
                let keys: Map<String, Value> = serde_json::from_str(rest).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(f, "[{}]", keys.join(","))
            }
            "v" => write!(f, "[={rest}]"),
            _ => write!(f, "[{rest}]"),
        }
    }
}

/// A node of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Whether the path itself is in the set.
    pub member: bool,
    /// The children.
    pub children: FieldSet,
}

impl Node {
    /// The path itself without children.
    pub(super) const LEAF: Self = Self { member: true, children: FieldSet::EMPTY };

    /// Whether neither the path nor anything below it is in the set.
    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(Vec<(Element, Node)>);

impl FieldSet {
    const EMPTY: Self = Self(Vec::new());

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The elements of the first step, in order.
    pub fn iter(&self) -> impl Iterator<Item = &(Element, Node)> {
        self.0.iter()
    }

    /// The node of an element.
    pub fn get(&self, element: &Element) -> Option<&Node> {
        let at = self.0.binary_search_by(|(other, _)| other.cmp(element)).ok()?;
        self.0.get(at).map(|(_, node)| node)
    }

    /// Whether the two have a path in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        join(&self.0, &other.0).any(|(_, mine, theirs)| match (mine, theirs) {
            (Some(mine), Some(theirs)) => (mine.member && theirs.member) || mine.children.overlaps(&theirs.children),
            _ => false,
        })
    }

    /// The union.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| mine || theirs)
    }

    /// The intersection.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| mine && theirs)
    }

    /// The paths that the other set does not have. Paths below a path of the other set stay.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| mine && !theirs)
    }

    /// `keep` decides whether a path stays, from which sets have it; it must not add paths.
    fn combine(&self, other: &Self, keep: fn(bool, bool) -> bool) -> Self {
        let whole = |node: Option<&Node>, is_retained: bool| node.filter(|_| is_retained).cloned().unwrap_or_default();
        let nodes = join(&self.0, &other.0).map(|(element, mine, theirs)| {
            let node = match (mine, theirs) {
                (Some(mine), Some(theirs)) => {
                    Node { member: keep(mine.member, theirs.member), children: mine.children.combine(&theirs.children, keep) }
                }
                (mine, None) => whole(mine, keep(true, false)),
                (None, theirs) => whole(theirs, keep(false, true)),
            };
            (element.clone(), node)
        });
        nodes.collect()
    }

    /// The paths whose first element passes `keep`.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Element, &mut Node) -> bool) {
        self.0.retain_mut(|(element, node)| keep(element, node) && !node.is_empty());
    }

    /// Every path as in messages; at each level the paths that end there come first.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths("", &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &str, paths: &mut Vec<String>) {
        paths.extend(self.iter().filter(|(_, node)| node.member).map(|(element, _)| format!("{prefix}{element}")));
        for (element, node) in self.iter().filter(|(_, node)| !node.children.is_empty()) {
            node.children.collect_paths(&format!("{prefix}{element}"), paths);
        }
    }
}

/// Empty nodes are dropped; of two nodes of one element the last one stays.
impl FromIterator<(Element, Node)> for FieldSet {
    fn from_iter<I: IntoIterator<Item = (Element, Node)>>(nodes: I) -> Self {
        let mut nodes: Vec<(Element, Node)> = nodes.into_iter().filter(|(_, node)| !node.is_empty()).collect();
        if !nodes.is_sorted_by(|(a, _), (b, _)| a < b) {
            nodes.reverse();
            nodes.sort_by(|(a, _), (b, _)| a.cmp(b));
            nodes.dedup_by(|(a, _), (b, _)| a == b);
        }
        Self(nodes)
    }
}

/// Two ordered lists side by side.
pub(super) fn join<'a, K: Ord, A, B>(
    left: &'a [(K, A)],
    right: &'a [(K, B)],
) -> impl Iterator<Item = (&'a K, Option<&'a A>, Option<&'a B>)> {
    fn key<'a, K, V: 'a>(list: &mut Peekable<impl Iterator<Item = &'a (K, V)>>) -> Option<&'a K> {
        list.peek().map(|(key, _)| key)
    }
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    from_fn(move || {
        let (of_left, of_right) = (key(&mut left), key(&mut right));
        let first = match (of_left, of_right) {
            (Some(l), Some(r)) => l.min(r),
            (one, other) => one.or(other)?,
        };
        let l = if of_left == Some(first) { left.next() } else { None };
        let r = if of_right == Some(first) { right.next() } else { None };
        Some((first, l.map(|(_, value)| value), r.map(|(_, value)| value)))
    })
}
