//! A user of the machine without rights, who searches for the data of Pods: in the data directory, in `/run`, in
//! `/proc`, and through the sockets and programs there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::Cluster;
use tests::run::run;

/// Text that exists nowhere else on the machine.
const SECRET: &str = "only-for-those-who-mount-it-4d1f";

const PODS: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {password: only-for-those-who-mount-it-4d1f}
---
apiVersion: v1
kind: Pod
metadata: {name: keeper}
spec:
  runtimeClassName: runc
  terminationGracePeriodSeconds: 1
  containers:
    - name: c
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "/bin/busybox cp /bin/busybox /bin/become-root && /bin/busybox chmod 4755 /bin/become-root && /bin/busybox cp /hidden/password /memory/copy && sleep 1000000"]
      env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: hidden, key: password}}}]
      volumeMounts: [{name: hidden, mountPath: /hidden}, {name: memory, mountPath: /memory}]
  volumes: [{name: hidden, secret: {secretName: hidden}}, {name: memory, emptyDir: {medium: Memory}}]
---
apiVersion: v1
kind: Pod
metadata: {name: wasm-keeper}
spec:
  runtimeClassName: wasmtime
  containers:
    - name: c
      image: samples/web:latest
      imagePullPolicy: Never
      env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: hidden, key: password}}}]
      volumeMounts: [{name: hidden, mountPath: /hidden}]
  volumes: [{name: hidden, secret: {secretName: hidden}}]
"#;

/// The user's search: reads every readable file below the given directories, connects to every socket, and names every
/// program that would change the user. Prints what it found.
const LOOK: &str = r#"
for place in "$@"; do
  [ -e "$place" ] || continue
  grep -rlsE --devices=skip "$SECRET|BEGIN [A-Z ]*PRIVATE KEY|eyJhbGciOi" "$place"
  find "$place" \( -perm -4000 -o -perm -2000 \) -type f -executable 2>/dev/null
  find "$place" -type s -writable 2>/dev/null
done
exit 0
"#;

/// The directories of the cluster are open, as an earlier version left them. The start closes them. Then the user finds
/// nothing.
pub fn finds_nothing(cluster: &mut Cluster) {
    cluster.kubectl().apply(PODS).ok();
    for pod in ["keeper", "wasm-keeper"] {
        cluster.kubectl().until_ready(pod);
    }
    assert_eq!(cluster.stop(), 0);
    let dir = cluster.data_dir().to_owned();
    for open in opened(&dir) {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).expect("its mode");
    }
    // Proof that the search works: it finds the known items.
    let found = look(std::slice::from_ref(&dir));
    for wanted in [SECRET_FILE, "become-root"] {
        assert!(found.contains(wanted), "{wanted} in\n{found}");
    }
    cluster.start();
    cluster.kubectl().until_ready("keeper");
    let mode = fs::metadata(&dir).expect("the data directory").permissions().mode() & 0o7777;
    assert_eq!(mode, 0o700);
    let mut places: Vec<PathBuf> = vec![dir.clone(), "/run/skiff".into(), "/dev/shm".into()];
    places.extend(processes(cluster));
    assert_eq!(look(&places), "", "what a user without rights finds");
    // If the data directory were opened again, each part of it would still be closed.
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("its mode");
    assert_eq!(look(&[dir]), "", "what a user finds in an open data directory");
}

/// The name of the Secret's file.
const SECRET_FILE: &str = "password";

/// The data directory and its directories, two levels deep.
fn opened(dir: &Path) -> Vec<PathBuf> {
    let below = |dir: &Path| -> Vec<PathBuf> {
        fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_dir() && !path.is_symlink())
            .collect()
    };
    let first = below(dir);
    // The keys were private in every version.
    let first: Vec<PathBuf> = first.into_iter().filter(|path| !path.ends_with("pki")).collect();
    let second: Vec<PathBuf> = first.iter().flat_map(|dir| below(dir)).collect();
    [vec![dir.to_owned()], first, second].concat()
}

/// The entries in `/proc` of skiff and its shims.
fn processes(cluster: &Cluster) -> Vec<PathBuf> {
    let pids = cluster.shims().into_iter().chain([cluster.pid().to_string()]);
    pids.flat_map(|pid| ["environ", "cmdline", "root", "cwd", "fd", "maps"].map(|file| PathBuf::from(format!("/proc/{pid}/{file}"))))
        .collect()
}

fn look(places: &[PathBuf]) -> String {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=1000", "--regid=1000", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "sh", "-c", LOOK, "sh"]);
    run(command.args(places).env("SECRET", SECRET).current_dir("/"), None).ok()
}
