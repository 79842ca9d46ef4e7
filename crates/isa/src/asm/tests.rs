// SPDX-License-Identifier: Apache-2.0 OR MIT
#![allow(clippy::unwrap_used, clippy::panic)]
use flowloom_testkit::Rng;

use super::*;
use crate::disasm::{Text, disassemble};
use crate::map_kind::MapKind;
use crate::op::Op;

fn map(name: &str) -> MapDef {
    MapDef {
        name: name.into(),
        kind: MapKind::Hash,
        key_bytes: 4,
        value_bytes: 8,
        max_entries: 4,
        flags: 0,
        ..MapDef::default()
    }
}

/// `conn` is referred to by name; `3`, the second `conn` and the one with a space by index.
fn maps() -> Vec<MapDef> {
    vec![map("conn"), map(".rodata.str1"), map("3"), map("conn"), map("a b")]
}

/// Opcode, destination, source, offset, immediate and text: the opcode table of RFC 9669 appendix A, row by row.
fn table() -> Vec<(u8, u8, u8, i16, i32, String)> {
    let mut rows = Vec::new();
    let mut row = |code, dst, src, off, imm, text: String| rows.push((code, dst, src, off, imm, text));
    let alu = [
        (0x00, 0, "+="),
        (0x10, 0, "-="),
        (0x20, 0, "*="),
        (0x30, 0, "/="),
        (0x30, 1, "s/="),
        (0x40, 0, "|="),
        (0x50, 0, "&="),
        (0x60, 0, "<<="),
        (0x70, 0, ">>="),
        (0x90, 0, "%="),
        (0x90, 1, "s%="),
        (0xa0, 0, "^="),
        (0xb0, 0, "="),
        (0xc0, 0, "s>>="),
    ];
    for (class, r) in [(0x04, 'w'), (0x07, 'r')] {
        for (op, off, sign) in alu {
            row(op | class, 1, 0, off, -7, format!("{r}1 {sign} -7"));
            row(op | class | 8, 1, 2, off, 0, format!("{r}1 {sign} {r}2"));
        }
        row(0x80 | class, 3, 0, 0, 0, format!("{r}3 = -{r}3"));
        row(0xb8 | class, 3, 4, 8, 0, format!("{r}3 = (s8){r}4"));
        row(0xb8 | class, 3, 4, 16, 0, format!("{r}3 = (s16){r}4"));
    }
    row(0xbf, 3, 4, 32, 0, "r3 = (s32)r4".into());
    for (code, name) in [(0xd4, "le"), (0xdc, "be"), (0xd7, "bswap")] {
        for bits in [16, 32, 64] {
            row(code, 5, 0, 0, bits, format!("r5 = {name}{bits} r5"));
        }
    }
    let conditions = [
        (0x10, "=="),
        (0x20, ">"),
        (0x30, ">="),
        (0x40, "&"),
        (0x50, "!="),
        (0x60, "s>"),
        (0x70, "s>="),
        (0xa0, "<"),
        (0xb0, "<="),
        (0xc0, "s<"),
        (0xd0, "s<="),
    ];
    for (class, r) in [(0x05, 'r'), (0x06, 'w')] {
        for (op, sign) in conditions {
            row(op | class, 1, 0, 3, 5, format!("if {r}1 {sign} 5 goto +3"));
            row(op | class | 8, 1, 2, -3, 0, format!("if {r}1 {sign} {r}2 goto -3"));
        }
    }
    row(0x05, 0, 0, -2, 0, "goto -2".into());
    row(0x06, 0, 0, 0, 70000, "gotol +70000".into());
    row(0xe5, 0, 0, 3, 0, "may_goto +3".into());
    row(0x85, 0, 0, 0, 1, "call map_lookup_elem".into());
    row(0x85, 0, 0, 0, 999, "call 999".into());
    row(0x85, 0, 1, 0, 7, "call pc+7".into());
    row(0x85, 0, 2, 0, 7, "call kfunc#7".into());
    row(0x95, 0, 0, 0, 0, "exit".into());
    for (bits, size) in [(32, 0x00), (16, 0x08), (8, 0x10), (64, 0x18)] {
        row(0x61 | size, 1, 2, 4, 0, format!("r1 = *(u{bits} *)(r2 + 4)"));
        row(0x62 | size, 10, 0, -8, 9, format!("*(u{bits} *)(r10 - 8) = 9"));
        row(0x63 | size, 10, 3, -8, 0, format!("*(u{bits} *)(r10 - 8) = r3"));
        if bits != 64 {
            row(0x81 | size, 1, 2, 4, 0, format!("r1 = *(s{bits} *)(r2 + 4)"));
            row(0x20 | size, 0, 0, 0, 12, format!("r0 = *(u{bits} *)skb[12]"));
            row(0x40 | size, 0, 6, 0, -1, format!("r0 = *(u{bits} *)skb[r6 - 1]"));
        }
    }
    for (code, r, bits, xchg) in [(0xc3, 'w', 32, "xchg32_32"), (0xdb, 'r', 64, "xchg_64")] {
        for (imm, name, sign) in [(0x00, "add", "+="), (0x40, "or", "|="), (0x50, "and", "&="), (0xa0, "xor", "^=")] {
            row(code, 1, 2, 0, imm, format!("lock *(u{bits} *)(r1 + 0) {sign} {r}2"));
            row(code, 1, 2, 0, imm | 1, format!("{r}2 = atomic_fetch_{name}((u{bits} *)(r1 + 0), {r}2)"));
        }
        row(code, 1, 2, 8, 0xe1, format!("{r}2 = {xchg}(r1 + 8, {r}2)"));
        row(code, 1, 2, 8, 0xf1, format!("{r}0 = cmp{xchg}(r1 + 8, {r}0, {r}2)"));
    }
    rows
}

