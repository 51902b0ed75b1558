//! The declarations of functions: the types of their arguments and results.

mod table;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::types::{self, Type};

/// An overload of a function.
#[derive(Debug, PartialEq)]
pub(crate) struct Overload {
    /// Whether it is a member function, `target.function(…)`; the target is the first argument.
    pub(crate) is_member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    /// The number of its type parameters.
    pub(crate) params: u32,
}

/// The overloads of all functions by name.
static FUNCTIONS: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut functions: HashMap<_, Vec<Overload>> = HashMap::new();
    for line in table::TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some((name, overload)) = read(line) {
            functions.entry(name).or_default().push(overload);
        }
    }
    functions
});

/// The overloads of a function.
pub(crate) fn overloads(name: &str) -> &'static [Overload] {
    FUNCTIONS.get(name).map(Vec::as_slice).unwrap_or_default()
}

/// Whether a function with the given qualified name exists.
pub(crate) fn is_known(name: &str) -> bool {
    overloads(name).iter().any(|overload| !overload.is_member)
}

/// Parses `target.name(args) -> result` or `name(args) -> result`; the table has a colon for the dot of a member.
fn read(line: &'static str) -> Option<(&'static str, Overload)> {
    let (head, result) = line.split_once(" -> ")?;
    let (head, args) = head.strip_suffix(')')?.split_once('(')?;
    let (target, name) = match head.split_once(':').filter(|_| !head.starts_with('_')) {
        Some((target, name)) => (Some(target), name),
        None => (None, head),
    };
    let args = target.into_iter().chain(split(args)).map(parse).collect::<Option<Vec<_>>>()?;
    let result = parse(result)?;
    let params = args.iter().chain([&result]).map(params).max().unwrap_or_default();
    Some((name, Overload { is_member: target.is_some(), args, result, params }))
}

/// Splits at commas outside of brackets.
fn split(args: &'static str) -> Vec<&'static str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, letter) in args.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.extend(args.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(args.get(start..).filter(|rest| !rest.is_empty()));
    parts.into_iter().map(str::trim).collect()
}

fn parse(text: &'static str) -> Option<Type> {
    if let Some((head, rest)) = text.split_once('<') {
        let of = split(rest.strip_suffix('>')?).into_iter().map(parse).collect::<Option<Vec<_>>>()?;
        return match (head, of.as_slice()) {
            ("list", [of]) => Some(Type::list(of.clone())),
            ("optional", [of]) => Some(Type::optional(of.clone())),
            ("type", [of]) => Some(Type::Type(Arc::new(of.clone()))),
            ("map", [key, value]) => Some(Type::Map(Arc::new(key.clone()), Arc::new(value.clone()))),
            _ => None,
        };
    }
    Some(match text {
        "A" => Type::Var(0),
        "B" => Type::Var(1),
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "Quantity" => Type::Opaque(types::QUANTITY),
        "URL" => Type::Opaque(types::URL),
        "IP" => Type::Opaque(types::IP),
        "CIDR" => Type::Opaque(types::CIDR),
        "Semver" => Type::Opaque(types::SEMVER),
        "Format" => Type::Opaque(types::FORMAT),
        "Authorizer" => Type::Opaque(types::AUTHORIZER),
        "PathCheck" => Type::Opaque(types::PATH_CHECK),
        "GroupCheck" => Type::Opaque(types::GROUP_CHECK),
        "ResourceCheck" => Type::Opaque(types::RESOURCE_CHECK),
        "Decision" => Type::Opaque(types::DECISION),
        _ => return None,
    })
}

fn params(of: &Type) -> u32 {
    match of {
        Type::Var(index) => index + 1,
        Type::List(of) | Type::Optional(of) | Type::Type(of) => params(of),
        Type::Map(key, value) => params(key).max(params(value)),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_function() {
        for line in table::TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
            assert!(read(line).is_some(), "{line}");
        }
        assert_eq!(overloads("_+_").len(), 9);
        assert!(is_known("sets.contains") && !is_known("startsWith"));
    }
}
