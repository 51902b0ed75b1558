//! Kinds that say how many Pods and how much of resources there may be, and who leads: one file each.

mod horizontalpodautoscaler;
mod lease;
mod limitrange;
mod poddisruptionbudget;
mod resourcequota;

#[cfg(test)]
mod tests;
