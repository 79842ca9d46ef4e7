// SPDX-License-Identifier: Apache-2.0 OR MIT
#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::asm::assemble;
use crate::insn::Insn;
use crate::program::{BPF_F_INNER_MAP, BPF_F_MMAPABLE, LineInfo, Member};
use flowloom_context::ContextLayout;
use flowloom_testkit::scratch::{Scratch, run};

/// With the helpers of packet programs.
fn check(program: &Program) -> Result<Code, ProgramError> {
    super::decoded(program)
}

fn array(name: &str, value_bytes: u32, max_entries: u32) -> MapDef {
    MapDef {
        name: name.into(),
        kind: MapKind::Array,
        key_bytes: 4,
        value_bytes,
        max_entries,
        flags: 0,
        ..MapDef::default()
    }
}

fn program(text: &str) -> Program {
    let maps = vec![array("one", 8, 1), array("two", 8, 2)];
    let insns = assemble(text, &maps).unwrap_or_else(|errors| panic!("{errors}"));
    Program { section: "xdp".into(), insns, maps, ..Program::default() }
}

#[test]
fn invalid_code_is_refused_with_its_reason() {
    for (text, insn, what) in [
        ("r0 = 0", 0, "the function beginning at slot 0 falls off its end here, expected `exit` or `goto`"),
        ("r0 = 1 ll", 0, "the function beginning at slot 0 falls off its end here, expected `exit` or `goto`"),
        ("if r1 == 0 goto +1\nexit", 0, "jump to slot 2, expected the first slot of an instruction below 2"),
        ("goto -2\nexit", 0, "jump to slot -1, expected the first slot of an instruction below 2"),
        ("goto +1\nr0 = 1 ll\nexit", 0, "jump to slot 2, expected the first slot of an instruction below 4"),
        ("gotol +2147483647\nexit", 0, "jump to slot 2147483648, expected the first slot of an instruction below 2"),
        ("call pc-3\nexit", 0, "jump to slot -2, expected the first slot of an instruction below 2"),
        ("r1 = subprog[+9] ll\nexit", 0, "jump to slot 10, expected the first slot of an instruction below 3"),
        ("call f\ngoto +2\nexit\nf: r0 = 0\nexit", 1, "jump to slot 4, expected one within the function, 0 to 2"),
        ("call f\nexit\nf: r0 = 0\ngoto -4\nexit", 3, "jump to slot 0, expected one within the function, 2 to 4"),
        (
            "call f\nf: r0 = 0\nexit",
            0,
            "the function beginning at slot 0 falls off its end here, expected `exit` or `goto`",
        ),
        ("r10 = 0\nexit", 0, "found a write to `r10`, expected one to `r0` to `r9`"),
        ("r10 = xchg_64(r1 + 0, r10)\nexit", 0, "found a write to `r10`, expected one to `r0` to `r9`"),
        ("r10 = *(u8 *)(r1 + 0)\nexit", 0, "found a write to `r10`, expected one to `r0` to `r9`"),
        ("r1 = map[2] ll\nexit", 0, "map 2 does not exist, expected an index below 2"),
        ("r1 = map[-1][0]+0 ll\nexit", 0, "map -1 does not exist, expected an index below 2"),
        ("r1 = map[one][0]+8 ll\nexit", 0, "address of byte 8 in map `one`, expected a byte below 8"),
        ("r1 = map[two][0]+0 ll\nexit", 0, "address of byte 0 in map `two`, expected an array with one entry"),
        ("call 84\nexit", 0, "helper 84 (`sk_lookup_tcp`) is not supported"),
        ("call 4000\nexit", 0, "helper 4000 is not supported"),
        ("call kfunc#1\nexit", 0, "found a call of a kernel function, expected a helper or a function of this program"),
        (
            "r0 = *(u8 *)skb[0]\nexit",
            0,
            "found classic packet access, expected loads from the packet between `data` and `data_end`",
        ),
        (
            "r0 = var[0] ll\nexit",
            0,
            "found a variable of the platform, expected a number, or a map, an address in its value or a function of this program",
        ),
        (
            "r0 = map_idx[0] ll\nexit",
            0,
            "found a map by its place in a loader's list, expected a number, or a map, an address in its value or a function of this program",
        ),
    ] {
        let expected = format!("section `xdp`, instruction {insn}: {what}");
        assert_eq!(check(&program(text)).expect_err(text).to_string(), expected, "{text}");
    }
    for text in
        ["call f\ngoto +0\nexit\nf: r0 = 0\nexit", "*(u64 *)(r1 + 0) = r10\nexit", "r1 = map[one][0]+7 ll\nexit"]
    {
        assert_eq!(check(&program(text)).map(|_| ()), Ok(()), "{text}");
    }
}

