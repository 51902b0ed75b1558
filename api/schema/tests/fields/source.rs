//! The words in the sources of the parts: which files and which parts mention a field.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use api_model::acted::Part;

/// The directories of the code that acts on objects.
const ACTING: [&str; 8] = ["sched", "node", "dns", "runtimes", "api/admission", "api/auth", "api/fairness", "api/server"];
/// Other code of the API server. It checks every field, so a mention in it proves little.
const CHECKING: [&str; 4] = ["api/rules", "api/cel", "api/print", "api/model/src/kind"];
/// The schemas of custom resources. The names of their fields say nothing about those of built-in kinds.
const DEFINING: &str = "api/server/src/bootstrap/scaling/";

/// The workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The words of each file, without tests and comments.
pub struct Source {
    words: BTreeMap<String, HashSet<String>>,
}

/// Whether a file belongs to a part.
pub fn is_of(part: &Part, file: &str) -> bool {
    let dirs: &[&str] = match part {
        Part::ApiServer => &["api/"],
        Part::Scheduler => &["sched/scheduler/", "sched/framework/"],
        Part::Controller(_) => &["sched/controllers/"],
        Part::NodeAgent => &["node/agent/", "node/images/", "node/network/", "node/volumes/", "runtimes/"],
        Part::Proxy => &["node/proxy/"],
        Part::Dns => &["dns/"],
        Part::Clients => &[],
    };
    dirs.iter().any(|dir| file.starts_with(dir))
}

impl Source {
    /// Reads the sources.
    pub fn read() -> Self {
        let mut words = BTreeMap::new();
        for dir in ACTING.iter().chain(&CHECKING) {
            read_dir(&root(), &root().join(dir), &mut words);
        }
        Self { words }
    }

    /// Whether a controller of that name is in the list of controllers.
    pub fn is_controller(&self, name: &str) -> bool {
        let list = std::fs::read_to_string(root().join("sched/controllers/src/lib.rs")).expect("the list of controllers");
        list.contains(&format!("{name:?}"))
    }

    /// Whether a file mentions a field.
    pub fn file_mentions(&self, file: &str, field: &str) -> bool {
        self.words.get(file).is_some_and(|words| spellings(field).iter().any(|word| words.contains(word)))
    }

    /// Whether any file of a part mentions a field.
    pub fn part_mentions(&self, part: &Part, field: &str) -> bool {
        self.words.keys().any(|file| is_of(part, file) && self.file_mentions(file, field))
    }

    /// The files of all parts that mention a field, without those that only check fields.
    pub fn who_mentions(&self, field: &str) -> Vec<&str> {
        let acting = self.words.keys().filter(|file| ACTING.iter().any(|dir| file.starts_with(dir)) && !file.starts_with(DEFINING));
        acting.filter(|file| self.file_mentions(file, field)).map(String::as_str).collect()
    }
}

fn read_dir(root: &Path, dir: &Path, words: &mut BTreeMap<String, HashSet<String>>) {
    for entry in std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() {
            if !matches!(name.as_str(), "tests" | "snapshots" | "fake" | "target") {
                read_dir(root, &path, words);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = std::fs::read_to_string(&path).expect("source");
            let file = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
            words.insert(file, words_of(&text));
        }
    }
}

fn words_of(text: &str) -> HashSet<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    lines.flat_map(|line| line.split(move |c| !is_word(c))).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The spellings of a field in source: as in JSON, or as in k8s-openapi.
fn spellings(field: &str) -> [String; 3] {
    let snake = snake(field);
    [field.to_owned(), format!("{snake}_"), snake]
}

fn snake(field: &str) -> String {
    let letters: Vec<char> = field.chars().collect();
    let mut out = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| letters.get(at)).copied();
        let after = letters.get(at + 1).copied();
        // The plural of an abbreviation (`clusterIPs`) is one word.
        let ends_plural = after == Some('s') && letters.get(at + 2).is_none_or(|next| next.is_uppercase());
        let begins = before.is_some_and(|before| {
            before.is_lowercase()
                || before.is_ascii_digit()
                || (before.is_uppercase() && after.is_some_and(char::is_lowercase) && !ends_plural)
        });
        if letter.is_uppercase() && begins {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

#[test]
fn fields_are_spelt_as_the_types_spell_them() {
    for (field, wanted) in [
        ("hostIPC", "host_ipc"),
        ("clusterIPs", "cluster_ips"),
        ("setHostnameAsFQDN", "set_hostname_as_fqdn"),
        ("seLinuxOptions", "se_linux_options"),
        ("nonResourceURLs", "non_resource_urls"),
        ("insecureSkipTLSVerify", "insecure_skip_tls_verify"),
        ("podCIDR", "pod_cidr"),
        ("type", "type"),
    ] {
        assert_eq!(snake(field), wanted);
    }
}
