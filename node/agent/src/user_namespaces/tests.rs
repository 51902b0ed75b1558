use super::*;

const LENGTH: u32 = USER_NAMESPACE_IDS;

fn mapped(host: u32, container: u32, length: u32) -> serde_json::Value {
    serde_json::json!([{"hostId": host, "containerId": container, "length": length}])
}

fn opened(dir: &Path, pods_max: u32) -> UserNamespaces {
    UserNamespaces::open(dir.to_owned(), pods_max).expect("opened")
}

#[test]
fn a_file_is_read_as_upstream_reads_it() {
    let file = |uids: serde_json::Value, gids: serde_json::Value| {
        parse(&serde_json::to_vec(&serde_json::json!({"uidMappings": uids, "gidMappings": gids})).expect("JSON"))
    };
    let same = |mapping: serde_json::Value| file(mapping.clone(), mapping);
    assert_eq!(same(mapped(3 * LENGTH, 0, LENGTH)), Ok(3));
    for (first, fault) in [
        (0, FileFault::OutOfRange(0)),
        (LENGTH + 1, FileFault::Offset(LENGTH + 1)),
        (FIRST_ID_OF_WASM, FileFault::OutOfRange(FIRST_ID_OF_WASM)),
        (0xffff_0000, FileFault::OutOfRange(0xffff_0000)),
    ] {
        assert_eq!(same(mapped(first, 0, LENGTH)), Err(fault), "{first}");
    }
    assert_eq!(same(mapped(LENGTH, 0, 1)), Err(FileFault::Length(1)));
    assert_eq!(same(mapped(LENGTH, 1, LENGTH)), Err(FileFault::NoRoot));
    assert_eq!(file(mapped(LENGTH, 0, LENGTH), mapped(2 * LENGTH, 0, LENGTH)), Err(FileFault::Differ));
    assert_eq!(file(serde_json::json!([]), serde_json::json!([])), Err(FileFault::Mappings));
    for text in ["", "{", "null", "\0\0", "{\"uidMappings\": [{\"hostId\": -1}]}"] {
        assert!(matches!(parse(text.as_bytes()), Err(FileFault::Unreadable(_))), "{text:?}");
    }
}

#[test]
fn no_range_reaches_the_ids_of_wasm_containers_or_the_nodes_own() {
    assert_eq!((RANGES.start * LENGTH, RANGES.end * LENGTH), (65_536, FIRST_ID_OF_WASM));
}

#[test]
fn each_pod_has_a_range_of_its_own_until_its_directory_is_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    let ranges = opened(dir.path(), 2);
    assert_eq!(ranges.first_id("a").expect("a range"), LENGTH);
    assert_eq!(ranges.first_id("b").expect("a range"), 2 * LENGTH);
    assert_eq!(ranges.first_id("a").expect("the same again"), LENGTH);
    let text = fs::read_to_string(dir.path().join("a").join(FILE)).expect("written");
    let one = r#"[{"hostId":65536,"containerId":0,"length":65536}]"#;
    assert_eq!(text, format!(r#"{{"uidMappings":{one},"gidMappings":{one}}}"#), "the kubelet's form");
    let none = ranges.first_id("c").expect_err("none is left").to_string();
    assert!(none.contains("could not find an empty slot to allocate a user namespace"), "{none}");
    fs::remove_dir_all(dir.path().join("a")).expect("removed");
    ranges.release("a");
    assert_eq!(ranges.first_id("c").expect("the freed one"), LENGTH);
}

#[test]
fn a_new_agent_knows_the_ranges_even_with_room_for_fewer_pods() {
    let dir = tempfile::tempdir().expect("a directory");
    let ranges = opened(dir.path(), 5);
    let all = ["a", "b", "c"].map(|uid| ranges.first_id(uid).expect("a range"));
    fs::create_dir(dir.path().join("without")).expect("made");
    let again = opened(dir.path(), 1);
    assert_eq!(["a", "b", "c"].map(|uid| again.first_id(uid).expect("the same")), all);
    assert!(matches!(again.first_id("without"), Err(RangeError::None(1))));
    again.release("a");
    assert_eq!(again.first_id("without").expect("free"), LENGTH);
}

#[test]
fn a_pod_whose_file_is_not_valid_gets_no_other_range_and_nobody_gets_its_own() {
    for text in ["", "{}", "\0\0\0"] {
        let dir = tempfile::tempdir().expect("a directory");
        let ranges = opened(dir.path(), 110);
        let (a, b) = (ranges.first_id("a").expect("a range"), ranges.first_id("b").expect("a range"));
        let file = dir.path().join("a").join(FILE);
        let sound = fs::read(&file).expect("read");
        fs::write(&file, text).expect("written");
        for ranges in [&ranges, &opened(dir.path(), 110)] {
            let fault = ranges.first_id("a").expect_err("refused").to_string();
            assert!(fault.starts_with("user namespace: ") && fault.contains("delete the Pod"), "{fault}");
            assert_eq!(ranges.first_id("b").expect("its own"), b);
        }
        let again = opened(dir.path(), 110);
        let fault = again.first_id("c").expect_err("it may be the range of a").to_string();
        assert!(fault.contains("the range of Pod a is not known"), "{fault}");
        fs::write(&file, sound).expect("mended");
        assert_eq!(again.first_id("a").expect("its own"), a);
        assert_eq!(again.first_id("c").expect("another"), 3 * LENGTH);
        fs::write(&file, text).expect("written");
        let again = opened(dir.path(), 110);
        fs::remove_dir_all(dir.path().join("a")).expect("removed");
        again.release("a");
        assert_eq!(again.first_id("d").expect("the freed one"), a);
    }
}

#[test]
fn two_pods_with_one_range_are_not_both_believed() {
    let dir = tempfile::tempdir().expect("a directory");
    let ranges = opened(dir.path(), 110);
    ranges.first_id("a").expect("a range");
    fs::create_dir(dir.path().join("b")).expect("made");
    fs::copy(dir.path().join("a").join(FILE), dir.path().join("b").join(FILE)).expect("copied");
    let fault = ranges.first_id("b").expect_err("refused").to_string();
    assert!(fault.contains("the range is already taken"), "{fault}");
    // Which of the two is right cannot be known by a new agent; one of them is refused.
    let again = opened(dir.path(), 110);
    assert_ne!(again.first_id("a").is_ok(), again.first_id("b").is_ok());
}