#[test]
fn slots_that_are_no_instructions() {
    let insn = |code, dst, src, off, imm| Insn { code, dst, src, off, imm };
    let with = |insns: Vec<Insn>| Program { section: "xdp".into(), insns, ..Program::default() };
    let exit = insn(0x95, 0, 0, 0, 0);
    let empty = check(&with(vec![])).expect_err("no slots").to_string();
    assert_eq!(empty, "section `xdp`, found 0 instruction slots, expected 1 to 1000000");
    for (insns, at, what) in [
        (vec![insn(0xff, 0, 0, 0, 0), exit], 0, "opcode 0xff is not in the instruction set"),
        (vec![insn(0x07, 11, 0, 0, 0), exit], 0, "dst of opcode 0x07 is 11, expected a register, 0 to 10"),
        (vec![insn(0x0f, 0, 12, 0, 0), exit], 0, "src of opcode 0x0f is 12, expected a register, 0 to 10"),
        (vec![insn(0x07, 0, 1, 0, 0), exit], 0, "src of opcode 0x07 is 1, expected 0 (reserved)"),
        (vec![insn(0x0f, 0, 1, 0, 3), exit], 0, "imm of opcode 0x0f is 3, expected 0 (reserved)"),
        (vec![insn(0x07, 0, 0, 2, 0), exit], 0, "off of opcode 0x07 is 2, expected 0 (reserved)"),
        (vec![insn(0x37, 0, 0, 2, 0), exit], 0, "off of opcode 0x37 is 2, expected 0 (unsigned) or 1 (signed)"),
        (vec![insn(0xbc, 0, 0, 32, 0), exit], 0, "off of opcode 0xbc is 32, expected 0, 8 or 16"),
        (vec![insn(0xd7, 0, 0, 0, 8), exit], 0, "imm of opcode 0xd7 is 8, expected 16, 32 or 64"),
        (
            vec![insn(0xdb, 1, 2, 0, 2), exit],
            0,
            "imm of opcode 0xdb is 2, expected an atomic operation: 0x00, 0x40, 0x50, 0xa0, these plus 1, 0xe1 or 0xf1",
        ),
        (
            vec![insn(0x85, 0, 3, 0, 0), exit],
            0,
            "src of opcode 0x85 is 3, expected 0 (helper), 1 (function) or 2 (kernel function)",
        ),
        (
            vec![exit, insn(0x18, 0, 0, 0, 0)],
            1,
            "64-bit immediate load is cut off: found the end of the program, expected a second slot",
        ),
        (vec![insn(0x18, 0, 7, 0, 0), insn(0, 0, 0, 0, 0), exit], 0, "src of opcode 0x18 is 7, expected 0 to 6"),
        (
            vec![insn(0x18, 0, 0, 0, 0), insn(0, 0, 1, 0, 0), exit],
            0,
            "next.src of opcode 0x18 is 1, expected 0 (second slot of a 64-bit immediate load)",
        ),
        (vec![insn(0x95, 0, 0, 0, 1)], 0, "imm of opcode 0x95 is 1, expected 0 (reserved)"),
    ] {
        let expected = format!("section `xdp`, instruction {at}: {what}");
        assert_eq!(check(&with(insns)).expect_err(what).to_string(), expected);
    }
}

