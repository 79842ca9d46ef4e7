// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every instruction, on boundary values [RFC 9669].

use flowloom_testkit::Rng;

use super::*;
use flowloom_isa::op::{AluOp, Cond, Op, Operand, Reg, Width};

const MIN64: u64 = 1 << 63;
const MIN32: u64 = 1 << 31;
const ONES: u64 = u64::MAX;
const ONES32: u64 = 0xffff_ffff;
const MINUS_7: u64 = -7_i64 as u64;
/// A register whose halves differ in every byte.
const MIXED: u64 = 0x8182_8384_f5f6_f7f8;

/// Boundary values.
const EDGES: [u64; 18] =
    [0, 1, 2, 3, 7, MINUS_7, ONES, MIN64, MIN64 - 1, MIN32, MIN32 - 1, ONES32, 1 << 32, 31, 32, 63, 64, MIXED];

/// Operation, width, operands, result, from the text of RFC 9669: the model may share a misreading.
#[rustfmt::skip]
const ALU: [(AluOp, Width, u64, u64, u64); 18] = {
    use {AluOp::*, Width::{W32, W64}};
    [
        (Sdiv, W64, MIN64, ONES, MIN64), (Sdiv, W32, MIN32, ONES, MIN32), (Smod, W64, MIN64, ONES, 0),
        (Sdiv, W64, MINUS_7, 2, -3_i64 as u64), (Sdiv, W32, MINUS_7, 2, 0xffff_fffd), (Sdiv, W64, 7, -2_i64 as u64, -3_i64 as u64),
        (Smod, W64, MINUS_7, 3, ONES), (Smod, W64, 7, -3_i64 as u64, 1), (Div, W64, 7, 0, 0), (Sdiv, W32, MIXED, 0, 0),
        (Mod, W64, MIXED, 0, MIXED), (Smod, W32, MIXED, 0, 0xf5f6_f7f8), (Add, W32, ONES, 1, 0), (Mul, W32, ONES, 3, 0xffff_fffd),
        (Lsh, W64, 1, 65, 2), (Lsh, W32, 1, 32, 1), (Rsh, W32, MIXED, 33, 0x7afb_7bfc), (Arsh, W32, MIXED, 36, 0xff5f_6f7f),
    ]
};

/// `r0 = a op b`, with `b` in a register and as an immediate.
fn results(op: AluOp, width: Width, a: u64, b: u64) -> Vec<u64> {
    let mut forms = vec![Operand::Reg(Reg::R1)];
    if i64::from(b as i32) as u64 == b {
        forms.push(Operand::Imm(b as i32));
    }
    let run = |src| {
        let mut insns = Vec::new();
        Op::LoadImm { dst: Reg::R0, value: a }.encode(&mut insns);
        Op::LoadImm { dst: Reg::R1, value: b }.encode(&mut insns);
        Op::Alu { width, op, dst: Reg::R0, src }.encode(&mut insns);
        Op::Exit.encode(&mut insns);
        let program = Program { section: "xdp".into(), insns, ..Program::default() };
        Interpreter::new(Arc::new(program)).unwrap().r0(&[]).unwrap()
    };
    forms.into_iter().map(run).collect()
}

/// An independent model: numbers of 128 bits, truncated at the end.
fn model(op: AluOp, width: Width, a: u64, b: u64) -> u64 {
    let bits = if width == Width::W64 { 64 } else { 32 };
    let cut = |x: i128| (x & ((1 << bits) - 1)) as u64;
    let signed = |x: i128| if x >> (bits - 1) & 1 == 1 { x - (1 << bits) } else { x };
    let (a, b) = (i128::from(cut(a.into())), i128::from(cut(b.into())));
    let shift = b % bits;
    cut(match op {
        AluOp::Add => a + b,
        AluOp::Sub => a - b,
        AluOp::Mul => (a as u128).wrapping_mul(b as u128) as i128,
        AluOp::Div | AluOp::Sdiv if b == 0 => 0,
        AluOp::Mod | AluOp::Smod if b == 0 => a,
        AluOp::Div => a / b,
        AluOp::Sdiv => signed(a) / signed(b),
        AluOp::Mod => a % b,
        AluOp::Smod => signed(a) % signed(b),
        AluOp::Or => a | b,
        AluOp::And => a & b,
        AluOp::Xor => a ^ b,
        AluOp::Mov => b,
        AluOp::Lsh => a << shift,
        AluOp::Rsh => a >> shift,
        AluOp::Arsh => signed(a) >> shift,
    })
}

