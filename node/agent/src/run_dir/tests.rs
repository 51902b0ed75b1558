use runtimes_host::process::ProcessRef;

use super::*;

struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("data")).expect("made");
        Self(dir)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn open(&self, wanted: &str, boot: &str) -> Result<PathBuf, AgentError> {
        RunDir::of_boot(&self.at("data"), &self.at(wanted), boot).map(|run_dir| run_dir.path)
    }

    fn write(&self, file: &str, content: &str) {
        let path = self.at(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, content).expect("written");
    }

    /// A started container's record.
    fn container(&self, dir: &str, boot: &str) {
        let process = ProcessRef { pid: 1, start_ticks: 1, boot_id: boot.to_owned() };
        let record = PidRecord { shim: process.clone(), init: process, started_at_ms: 1 };
        self.write(&format!("{dir}/runc/containers/c/pid"), &record.encode());
    }

    fn left(&self, dir: &str) -> Vec<String> {
        let mut names: Vec<String> =
            entries(&self.at(dir)).iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect();
        names.sort();
        names
    }
}

#[test]
fn what_an_earlier_boot_left_is_removed_whatever_it_is() {
    for torn in ["", "boot one", "boot one\ndata-dir /elsewhere", "\0\0\0", "boot one\ndata-dir /elsewhere\nend\n"] {
        let machine = Machine::new();
        machine.open("run", "one").expect("opens");
        machine.container("run", "one");
        machine.write("run/runc/runc/c/state.json", "");
        machine.write("run/wasmtime", "not even a directory");
        machine.write("run/network/pods/x.json", "{\"ip\"");
        machine.write("run/of-somebody-else", "stays");
        machine.write("run/boot", torn);
        assert_eq!(machine.open("run", "two").expect("opens"), machine.at("run"), "{torn:?}");
        assert_eq!(machine.left("run"), ["boot", "of-somebody-else"], "{torn:?}");
    }
}

#[test]
fn records_of_this_boot_stay() {
    let machine = Machine::new();
    machine.open("run", "one").expect("opens");
    machine.container("run", "one");
    for _ in 0..2 {
        machine.open("run", "one").expect("opens");
        assert_eq!(machine.left("run"), ["boot", "runc"]);
    }
    assert_eq!(fs::read_link(machine.at("data/run")).expect("a link"), machine.at("run"));
}

#[test]
fn containers_of_this_boot_run_on_where_an_earlier_version_recorded_them() {
    let machine = Machine::new();
    machine.container("data", "one");
    machine.write("data/state.db", "data");
    assert_eq!(machine.open("run", "one").expect("opens"), machine.at("data"));
    assert_eq!(machine.left("data"), ["runc", "state.db"]);
    // After the next boot the wanted directory is used, and nothing is left in the old place.
    assert_eq!(machine.open("run", "two").expect("opens"), machine.at("run"));
    assert_eq!(machine.left("data"), ["run", "state.db"]);
}

#[test]
fn the_data_directory_can_be_the_run_directory() {
    let machine = Machine::new();
    // An earlier version wrote no file that names the boot.
    machine.container("data", "one");
    machine.write("data/state.db", "data");
    for _ in 0..2 {
        assert_eq!(machine.open("data", "one").expect("opens"), machine.at("data"));
        assert_eq!(machine.left("data"), ["boot", "runc", "state.db"]);
    }
    assert_eq!(machine.open("data", "two").expect("opens"), machine.at("data"));
    assert_eq!(machine.left("data"), ["boot", "state.db"]);
}

#[test]
fn a_torn_record_at_the_old_path_is_of_no_boot() {
    for torn in ["", "shim 1 1\ninit 1 1\nboot one\nstarted 1\n", "\0\0\0"] {
        let machine = Machine::new();
        machine.write("data/runc/containers/c/pid", torn);
        assert_eq!(machine.open("run", "one").expect("opens"), machine.at("run"), "{torn:?}");
        assert_eq!(machine.left("data"), ["run"], "{torn:?}");
    }
}

#[test]
fn another_directory_is_taken_when_nothing_runs_in_the_last_one() {
    let machine = Machine::new();
    machine.open("first", "one").expect("opens");
    machine.container("first", "one");
    assert_eq!(machine.open("second", "one").expect("opens"), machine.at("first"));
    fs::remove_dir_all(machine.at("first/runc")).expect("removed");
    assert_eq!(machine.open("second", "one").expect("opens"), machine.at("second"));
}

#[test]
fn another_nodes_directory_is_rejected_while_it_is_in_use() {
    let machine = Machine::new();
    machine.open("run", "one").expect("opens");
    machine.container("run", "one");
    fs::create_dir(machine.at("other")).expect("made");
    let other = |boot: &str| RunDir::of_boot(&machine.at("other"), &machine.at("run"), boot);
    let refused = other("one").expect_err("it is taken").to_string();
    assert!(refused.contains("--run-dir") && refused.contains(&machine.at("data").display().to_string()), "{refused}");
    assert_eq!(machine.left("run"), ["boot", "runc"]);
    // The other node's containers did not outlive their boot.
    other("two").expect("opens");
}

#[test]
fn what_another_node_keeps_where_this_one_was_is_not_touched() {
    let machine = Machine::new();
    machine.open("shared", "one").expect("opens");
    fs::create_dir(machine.at("other")).expect("made");
    RunDir::of_boot(&machine.at("other"), &machine.at("shared"), "two").expect("opens");
    machine.container("shared", "two");
    assert_eq!(machine.open("run", "two").expect("opens"), machine.at("run"));
    assert_eq!(machine.left("shared"), ["boot", "runc"]);
}

#[test]
fn nothing_is_left_after_its_removal() {
    let machine = Machine::new();
    let run_dir = RunDir::of_boot(&machine.at("data"), &machine.at("skiff/one"), "boot").expect("opens");
    machine.container("skiff/one", "boot");
    run_dir.remove().expect("removes");
    run_dir.remove().expect("removes again");
    assert!(!machine.at("skiff").exists() && machine.left("data").is_empty());
}