#[test]
fn every_row_of_the_table_both_ways() {
    let table = table();
    for (code, dst, src, off, imm, text) in &table {
        let insn = Insn { code: *code, dst: *dst, src: *src, off: *off, imm: *imm };
        assert_eq!(disassemble(&[insn], &[]).unwrap().trim_end(), text, "{insn:?}");
        assert_eq!(assemble(text, &[]), Ok(vec![insn]), "{text}");
    }
    // All other codes but the 64-bit immediate load are invalid.
    for code in 0..=255 {
        let known = table.iter().any(|row| row.0 == code);
        let taken = (0..=16).chain([32, 64, 0x40, 0x50, 0xa0, 0xe1, 0xf1]).any(|imm| {
            let insn = Insn { code, imm, ..Insn::default() };
            Op::decode(&[insn], 0).is_ok()
        });
        assert_eq!(taken, known, "0x{code:02x}");
    }
    assert_eq!(table.len(), 165);
}

#[test]
fn wide_loads_both_ways() {
    let maps = maps();
    for (src, imm, next, text) in [
        (0, -1, 0, "r1 = 0xffffffff ll"),
        (0, 0, i32::MIN, "r1 = 0x8000000000000000 ll"),
        (1, 0, 0, "r1 = map[conn] ll"),
        (1, 1, 0, "r1 = map[.rodata.str1] ll"),
        (1, 2, 0, "r1 = map[2] ll"),
        (1, 3, 0, "r1 = map[3] ll"),
        (1, 4, 0, "r1 = map[4] ll"),
        (1, -5, 0, "r1 = map[-5] ll"),
        (2, 0, 8, "r1 = map[conn][0]+8 ll"),
        (3, 6, 0, "r1 = var[6] ll"),
        (4, -3, 0, "r1 = subprog[-3] ll"),
        (5, 6, 0, "r1 = map_idx[6] ll"),
        (6, 6, -1, "r1 = map_idx[6][0]+4294967295 ll"),
    ] {
        let first = Insn { code: 0x18, dst: 1, src, off: 0, imm };
        let insns = vec![first, Insn { imm: next, ..Insn::default() }];
        assert_eq!(disassemble(&insns, &maps).unwrap().trim_end(), text);
        assert_eq!(assemble(text, &maps), Ok(insns.clone()), "{text}");
        assert!(disassemble(&insns[..1], &maps).is_err());
    }
    assert_eq!(assemble("r1 = -1 ll", &[]), assemble("r1 = 0xffffffffffffffff ll", &[]));
}

#[test]
fn other_spellings_of_the_tools() {
    for (one, other) in [
        ("call bpf_map_lookup_elem#1", "call 1"),
        ("w1 = *(u32 *)(r2 +4)", "r1 = *(u32 *)(r2 + 4)"),
        ("*(u32 *)(r2 + 4) = w1", "*(u32 *)(r2 + 4) = r1"),
        ("r1 = *(u8 *)(r2)", "r1 = *(u8 *)(r2 + 0)"),
        ("w1 = 0xffffffff // all ones", "w1 = -1"),
        ("r1=5;five", "r1 = 0x5"),
        ("a: b: goto a", "goto -1"),
        ("f: r1 = subprog[f] ll", "r1 = subprog[-1] ll"),
        ("goto end\nr1 = 7 ll\nend: exit", "goto +2\nr1 = 7 ll\nexit"),
        ("call redirect\nredirect: exit", "call 23\nexit"),
        ("call here\nhere: exit", "call pc+0\nexit"),
    ] {
        assert_eq!(assemble(one, &[]).unwrap(), assemble(other, &[]).unwrap(), "{one}");
    }
}

