// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hand-written programs in the kernel; skipped where it cannot be used.

use std::collections::BTreeMap;

use flowloom_context::{ContextLayout, StateSuccessor, Succession};
use flowloom_engine::{MapState, Port, SnapshotError};
use flowloom_isa::insn::{alu, class, helper, imm64, jmp, mode, size};
use flowloom_isa::{
    ArgumentKind, BPF_F_NO_PREALLOC, BPF_F_RDONLY_PROG, GlobalArgument, GlobalFunction, Insn, LineInfo, MapDef,
    UnknownArgument,
};

use flowloom_testkit::require;

use super::*;
use crate::rewrite::RewriteError;
use crate::testcode::*;

mod events;
mod fetches;
mod instructions;
mod maps;
mod shadows;

fn loaded(program: &Program) -> KernelEngine {
    KernelEngine::load(program).unwrap_or_else(|error| panic!("{error}"))
}

fn engine(insns: impl IntoIterator<Item = Insn>) -> KernelEngine {
    loaded(&program(insns))
}

fn choices(now_ns: u64) -> Choices {
    Choices { now_ns, random: std::array::from_fn(|i| 0xf000_0001 + i as u32 * 0x0100_0100), cpu: 5 }
}

fn process(engine: &mut KernelEngine, bytes: &[u8], port: u32) -> Outcome {
    let packet = Packet { bytes, port: Port(port) };
    engine.process(&packet, &choices(0x0102_0304_0506_0708)).unwrap_or_else(|error| panic!("{error}"))
}

fn add(dst: u8, imm: i32) -> Insn {
    insn(class::ALU64 | alu::ADD, dst, 0, 0, imm)
}

/// `body` with the packet in r6, at least 64 bytes of it, and the context in r9; then PASS. Shorter packets are
/// dropped.
fn with_packet(body: impl IntoIterator<Item = Insn>) -> Vec<Insn> {
    let body: Vec<Insn> = body.into_iter().collect();
    let too_short = insn(class::JMP | jmp::JGT | 0x08, 2, 3, body.len() as i16 + 2, 0);
    let start = [copy(9, 1), load(size::W, 6, 1, 0), load(size::W, 3, 1, 4), copy(2, 6), add(2, 64), too_short];
    let end = [mov(0, 2), exit(), mov(0, 1), exit()];
    start.into_iter().chain(body).chain(end).collect()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(*bytes[at..].first_chunk().expect("4 bytes"))
}

#[test]
fn verdicts_are_returned() {
    require!(KernelEngine::available());
    let frame: Vec<u8> = (0..60).collect();
    let expected = [
        Outcome::without_output(Verdict::Aborted),
        Outcome::without_output(Verdict::Drop),
        Outcome::sent(Verdict::Pass, Port(3), frame.clone()),
        Outcome::sent(Verdict::Tx, Port(3), frame.clone()),
        // REDIRECT without a port.
        Outcome::without_output(Verdict::Aborted),
        Outcome::without_output(Verdict::Aborted),
    ];
    for (number, expected) in expected.into_iter().enumerate() {
        assert_eq!(process(&mut engine([mov(0, number as i32), exit()]), &frame, 3), expected);
    }
    assert_eq!(process(&mut engine([mov(0, -1), exit()]), &frame, 3), Outcome::without_output(Verdict::Aborted));
}

#[test]
fn frames_of_all_supported_lengths() {
    require!(KernelEngine::available());
    let mut pass = engine([mov(0, 2), exit()]);
    let frame: Vec<u8> = (0..4000_u32).map(|i| i as u8).collect();
    for len in (MIN_FRAME_BYTES..100).chain([1514, 1518, 3519, MAX_FRAME_BYTES]) {
        assert_eq!(process(&mut pass, &frame[..len], 1).outputs[0].bytes, frame[..len]);
    }
    // The program sees all of the longest frame: data_end - data is written into the first bytes.
    let length = [load(size::W, 2, 9, 0), load(size::W, 3, 9, 4), insn(class::ALU64 | alu::SUB | 0x08, 3, 2, 0, 0)];
    let mut tells = engine(with_packet(length.into_iter().chain([store(size::W, 6, 0, 3)])));
    let outcome = process(&mut tells, &frame[..MAX_FRAME_BYTES], 1);
    assert_eq!(word(&outcome.outputs[0].bytes, 0), MAX_FRAME_BYTES as u32);

    let refusal = |len: usize| pass.refuses(&Packet { bytes: &frame[..len], port: Port(1) });
    assert_eq!(refusal(13), Some(Refusal::TooShort { min_bytes: 14 }));
    assert_eq!((refusal(14), refusal(3520)), (None, None));
    assert_eq!(refusal(3521), Some(Refusal::TooLong { max_bytes: 3520 }));
    let error = pass.process(&Packet { bytes: &frame[..13], port: Port(1) }, &choices(0)).expect_err("refused");
    assert_eq!(error.to_string(), "engine `kernel` could not take a frame of 13 bytes: shorter than 14 bytes");
}