/// Numbers, often boundary values.
fn number(rng: &mut Rng) -> u64 {
    if rng.chance(1, 2) { *rng.pick(&EDGES) } else { rng.next_u64() >> rng.below(64) }
}

#[test]
fn arithmetic_equals_the_rows_and_a_model() {
    for (op, width, a, b, expected) in ALU {
        assert!(results(op, width, a, b).iter().all(|found| *found == expected), "{op:?} {width:?} 0x{a:x}, 0x{b:x}");
    }
    let mut rng = Rng::from_env(0x5e3a_0001);
    let edges = EDGES.into_iter().flat_map(|a| EDGES.map(|b| (a, b)));
    let random = (0..1200).map(|_| (number(&mut rng), number(&mut rng)));
    for (a, b) in edges.chain(random) {
        for (op, width) in AluOp::ALL.into_iter().flat_map(|op| [(op, Width::W32), (op, Width::W64)]) {
            for found in results(op, width, a, b) {
                assert_eq!(found, model(op, width, a, b), "{op:?} {width:?} 0x{a:x}, 0x{b:x}");
            }
        }
    }
}

#[test]
fn conditions_on_edges() {
    let numbers = [0, 1, 2, ONES, ONES - 1, MIN64, MIN64 - 1, MIN32, MIN32 - 1, ONES32, 1 << 32, MIXED];
    let mut seen = std::collections::BTreeMap::new();
    for cond in Cond::ALL {
        for width in [Width::W32, Width::W64] {
            for (a, b) in numbers.into_iter().flat_map(|a| numbers.map(|b| (a, b))) {
                let extend = |x: u64| if width == Width::W64 { i128::from(x) } else { i128::from(x as u32) };
                let signed = |x: u64| if width == Width::W64 { i128::from(x as i64) } else { i128::from(x as i32) };
                let (ua, ub, sa, sb) = (extend(a), extend(b), signed(a), signed(b));
                let expected = match cond {
                    Cond::Eq => ua == ub,
                    Cond::Ne => ua != ub,
                    Cond::Gt => ua > ub,
                    Cond::Ge => ua >= ub,
                    Cond::Lt => ua < ub,
                    Cond::Le => ua <= ub,
                    Cond::Set => ua & ub != 0,
                    Cond::Sgt => sa > sb,
                    Cond::Sge => sa >= sb,
                    Cond::Slt => sa < sb,
                    Cond::Sle => sa <= sb,
                };
                let (r, sign) = (if width == Width::W64 { 'r' } else { 'w' }, cond.symbol());
                let start = format!("r0 = 0\nr1 = {a} ll\nr2 = {b} ll\n");
                let mut texts = vec![format!("{start}if {r}1 {sign} {r}2 goto +1\nexit\nr0 = 1\nexit")];
                if i64::from(b as i32) as u64 == b {
                    texts.push(format!("{start}if {r}1 {sign} {} goto +1\nexit\nr0 = 1\nexit", b as i32));
                }
                for text in texts {
                    assert_eq!(r0(&text), Ok(expected.into()), "{text}");
                }
                *seen.entry((format!("{cond:?}{width:?}"), expected)).or_insert(0) += 1;
            }
        }
    }
    assert_eq!(seen.len(), 44, "every condition is true and false in both widths: {seen:?}");
}