#[test]
fn maps_that_cannot_be_built() {
    let hash = |key_bytes| MapDef { kind: MapKind::Hash, key_bytes, ..array("m", 8, 1) };
    let preloaded = |lengths: &[(usize, usize)]| {
        let preloaded = lengths.iter().map(|&(key, value)| (vec![1; key], vec![2; value])).collect();
        Some(ContextLayout { preloaded, ..ContextLayout::default() })
    };
    let jumps = MapDef { kind: MapKind::ProgArray, ..array("m.inner", 4, 1) };
    let late = ContextLayout { deadline_offsets: vec![0, 1], ..ContextLayout::default() };
    for (map, expected) in [
        (MapDef { key_bytes: 8, ..array("m", 8, 1) }, "key length in bytes is 8, expected 4"),
        (hash(0), "key length in bytes is 0, expected 1 to 512"),
        (hash(513), "key length in bytes is 513, expected 1 to 512"),
        (array("m", 0, 1), "value length in bytes is 0, expected 1 to 1073741824"),
        (array("m", u32::MAX, 1), "value length in bytes is 4294967295, expected 1 to 1073741824"),
        (array("m", 8, 0), "number of entries is 0, expected 1 to 2147483647"),
        (MapDef { max_entries: u32::MAX, ..hash(4) }, "number of entries is 4294967295, expected 1 to 2147483647"),
        (
            MapDef { value_bytes: 1 << 30, max_entries: 1 << 20, ..hash(4) },
            "number of entries is 1048576, expected 1 to 65536",
        ),
        (
            array("m", 1 << 10, 1 << 27),
            "size is with the arrays before it 137438953472 bytes, expected at most 68719476736 bytes",
        ),
        (
            MapDef { kind: MapKind::PerCpuArray, ..array("m", 8, 1 << 22) },
            "number of entries is 4194304, expected 1 to 4194303",
        ),
        (
            MapDef { flags: 1 | 1 << 20, ..array("m", 8, 1) },
            "flags is BPF_F_NO_PREALLOC, 0x100000, expected only BPF_F_NUMA_NODE, BPF_F_RDONLY, BPF_F_WRONLY, \
             BPF_F_RDONLY_PROG, BPF_F_WRONLY_PROG, BPF_F_MMAPABLE, BPF_F_INNER_MAP",
        ),
        (
            MapDef { kind: MapKind::LruHash, flags: 1, ..hash(4) },
            "flags is BPF_F_NO_PREALLOC, expected only BPF_F_NO_COMMON_LRU, BPF_F_NUMA_NODE, BPF_F_RDONLY, BPF_F_WRONLY, \
             BPF_F_ZERO_SEED, BPF_F_RDONLY_PROG, BPF_F_WRONLY_PROG",
        ),
        (
            MapDef { kind: MapKind::LpmTrie, key_bytes: 8, ..array("m", 8, 1) },
            "flags is none, expected BPF_F_NO_PREALLOC among them",
        ),
        (MapDef { flags: 3 << 7, ..hash(4) }, "flags is BPF_F_RDONLY_PROG, BPF_F_WRONLY_PROG, expected one of them"),
        (
            MapDef { kind: MapKind::PerCpuArray, ..array("m", 32_769, 1) },
            "value length in bytes is 32769, expected 1 to 32768 for each CPU",
        ),
        (
            MapDef { kind: MapKind::ArrayOfMaps, inner: Some(Box::new(jumps)), ..array("m", 4, 1) },
            "kind of the maps inside is prog_array, expected one that holds neither maps nor programs",
        ),
        (MapDef { kind: MapKind::Devmap, ..array("m", 16, 1) }, "value length in bytes is 16, expected 4 or 8"),
        (MapDef { initial: Some(vec![0; 7]), ..array("m", 8, 1) }, "initial contents in bytes is 7, expected 8"),
        (
            MapDef { initial: Some(vec![0; 8]), ..array("m", 8, 2) },
            "data section is Array with 2 entries, expected an array with one entry",
        ),
        (
            MapDef { layout: preloaded(&[(4, 8), (4, 8)]), ..hash(4) },
            "number of contexts from the start is 2, expected at most 1\nsection `xdp`, map `m`: key of a context from the \
             start is that of another, expected a key of its own",
        ),
        (
            MapDef { layout: preloaded(&[(4, 8), (4, 8)]), max_entries: 9, ..hash(4) },
            "key of a context from the start is that of another, expected a key of its own",
        ),
        (
            MapDef { layout: preloaded(&[(3, 8)]), ..hash(4) },
            "key length in bytes of a context from the start is 3, expected 4",
        ),
        (
            MapDef { layout: preloaded(&[(4, 7)]), ..hash(4) },
            "value length in bytes of a context from the start is 7, expected 8",
        ),
        (
            MapDef { layout: preloaded(&[(4, 8)]), ..array("m", 8, 1) },
            "table of contexts from the start is Array, expected a hash",
        ),
        (MapDef { layout: Some(late), ..hash(4) }, "offset of a deadline is 1, expected 8 bytes within the value of 8"),
    ] {
        let mut program = program("exit");
        program.maps = vec![map];
        assert_eq!(check(&program).expect_err(expected).to_string(), format!("section `xdp`, map `m`: {expected}"));
    }
    let mut program = program("exit");
    program.maps[1].name = "one".into();
    let expected = "section `xdp`, map `one`: name is that of another map, expected a name of its own";
    assert_eq!(check(&program).expect_err(expected).to_string(), expected);
}