#[test]
fn random_instructions_there_and_back() {
    let mut rng = Rng::from_env(0x0a5e_0001);
    let maps = maps();
    for _ in 0..200_000 {
        let op = crate::op_gen::op(&mut rng);
        let mut insns = Vec::new();
        op.encode(&mut insns);
        assert_eq!(Op::decode(&insns, 0), Ok(op), "{insns:?}");
        assert_eq!(op.slots(), insns.len());
        let text = Text { op, maps: &maps }.to_string();
        assert_eq!(assemble(&text, &maps), Ok(insns), "{text}");
    }
}

#[test]
fn whatever_decodes_comes_back() {
    let mut rng = Rng::from_env(0x0a5e_0002);
    let mut valid = 0;
    for _ in 0..400_000 {
        let mut insns = [Insn::default(); 2];
        for insn in &mut insns {
            let raw = rng.next_u64();
            let mask = *rng.pick(&[0x0000_0000_0000_ffff, 0xffff_ffff, u64::MAX, 0x0000_00ff_0000_0fff]);
            *insn = Insn::from_bytes((raw & mask).to_le_bytes());
        }
        if rng.chance(1, 2) {
            insns[1] = Insn { imm: insns[1].imm, ..Insn::default() };
        }
        if let Ok(op) = Op::decode(&insns, 0) {
            valid += 1;
            let slots = &insns[..op.slots()];
            assert_eq!(assemble(&disassemble(slots, &[]).unwrap(), &[]).unwrap(), slots, "{op:?}");
        }
    }
    assert!(valid > 20_000, "{valid} valid ones are no test");
}

#[test]
fn errors_name_the_place() {
    let value = "a register, a number, `map[...] ll`, a memory access or an operation such as `be16`";
    for (text, (line, column), found, expected) in [
        (
            "r1 = *(u33 *)(r2 + 4)",
            (1, 8),
            "`u33`",
            "the type of an access: `u8`, `u16`, `u32`, `u64`, `s8`, `s16` or `s32`",
        ),
        ("r1 += w2", (1, 7), "`w2`", "a 64-bit register, `r0` to `r10`"),
        (
            "exit\n  r11 = 5",
            (2, 3),
            "`r11`",
            "an instruction: an assignment, `if`, `goto`, `gotol`, `may_goto`, `call`, `lock` or `exit`",
        ),
        ("r1 = 3000000000", (1, 6), "`3000000000`", "a 32-bit number, -2147483648 to 2147483647"),
        ("r1 = 18446744073709551616 ll", (1, 6), "`18446744073709551616`", value),
        ("if r1 > 5 goto nowhere", (1, 16), "`nowhere`", "a label of this text, or a distance such as `+3`"),
        ("if r1 > 5 goto +40000", (1, 16), "`+40000`", "a distance of -32768 to 32767 slots (`gotol` goes further)"),
        ("call bpf_map_lookup_elem#2", (1, 26), "`2`", "`1`"),
        ("call nothing", (1, 6), "`nothing`", "a helper's name or number, or a label of this text"),
        ("r1 = map[con] ll", (1, 10), "`con`", "the name of a map (`conn`)"),
        ("r2 = bswap16 r3", (1, 14), "`r3`", "`r2`, the same register again"),
        ("lock *(u16 *)(r1 + 0) += w2", (1, 8), "`u16`", "`u32` or `u64`: atomic operations take 4 or 8 bytes"),
        ("*(u64 *)(r1 + 32768) = 0", (1, 15), "`32768`", "an offset in bytes, -32768 to 32767"),
        ("exit exit", (1, 6), "`exit`", "the end of the line"),
        ("r1 =", (1, 5), "the end of the line", value),
        ("a: exit\na: exit", (2, 1), "`a` once more", "a label that is new"),
    ] {
        let errors = assemble(text, &maps()[..1]).expect_err(text);
        assert_eq!(errors.to_string(), format!("line {line}, column {column}: found {found}, expected {expected}"));
    }
    assert_eq!(assemble("one\nexit\ntwo", &[]).expect_err("two lines are wrong").0.len(), 2);
}

#[test]
fn garbage_text_never_panics() {
    let mut rng = Rng::from_env(0x0a5e_0003);
    let text = "r1 w2 r10 = * ( ) u32 s8 skb [ ] + - 4 0x ll map if goto call lock atomic_fetch_add xchg_64 é \u{2028} \
                18446744073709551615 : s> # pc , subprog \t 99999999999999999999 be16 s .";
    let words: Vec<&str> = text.split(' ').collect();
    for _ in 0..100_000 {
        let text: Vec<&str> = (0..rng.below(12)).map(|_| *rng.pick(&words)).collect();
        let _ = assemble(&text.join(if rng.chance(1, 2) { " " } else { "" }), &maps());
    }
}
