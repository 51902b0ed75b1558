//! The machine of a new user: a fresh Debian with systemd and the packages that docs/nodes.md names. `cargo xtask test`
//! makes its disk image (`.ci/xtask/src/needs/machine/debian.rs`).

use std::path::PathBuf;
use std::process::Command;

use super::{COMMAND_LIMIT, Machine, PORT, Root};
use crate::run::{eventually_within, run};

/// Maximum size of the disk with files. The image is sparse.
const FILES_SIZE: &str = "2G";

impl Machine {
    /// A fresh Debian, switched off. A second disk has copies of these files, under the given names.
    pub fn debian(files: &[(String, PathBuf)]) -> Self {
        let machine = Self::off(Root::Debian);
        let brought = machine.dir.path().join("brought");
        for (name, file) in files {
            let to = brought.join(name);
            std::fs::create_dir_all(to.parent().expect("a directory")).expect("made");
            std::fs::copy(file, &to).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
        let mut format = Command::new("mke2fs");
        run(format.args(["-q", "-t", "ext4", "-d"]).arg(&brought).arg(machine.dir.path().join("files")).arg(FILES_SIZE), None).ok();
        std::fs::remove_dir_all(brought).expect("removed");
        machine
    }

    /// Copies the administrator's kubeconfig from that path in the machine, for clients on the host.
    #[track_caller]
    pub fn take_kubeconfig(&mut self, path: &str) {
        let kubeconfig = self.run(&format!("cat {path}")).ok();
        assert!(kubeconfig.contains(&format!("https://127.0.0.1:{PORT}")), "the same address leads there from the host: {kubeconfig}");
        std::fs::write(self.kubeconfig(), kubeconfig).expect("written");
    }

    /// Shuts the machine down through its init system.
    #[track_caller]
    pub fn power_off(&mut self) {
        // The machine may be off before it answers.
        let _answer = self.tell("systemctl --no-block poweroff");
        let mut running = self.running.take().expect("it is on");
        eventually_within(COMMAND_LIMIT, "the machine is off", || match running.qemu.try_wait().expect("a child") {
            Some(_) => Ok(()),
            None => Err(self.console()),
        });
    }
}
