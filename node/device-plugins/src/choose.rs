//! Which devices a container gets: those that the Pod's init containers had first, then those that the plugin prefers, then the others in
//! the order of their names. Pure.

use std::collections::BTreeSet;

use crate::error::AllocateError;

/// The devices of a resource.
#[derive(Clone, Debug)]
pub(crate) struct Supply<'a> {
    pub(crate) healthy: &'a BTreeSet<String>,
    pub(crate) in_use: &'a BTreeSet<String>,
    /// Those that the Pod has and that no running container of it uses any more when this one starts.
    pub(crate) reusable: &'a BTreeSet<String>,
}

/// The devices from which to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The container gets them.
    pub(crate) reused: BTreeSet<String>,
    /// It gets some of them.
    pub(crate) free: BTreeSet<String>,
    /// How many of them it gets.
    pub(crate) missing: usize,
}

/// The devices from which a container gets `number`.
pub(crate) fn offer(resource: &str, supply: &Supply<'_>, number: u64) -> Result<Offer, AllocateError> {
    if supply.healthy.is_empty() {
        return Err(AllocateError::NoneHealthy(resource.to_owned()));
    }
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    let reused: BTreeSet<String> = supply.reusable.intersection(supply.healthy).take(number).cloned().collect();
    let missing = number.saturating_sub(reused.len());
    let free: BTreeSet<String> = supply.healthy.difference(supply.in_use).cloned().collect();
    if free.len() < missing {
        return Err(AllocateError::TooFew { resource: resource.to_owned(), requested: missing, available: free.len() });
    }
    Ok(Offer { reused, free, missing })
}

impl Offer {
    /// The devices that the container gets. Preferred ones that are not free do not count.
    pub(crate) fn choose(self, preferred: &BTreeSet<String>) -> BTreeSet<String> {
        let (first, rest): (Vec<String>, Vec<String>) = self.free.into_iter().partition(|device| preferred.contains(device));
        let mut chosen = self.reused;
        chosen.extend(first.into_iter().chain(rest).take(self.missing));
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &str) -> BTreeSet<String> {
        names.split_whitespace().map(str::to_owned).collect()
    }

    fn chosen(healthy: &str, in_use: &str, reusable: &str, preferred: &str, number: u64) -> Result<String, String> {
        let (healthy, in_use, reusable) = (set(healthy), set(in_use), set(reusable));
        let supply = Supply { healthy: &healthy, in_use: &in_use, reusable: &reusable };
        let offer = offer("r", &supply, number).map_err(|error| error.to_string())?;
        Ok(offer.choose(&set(preferred)).into_iter().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn devices_are_chosen_in_upstreams_order() {
        let cases = [
            ("a b c", "", "", "", 1, "a"),
            ("a b c", "a", "", "", 2, "b c"),
            ("a b c", "", "", "c", 1, "c"),
            ("a b c", "", "", "c", 2, "a c"),
            ("a b c", "c", "", "c", 1, "a"),
            ("a b c", "", "", "x y", 1, "a"),
            ("a b c", "b", "b", "", 1, "b"),
            ("a b c", "b", "b", "c", 2, "b c"),
            ("a c", "b", "b", "", 1, "a"),
        ];
        for (healthy, in_use, reusable, preferred, number, wanted) in cases {
            let found = chosen(healthy, in_use, reusable, preferred, number);
            assert_eq!(found, Ok(wanted.to_owned()), "{number} of {healthy:?}, {in_use:?} used, {reusable:?} reusable");
        }
    }

    #[test]
    fn what_is_missing_is_named_in_upstreams_words() {
        let none = "no healthy devices present; cannot allocate unhealthy devices r";
        assert_eq!(chosen("", "", "", "", 1), Err(none.to_owned()));
        let few = "requested number of devices unavailable for r. Requested: 2, Available: 1";
        assert_eq!(chosen("a b", "a", "", "", 2), Err(few.to_owned()));
        let few = "requested number of devices unavailable for r. Requested: 1, Available: 0";
        assert_eq!(chosen("a b", "a b", "a", "", 2), Err(few.to_owned()));
        assert!(chosen("a b", "", "", "", u64::MAX).is_err());
    }
}
