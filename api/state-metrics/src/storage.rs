//! Storage: volumes, claims, classes and attachments, one file a kind.

mod persistentvolume;
mod persistentvolumeclaim;
mod storageclass;
mod volumeattachment;

#[cfg(test)]
mod tests;
