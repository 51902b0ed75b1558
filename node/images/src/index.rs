//! The list of images: one JSON file, which is replaced by rename, under a lock while it changes.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use runtimes_host::files::{self, write_atomic};

use crate::{Image, ImageError};
use runtimes_host::blocking;

/// The mode of the list: it contains no secret, and users read it.
const READABLE: u32 = 0o644;

/// The use of an image is noted at most once in that many seconds.
pub(crate) const USE_NOTED_S: u64 = 60;

pub(crate) struct Index {
    path: PathBuf,
    lock: PathBuf,
    filling: PathBuf,
}

impl Index {
    pub fn new(dir: &Path) -> Self {
        Self { path: dir.join("images.json"), lock: dir.join("lock"), filling: dir.join("filling") }
    }

    pub fn all(&self) -> Result<Vec<Image>, ImageError> {
        let doing = || format!("reading {}", self.path.display());
        match std::fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| ImageError::io(doing())(error.into())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(ImageError::io(doing())(error)),
        }
    }

    /// Moves an unreadable list aside, so that the node can continue: its images are fetched again when they are needed.
    pub fn put_damaged_aside(&self) -> Result<(), ImageError> {
        let _locked = self.lock()?;
        let doing = || format!("reading {}", self.path.display());
        let damaged = match std::fs::read(&self.path).map(|bytes| serde_json::from_slice::<Vec<Image>>(&bytes)) {
            Ok(Err(error)) => error,
            Ok(Ok(_)) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(ImageError::io(doing())(error)),
        };
        let aside = self.path.with_extension("json.damaged");
        tracing::error!(path = %self.path.display(), error = %damaged, aside = %aside.display(), "the list of images is damaged and put aside; images are fetched again");
        files::rename(&self.path, &aside).map_err(ImageError::io(format!("renaming {}", self.path.display())))
    }

    /// The image that a fully spelled name leads to.
    pub fn find(&self, whole: &str) -> Result<Option<Image>, ImageError> {
        Ok(self.all()?.into_iter().find(|image| image.references.iter().chain(&image.digests).any(|name| name == whole)))
    }

    /// Adds an image and removes its names from other images. Returns the image with all its names.
    pub fn add(&self, image: Image) -> Result<Image, ImageError> {
        self.change(|images| {
            let mut image = image;
            image.used_at_s = now_s();
            for other in images.iter_mut() {
                other.references.retain(|name| !image.references.contains(name));
                // The same manifest can lead to another image after an upgrade.
                other.digests.retain(|name| !image.digests.contains(name));
            }
            if let Some(at) = images.iter().position(|other| other.id == image.id && other.kind == image.kind) {
                let earlier = images.swap_remove(at);
                merge(&mut image.references, earlier.references);
                merge(&mut image.digests, earlier.digests);
            }
            images.retain(|other| !other.references.is_empty() || !other.digests.is_empty());
            images.push(image.clone());
            image
        })
    }

    /// Removes a name; returns whether it existed.
    pub fn remove(&self, whole: &str) -> Result<bool, ImageError> {
        self.change(|images| {
            let before = images.clone();
            // An image that lost its names to a newer one stays: a container may run it.
            images.retain_mut(|image| {
                let has_names = !image.references.is_empty();
                image.references.retain(|name| name != whole);
                image.id != whole && !(has_names && image.references.is_empty())
            });
            *images != before
        })
    }

    /// Notes that an image is used now, unless that was noted within [`USE_NOTED_S`]: a Pod's start does not wait for the disk then.
    pub fn touch(&self, image: &Image) -> Result<(), ImageError> {
        let now = now_s();
        let is_due = |image: &Image| image.used_at_s.abs_diff(now) >= USE_NOTED_S;
        if !is_due(image) {
            return Ok(());
        }
        self.change(|images| {
            for image in images.iter_mut().filter(|other| other.id == image.id && is_due(other)) {
                image.used_at_s = now;
            }
        })
    }

    /// Prevents changes of the list by other processes as long as the returned lock lives.
    fn lock(&self) -> Result<File, ImageError> {
        let file = open_lock(&self.lock)?;
        file.lock().map_err(ImageError::io(format!("locking {}", self.lock.display())))?;
        Ok(file)
    }

    /// Locked (shared) while blobs arrive that no image names yet. A thread of its own waits for the lock: the sweep holds it
    /// across awaits, and could wait for ever for a thread that waits here.
    pub async fn filling(&self) -> Result<File, ImageError> {
        let file = open_lock(&self.filling)?;
        let locked = blocking(move || file.lock_shared().map(|()| file)).await;
        locked.map_err(ImageError::io(format!("locking {}", self.filling.display())))
    }

    /// Locked (exclusive) while unnamed blobs are removed; `None` while another process fills the store.
    pub fn sweeping(&self) -> Result<Option<File>, ImageError> {
        let file = open_lock(&self.filling)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(ImageError::io(format!("locking {}", self.filling.display()))(error)),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Image>) -> T) -> Result<T, ImageError> {
        let _locked = self.lock()?;
        let mut images = self.all()?;
        let before = images.clone();
        let answer = change(&mut images);
        if images != before {
            images.sort_by(|a, b| a.references.cmp(&b.references).then_with(|| a.id.cmp(&b.id)));
            self.write(&images)?;
        }
        Ok(answer)
    }

    fn write(&self, images: &[Image]) -> Result<(), ImageError> {
        let write = || write_atomic(&self.path, &serde_json::to_vec_pretty(images)?, READABLE);
        write().map_err(ImageError::io(format!("writing {}", self.path.display())))
    }
}

