use super::*;

fn complaint(bytes: &[u8]) -> String {
    match compile(&engine().unwrap(), bytes) {
        Ok(compiled) => format!("fine: {}", compiled.kind),
        Err(complaint) => complaint.to_string(),
    }
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

#[test]
fn the_kind_is_found_and_faults_are_named() {
    let start = r#"(func (export "_start"))"#;
    let cases = [
        (wat(&format!("(module {start})")), "fine: module"),
        (wat(r#"(module (func (export "_start") (param i32)))"#), "_start is not a function without parameters"),
        (wat(r#"(module (memory (export "_start") 1))"#), "_start is not a function"),
        (wat(&format!(r#"(module (import "wasi_snapshot_preview1" "fly" (func)) {start})"#)), "`wasi_snapshot_preview1::fly`"),
        (wat(&format!(r#"(module (import "wasi_unstable" "proc_exit" (func (param i32))) {start})"#)), "`wasi_unstable::proc_exit`"),
        (wat(r#"(component (import "wasi:filesystem/teleport@0.2.0" (instance (export "go" (func)))))"#), "wasi:filesystem/teleport@0.2.0"),
        (b"MZ\x90\0".to_vec(), "not a WebAssembly binary: it starts with [4d, 5a, 90, 00]"),
    ];
    for (bytes, wanted) in cases {
        let got = complaint(&bytes);
        assert!(got.contains(wanted), "{wanted}: {got}");
    }
}

#[test]
fn the_fingerprint_is_the_same_in_every_engine_of_ours() {
    let [one, two] = [engine().unwrap(), engine().unwrap()].map(|engine| fingerprint(&engine));
    assert_eq!((one.len(), &one), (64, &two));
    let mut other = crate::settings::config();
    other.epoch_interruption(false);
    assert_ne!(fingerprint(&Engine::new(&other).unwrap()), one);
}
