use super::*;

fn store(container_bytes: Option<usize>) -> (Arc<Store>, Arc<Budget>) {
    let budget = Arc::new(Budget::new(container_bytes));
    (Arc::new(Store::new(&budget)), budget)
}

fn value(store: &Store, key: &str) -> Option<String> {
    store.get(key).map(|value| String::from_utf8_lossy(&value).into_owned())
}

#[test]
fn values_are_set_replaced_and_deleted() {
    let (store, budget) = store(None);
    for text in ["one", "two", ""] {
        store.set("k".into(), text.into()).unwrap();
        assert_eq!(value(&store, "k").as_deref(), Some(text));
        assert_eq!(budget.used(), ENTRY_LEN + 1 + text.len());
    }
    store.delete("k");
    store.delete("k");
    assert_eq!((value(&store, "k"), budget.used()), (None, 0));
    assert_eq!(store.set("x".repeat(KEY_LEN_MAX + 1), vec![]), Err(StoreFault::Key(KEY_LEN_MAX + 1)));
}

#[test]
fn a_store_has_a_bound_of_its_own_and_the_containers() {
    for (container, bytes_max) in [(None, BYTES_MAX), (Some(1 << 20), 1 << 18)] {
        let (store, budget) = store(container);
        let mut stored = 0;
        let fault = loop {
            match store.set(format!("{stored:08}"), vec![0; 100_000]) {
                Ok(()) => stored += 1,
                Err(fault) => break fault,
            }
        };
        assert_eq!((fault, stored), (StoreFault::Full, bytes_max / (ENTRY_LEN + 8 + 100_000)), "{container:?}");
        let used = budget.used();
        assert_eq!(store.set("00000000".into(), vec![1; 200_000]), Err(StoreFault::Full), "{container:?}");
        assert_eq!(store.get("00000000").unwrap().len(), 100_000, "what did not fit changed nothing");
        assert_eq!(budget.used(), used, "{container:?}");
        store.set("00000000".into(), vec![1; 100_000]).unwrap();
        drop(store);
        assert_eq!(budget.used(), 0, "{container:?}");
    }
}

#[test]
fn what_memories_have_is_not_for_the_store() {
    let (store, budget) = store(Some(1 << 20));
    assert!(budget.take((1 << 20) - 100_000));
    assert_eq!(store.set("k".into(), vec![0; 100_000]), Err(StoreFault::Full));
    store.set("k".into(), vec![0; 90_000]).unwrap();
    assert_eq!(store.set("k".into(), vec![0; 100_000]), Err(StoreFault::Full));
    assert_eq!(store.get("k").unwrap().len(), 90_000);
}

#[test]
fn handles_count_too() {
    let (store, budget) = store(Some(PART * 10 * (ENTRY_LEN + 1)));
    let mut handles: Vec<Cas> = (0..10).map(|_| Store::cas(&store, "k".into()).unwrap()).collect();
    assert!(matches!(Store::cas(&store, "k".into()), Err(StoreFault::Full)));
    assert_eq!(store.set("k".into(), vec![]), Err(StoreFault::Full));
    handles.clear();
    assert_eq!(budget.used(), 0);
    assert!(matches!(Store::cas(&store, "x".repeat(KEY_LEN_MAX + 1)), Err(StoreFault::Key(_))));
}

#[test]
fn keys_come_in_pages() {
    let (store, _budget) = store(None);
    let all: Vec<String> = (0..2 * PAGE_LEN_MAX + 1).map(|number| format!("{number:06}")).collect();
    for key in all.iter().rev() {
        store.set(key.clone(), vec![]).unwrap();
    }
    let (mut by_name, mut by_count) = (Vec::<String>::new(), Vec::<String>::new());
    for has_more in [true, true, false] {
        let page = store.keys(by_name.last().map(String::as_str), 0);
        assert_eq!(page.has_more, has_more);
        by_name.extend(page.keys);
        let page = store.keys(None, by_count.len());
        assert_eq!(page.has_more, has_more);
        by_count.extend(page.keys);
    }
    assert!(by_name == all && by_count == all);
    for nothing in [store.keys(None, usize::MAX), store.keys(Some("x"), 0)] {
        assert!(nothing.keys.is_empty() && !nothing.has_more);
    }
}

#[test]
fn numbers_are_text_and_have_a_range() {
    let (store, _budget) = store(None);
    assert_eq!(store.increment("n".into(), 40_u64), Ok(40));
    assert_eq!(store.increment("n".into(), 2_u64), Ok(42));
    assert_eq!(value(&store, "n").as_deref(), Some("42"));
    assert_eq!(store.increment("n".into(), -43_i64), Ok(-1));
    assert_eq!(store.increment("n".into(), 0_u64), Err(StoreFault::Range), "another draft has no negative numbers");
    for (text, delta, wanted) in [
        ("18446744073709551615", 1, Err(StoreFault::Range)),
        ("18446744073709551614", 1, Ok(u64::MAX)),
        ("170141183460469231731687303715884105727", 1, Err(StoreFault::Range)),
        ("1e3", 1, Err(StoreFault::NotANumber)),
        ("", 1, Err(StoreFault::NotANumber)),
        ("\u{663}", 1, Err(StoreFault::NotANumber)),
    ] {
        store.set("m".into(), text.into()).unwrap();
        assert_eq!(store.increment("m".into(), delta), wanted, "{text}");
        if wanted.is_err() {
            assert_eq!(value(&store, "m").as_deref(), Some(text), "left as it was");
        }
    }
}

#[test]
fn a_swap_fails_after_another_change_and_its_handle_is_renewed() {
    let (store, _budget) = store(None);
    let mut one = Store::cas(&store, "k".into()).unwrap();
    let mut two = Store::cas(&store, "k".into()).unwrap();
    assert_eq!((one.current(), one.swap(b"a".to_vec())), (None, Ok(true)));
    assert_eq!(two.swap(b"b".to_vec()), Ok(false));
    assert_eq!(value(&store, "k").as_deref(), Some("a"));
    assert_eq!(two.swap(b"b".to_vec()), Ok(true), "of the present value now");
    // Also when the value is the same again.
    let mut three = Store::cas(&store, "k".into()).unwrap();
    store.delete("k");
    store.set("k".into(), b"b".to_vec()).unwrap();
    assert_eq!(three.swap(b"c".to_vec()), Ok(false));
    store.delete("k");
    assert_eq!((three.current(), three.swap(b"c".to_vec())), (None, Ok(true)));
}
