use super::*;

/// The test program serves when it is started with this argument (`cache/tests.rs`).
fn inspector(dir: &Path) -> Inspector {
    Inspector::new(Helper::new(std::env::current_exe().unwrap(), &["serve-inspect"]), dir)
}

fn of(text: &str) -> ModuleReport {
    report(&wat::parse_str(text).unwrap(), Detail::Proposals).unwrap()
}

#[test]
fn a_module_says_what_it_imports_exports_and_needs() {
    let module = of(r#"(module
        (import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))
        (import "env" "memory" (memory 1))
        (func (export "_start"))
        (func (export "wide") (result i32 i32) (i32.extend8_s (i32.const 1)) (i32.const 2))
        (func (result v128) (v128.const i64x2 0 0))
        (func (return_call 1)))"#);
    assert_eq!((module.is_component, module.kind), (false, Some(Kind::Module)));
    assert_eq!(module.imports.names, ["wasi_snapshot_preview1 proc_exit", "env memory"]);
    assert_eq!(module.exports.names, ["_start", "wide"]);
    assert_eq!(module.proposals, ["multi-value", "sign-extension-ops", "simd", "tail-call"]);
    let empty = of("(module)");
    assert_eq!((empty.kind, empty.proposals.len(), empty.imports), (None, 0, Names::default()));
}

#[test]
fn only_the_outermost_names_of_a_component_count() {
    let component = of(r#"(component
        (import "wasi:cli/stdout@0.2.0" (instance))
        (core module (import "hidden" "f" (func)) (func (export "_start")))
        (component (import "inner:a/b@1.0.0" (instance)))
        (instance $i (export "x" (instance 0)))
        (export "wasi:cli/run@0.2.0" (instance 0)))"#);
    assert_eq!((component.is_component, component.kind), (true, Some(Kind::Command)));
    assert_eq!(component.imports.names, ["wasi:cli/stdout@0.2.0"]);
    assert_eq!(component.exports.names, ["wasi:cli/run@0.2.0"]);
}

#[test]
fn lists_are_bounded() {
    let functions: String = (0..NAMES_MAX + 7).map(|number| format!("(func (export \"{number}{}\"))", "x".repeat(1_000))).collect();
    let module = of(&format!("(module {functions})"));
    assert_eq!((module.exports.names.len(), module.exports.omitted), (NAMES_MAX, 7));
    assert!(module.exports.names.iter().all(|name| name.len() == NAME_LEN_MAX));
    assert!(serde_json::to_vec(&module).unwrap().len() < 200 << 10, "one message has room for it");
}

#[test]
fn what_is_not_valid_with_any_proposal_is_an_error() {
    for (bytes, wanted) in [
        (&b"MZ\x90\0"[..], "magic header not detected"),
        (b"", "unexpected end"),
        (b"\0asm\x01\0\0\0\x01\xff\xff\xff", "unexpected end"),
        (b"\0asm\x01\0\0\0\x03\x02\x01\0", "unknown type"),
    ] {
        let error = report(bytes, Detail::Names).unwrap_err().to_string();
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
    let module = wat::parse_str("(module (memory 1) (func (drop (i32.load (i32.const 0)))))").unwrap();
    for len in 9..module.len() {
        // Cut anywhere it ends with an answer, which is mostly an error.
        let _ = report(&module[..len], Detail::Proposals);
    }
}

#[tokio::test]
async fn a_confined_process_reads_the_module() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("module.wasm");
    std::fs::write(&file, wat::parse_str("(module (func (export \"_start\")))").unwrap()).unwrap();
    let report = inspector(dir.path()).inspect(&file, Detail::Proposals).await.unwrap();
    assert_eq!((report.kind, report.exports.names), (Some(Kind::Module), vec!["_start".to_owned()]));
    std::fs::write(&file, b"\0asm\x01\0\0\0\x01\xff").unwrap();
    let error = inspector(dir.path()).inspect(&file, Detail::Names).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::BadContent(why) if why.starts_with("invalid WebAssembly: ")), "{error}");
    std::fs::File::create(&file).unwrap().set_len(MODULE_LEN_MAX + 1).unwrap();
    let error = inspector(dir.path()).inspect(&file, Detail::Names).await.unwrap_err();
    assert!(error.to_string().contains("at most 268435456 are read"), "{error}");
    let error = inspector(dir.path()).inspect(&dir.path().join("absent"), Detail::Names).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Io { .. }), "{error}");
}
