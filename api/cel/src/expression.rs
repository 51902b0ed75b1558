//! A checked expression: its tree and the type of its result.

use crate::node::{Kind, Node};
use crate::types::Type;

/// A parsed and checked expression. Many threads can evaluate it at once.
#[derive(Debug)]
pub struct Expression {
    pub(crate) root: Node,
    pub(crate) result: Type,
}

impl Expression {
    /// The type of the result.
    pub fn result(&self) -> &Type {
        &self.result
    }

    /// Whether the expression names a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.root.any(&mut |node| matches!(&node.kind, Kind::Ident(name) if **name == *variable))
    }
}