#[test]
fn time_random_cpu_and_port_are_those_of_the_record() {
    require!(KernelEngine::available());
    let mut body = vec![call_helper(helper::KTIME_GET_NS), store(size::DW, 6, 0, 0)];
    for i in 0..10 {
        body.extend([call_helper(helper::GET_PRANDOM_U32), store(size::W, 6, 8 + 4 * i, 0)]);
    }
    body.extend([call_helper(helper::GET_SMP_PROCESSOR_ID), store(size::W, 6, 48, 0)]);
    body.extend([load(size::W, 8, 9, 12), store(size::W, 6, 52, 8)]);
    let mut engine = engine(with_packet(body));
    for round in 0..3 {
        let outcome = process(&mut engine, &[0xaa; 64], 70_000 + round);
        let bytes = &outcome.outputs[0].bytes;
        let choices = choices(0x0102_0304_0506_0708);
        assert_eq!(bytes[..8], choices.now_ns.to_ne_bytes());
        let drawn: Vec<u32> = (0..10).map(|i| word(bytes, 8 + 4 * i)).collect();
        let again: Vec<u32> = choices.random.iter().copied().cycle().take(10).collect();
        assert_eq!(drawn, again, "drawn from the first for every packet, and from the first again when used up");
        assert_eq!((word(bytes, 48), word(bytes, 52)), (5, 70_000 + round));
        assert_eq!(bytes[56..], [0xaa; 8]);
    }
}

#[test]
fn redirects_have_a_port() {
    require!(KernelEngine::available());
    let redirect = |port, flags| [mov(1, port), mov(2, flags), call_helper(helper::REDIRECT), exit()];
    let sent = |port| Outcome::sent(Verdict::Redirect, Port(port), vec![7; 60]);
    assert_eq!(process(&mut engine(redirect(77, 0)), &[7; 60], 1), sent(77));
    // No interface has such an index.
    assert_eq!(process(&mut engine(redirect(-1, 0)), &[7; 60], 1), Outcome::without_output(Verdict::Aborted));
    assert_eq!(process(&mut engine(redirect(77, 1)), &[7; 60], 1), Outcome::without_output(Verdict::Aborted));

    let map = |map, key, flags| {
        let start = wide(1, imm64::MAP, map).into_iter();
        start.chain([mov(2, key), mov(3, flags), call_helper(helper::REDIRECT_MAP), exit()])
    };
    // The devmap has 7 entries.
    assert_eq!(process(&mut engine(map(0, 6, 0)), &[7; 60], 1), sent(6));
    assert_eq!(process(&mut engine(map(1, 0, 2)), &[7; 60], 1), sent(0));
    for (flags, verdict) in [(0, Verdict::Aborted), (1, Verdict::Drop)] {
        assert_eq!(process(&mut engine(map(0, 7, flags)), &[7; 60], 1), Outcome::without_output(verdict));
        assert_eq!(process(&mut engine(map(0, -1, flags)), &[7; 60], 1), Outcome::without_output(verdict));
    }
    let passed = Outcome::sent(Verdict::Pass, Port(1), vec![7; 60]);
    assert_eq!(process(&mut engine(map(0, 7, 2)), &[7; 60], 1), passed);

    // An absent key cancels an earlier redirect.
    let forget = [mov(1, 5), mov(2, 0), call_helper(helper::REDIRECT)].into_iter().chain(map(0, 7, 0));
    let mut forget: Vec<Insn> = forget.collect();
    forget.splice(forget.len() - 1.., [mov(0, 4), exit()]);
    assert_eq!(process(&mut engine(forget), &[7; 60], 1), Outcome::without_output(Verdict::Aborted));
    // Flags: to all bound ports, to all of them except the ingress port, and unknown ones.
    let ports = |outcome: Outcome| outcome.outputs.iter().map(|output| output.port.0).collect::<Vec<_>>();
    assert_eq!(ports(process(&mut engine(map(1, 99, 8)), &[7; 60], 1)), [1, 2]);
    assert_eq!(ports(process(&mut engine(map(0, 99, 8 | 16 | 2)), &[7; 60], 1)), [2]);
    assert_eq!(ports(process(&mut engine(map(0, 3, 16)), &[7; 60], 1)), [3]);
    for flags in [4, 32, 1 << 30, -1] {
        assert_eq!(process(&mut engine(map(0, 1, flags | 2)), &[7; 60], 1), Outcome::without_output(Verdict::Aborted));
    }

    // A redirect that the verdict then overrides, which must not apply to the next packet.
    let take_back = with_packet([mov(1, 9), mov(2, 0), call_helper(helper::REDIRECT)]);
    assert_eq!(process(&mut engine(take_back), &[7; 64], 1).verdict, Verdict::Pass);
    let once = "r7 = *(u32 *)(r1 + 12)\nr0 = 4\nif r7 == 0 goto out\nr1 = 9\nr2 = 0\ncall redirect\nout: exit";
    let mut once = engine(asm(once));
    assert_eq!(process(&mut once, &[1; 64], 1).outputs[0].port, Port(9));
    assert_eq!(process(&mut once, &[1; 64], 0), Outcome::without_output(Verdict::Aborted));
}