fn open_lock(path: &Path) -> Result<File, ImageError> {
    OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(ImageError::io(format!("opening {}", path.display())))
}

fn merge(into: &mut Vec<String>, from: Vec<String>) {
    for name in from {
        if !into.contains(&name) {
            into.push(name);
        }
    }
}

pub(crate) fn now_s() -> u64 {
    api_clock::now().as_second().try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn image(id: &str, reference: &str, digest: &str) -> Image {
        let config = json!({"entrypoint": ["/run"], "cmd": [], "env": [], "working_dir": "", "user": "", "stop_signal": ""});
        let image = json!({
            "id": id, "references": [reference], "digests": [digest], "kind": "Wasm", "size_bytes": 1, "config": config,
            "layers": [], "blobs": [], "used_at_s": 0,
        });
        serde_json::from_value(image).expect("an image")
    }

    #[test]
    fn an_image_that_lost_its_name_to_a_newer_one_stays_when_another_one_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        let index = Index::new(dir.path());
        for (id, name, digest) in
            [("old", "r/web:v1", "r/web@sha256:1"), ("new", "r/web:v1", "r/web@sha256:2"), ("x", "r/x:v1", "r/x@sha256:3")]
        {
            index.add(image(id, name, digest)).expect("added");
        }
        assert!(index.remove("r/x:v1").expect("removed"));
        let ids = |index: &Index| index.all().expect("reads").into_iter().map(|image| image.id).collect::<Vec<_>>();
        assert_eq!(ids(&index), ["old", "new"]);
        assert!(index.remove("old").expect("removed"));
        assert_eq!(ids(&index), ["new"]);
    }

    /// An earlier version had no files in an image, and gave it another id.
    #[test]
    fn a_digest_leads_to_the_image_that_came_last() {
        let dir = tempfile::tempdir().expect("a directory");
        let index = Index::new(dir.path());
        for (id, name) in [("old", "r/web:v1"), ("another", "r/other:v1"), ("new", "r/web:v1")] {
            let digest = if id == "another" { "r/other@sha256:2" } else { "r/web@sha256:1" };
            index.add(image(id, name, digest)).expect("added");
        }
        for name in ["r/web:v1", "r/web@sha256:1"] {
            assert_eq!(index.find(name).expect("reads").expect("an image").id, "new", "{name}");
        }
        let ids: Vec<_> = index.all().expect("reads").into_iter().map(|image| image.id).collect();
        assert_eq!(ids, ["another", "new"], "no name leads to the old image");
    }

    #[test]
    fn the_use_of_an_image_is_noted_once_in_a_while() {
        let dir = tempfile::tempdir().expect("a directory");
        let index = Index::new(dir.path());
        let added = index.add(image("id", "r/web:v1", "r/web@sha256:1")).expect("added");
        let earlier = Image { used_at_s: added.used_at_s - USE_NOTED_S, ..added.clone() };
        index.write(std::slice::from_ref(&earlier)).expect("written");
        index.touch(&added).expect("not due");
        assert_eq!(index.all().expect("reads"), std::slice::from_ref(&earlier));
        index.touch(&earlier).expect("noted");
        let noted = index.all().expect("reads").remove(0).used_at_s;
        assert!(noted >= added.used_at_s, "{noted}");
    }

    #[test]
    fn an_image_keeps_the_digests_that_lead_to_it_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let index = Index::new(dir.path());
        index.add(image("same", "r/web:v1", "r/web@sha256:1")).expect("added");
        let whole = index.add(image("same", "r/web:v2", "r/web@sha256:2")).expect("added");
        assert_eq!(whole.references, ["r/web:v2", "r/web:v1"]);
        assert_eq!(whole.digests, ["r/web@sha256:2", "r/web@sha256:1"]);
        index.add(image("other", "r/web:v2", "r/web@sha256:2")).expect("added");
        let same = index.find("r/web@sha256:1").expect("reads").expect("an image");
        assert_eq!((same.id.as_str(), same.digests), ("same", vec!["r/web@sha256:1".to_owned()]));
    }
}