#[test]
fn everything_else() {
    let load = "r1 = 0x81828384f5f6f7f8 ll\n";
    let packet = "r1 = *(u32 *)(r1 + 0)\n";
    let stack = "r1 = 0x81828384f5f6f7f8 ll\n*(u64 *)(r10 - 8) = r1\nr3 = 0xfedcba9876543210 ll\n";
    for (start, text, expected) in [
        (load, "r0 = (s8)r1", -8i64 as u64),
        (load, "r0 = (s16)r1", 0xffff_ffff_ffff_f7f8),
        (load, "r0 = (s32)r1", 0xffff_ffff_f5f6_f7f8),
        (load, "w0 = (s8)w1", 0xffff_fff8),
        (load, "w0 = (s16)w1", 0xffff_f7f8),
        (load, "r1 >>= 4\nr0 = (s8)r1", 0x7f),
        (load, "r1 = -r1\nr0 = r1", MIXED.wrapping_neg()),
        (load, "w1 = -w1\nr0 = r1", 0x0a09_0808),
        ("r0 = 0x8000000000000000 ll\n", "r0 = -r0", MIN64),
        ("r0 = 0x80000000 ll\n", "w0 = -w0", MIN32),
        (load, "r1 = le16 r1\nr0 = r1", 0xf7f8),
        (load, "r1 = le32 r1\nr0 = r1", 0xf5f6_f7f8),
        (load, "r1 = le64 r1\nr0 = r1", MIXED),
        (load, "r1 = be16 r1\nr0 = r1", 0xf8f7),
        (load, "r1 = be32 r1\nr0 = r1", 0xf8f7_f6f5),
        (load, "r1 = be64 r1\nr0 = r1", 0xf8f7_f6f5_8483_8281),
        (load, "r1 = bswap16 r1\nr0 = r1", 0xf8f7),
        (load, "r1 = bswap32 r1\nr0 = r1", 0xf8f7_f6f5),
        (load, "r1 = bswap64 r1\nr0 = r1", 0xf8f7_f6f5_8483_8281),
        (packet, "r0 = *(u8 *)(r1 + 1)", 1),
        (packet, "r0 = *(u16 *)(r1 + 1)", 0x0201),
        (packet, "r0 = *(u32 *)(r1 + 1)", 0x0403_0201),
        (packet, "r0 = *(u64 *)(r1 + 1)", 0x0807_0605_0403_0201),
        (stack, "r0 = *(s8 *)(r10 - 8)", -8i64 as u64),
        (stack, "r0 = *(s16 *)(r10 - 8)", 0xffff_ffff_ffff_f7f8),
        (stack, "r0 = *(s32 *)(r10 - 8)", 0xffff_ffff_f5f6_f7f8),
        (stack, "r0 = *(u8 *)(r10 - 1)", 0x81),
        (stack, "*(u8 *)(r10 - 8) = r3\nr0 = *(u64 *)(r10 - 8)", 0x8182_8384_f5f6_f710),
        (stack, "*(u16 *)(r10 - 8) = r3\nr0 = *(u64 *)(r10 - 8)", 0x8182_8384_f5f6_3210),
        (stack, "*(u32 *)(r10 - 8) = r3\nr0 = *(u64 *)(r10 - 8)", 0x8182_8384_7654_3210),
        (stack, "*(u8 *)(r10 - 8) = -1\nr0 = *(u64 *)(r10 - 8)", 0x8182_8384_f5f6_f7ff),
        (stack, "*(u16 *)(r10 - 8) = -2\nr0 = *(u64 *)(r10 - 8)", 0x8182_8384_f5f6_fffe),
        (stack, "*(u32 *)(r10 - 8) = -2\nr0 = *(u64 *)(r10 - 8)", 0x8182_8384_ffff_fffe),
        (stack, "*(u64 *)(r10 - 8) = -2\nr0 = *(u64 *)(r10 - 8)", -2i64 as u64),
        ("", "goto +1\nr0 = 1\nr0 = 2", 2),
        ("", "gotol +1\nr0 = 1\nr0 = 2", 2),
        ("", "r0 = 1\nmay_goto +1\nr0 = 2", 2),
        ("", "r0 = 5\na: if r0 == 0 goto b\nr0 -= 1\ngoto a\nb: r0 = 9", 9),
        ("", "r0 = subprog[f] ll\nr0 -= r0\nexit\nf: r0 = 1", 0),
    ] {
        assert_eq!(r0(&format!("{start}{text}\nexit")), Ok(expected), "{text}");
    }
}