fn hash(name: &str, max_entries: u32, layout: Option<ContextLayout>) -> MapDef {
    let (key_bytes, value_bytes, flags) = (3, 16, BPF_F_NO_PREALLOC);
    MapDef { max_entries, key_bytes, value_bytes, flags, layout, ..map(name, MapKind::Hash) }
}

fn array(name: &str, initial: Option<Vec<u8>>, flags: u32) -> MapDef {
    let (value_bytes, max_entries) = initial.as_ref().map_or((8, 3), |initial| (initial.len() as u32, 1));
    MapDef { value_bytes, max_entries, flags, initial, ..map(name, MapKind::Array) }
}

/// Writes the packet's bytes 0..16 under the key of bytes 16..19, adds 1 to entry 1 of the array, and copies the first
/// word of `.rodata` to `.data`.
fn stateful() -> Program {
    let layout = ContextLayout { deadline_offsets: vec![0, 8], sweep_ns: 10, ..ContextLayout::default() };
    let maps = vec![
        hash("contexts_with_a_long_name", 2000, Some(layout)),
        array("counters", None, 0),
        map("ports", MapKind::Devmap),
        array(".data", Some(vec![1, 2, 3, 4, 5, 6, 7, 8]), 0),
        array(".rodata", Some(vec![9, 8, 7, 6]), BPF_F_RDONLY_PROG),
        array(".bss", Some(vec![0; 4]), 0),
        hash("unused", 5, None),
    ];
    let mut body = Vec::new();
    // Key to the stack: 3 bytes at r10-24; value: 16 bytes at r10-16.
    for i in 0..3 {
        body.extend([load(size::B, 2, 6, 16 + i), store(size::B, 10, -24 + i, 2)]);
    }
    body.extend([load(size::DW, 2, 6, 0), store(size::DW, 10, -16, 2)]);
    body.extend([load(size::DW, 2, 6, 8), store(size::DW, 10, -8, 2)]);
    body.extend(wide(1, imm64::MAP, 0));
    body.extend([copy(2, 10), add(2, -24), copy(3, 10), add(3, -16), mov(4, 0)]);
    body.push(call_helper(helper::MAP_UPDATE_ELEM));
    // Entry 1 of the array.
    body.extend([insn(class::ST | mode::MEM | size::W, 10, 0, -28, 1), copy(2, 10), add(2, -28)]);
    body.extend(wide(1, imm64::MAP, 1));
    body.extend([call_helper(helper::MAP_LOOKUP_ELEM), if_zero(0, 3)]);
    body.extend([load(size::DW, 1, 0, 0), add(1, 1), store(size::DW, 0, 0, 1)]);
    // .rodata to .data + 4
    body.extend(wide(1, imm64::MAP_VALUE, 4));
    let [first, _] = wide(2, imm64::MAP_VALUE, 3);
    body.extend([first, insn(0, 0, 0, 0, 4)]);
    body.extend([load(size::W, 3, 1, 0), store(size::W, 2, 0, 3)]);
    // The time, so that the program is rewritten and the record is one of its maps.
    body.push(call_helper(helper::KTIME_GET_NS));
    Program { maps, ..program(with_packet(body)) }
}

