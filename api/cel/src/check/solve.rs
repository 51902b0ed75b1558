//! Solves type parameters.

use std::sync::Arc;

use crate::functions::Overload;
use crate::types::Type;

/// The solved type parameters.
#[derive(Default)]
pub(super) struct Solver {
    known: Vec<Option<Type>>,
    /// The solved parameters in their order, so that they can be undone.
    learnt: Vec<u32>,
}

/// The maximum depth of a type. An expression that parses cannot have a deeper type.
const DEPTH_MAX: usize = 256;

impl Solver {
    /// A new type parameter.
    pub(super) fn fresh(&mut self) -> Type {
        self.known.push(None);
        // There are at most as many parameters as nodes of the expression.
        Type::Var(u32::try_from(self.known.len() - 1).unwrap_or(u32::MAX))
    }

    /// The type of a solved parameter, without resolving its parts.
    pub(super) fn shallow(&self, of: &Type) -> Type {
        let mut of = of;
        while let Type::Var(index) = of {
            match self.at(*index) {
                Some(known) => of = known,
                None => break,
            }
        }
        of.clone()
    }

    fn at(&self, index: u32) -> Option<&Type> {
        self.known.get(usize::try_from(index).ok()?)?.as_ref()
    }

    /// The type with all parameters resolved; unsolved ones are `dyn`.
    pub(super) fn finish(&self, of: &Type) -> Type {
        self.finished(of, 0)
    }

    fn finished(&self, of: &Type, depth: usize) -> Type {
        let inner = |of: &Arc<Type>| Arc::new(self.finished(of, depth + 1));
        match self.shallow(of) {
            _ if depth > DEPTH_MAX => Type::Dyn,
            Type::Var(_) => Type::Dyn,
            Type::List(of) => Type::List(inner(&of)),
            Type::Optional(of) => Type::Optional(inner(&of)),
            Type::Type(of) => Type::Type(inner(&of)),
            Type::Map(key, value) => Type::Map(inner(&key), inner(&value)),
            other => other,
        }
    }

    /// The result of an overload for arguments, if it accepts them. Otherwise, no parameter is solved.
    pub(super) fn call(&mut self, overload: &Overload, given: &[Type]) -> Option<Type> {
        let (mark, len) = (self.learnt.len(), self.known.len());
        let base = u32::try_from(len).ok()?;
        for _ in 0..overload.params {
            self.known.push(None);
        }
        let takes = overload.args.iter().zip(given).all(|(wanted, given)| self.unify(&shifted(wanted, base), given));
        if !takes {
            self.undo(mark);
            self.known.truncate(len);
            return None;
        }
        Some(shifted(&overload.result, base))
    }

    /// Whether two types fit, without solving parameters.
    pub(super) fn fits(&mut self, left: &Type, right: &Type) -> bool {
        let mark = self.learnt.len();
        let fits = self.unify(left, right);
        self.undo(mark);
        fits
    }

    fn undo(&mut self, mark: usize) {
        for index in self.learnt.drain(mark..) {
            if let Some(binding) = usize::try_from(index).ok().and_then(|index| self.known.get_mut(index)) {
                *binding = None;
            }
        }
    }

    /// Unifies two types. Returns whether this is possible.
    pub(super) fn unify(&mut self, left: &Type, right: &Type) -> bool {
        self.unified(left, right, 0)
    }

    fn unified(&mut self, left: &Type, right: &Type, depth: usize) -> bool {
        if depth > DEPTH_MAX {
            return false;
        }
        match (self.shallow(left), self.shallow(right)) {
            (Type::Var(left), Type::Var(right)) if left == right => true,
            (Type::Var(index), other) | (other, Type::Var(index)) => self.learn(index, other),
            (Type::Dyn, _) | (_, Type::Dyn) => true,
            (Type::List(left), Type::List(right)) | (Type::Optional(left), Type::Optional(right)) => self.unified(&left, &right, depth + 1),
            // All types can be compared as values.
            (Type::Type(_), Type::Type(_)) => true,
            (Type::Map(left, values), Type::Map(right, others)) => {
                self.unified(&left, &right, depth + 1) && self.unified(&values, &others, depth + 1)
            }
            // Messages, times and opaque values can be compared with null.
            (Type::Null, Type::Duration | Type::Timestamp | Type::Opaque(_) | Type::Object(_))
            | (Type::Duration | Type::Timestamp | Type::Opaque(_) | Type::Object(_), Type::Null) => true,
            (left, right) => left == right,
        }
    }

    fn learn(&mut self, index: u32, of: Type) -> bool {
        if self.contains(&of, index, 0) {
            return false;
        }
        if let Some(binding) = usize::try_from(index).ok().and_then(|index| self.known.get_mut(index)) {
            *binding = Some(of);
            self.learnt.push(index);
        }
        true
    }

    fn contains(&self, of: &Type, index: u32, depth: usize) -> bool {
        match self.shallow(of) {
            _ if depth > DEPTH_MAX => true,
            Type::Var(other) => other == index,
            Type::List(of) | Type::Optional(of) | Type::Type(of) => self.contains(&of, index, depth + 1),
            Type::Map(key, value) => self.contains(&key, index, depth + 1) || self.contains(&value, index, depth + 1),
            _ => false,
        }
    }
}

/// Instantiates the type parameters of a function.
fn shifted(of: &Type, base: u32) -> Type {
    match of {
        Type::Var(index) => Type::Var(base + index),
        Type::List(of) => Type::list(shifted(of, base)),
        Type::Optional(of) => Type::optional(shifted(of, base)),
        Type::Type(of) => Type::Type(Arc::new(shifted(of, base))),
        Type::Map(key, value) => Type::Map(Arc::new(shifted(key, base)), Arc::new(shifted(value, base))),
        other => other.clone(),
    }
}
