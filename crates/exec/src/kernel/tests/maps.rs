// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Map kinds of foreign programs.

use flowloom_engine::{MapState, Port, Snapshot};
use flowloom_isa::{LineInfo, MapDef, MapKind, Member, Sibling, asm};

use super::*;

pub(super) fn assembled(text: &str, maps: Vec<MapDef>) -> Program {
    let insns = asm::assemble(text, &maps).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    Program { maps, ..program(insns) }
}

pub(super) fn def(name: &str, kind: MapKind, [key_bytes, value_bytes, max_entries]: [u32; 3], flags: u32) -> MapDef {
    MapDef { key_bytes, value_bytes, max_entries, flags, ..map(name, kind) }
}

/// A packet of 64 bytes: the given first byte, then a counter.
pub(super) fn packet(first: u8) -> Vec<u8> {
    std::iter::once(first).chain(1..64).collect()
}

pub(super) fn run(engine: &mut impl Datapath, bytes: &[u8], port: u32) -> Outcome {
    let packet = Packet { bytes, port: Port(port) };
    let choices = Choices::seeded(1_000_000_000, 1, 0);
    engine.process(&packet, &choices).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn state(map: &str, entries: &[(&[u8], &[u8])]) -> Snapshot {
    let entries: MapState = entries.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    Snapshot { maps: BTreeMap::from([(map.to_owned(), entries)]), ..Snapshot::default() }
}

pub(super) fn entries(engine: &mut KernelEngine, map: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let snapshot = engine.snapshot().expect("readable");
    snapshot.maps[map].iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Reads 14 bytes of the packet at r6, the first byte of which is in r7; r9 is the context. Ends at `out` with PASS.
pub(super) const START: &str = "
    r9 = r1
    r6 = *(u32 *)(r1 + 0)
    r2 = *(u32 *)(r1 + 4)
    r1 = r6
    r1 += 14
    if r1 > r2 goto out
    r7 = *(u8 *)(r6 + 0)
    *(u32 *)(r10 - 4) = r7
";
pub(super) const OUT: &str = "
out: r0 = 2
    exit
";

/// Adds 5 to the 6-byte value for the first byte, inserting the entry if absent.
pub(super) fn counting(kind: MapKind, max_entries: u32, flags: u32) -> Program {
    let text = format!(
        "{START}
    r1 = map[sums] ll
    r2 = r10
    r2 += -4
    call map_lookup_elem
    if r0 != 0 goto there
    *(u64 *)(r10 - 16) = r0
    r1 = map[sums] ll
    r2 = r10
    r2 += -4
    r3 = r10
    r3 += -16
    r4 = 0
    call map_update_elem
    r1 = map[sums] ll
    r2 = r10
    r2 += -4
    call map_lookup_elem
    if r0 == 0 goto out
there: r1 = *(u32 *)(r0 + 0)
    r1 += 5
    *(u32 *)(r0 + 0) = r1
{OUT}"
    );
    assembled(&text, vec![def("sums", kind, [4, 6, max_entries], flags)])
}

#[test]
fn values_by_cpu_are_those_of_the_packets_cpu() {
    require!(KernelEngine::available());
    let five = |times: u8| vec![5 * times, 0, 0, 0, 0, 0];
    for (kind, others) in [(MapKind::PerCpuArray, 2), (MapKind::PerCpuHash, 0), (MapKind::LruPerCpuHash, 0)] {
        let mut engine = loaded(&counting(kind, 3, 0));
        for first in [1, 1, 2] {
            run(&mut engine, &packet(first), 1);
        }
        let found = engine.snapshot().expect("readable");
        assert_eq!(found.per_cpu, BTreeMap::from([("sums".to_owned(), 1)]));
        let sums = &found.maps["sums"];
        let of = |key: u8| sums.get(&vec![key, 0, 0, 0]).cloned();
        assert_eq!((of(1), of(2)), (Some(five(2)), Some(five(1))), "{kind}");
        assert_eq!(sums.len(), 2 + usize::from(others > 0), "{kind}");
        // A round trip through the initial state.
        engine.restore(&Snapshot::default()).expect("fits");
        let kept = engine.snapshot().expect("readable").maps["sums"].values().filter(|v| v[..] != [0; 6]).count();
        assert_eq!(kept, 0, "{kind}");
        engine.restore(&found).expect("fits");
        assert_eq!(engine.snapshot().expect("readable"), found, "{kind}");
        run(&mut engine, &packet(2), 1);
        assert_eq!(engine.snapshot().expect("readable").maps["sums"][&vec![2, 0, 0, 0]], five(2), "{kind}");
    }
}

#[test]
fn values_of_several_cpus_are_distinct() {
    require!(KernelEngine::available());
    let possible = cpu::possible().expect("the system says");
    require!((possible >= 2).then_some(()).ok_or("there is one CPU"));
    let engine = || loaded(&counting(MapKind::PerCpuHash, 3, 0));
    assert!(engine().with_cpus(possible + 1).is_err() && engine().with_cpus(0).is_err());
    let mut two = engine().with_cpus(2).expect("there are two");
    for cpu in [0, 1, 1] {
        let packet = Packet { bytes: &packet(1), port: Port(1) };
        two.process(&packet, &Choices { cpu, ..Choices::seeded(0, 0, 0) }).expect("runs");
    }
    let found = two.snapshot().expect("readable");
    assert_eq!(found.per_cpu["sums"], 2);
    assert_eq!(found.maps["sums"][&vec![1, 0, 0, 0]], [5, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0]);
    // The CPU of this engine keeps its value from the other engine's state; a CPU without a value has zeros.
    let mut one = engine();
    one.restore(&found).expect("fits");
    assert_eq!(one.snapshot().expect("readable").maps["sums"][&vec![1, 0, 0, 0]], [5, 0, 0, 0, 0, 0]);
    two.restore(&one.snapshot().expect("readable")).expect("fits");
    assert_eq!(two.snapshot().expect("readable").maps["sums"][&vec![1, 0, 0, 0]][6..], [0; 6]);
    let packet = Packet { bytes: &packet(1), port: Port(1) };
    let error = one.process(&packet, &Choices { cpu: 1, ..Choices::seeded(0, 0, 0) }).expect_err("one CPU");
    assert_eq!(error.to_string(), "engine `kernel` could not run on CPU 1: its state has values of 1, from CPU 0");
}

#[test]
fn values_by_cpu_must_be_declared() {
    require!(KernelEngine::available());
    let mut engine = loaded(&counting(MapKind::PerCpuHash, 3, 0));
    let mut wrong = state("sums", &[(&[1, 0, 0, 0], &[0; 6])]);
    let refused = |engine: &mut KernelEngine, state: &Snapshot| engine.restore(state).expect_err("wrong").to_string();
    engine.restore(&wrong).expect("the value of the only CPU");
    wrong.per_cpu.insert("sums".into(), 1000);
    assert!(refused(&mut engine, &wrong).contains("found `1000 CPUs of "));
    wrong.per_cpu.insert("sums".into(), 2);
    assert_eq!(refused(&mut engine, &wrong), "value is 6 bytes, map `sums` expects 12");
    let mut plain = loaded(&counting(MapKind::Hash, 3, 0));
    let found = refused(&mut plain, &wrong);
    assert_eq!(found, "state of map `sums`: expected \"value\", one for all CPUs, found `\"values\"`");
}

#[test]
fn longest_prefixes_match() {
    require!(KernelEngine::available());
    let text = format!(
        "{START}
    *(u32 *)(r10 - 16) = 32
    r1 = *(u32 *)(r6 + 4)
    *(u32 *)(r10 - 12) = r1
    r1 = map[routes] ll
    r2 = r10
    r2 += -16
    call map_lookup_elem
    if r0 == 0 goto out
    r1 = *(u32 *)(r0 + 0)
    r2 = 0
    call redirect
    exit
{OUT}"
    );
    let mut engine = loaded(&assembled(&text, vec![def("routes", MapKind::LpmTrie, [8, 4, 8], BPF_F_NO_PREALLOC)]));
    let routes = state(
        "routes",
        &[
            (&[8, 0, 0, 0, 4, 0, 0, 0], &[7, 0, 0, 0]),
            (&[16, 0, 0, 0, 4, 5, 9, 9], &[8, 0, 0, 0]),
            (&[32, 0, 0, 0, 4, 5, 6, 8], &[9, 0, 0, 0]),
        ],
    );
    engine.restore(&routes).expect("fits");
    assert_eq!(engine.snapshot().expect("readable"), routes);
    let to = |engine: &mut KernelEngine, address: [u8; 4]| {
        let mut frame = packet(0);
        frame[4..8].copy_from_slice(&address);
        run(engine, &frame, 1).outputs[0].port.0
    };
    assert_eq!([[4, 5, 6, 8], [4, 5, 6, 7], [4, 4, 4, 4], [5, 5, 5, 5]].map(|a| to(&mut engine, a)), [9, 8, 7, 1]);
}

/// A program that tail-calls the entry given by the first byte, and passes if it is absent; and two siblings.
fn jumping() -> Program {
    let maps = vec![def("next", MapKind::ProgArray, [4, 4, 4], 0), def("seen", MapKind::Array, [4, 8, 1], 0)];
    let text = format!(
        "{START}
    r1 = r9
    r2 = map[next] ll
    r3 = r7
    call tail_call
{OUT}"
    );
    let main = assembled(&text, maps.clone());
    let sibling = |name: &str, text: &str| Sibling {
        name: name.to_owned(),
        section: "xdp".to_owned(),
        insns: assembled(text, maps.clone()).insns,
        lines: vec![LineInfo { insn: 0, file: "t.c".into(), text: name.into(), line: 7, column: 0 }],
    };
    // Counts, and redirects to the ingress port plus 10; drops; is refused by every verifier.
    let count = "
    r6 = *(u32 *)(r1 + 12)
    call ktime_get_ns
    r1 = map[seen][0] + 0 ll
    lock *(u64 *)(r1 + 0) += r0
    r1 = r6
    r1 += 10
    r2 = 0
    call redirect
    exit";
    let siblings = [
        sibling("main", &text),
        sibling("count", count),
        sibling("drop", "r0 = 1\nexit"),
        sibling("bad", "r0 = r5\nexit"),
    ];
    let mut main = Program { siblings: siblings.into(), ..main };
    main.maps[0].members = vec![(0, Member::Program(1)), (3, Member::Program(0))];
    main
}

#[test]
fn tail_calls_reach_programs_of_the_object() {
    require!(KernelEngine::available());
    let mut engine = loaded(&jumping());
    let outcome = run(&mut engine, &packet(0), 3);
    assert_eq!((outcome.verdict, outcome.outputs[0].port), (Verdict::Redirect, Port(13)));
    assert_eq!(entries(&mut engine, "seen")[0].1, 1_000_000_000_u64.to_le_bytes());
    // Absent; itself, until the kernel's limit of tail calls.
    assert_eq!([1, 2, 3, 4].map(|first| run(&mut engine, &packet(first), 3).verdict), [Verdict::Pass; 4]);
    let began = engine.snapshot().expect("readable");
    let held =
        |engine: &mut KernelEngine| entries(engine, "next").iter().map(|(k, v)| (k[0], v[0])).collect::<Vec<_>>();
    assert_eq!(held(&mut engine), [(0, 1), (3, 0)]);

    engine.restore(&state("next", &[(&[2, 0, 0, 0], &[2, 0, 0, 0])])).expect("fits");
    assert_eq!(held(&mut engine), [(2, 2)]);
    let verdicts = [0, 1, 2, 3].map(|first| run(&mut engine, &packet(first), 3).verdict);
    assert_eq!(verdicts, [Verdict::Pass, Verdict::Pass, Verdict::Drop, Verdict::Pass]);
    engine.restore(&began).expect("fits");
    assert_eq!(run(&mut engine, &packet(0), 4).outputs[0].port, Port(14));
    assert_eq!(entries(&mut engine, "seen")[0].1, 2_000_000_000_u64.to_le_bytes());

    let error = engine.restore(&state("next", &[(&[2, 0, 0, 0], &[4, 0, 0, 0])])).expect_err("no such program");
    assert!(error.to_string().contains("expected indices of programs of the object"), "{error}");
    let error = engine.restore(&state("next", &[(&[2, 0, 0, 0], &[3, 0, 0, 0])])).expect_err("refused");
    assert!(error.to_string().contains("`bad` at instruction 0 (t.c:7: `bad`): R5 !read_ok"), "{error}");
}

#[test]
fn contents_of_program_arrays_are_verified_on_load() {
    require!(KernelEngine::available());
    let mut program = jumping();
    program.maps[0].members.push((1, Member::Program(3)));
    let Err(ExecError::Refused(refused)) = KernelEngine::load(&program) else { panic!("must be refused") };
    assert_eq!((refused.program.as_str(), refused.line.map(|line| line.line)), ("bad", Some(7)));
    // A program for multi-buffer packets is of another kind to the kernel.
    let mut program = jumping();
    let mut siblings = program.siblings.to_vec();
    siblings[1].section = "xdp.frags".into();
    program.siblings = siblings.clone().into();
    let error = KernelEngine::load(&program).expect_err("another kind").to_string();
    assert!(error.contains("map `next`"), "{error}");
    siblings[0].section = "xdp.frags".into();
    let (siblings, section) = (siblings.into(), "xdp.frags".into());
    let mut frags = loaded(&Program { siblings, section, ..program });
    assert_eq!(run(&mut frags, &packet(0), 3).outputs[0].port, Port(13));
}

#[test]
fn maps_of_maps_hold_maps_of_the_program() {
    require!(KernelEngine::available());
    for (kind, inner) in [(MapKind::ArrayOfMaps, MapKind::Hash), (MapKind::HashOfMaps, MapKind::Array)] {
        let flags = if inner == MapKind::Hash { BPF_F_NO_PREALLOC } else { 0 };
        let inner = def("inner", inner, [4, 8, 2], flags);
        let named = |name: &str| MapDef { name: name.into(), ..inner.clone() };
        let outer = MapDef {
            inner: Some(Box::new(inner.clone())),
            members: vec![(0, Member::Map(0)), (1, Member::Map(1))],
            ..def("outer", kind, [4, 4, 4], 0)
        };
        // Writes 9 for key 1 into the map given by the first byte.
        let text = format!(
            "{START}
    r1 = map[outer] ll
    r2 = r10
    r2 += -4
    call map_lookup_elem
    if r0 == 0 goto out
    *(u32 *)(r10 - 8) = 1
    *(u64 *)(r10 - 16) = 9
    r1 = r0
    r2 = r10
    r2 += -8
    r3 = r10
    r3 += -16
    r4 = 0
    call map_update_elem
    r0 = 1
    exit
{OUT}"
        );
        let mut engine = loaded(&assembled(&text, vec![named("a"), named("b"), outer]));
        let nine = (vec![1, 0, 0, 0], vec![9, 0, 0, 0, 0, 0, 0, 0]);
        let verdicts = [1, 2].map(|first| run(&mut engine, &packet(first), 1).verdict);
        assert_eq!(verdicts, [Verdict::Drop, Verdict::Pass]);
        assert!(entries(&mut engine, "b").contains(&nine) && !entries(&mut engine, "a").contains(&nine), "{kind}");
        engine.restore(&state("outer", &[(&[2, 0, 0, 0], &[0, 0, 0, 0])])).expect("fits");
        assert!(!entries(&mut engine, "b").contains(&nine), "{kind}");
        let verdicts = [1, 2].map(|first| run(&mut engine, &packet(first), 1).verdict);
        assert_eq!(verdicts, [Verdict::Pass, Verdict::Drop]);
        assert!(entries(&mut engine, "a").contains(&nine), "{kind}");
        assert_eq!(entries(&mut engine, "outer"), [(vec![2, 0, 0, 0], vec![0; 4])]);
        // Not a map of that kind.
        let error = engine.restore(&state("outer", &[(&[0, 0, 0, 0], &[2, 0, 0, 0])])).expect_err("itself");
        assert!(error.to_string().contains("map `outer`"), "{error}");
        engine.restore(&Snapshot::default()).expect("fits");
        assert_eq!(entries(&mut engine, "outer").len(), 2);
    }
}

#[test]
fn spin_locks_in_values_are_declared_to_the_kernel() {
    require!(KernelEngine::available());
    let text = format!(
        "{START}
    r1 = map[sums] ll
    r2 = r10
    r2 += -4
    call map_lookup_elem
    if r0 == 0 goto out
    r8 = r0
    r1 = r0
    r1 += 4
    call spin_lock
    r1 = *(u32 *)(r8 + 8)
    r1 += 3
    *(u32 *)(r8 + 8) = r1
    r1 = r8
    r1 += 4
    call spin_unlock
{OUT}"
    );
    for kind in [MapKind::Array, MapKind::Hash] {
        let map = MapDef { spin_lock: Some(4), ..def("sums", kind, [4, 12, 3], 0) };
        let mut engine = loaded(&assembled(&text, vec![map]));
        engine.restore(&state("sums", &[(&[1, 0, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0])])).expect("fits");
        run(&mut engine, &packet(1), 1);
        let found = entries(&mut engine, "sums");
        assert!(found.contains(&(vec![1, 0, 0, 0], vec![1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0])), "{found:?}");
    }
    let outside = MapDef { spin_lock: Some(10), ..def("sums", MapKind::Array, [4, 12, 3], 0) };
    assert!(matches!(KernelEngine::load(&assembled(&text, vec![outside])), Err(ExecError::Object { .. })));
}

#[test]
fn all_clocks_return_the_recorded_time() {
    require!(KernelEngine::available());
    let mut body = Vec::new();
    for (i, number) in [125, 160, 208, 118, 42].into_iter().enumerate() {
        body.extend([call_helper(number), store(size::DW, 6, 8 * i as i16, 0)]);
    }
    let outcome = process(&mut engine(with_packet(body)), &[0xaa; 64], 1);
    let words: Vec<u64> = outcome.outputs[0].bytes[..40]
        .chunks_exact(8)
        .map(|bytes| u64::from_ne_bytes(*bytes.first_chunk().expect("8 bytes")))
        .collect();
    let now = 0x0102_0304_0506_0708;
    assert_eq!(words, [now, now, now, now / 4_000_000, 0]);
}

#[test]
fn deletions_are_not_evictions() {
    require!(KernelEngine::available());
    // Deletes the entry of the first byte, then counts for the second.
    let text = format!(
        "{START}
    r1 = map[sums] ll
    r2 = r10
    r2 += -4
    call map_delete_elem
    r7 = *(u8 *)(r6 + 1)
    *(u32 *)(r10 - 4) = r7
    r1 = map[sums] ll
    r2 = r10
    r2 += -4
    r3 = r6
    r4 = 0
    call map_update_elem
{OUT}"
    );
    let mut engine = loaded(&assembled(&text, vec![def("sums", MapKind::LruHash, [4, 8, 2], 0)]));
    let mut forgotten = |first: u8, second: u8| {
        let mut frame = packet(first);
        frame[1] = second;
        run(&mut engine, &frame, 1);
        engine.evicted().into_iter().map(|eviction| eviction.key[0]).collect::<Vec<_>>()
    };
    let nothing: [u8; 0] = [];
    assert_eq!([forgotten(9, 1), forgotten(9, 2)], [nothing; 2]);
    assert_eq!(forgotten(1, 3), nothing, "1 was deleted, so there is room");
    assert_eq!(forgotten(9, 4), [2], "one more than there is room for");
    assert!(engine.chooses_victims());
    assert_eq!(entries(&mut engine, "sums").len(), 2);
}