fn frame(key: [u8; 3], deadlines: [u64; 2]) -> Vec<u8> {
    let mut frame = vec![0; 64];
    frame[..8].copy_from_slice(&deadlines[0].to_le_bytes());
    frame[8..16].copy_from_slice(&deadlines[1].to_le_bytes());
    frame[16..19].copy_from_slice(&key);
    frame
}

fn numbers(map: &MapState) -> Vec<(Vec<u8>, u64)> {
    map.iter().map(|(k, v)| (k.clone(), u64::from_le_bytes(*v.first_chunk().expect("8 bytes")))).collect()
}

#[test]
fn state_is_read_swept_and_restored() {
    require!(KernelEngine::available());
    let mut engine = loaded(&stateful());
    let initial = engine.snapshot().expect("readable");
    let names: Vec<&str> = initial.maps.keys().map(String::as_str).collect();
    assert_eq!(names, [".bss", ".data", "contexts_with_a_long_name", "counters", "unused"]);
    assert_eq!(initial.maps[".data"], MapState::from([(vec![0; 4], vec![1, 2, 3, 4, 5, 6, 7, 8])]));
    assert_eq!(numbers(&initial.maps["counters"]), [0, 1, 2].map(|i| (vec![i, 0, 0, 0], 0)));

    for (key, deadlines) in [([1, 1, 1], [100, 500]), ([2, 2, 2], [500, 101]), ([3, 3, 3], [u64::MAX, u64::MAX])] {
        assert_eq!(process(&mut engine, &frame(key, deadlines), 1).verdict, Verdict::Pass);
    }
    let full = engine.snapshot().expect("readable");
    let contexts = |s: &Snapshot| numbers(&s.maps["contexts_with_a_long_name"]);
    assert_eq!(contexts(&full), [(vec![1; 3], 100), (vec![2; 3], 500), (vec![3; 3], u64::MAX)]);
    assert_eq!(numbers(&full.maps["counters"])[1].1, 3);
    assert_eq!(full.maps[".data"][&vec![0; 4]], [1, 2, 3, 4, 9, 8, 7, 6]);

    // At or before: 99 removes none, 100 the first, 101 the second by its other deadline.
    for (now, left) in [(99, 3), (100, 2), (101, 1), (u64::MAX - 1, 1)] {
        engine.sweep(now).expect("swept");
        assert_eq!(contexts(&engine.snapshot().expect("readable")).len(), left, "swept at {now}");
    }

    engine.restore(&full).expect("fits");
    assert_eq!(engine.snapshot().expect("readable"), full);
    let mut some = full.clone();
    some.maps.remove("contexts_with_a_long_name");
    some.maps.remove(".data");
    some.maps.insert("counters".into(), MapState::from([(vec![2, 0, 0, 0], vec![4; 8])]));
    engine.restore(&some).expect("fits");
    let restored = engine.snapshot().expect("readable");
    assert!(contexts(&restored).is_empty());
    assert_eq!(restored.maps[".data"], initial.maps[".data"]);
    assert_eq!(values(&restored.maps["counters"]), [0, 0, 0x0404_0404_0404_0404]);
    engine.restore(&Snapshot::default()).expect("fits");
    assert_eq!(engine.snapshot().expect("readable"), initial);
}

