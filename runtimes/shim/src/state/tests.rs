use std::os::unix::fs::symlink;

use super::*;
use runtimes_battery::plain_spec;

fn open() -> (tempfile::TempDir, StateDir) {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path()).unwrap();
    (dir, state)
}

#[test]
fn ids_that_are_no_file_names_are_rejected() {
    let (_dir, state) = open();
    for id in ["", ".", "..", "a/b", ".hidden", "new\nline", &"x".repeat(201)] {
        assert!(state.create(&plain_spec(id)).is_err(), "{id:?}");
        assert!(matches!(state.made(&ContainerId(id.into())), Err(RuntimeError::NotFound(_))));
        assert!(state.forget(&ContainerId(id.into())).is_err());
    }
}

#[test]
fn a_directory_that_others_may_enter_is_closed_to_them() {
    let dir = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    for path in [dir.path().to_owned(), dir.path().join("containers")] {
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let state = StateDir::open(dir.path()).unwrap();
    let made = state.create(&plain_spec("a")).unwrap();
    for path in [dir.path().to_owned(), dir.path().join("containers"), made] {
        assert_eq!(mode(&path), 0o700, "{}", path.display());
    }
}

#[test]
fn a_created_container_is_found_again_and_twice_is_an_error() {
    let (dir, state) = open();
    state.create(&plain_spec("a")).unwrap();
    assert!(matches!(state.create(&plain_spec("a")), Err(RuntimeError::Exists(_))));
    let later = StateDir::open(dir.path()).unwrap();
    assert_eq!(later.made(&ContainerId("a".into())).unwrap().spec, plain_spec("a"));
    later.forget(&ContainerId("a".into())).unwrap();
    later.forget(&ContainerId("a".into())).unwrap();
    assert!(later.ids().unwrap().is_empty());
}

#[test]
fn a_shim_gone_without_a_word_was_killed_and_stays_so() {
    let (_dir, state) = open();
    let id = ContainerId("a".into());
    let dir = state.create(&plain_spec("a")).unwrap();
    assert_eq!(state.state(&id, || false).unwrap(), ContainerState::Created);
    let gone = ProcessRef { pid: 1, start_ticks: u64::MAX, boot_id: String::new() };
    let record = PidRecord { shim: gone.clone(), init: gone, started_at_ms: 3 };
    fs::write(dir.join("pid"), record.encode()).unwrap();
    let first = state.state(&id, || true).unwrap();
    let ContainerState::Exited(exit) = &first else { panic!("{first:?}") };
    assert_eq!((exit.code, exit.signal, exit.oom_killed), (137, Some(9), true));
    assert_eq!(state.state(&id, || false).unwrap(), first);
}

#[test]
fn a_living_shim_has_not_ended_whatever_its_record_says() {
    let (_dir, state) = open();
    let id = ContainerId("a".into());
    let dir = state.create(&plain_spec("a")).unwrap();
    let alive = ProcessRef::current().unwrap();
    let record = PidRecord { shim: alive.clone(), init: alive.clone(), started_at_ms: 3 };
    fs::write(dir.join("pid"), record.encode()).unwrap();
    let claimed = Exit { code: 0, signal: None, oom_killed: false, finished_at_ms: 5, message: String::new() };
    fs::write(dir.join("exit"), record::encode_exit(&claimed)).unwrap();
    assert_eq!(state.state(&id, || false).unwrap(), ContainerState::Running { pid: alive.pid });
    let gone = ProcessRef { start_ticks: u64::MAX, ..alive };
    let record = PidRecord { shim: gone.clone(), init: gone, started_at_ms: 3 };
    fs::write(dir.join("pid"), record.encode()).unwrap();
    assert_eq!(state.state(&id, || false).unwrap(), ContainerState::Exited(claimed));
}

#[test]
fn half_made_and_hostile_directories_are_listed_and_not_believed() {
    let (dir, state) = open();
    fs::create_dir(dir.path().join("containers/half")).unwrap();
    let id = ContainerId("half".into());
    assert_eq!(state.ids().unwrap(), std::slice::from_ref(&id));
    let status = state.status(&id, |_| false).unwrap();
    assert_eq!((status.state, status.created_at_ms), (ContainerState::Created, 0));
    state.create(&plain_spec("b")).unwrap();
    symlink("/etc/passwd", dir.path().join("containers/b/exit")).unwrap();
    assert!(state.exit(&ContainerId("b".into())).is_err());
    // What cannot be read is listed, and does not keep the others from being found.
    assert_eq!(state.status(&ContainerId("b".into()), |_| false).unwrap().state, ContainerState::Created);
    fs::write(dir.path().join("containers/file"), "no directory").unwrap();
    let file = ContainerId("file".into());
    assert!(state.status(&file, |_| false).unwrap().labels.is_empty());
    state.forget(&file).unwrap();
    state.forget(&id).unwrap();
    assert_eq!(state.ids().unwrap().len(), 1);
}

#[test]
fn a_spec_torn_by_a_power_failure_is_half_made_and_hides_nobody() {
    let (_dir, state) = open();
    for (id, torn) in [("empty", ""), ("cut", "{\"spec\": {\"id\""), ("zeros", "\0\0\0\0")] {
        let dir = state.create(&plain_spec(id)).unwrap();
        fs::write(dir.join("spec.json"), torn).unwrap();
        let id = ContainerId(id.into());
        let Err(RuntimeError::Io { source, .. }) = state.made(&id) else { panic!("{id} was read") };
        assert_eq!(source.kind(), io::ErrorKind::InvalidData, "{id}");
        let status = state.status(&id, |_| false).unwrap();
        assert!(status.labels.is_empty() && status.state == ContainerState::Created, "{id}");
    }
}