#[test]
fn atomic_operations() {
    // Operator, old value, source, new value, for 64 and 32 bits.
    let (old, src) = (MIXED, 0x0f0f_0f0f_1f1f_1f1f);
    let rows: [(&str, &str, u64); 4] = [
        ("+=", "add", old.wrapping_add(src)),
        ("|=", "or", old | src),
        ("&=", "and", old & src),
        ("^=", "xor", old ^ src),
    ];
    let start = format!("r1 = {old} ll\n*(u64 *)(r10 - 8) = r1\nr2 = {src} ll\n");
    let half = |new: u64| old & !ONES32 | new & ONES32;
    let left = "\nr0 = *(u64 *)(r10 - 8)\nexit";
    let fetched = "\nr0 = r2\nexit";
    for (sign, name, new) in rows {
        let run = |op: &str, end| r0(&format!("{start}{op}{end}"));
        assert_eq!(run(&format!("lock *(u64 *)(r10 - 8) {sign} r2"), left), Ok(new), "{name}");
        assert_eq!(run(&format!("lock *(u32 *)(r10 - 8) {sign} w2"), left), Ok(half(new)), "{name}");
        assert_eq!(run(&format!("lock *(u64 *)(r10 - 8) {sign} r2"), fetched), Ok(src), "{name} does not fetch");
        let fetch64 = format!("r2 = atomic_fetch_{name}((u64 *)(r10 - 8), r2)");
        let fetch32 = format!("w2 = atomic_fetch_{name}((u32 *)(r10 - 8), w2)");
        assert_eq!((run(&fetch64, left), run(&fetch64, fetched)), (Ok(new), Ok(old)), "{name}");
        assert_eq!((run(&fetch32, left), run(&fetch32, fetched)), (Ok(half(new)), Ok(old & ONES32)), "{name}");
    }
    for (op, new, in_r2, in_r0) in [
        ("r2 = xchg_64(r10 - 8, r2)", src, old, 0),
        ("w2 = xchg32_32(r10 - 8, w2)", half(src), old & ONES32, 0),
        ("r0 = 5\nr0 = cmpxchg_64(r10 - 8, r0, r2)", old, src, old),
        ("r0 = r1\nr0 = cmpxchg_64(r10 - 8, r0, r2)", src, src, old),
        // Only the low half of r0 counts, and all of it is written.
        ("r0 = r1\nw0 = cmpxchg32_32(r10 - 8, w0, w2)", half(src), src, old & ONES32),
        ("r0 = 5\nw0 = cmpxchg32_32(r10 - 8, w0, w2)", old, src, old & ONES32),
    ] {
        assert_eq!(r0(&format!("{start}{op}{left}")), Ok(new), "{op}");
        assert_eq!(r0(&format!("{start}{op}{fetched}")), Ok(in_r2), "{op}");
        if op.contains("cmp") {
            assert_eq!(r0(&format!("{start}{op}\nexit")), Ok(in_r0), "{op}");
        }
    }
}

#[test]
fn functions_of_the_program() {
    for (text, expected) in [
        // Arguments in, r0 out, r6-r9 preserved, each frame its own stack.
        (
            "r6 = 40\n*(u64 *)(r10 - 8) = 2\nr1 = 5\ncall f\nr0 += r6\nr1 = *(u64 *)(r10 - 8)\nr0 += r1\nexit\n\
          f: r6 = r1\n*(u64 *)(r10 - 8) = 9\nr0 = r6\nexit",
            47,
        ),
        // A caller's stack by its address.
        ("r1 = r10\nr1 += -8\ncall f\nr0 = *(u64 *)(r10 - 8)\nexit\nf: *(u64 *)(r1 + 0) = 77\nr0 = 0\nexit", 77),
        // Eight frames.
        ("r1 = 7\ncall f\nexit\nf: r0 = 0\nif r1 == 1 goto end\nr1 -= 1\ncall f\nr0 += 1\nend: exit", 6),
        // A function without a result leaves r0 uninitialised, which is fine unless it is read.
        ("call f\nr0 = 3\nexit\nf: exit", 3),
    ] {
        assert_eq!(r0(text), Ok(expected), "{text}");
    }
}

#[test]
fn instructions_are_counted() {
    let mut interp = interp("r1 = 5 ll\na: r1 -= 1\nif r1 != 0 goto a\ncall ktime_get_ns\nr0 = 2\nexit").with_profile();
    interp.r0(&[]).unwrap();
    interp.r0(&[]).unwrap();
    assert_eq!((interp.executed(), interp.calls()), (2 * 14, 2));
    assert_eq!(interp.profile(), Some(&[2, 0, 10, 10, 2, 2, 2][..]));
}