#[test]
fn successor_contexts_and_preloaded_contexts() {
    require!(KernelEngine::available());
    let record = |deadline: u64, state: u16| [&deadline.to_le_bytes()[..], &state.to_le_bytes(), &[0; 6]].concat();
    let succession = Succession {
        state_offset: 8,
        hard_offset: Some(0),
        successors: vec![None, Some(StateSuccessor { state: 2, idle_ns: None, hard_ns: Some(10) })],
        ..Succession::default()
    };
    let preloaded = vec![(vec![1; 3], record(100, 1)), (vec![2; 3], record(100, 2)), (vec![3; 3], record(u64::MAX, 1))];
    let layout = ContextLayout {
        deadline_offsets: vec![0],
        succession: Some(succession),
        preloaded: preloaded.clone(),
        ..ContextLayout::default()
    };
    let program = Program { maps: vec![hash("contexts", 9, Some(layout))], ..program(vec![mov(0, 2), exit()]) };
    let mut engine = loaded(&program);
    let mut contexts = |action: &dyn Fn(&mut KernelEngine)| {
        action(&mut engine);
        engine.snapshot().expect("readable").maps["contexts"].clone()
    };
    let initial: MapState = preloaded.into_iter().collect();
    assert_eq!(contexts(&|_| ()), initial);
    assert_eq!(contexts(&|engine| engine.sweep(99).expect("swept")), initial);
    let swept = MapState::from([(vec![1; 3], record(110, 2)), (vec![3; 3], record(u64::MAX, 1))]);
    assert_eq!(contexts(&|engine| engine.sweep(109).expect("swept")), swept);
    let last = MapState::from([(vec![3; 3], record(u64::MAX, 1))]);
    assert_eq!(contexts(&|engine| engine.sweep(u64::MAX).expect("swept")), last);
    assert_eq!(contexts(&|engine| engine.restore(&Snapshot::default()).expect("fits")), initial);
}

fn values(map: &MapState) -> Vec<u64> {
    numbers(map).into_iter().map(|(_, value)| value).collect()
}

#[test]
fn invalid_state_is_rejected_without_effect() {
    require!(KernelEngine::available());
    let mut engine = loaded(&stateful());
    process(&mut engine, &frame([1; 3], [1, 2]), 1);
    let before = engine.snapshot().expect("readable");
    let mut refuses = |name: &str, entries: MapState| {
        let good = ("unused".to_owned(), MapState::from([(vec![1; 3], vec![2; 16])]));
        let state = Snapshot { maps: BTreeMap::from([good, (name.to_owned(), entries)]), ..Snapshot::default() };
        let error = engine.restore(&state).expect_err("does not fit");
        assert_eq!(engine.snapshot().expect("readable"), before);
        match error {
            EngineError::Snapshot(error) => error.to_string(),
            other => panic!("{other}"),
        }
    };
    let known = "`contexts_with_a_long_name`, `counters`, `ports`, `.data`, `.bss`, `unused`";
    for name in ["conn", ".rodata", crate::rewrite::RECORD_MAP] {
        let found = refuses(name, MapState::new());
        assert_eq!(found, format!("state has unknown map `{name}`; the function has {known}"));
    }
    let one = |key: &[u8], value: &[u8]| MapState::from([(key.to_vec(), value.to_vec())]);
    let contexts = "contexts_with_a_long_name";
    let wrong = SnapshotError::Size { map: contexts.into(), part: "key", found: 4, expected: 3 };
    assert_eq!(refuses(contexts, one(&[1; 4], &[1; 16])), wrong.to_string());
    let wrong = SnapshotError::Size { map: contexts.into(), part: "value", found: 15, expected: 16 };
    assert_eq!(refuses(contexts, one(&[1; 3], &[1; 15])), wrong.to_string());
    let many = (0..2001_u32).map(|i| (i.to_le_bytes()[..3].to_vec(), vec![0; 16])).collect();
    assert_eq!(refuses(contexts, many), format!("state has 2001 entries, map `{contexts}` holds 2000"));
    let found = refuses("counters", one(&[3, 0, 0, 0], &[0; 8]));
    assert_eq!(found, "state of map `counters`: expected indices below the size of the array, found `index 3`");
}

#[test]
fn a_full_table_is_read_completely() {
    require!(KernelEngine::available());
    let mut engine = loaded(&stateful());
    let entries: MapState =
        (0..2000_u32).map(|i| (i.to_le_bytes()[..3].to_vec(), [i.to_le_bytes(); 4].concat())).collect();
    let state = Snapshot {
        maps: BTreeMap::from([("contexts_with_a_long_name".to_owned(), entries.clone())]),
        ..Snapshot::default()
    };
    engine.restore(&state).expect("fits exactly");
    assert_eq!(engine.snapshot().expect("readable").maps["contexts_with_a_long_name"], entries);
    engine.restore(&state).expect("fits again");
    assert_eq!(engine.snapshot().expect("readable").maps["contexts_with_a_long_name"], entries);
}

fn line(insn: usize, number: u32, text: &str) -> LineInfo {
    LineInfo { insn, file: "fw/knock.efsm".into(), text: text.into(), line: number, column: 5 }
}

