//! The selectors of classes and requests, compiled once.

use std::sync::Arc;

use api_cel::device::{Selector, SelectorError};
use parking_lot::Mutex;

/// The number of compiled selectors that are cached. A cluster has a few classes, and claims that are alike.
const SELECTORS_MAX: usize = 64;

/// A selector, or why it does not compile.
pub(super) type Compiled = Result<Arc<Selector>, SelectorError>;

/// Compiled selectors by their expressions, the one that was used last at the end.
#[derive(Default)]
pub(crate) struct SelectorCache(Mutex<Vec<(String, Compiled)>>);

impl SelectorCache {
    /// The compiled selector.
    pub fn get_or_compile(&self, expression: &str) -> Compiled {
        self.get_or(expression, Selector::compile)
    }

    fn get_or(&self, expression: &str, compile: impl FnOnce(&str) -> Result<Selector, SelectorError>) -> Compiled {
        let mut cached = self.0.lock();
        if let Some(index) = cached.iter().rposition(|(of, _)| of == expression) {
            let entry = cached.remove(index);
            let compiled = entry.1.clone();
            cached.push(entry);
            return compiled;
        }
        let compiled = compile(expression).map(Arc::new);
        if compiled.as_ref().is_err_and(SelectorError::is_transient) {
            return compiled;
        }
        if cached.len() == SELECTORS_MAX {
            let _oldest = cached.remove(0);
        }
        cached.push((expression.to_owned(), compiled.clone()));
        compiled
    }
}

#[cfg(test)]
mod tests {
    use api_cel::CompileError;

    use super::*;

    #[test]
    fn the_cache_has_the_selectors_that_were_used_last() {
        let cache = SelectorCache::default();
        let first = cache.get_or_compile("true").expect("compiles");
        for n in 0..SELECTORS_MAX - 1 {
            assert!(cache.get_or_compile(&format!("{n} == 0")).is_ok());
        }
        assert!(Arc::ptr_eq(&first, &cache.get_or_compile("true").expect("compiles")));
        assert!(cache.get_or_compile("1").is_err() && cache.get_or_compile("1").is_err());
        assert!(Arc::ptr_eq(&first, &cache.get_or_compile("true").expect("compiles")));
        assert_eq!(cache.0.lock().len(), SELECTORS_MAX);
        for n in 0..SELECTORS_MAX {
            assert!(cache.get_or_compile(&format!("{n} == 1")).is_ok());
        }
        assert!(!Arc::ptr_eq(&first, &cache.get_or_compile("true").expect("compiles")));
    }

    #[test]
    fn an_error_of_the_machine_is_not_cached() {
        let cache = SelectorCache::default();
        let no_thread = |_: &str| Err(SelectorError::from(CompileError::no_thread(&std::io::ErrorKind::WouldBlock.into())));
        let error = cache.get_or("true", no_thread).expect_err("no thread");
        assert!(error.is_transient() && error.to_string().contains("no thread to parse"), "{error}");
        assert!(cache.get_or_compile("true").is_ok());
        assert!(cache.get_or_compile("device.x").is_err_and(|error| !error.is_transient()));
    }
}