#[test]
fn decisions_are_recorded() {
    let text = "r1 = *(u32 *)(r1 + 16)\nr6 = 0x100000007 ll\nif w6 > 7 goto end\nif r6 > 7 goto ask\nend: r0 = 0\nexit\n\
                ask: *(u32 *)(r10 - 4) = r1\nr2 = r10\nr2 += -4\nr1 = map[hash] ll\ncall map_lookup_elem\n\
                if r0 == 0 goto end\nr0 = 1\nexit";
    let mut interp = interp(text).with_trail();
    let branches = |end| [(3, (7, 7), false), (4, (0x1_0000_0007, 7), true), (13, end, end.0 == 0)];
    let expected = |key: [u8; 4], found, end| Trail {
        branches: branches(end).map(|(insn, operands, taken)| Branch { insn, operands, taken }).to_vec(),
        lookups: vec![Lookup { map: 0, key: key.to_vec(), found }],
        changes: Vec::new(),
    };
    assert_eq!(interp.r0(&[]), Ok(0));
    assert_eq!(interp.trail(), Some(&expected([0; 4], false, (0, 0))));
    interp.environment.space.maps[0].update(&[0; 4], &[1; 8], 0, 0);
    assert_eq!(interp.r0(&[]), Ok(1));
    let address = interp.trail().unwrap().branches[2].operands.0;
    // Only the last packet's.
    assert_eq!(interp.trail(), Some(&expected([0; 4], true, (address, 0))));
}

/// `call loop` with this trip count, and flags that are known to be 0, or only are.
fn rounds(count: &str, flags: &str) -> Result<u64, String> {
    let start = format!("{flags}\nr1 = {count} ll\nr2 = subprog[f] ll\nr3 = 0");
    r0(&format!("{start}\ncall loop\nexit\nf: r0 = 0\nexit"))
}

#[test]
fn a_loop_that_the_kernel_inlines_counts_in_64_bits() {
    let (known, found) = ("r4 = 0", "r4 = *(u32 *)(r1 + 16)");
    assert_eq!(rounds("0x100000005", known), Ok(0xffff_fff9));
    assert_eq!(rounds("0x100000005", found), Ok(5));
    assert_eq!(rounds("0x800001", known), Ok(0xffff_fff9));
    assert_eq!(rounds("0x800001", found), Ok(-7_i64 as u64));
    assert_eq!((rounds("7", known), rounds("7", found)), (Ok(7), Ok(7)));
    assert_eq!(rounds("7", "r4 = 1"), Ok(-22_i64 as u64));
}

#[test]
fn for_each_visits_the_entries_at_its_start() {
    let put = |key| {
        format!(
            "*(u32 *)(r10 - 4) = {key}\n*(u64 *)(r10 - 16) = 1\nr1 = map[hash] ll\nr2 = r10\nr2 += -4\nr3 = r10\n\
             r3 += -16\nr4 = 0\ncall map_update_elem\n"
        )
    };
    let delete =
        |key| format!("*(u32 *)(r10 - 4) = {key}\nr1 = map[hash] ll\nr2 = r10\nr2 += -4\ncall map_delete_elem\n");
    let text = format!(
        "{}{}{}r1 = map[hash] ll\nr2 = subprog[f] ll\nr3 = 0\nr4 = 0\ncall for_each_map_elem\nexit\nf:\n{}{}r0 = 0\nexit",
        put(0),
        put(1),
        put(2),
        delete(1),
        delete(2)
    );
    assert_eq!(r0(&text), Ok(1));
}

#[test]
fn addresses_of_no_object_are_out_of_range() {
    for (address, answer) in [("0", -34), ("8", -34), ("0x7fffffffffff", -34), ("0xfffffffffffff000", -14)] {
        for helper in ["probe_read_kernel", "probe_read_kernel_str"] {
            let text = format!("r1 = r10\nr1 += -8\nr2 = 8\nr3 = {address} ll\ncall {helper}\nexit");
            assert_eq!(r0(&text), Ok(answer as i64 as u64), "{address}");
            let text = text.replace("r2 = 8", "r2 = 1");
            assert_eq!(r0(&text), Ok(answer as i64 as u64), "{address}");
        }
    }
}

#[test]
fn lengths_are_computed_as_int() {
    let table = r#"{"interfaces": [{"port": 7, "mac": "02:00:00:00:00:01"}]}"#;
    let table = crate::fib::Table::from_json(table).unwrap();
    for (length, difference, answer) in [(-16, 0, 0), (1501, 0, 1), (1500, 0, 0), (0x7fff_ffff, 0, 0), (1400, 101, 1)] {
        let text = format!(
            "*(u32 *)(r10 - 4) = {length}\nr2 = 7\nr3 = r10\nr3 += -4\nr4 = {difference}\nr5 = 0\ncall check_mtu\nexit"
        );
        let mut interp = interp(&text).with_routes(table.clone());
        assert_eq!(interp.r0(&[0; 60]), Ok(answer), "{length} {difference}");
    }
}
