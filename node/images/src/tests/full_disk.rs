//! A disk without room for the last of an image: its entry in the list.

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::*;

/// A file system of one MiB.
struct Small(PathBuf);

impl Small {
    fn mounted(at: PathBuf) -> Self {
        std::fs::create_dir(&at).expect("made");
        mount(Some("tmpfs"), &at, Some("tmpfs"), MsFlags::empty(), Some("size=1m")).expect("mounted");
        Self(at)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).expect("unmounted");
    }
}

/// Needs the right to mount.
#[tokio::test]
async fn an_image_for_whose_entry_the_disk_has_no_room_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let small = Small::mounted(dir.path().join("store"));
    let ballast = small.0.join("ballast");
    let path = ballast.clone();
    // After the check nothing but the list is written.
    let store = open(dir.path()).with_module_check(move |_| {
        let full = std::fs::write(&path, vec![0_u8; 2 << 20]).expect_err("larger than the disk");
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        async { Ok(()) }
    });
    let file = dir.path().join("m.wasm");
    std::fs::write(&file, EMPTY_MODULE).expect("written");
    let error = store.import("m", &file).await.expect_err("no room");
    assert!(matches!(error, ImageError::DiskFull { .. }), "{error}");
    let (list, disk) = (small.0.join("images.json"), format!("; free space on the disk of {}", small.0.display()));
    assert!(error.to_string().contains(&format!("writing {}", list.display())) && error.to_string().ends_with(&disk), "{error}");
    assert_eq!(store.blobs.all().expect("lists"), [""; 0]);
    let mut names: Vec<_> = std::fs::read_dir(&small.0).expect("lists").flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, ["ballast", "blobs", "filling", "layers", "lock", "mounts", "tmp"]);
    std::fs::remove_file(&ballast).expect("removed");
    open(dir.path()).import("m", &file).await.expect("imports");
}