#[test]
fn refusals_have_the_row_and_the_log() {
    require!(KernelEngine::available());
    // The row on line 9 reads the packet without a bounds check. One text is not ASCII.
    let mut bad = program([mov(0, 2), load(size::W, 2, 1, 0), load(size::B, 3, 2, 0), exit()]);
    bad.lines = vec![line(0, 8, "Zürich -> pass"), line(2, 9, "  open & tcp.dport == 22 -> stay")];
    let Err(ExecError::Refused(refused)) = KernelEngine::load(&bad) else { panic!("must be refused") };
    assert_eq!((refused.insn, refused.line.as_ref().map(|l| l.line)), (Some(2), Some(9)));
    assert!(refused.reason.contains("invalid access to packet"), "{}", refused.reason);
    assert!(refused.log.contains("open & tcp.dport == 22 -> stay @ knock.efsm:9"), "{}", refused.log);
    let message = refused.to_string();
    let start = "the kernel's verifier refuses program `f` at instruction 2 (fw/knock.efsm:9: `open & tcp.dport == 22 -> stay`): ";
    assert!(message.starts_with(start), "{message}");
}

#[test]
fn truncated_source_lines_in_the_log_are_handled() {
    require!(KernelEngine::available());
    // The verifier truncates lines at 1024 bytes, within characters too.
    for text in ["ü".repeat(2000), format!("-{}", "ü".repeat(2000))] {
        let mut bad = program([mov(0, 2), copy(1, 5), exit()]);
        bad.lines = vec![line(0, 1, &text)];
        let Err(ExecError::Refused(refused)) = KernelEngine::load(&bad) else { panic!("must be refused") };
        assert_eq!(refused.line.map(|line| line.text), Some(text));
    }
}

#[test]
fn programs_are_verified_unmodified() {
    require!(KernelEngine::available());
    // r1 is uninitialised after a call; after rewriting it would not be.
    let Err(ExecError::Refused(refused)) =
        KernelEngine::load(&program([mov(1, 2), call_helper(helper::KTIME_GET_NS), copy(0, 1), exit()]))
    else {
        panic!("must be refused")
    };
    assert_eq!((refused.insn, refused.reason.as_str()), (Some(2), "R1 !read_ok"));
}

/// A global function reads its argument, and its only caller passes 4 bytes: accepted as a static function, refused
/// separately, since the argument may be null.
#[test]
fn global_functions_are_verified_separately() {
    require!(KernelEngine::available());
    let function = |kind| GlobalFunction {
        slot: 5,
        name: "read".to_owned(),
        arguments: vec![GlobalArgument { name: "x".to_owned(), kind }],
    };
    let store = insn(class::ST | mode::MEM | size::W, 10, 0, -4, 7);
    let body = [store, copy(1, 10), add(1, -4), call_local(1), exit(), load(size::W, 0, 1, 0), exit()];
    let mut verified = program(body);
    verify_in_kernel(&verified).unwrap_or_else(|error| panic!("{error}"));
    let memory = |nullable| ArgumentKind::Memory { bytes: 4, nullable };
    verified.globals = vec![function(memory(false))];
    verify_in_kernel(&verified).unwrap_or_else(|error| panic!("{error}"));
    let unknown = |what| ArgumentKind::Unknown(what);
    let refused = [
        (memory(true), "R1 invalid mem access 'mem_or_null'"),
        (ArgumentKind::Memory { bytes: 8, nullable: false }, "R1"),
        (ArgumentKind::Number, "R1 is not a scalar"),
        (unknown(UnknownArgument::Unsized), "size cannot be determined"),
        (unknown(UnknownArgument::NoScalar), "not supported yet"),
        (unknown(UnknownArgument::Tagged("arg:untold".to_owned())), "unsupported set of tags"),
        (unknown(UnknownArgument::Dynptr), "dynptr"),
    ];
    for (kind, words) in refused {
        verified.globals = vec![function(kind.clone())];
        let Err(ExecError::Refused(refused)) = verify_in_kernel(&verified) else { panic!("{kind:?} must be refused") };
        assert!(refused.log.contains(words), "{kind:?}: {}", refused.log);
    }
}