/// The same maps are accepted as in the kernel: every kind with every flag and every two flags.
#[test]
fn flags_are_those_of_the_kernel() {
    let test = "flags_are_those_of_the_kernel";
    let Some(scratch) = Scratch::with_kernel(test) else { return };
    let path = |name: &str| scratch.path("bpf").join(name).to_str().unwrap().to_owned();
    let create = |def: &MapDef, at: &str| {
        let inner = path("inner");
        let number = |number: u32| number.to_string();
        let (key, value, entries, flags) =
            (number(def.key_bytes), number(def.value_bytes), number(def.max_entries), number(def.flags));
        let kind = def.kind.to_string();
        let mut args = vec!["map", "create", at, "type", &kind, "key", &key, "value", &value, "entries", &entries];
        args.extend(["name", "m", "flags", &flags]);
        if def.kind.is_of_maps() {
            args.extend(["inner_map", "pinned", &inner]);
        }
        run("bpftool", &args).unwrap().status.success()
    };
    assert!(create(&array("inner", 4, 1), &path("inner")));
    let (mut made, mut refused) = (0, 0);
    for kind in MapKind::ALL {
        let (key_bytes, value_bytes, max_entries) = match kind {
            MapKind::RingBuf => (0, 0, 4096),
            MapKind::LpmTrie => (8, 4, 1),
            _ => (4, 4, 1),
        };
        let inner = kind.is_of_maps().then(|| Box::new(array("inner", 4, 1)));
        // Higher flags need file descriptors beside them, which no object contains.
        for (first, second) in (0..13).flat_map(|first| (first..13).map(move |second| (first, second))) {
            // Two flags that each decide alone tell nothing new.
            if first != second && (first > 8 || ![1, 2, 3, 4, 7, 8].contains(&second)) {
                continue;
            }
            let mut flags = 1 << first | 1 << second;
            if kind == MapKind::LpmTrie {
                flags |= 1;
            }
            let inner = inner.clone();
            let def = MapDef { kind, key_bytes, value_bytes, inner, flags, ..array("m", value_bytes, max_entries) };
            let is_made = create(&def, &path("m"));
            let _ = std::fs::remove_file(path("m"));
            let mut program = program("exit");
            program.maps = vec![def.clone()];
            assert_eq!(check(&program).is_ok(), is_made, "the kernel of {def:?}: {is_made}");
            if is_made { made += 1 } else { refused += 1 }
        }
    }
    assert!(made > 100 && refused > 100, "{made} maps were made, {refused} refused");
}

#[test]
fn maps_inside_are_those_that_programs_are_compiled_for() {
    let fits = |change: fn(&mut MapDef)| {
        let mut other = array("a", 8, 4);
        change(&mut other);
        other.fits_inside(&array("b", 8, 4))
    };
    assert!(fits(|_| ()));
    for change in [
        |m: &mut MapDef| m.flags = BPF_F_MMAPABLE,
        |m: &mut MapDef| m.max_entries = 3,
        |m: &mut MapDef| m.value_bytes = 4,
        |m: &mut MapDef| m.spin_lock = Some(0),
        |m: &mut MapDef| m.kind = MapKind::PerCpuArray,
    ] {
        assert!(!fits(change));
    }
    let of = |kind, flags, max_entries| MapDef { kind, flags, ..array("m", 8, max_entries) };
    for (kind, flags) in [(MapKind::Array, BPF_F_INNER_MAP), (MapKind::PerCpuArray, 0), (MapKind::Hash, 0)] {
        assert!(of(kind, flags, 3).fits_inside(&of(kind, flags, 4)), "{kind}");
    }
    // The check decides the same.
    let mut program = program("exit");
    let inner = Some(Box::new(array("o.inner", 8, 7)));
    let members = vec![(0, Member::Map(1))];
    program.maps.push(MapDef { kind: MapKind::ArrayOfMaps, inner, members, ..array("o", 4, 1) });
    let error = check(&program).expect_err("`two` has 2 entries").to_string();
    assert!(error.contains("map `o`: member is Map(1) under key 0, expected a map of the kind"), "{error}");
}

#[test]
fn findings_have_source_lines() {
    let mut program = program("r0 = 0\ncall 84\nr10 = 3\ngoto +5");
    let line = |insn, line| LineInfo { insn, file: "f.efsm".into(), text: String::new(), line, column: 1 };
    program.lines = vec![line(1, 7), line(3, 9)];
    let error = check(&program).expect_err("three things are wrong");
    let places: Vec<_> = error.findings.iter().map(|f| (f.insn, f.source.as_deref())).collect();
    assert_eq!(places, [(Some(1), Some("f.efsm:7")), (Some(2), Some("f.efsm:7")), (Some(3), Some("f.efsm:9"))]);
    assert!(error.to_string().contains("instruction 3 (f.efsm:9): jump to slot 9"), "{error}");
}
