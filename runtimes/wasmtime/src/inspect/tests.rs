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
    let name = |number: usize| format!("{number}{}", "x".repeat(if number < 100 { 1_000 } else { 10 }));
    let functions: String = (0..NAMES_MAX + 7).map(|number| format!("(func (export \"{}\"))", name(number))).collect();
    let module = of(&format!("(module {functions})"));
    assert_eq!((module.exports.names.len(), module.exports.omitted), (NAMES_MAX, 7));
    assert!(module.exports.names.iter().take(100).all(|name| name.len() == NAME_LEN_MAX));
    assert!(serde_json::to_vec(&module).unwrap().len() < 200 << 10, "one message has room for it");
}

/// A component's message has both lists, and the process that reads it may send 256 KiB.
#[tokio::test]
async fn lists_of_names_that_are_long_as_json_are_cut_and_the_module_is_read() {
    for character in ["鑿", "\\u{1}", "\\u{1f4a9}", "\\\""] {
        let names = (0..NAMES_MAX).map(|number| format!("{number}{}", character.repeat(NAME_LEN_MAX)));
        let imports: String = names.clone().map(|name| format!("(import \"\" \"{name}\" (func))")).collect();
        let exports: String = names.map(|name| format!("(export \"{name}\" (func 0))")).collect();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("module.wasm");
        let start = "(func $start) (export \"_start\" (func $start))";
        std::fs::write(&file, wat::parse_str(format!("(module {imports} {exports} {start})")).unwrap()).unwrap();
        let report = inspector(dir.path()).inspect(&file, Detail::Proposals).await.unwrap();
        assert_eq!(report.kind, Some(Kind::Module), "its last export is _start");
        for (list, all) in [(&report.imports, NAMES_MAX), (&report.exports, NAMES_MAX + 1)] {
            assert_eq!(list.names.len() + list.omitted, all);
            let len = serde_json::to_vec(&list.names).unwrap().len();
            assert!((NAMES_JSON_LEN_MAX - 2_000..NAMES_JSON_LEN_MAX + 1_000).contains(&len), "{character}: {len}");
        }
    }
}

#[test]
fn a_component_is_what_its_last_export_says() {
    let others: String = (0..NAMES_MAX + 7).map(|number| format!("(export \"x{number}\" (instance $i))")).collect();
    let component = of(&format!("(component (instance $i) {others} (export \"wasi:cli/run@0.2.0\" (instance $i)))"));
    assert_eq!((component.kind, component.exports.omitted), (Some(Kind::Command), 8));
}

#[test]
fn the_text_of_an_error_is_short_and_has_no_control_characters() {
    let name = format!("\x1b[2J\r\n{}", "x".repeat(3_000));
    let mut module = wat::parse_str(format!("(module (func $f) (export \"{}\" (func $f)))", "n".repeat(name.len()))).unwrap();
    let at = module.windows(4).position(|bytes| bytes == b"nnnn").unwrap();
    module[at..at + name.len()].copy_from_slice(name.as_bytes());
    // Once more in the same section: its length and number are those of two.
    let leb = |len: usize| [0x80 | (len & 0x7f) as u8, u8::try_from(len >> 7).unwrap()];
    let export = [&leb(name.len())[..], name.as_bytes(), b"\0\0"].concat();
    let section_at = at - 2 - 1 - 2 - 1;
    assert_eq!(module[section_at], 7);
    let section = [&[7][..], &leb(1 + 2 * export.len()), &[2], &export, &export].concat();
    let rest = module[at + name.len() + 2..].to_vec();
    let module = [&module[..section_at], &section, &rest].concat();
    let error = report(&module, Detail::Names).unwrap_err().to_string();
    assert!(error.len() > 3_000 && error.contains('\x1b'), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("module.wasm");
    std::fs::write(&file, &module).unwrap();
    let Err(Fault::Content(text)) = answer(Detail::Names, vec![File::open(&file).unwrap()]) else { panic!("it is valid") };
    assert!(text.starts_with("invalid WebAssembly: duplicate export name") && text.len() < 600, "{text}");
    assert!(!text.chars().any(char::is_control), "{text:?}");
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