#[test]
fn verdicts_match_the_kernel_verifier_for_any_instructions() {
    require!(KernelEngine::available());
    // A helper that is not rewritten; a lookup in a map.
    let lookup = "call ktime_get_ns\nr1 = map[0] ll\nr3 = 0\n*(u32 *)(r10 - 4) = r3\nr2 = r10\nr2 += -4\n\
                  call map_lookup_elem\nr0 = 2\nexit";
    let good = Program { maps: vec![array("numbers", None, 0)], ..program(asm(lookup)) };
    verify_in_kernel(&good).unwrap_or_else(|error| panic!("{error}"));
    let Err(ExecError::Refused(refused)) = verify_in_kernel(&program([copy(0, 3), exit()])) else {
        panic!("must be refused")
    };
    assert_eq!((refused.insn, refused.reason.as_str()), (Some(0), "R3 !read_ok"));
    // The function does not end, so there are no types for it; the kernel is asked all the same.
    let Err(ExecError::Refused(refused)) = verify_in_kernel(&program([mov(0, 2)])) else { panic!("must be refused") };
    assert!(refused.reason.contains("not an exit"), "{}", refused.reason);
}

#[test]
fn rewriting_and_writing_errors_have_an_instruction() {
    require!(KernelEngine::available());
    let mut bad = program([mov(1, 0), mov(2, 0), mov(3, 0), call_helper(helper::REDIRECT_MAP), exit()]);
    bad.lines = vec![line(0, 3, "forward(pkt.port)")];
    let Err(error @ ExecError::Rewrite { source: RewriteError::UnknownDevmap { insn: 3, .. }, .. }) =
        KernelEngine::load(&bad)
    else {
        panic!("must be refused")
    };
    assert_eq!(
        error.to_string(),
        "program `f` cannot run in the kernel: instruction 3 calls `redirect_map` with an inner or unknown map \
         (fw/knock.efsm:3: `forward(pkt.port)`)"
    );
    let mut bad = program([mov(0, 2), exit()]);
    bad.maps[0].name = "not a name".into();
    assert!(matches!(KernelEngine::load(&bad), Err(ExecError::Object { .. })));
}

#[test]
fn local_functions_run() {
    require!(KernelEngine::available());
    // The function returns the low byte of the time, plus its argument.
    let text = "r6 = *(u32 *)(r1 + 12)\nr1 = r6\ncall f\nr1 = r0\nr2 = 0\ncall redirect\nexit\n\
                f: r7 = r1\ncall ktime_get_ns\nr0 &= 255\nr0 += r7\nexit";
    let outcome = process(&mut engine(asm(text)), &[1; 60], 100);
    assert_eq!(outcome.outputs[0].port, Port(100 + 8));
}

#[test]
#[ignore = "measures, decides nothing"]
fn cost_of_a_packet() {
    require!(KernelEngine::available());
    let median = |mut engine: KernelEngine, len: usize| {
        let frame = vec![0x55; len];
        let packet = Packet { bytes: &frame, port: Port(1) };
        let choices = |now_ns| Choices { cpu: 0, ..choices(now_ns) };
        let mut times: Vec<f64> = (0..9)
            .map(|_| {
                let start = std::time::Instant::now();
                for _ in 0..20_000 {
                    engine.process(&packet, &choices(1)).expect("runs");
                }
                start.elapsed().as_nanos() as f64 / 20_000.0
            })
            .collect();
        times.sort_by(f64::total_cmp);
        format!("{:.0} ns (least {:.0}, most {:.0})", times[4], times[0], times[8])
    };
    let pass = || engine([mov(0, 2), exit()]);
    eprintln!("pass, no record, 64 bytes: {}", median(pass(), 64));
    eprintln!("pass, no record, 1514 bytes: {}", median(pass(), 1514));
    eprintln!("pass, no record, 3520 bytes: {}", median(pass(), 3520));
    eprintln!("stateful, record, 64 bytes: {}", median(loaded(&stateful()), 64));
    eprintln!("values by CPU, 64 bytes: {}", median(loaded(&maps::counting(MapKind::PerCpuHash, 3, 0)), 64));
    for (what, program) in [("pass", program([mov(0, 2), exit()])), ("stateful", stateful())] {
        let start = std::time::Instant::now();
        (0..100).for_each(|_| drop(loaded(&program)));
        eprintln!("loading {what}: {:.0} us", start.elapsed().as_micros() as f64 / 100.0);
    }
}
