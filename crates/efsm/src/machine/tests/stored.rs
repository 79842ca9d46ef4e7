// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records, snapshots and what restores them.

use flowloom_engine::{Datapath, EngineError, Snapshot};

use super::{Scene, scene, to, udp};

const ALL: &str =
    "stateful e { key udp.sport; size 2; states a, b; reg x: u8 = 1; reg y: i32 = -2; reg z: u16; reg w: u64;
    reg v: i8 = -1; global g: u16 = 7; global h: u64 = 8;
    on a when udp.dport == 1 -> b (idle 5ns, hard 9ns) { x = 2; y -= 1; z = 3; w = 4; g = 0x1234; forward(x); }
    on b stay { forward(x); } }";

fn snapshot(s: &mut Scene) -> Snapshot {
    s.machine.snapshot().expect("a snapshot")
}

fn refused(s: &mut Scene, state: &Snapshot) -> String {
    match s.machine.restore(state) {
        Err(EngineError::Snapshot(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn record_fields_are_ordered_by_decreasing_width() {
    let mut s = scene(ALL);
    s.at(0x0102_0304, &to(1));
    let state = snapshot(&mut s);
    assert_eq!(state.maps.keys().collect::<Vec<_>>(), [".data", "e"]);
    let record = &state.maps["e"][&vec![0, 7, 0, 0]];
    let mut expected = Vec::new();
    expected.extend(0x0102_0309_u64.to_le_bytes()); // idle deadline
    expected.extend(5_u64.to_le_bytes()); // idle period
    expected.extend(0x0102_030d_u64.to_le_bytes()); // hard deadline
    expected.extend(4_u64.to_le_bytes()); // w
    expected.extend((-3_i32).to_le_bytes()); // y
    expected.extend(3_u16.to_le_bytes()); // z
    expected.extend(1_u16.to_le_bytes()); // state
    expected.extend([0, 0, 2, 0xff, 0, 0, 0, 0]); // flags, x, v, zeros
    assert_eq!(*record, expected);
    // The second global register is aligned.
    let globals = &state.maps[".data"][&vec![0; 4]];
    assert_eq!(*globals, [0x34, 0x12, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_restored_snapshot_continues_identically() {
    let mut s = scene(ALL);
    s.at(100, &to(1));
    let state = snapshot(&mut s);
    let mut other = scene(ALL);
    other.machine.restore(&state).expect("fits");
    assert_eq!(snapshot(&mut other), state);
    assert_eq!(other.contexts(), s.contexts());
    assert_eq!(other.machine.globals(0), [0x1234, 8]);
    assert_eq!(other.at(104, &to(2)), "to 2");
    assert_eq!(other.at(109, &to(2)), "drop", "the timers were restored too");
    // What is not named is as at the start, and so is what was counted.
    other.machine.restore(&Snapshot::default()).expect("fits");
    assert_eq!((other.contexts().as_str(), other.machine.globals(0)), ("", &[7, 8][..]));
    assert_eq!(other.machine.coverage(), scene(ALL).machine.coverage());
}

#[test]
fn invalid_snapshots_are_rejected_without_changes() {
    let mut s = scene(ALL);
    s.at(100, &to(1));
    let state = snapshot(&mut s);
    let record = state.maps["e"].values().next().expect("one").clone();
    let with = |change: &dyn Fn(&mut Snapshot)| {
        let mut changed = state.clone();
        change(&mut changed);
        changed
    };
    let put = |key: Vec<u8>, value: Vec<u8>| {
        with(&|s: &mut Snapshot| drop(s.maps.get_mut("e").expect("there").insert(key.clone(), value.clone())))
    };
    let other_map = with(&|s| drop(s.maps.insert("nat".to_owned(), Default::default())));
    assert_eq!(refused(&mut s, &other_map), "state has unknown map `nat`; the function has `.data`, `e`");
    assert_eq!(refused(&mut s, &put(vec![1; 5], record.clone())), "key is 5 bytes, map `e` expects 4");
    assert_eq!(refused(&mut s, &put(vec![1; 4], vec![0; 9])), "value is 9 bytes, map `e` expects 48");
    let mut unknown = record.clone();
    unknown[38] = 2;
    assert!(refused(&mut s, &put(vec![1; 4], unknown)).contains("states, found `2`"));
    for reserved in [40, 44, 47] {
        let mut set = record.clone();
        set[reserved] = 1;
        assert!(refused(&mut s, &put(vec![1; 4], set)).contains("zero flags"), "{reserved}");
    }
    let mut three = put(vec![1; 4], record.clone());
    three.maps.get_mut("e").expect("there").insert(vec![2; 4], record.clone());
    assert_eq!(refused(&mut s, &three), "state has 3 entries, map `e` holds 2");
    let short = with(&|s| drop(s.maps.get_mut(".data").expect("there").insert(vec![0; 4], vec![0; 8])));
    assert_eq!(refused(&mut s, &short), "value is 8 bytes, map `.data` expects 16");
    assert_eq!(snapshot(&mut s), state, "all or nothing");
}

#[test]
fn instruments_in_a_snapshot_are_ignored() {
    let mut s = scene(ALL);
    let mut state = Snapshot::default();
    for name in ["fl_seen_0", crate::layout::HITS_MAP] {
        state.maps.insert(name.to_owned(), [(vec![0; 4], vec![9; 8])].into());
    }
    s.machine.restore(&state).expect("fits");
    assert_eq!(s.contexts(), "");
}

#[test]
fn a_preloaded_default_context_is_kept_until_a_row_changes_it() {
    let mut s = scene(
        "stateful e { key udp.sport; size 1; states a; reg n: u8 = 7;
         on a when udp.dport == 1 stay { forward(n); } on a when udp.dport == 2 stay { n = 7; forward(n); }
         on a when udp.dport == 3 -> a { forward(n); } on a stay { n = 9; forward(n); } }",
    );
    let state = Snapshot {
        maps: [("e".to_owned(), [(vec![0, 7, 0, 0], vec![0, 0, 0, 0, 7, 0, 0, 0])].into())].into(),
        ..Snapshot::default()
    };
    for (port, left) in [(1, "00070000 a n=7"), (2, ""), (3, ""), (4, "00070000 a n=9")] {
        s.machine.restore(&state).expect("fits");
        s.at(0, &to(port));
        assert_eq!(s.contexts(), left, "{port}");
    }
    s.machine.restore(&state).expect("fits");
    assert_eq!(s.at(0, &udp(1, 2, 8, 4)), "to 7", "it takes the only place");
}
