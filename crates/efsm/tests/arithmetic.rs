// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Width, sign and lowered form of expressions and conditions, case by case.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::field;

use flowloom_efsm::compile;
use flowloom_efsm::model::{BinaryOp, Condition, Expr, Function, NewValue, Relation, Row, Wide, Width, WriteTarget};

/// Compiles a function with this row and a variable of each type.
fn compile_row(row: &str) -> Result<(Function, Vec<String>), Vec<String>> {
    let text = format!(
        "function f;\nparam out: port;\nconst big = 0x1_0000_0000;\nmeta m8: u8; meta m64; meta mi: i16;\nstateful s {{\n\
         key ip.src; states only;\n\
         reg r8: u8; reg r16: u16; reg r32: u32; reg r64: u64; reg s8: i8; reg s16: i16; reg s32: i32; reg s64: i64;\n\
         reg us: u32 time(1us); reg us64: u64 time(1us); reg ms: u16 time(1ms);\n{row}\n}}"
    );

    match compile("f", &text, &[]) {
        Ok((function, warnings)) => {
            let warnings = warnings.into_iter().map(|w| w.code.to_string()).filter(|c| c != "efsm::unused").collect();
            Ok((function, warnings))
        }
        Err(errors) => Err(errors.list.into_iter().map(|d| d.code.to_string()).collect()),
    }
}

fn row(text: &str) -> Row {
    let (function, _) = compile_row(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    function.elements[0].rows[0].clone()
}

fn condition(text: &str) -> Condition {
    row(&format!("on only when {text} {{ drop; }}")).conditions[0].clone()
}

#[test]
fn comparisons_take_the_width_and_sign_of_their_operands() {
    use Width::{W32, W64};
    for (text, width, signed) in [
        ("r8 == 1", W32, false),
        ("r32 < 5", W32, false),
        ("r32 + 1 < pkt.len", W32, false),
        ("r64 < 5", W64, false),
        ("r32 < r64", W64, false),
        ("eth.src == 02:00:00:00:00:01", W64, false),
        ("r32 + big < 5", W64, false),
        ("r32 + 0xffffffff < 5", W32, false),
        ("m64 == 3", W64, false),
        ("s8 < 0", W32, true),
        ("s32 < r16", W32, true),
        ("s8 < r32", W64, true),
        ("s32 < pkt.len", W64, true),
        ("s64 < r32", W64, true),
        ("s8 + 0x80000000 > 3", W64, true),
        ("s32 > -5", W32, true),
        ("mi > -5", W32, true),
        ("now > 5s", W64, false),
        ("now > us64", W64, false),
        ("now - us < 5us", W32, false),
        ("state == 0", W32, false),
    ] {
        let Condition::Compare { width: w, signed: s, .. } = condition(text) else { panic!("{text}") };
        assert_eq!((w, s), (width, signed), "{text}");
    }
}

#[test]
fn destinations_widen_and_signs_widen() {
    use Width::{W32, W64};
    for (text, width) in [
        ("r8 = r8 + 1", W32),
        ("r8 = r64", W64),
        ("r64 = r32 + r32", W64),
        ("r32 = r32 << 40", W32),
        ("s32 = s8 + r16", W32),
        ("r8 = s8 + r32", W64),
        ("s16 = -s16", W32),
        ("us = now", W32),
        ("us64 = now + 5us", W64),
        ("r32 = now", W64),
        ("ms = now + 3ms", W32),
        ("r16 = ror(r16, 3)", W32),
        ("r32 = ewma(r32, pkt.len, 3)", W32),
        ("r64 = max(r64, r8)", W64),
    ] {
        let row = row(&format!("on only {{ {text}; drop; }}"));
        assert!(matches!(row.updates[0].value, NewValue::Number { width: found, .. } if found == width), "{text}");
    }
}

#[test]
fn serial_order_uses_the_widest_operand() {
    for (text, bits) in [
        ("tcp.seq before r32", 32),
        ("r8 after 5", 8),
        ("r8 before r16", 16),
        ("vlan.id before 7", 16),
        ("r64 after tcp.seq", 64),
        ("now after us", 32),
        ("now after us + 5ms", 32),
        ("now before ms", 16),
        ("now before us64", 64),
        ("now before 5s", 64),
    ] {
        let Condition::Serial { serial_bits, .. } = condition(text) else { panic!("{text}") };
        assert_eq!(serial_bits, bits, "{text}");
    }
    match condition("now after us + 5ms") {
        Condition::Serial { left: Expr::Now { unit_ns: 1000 }, right: Expr::Binary(_, _, by), after: true, .. } => {
            assert_eq!(*by, Expr::Constant(5000));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn addresses_lower_to_masks_and_mapped_values() {
    let mapped = 0xffff_0000_0000_u128;
    let masked =
        |name, mask, value, negated| Condition::Masked { operand: Wide::Field(field(name)), mask, value, negated };
    let (left, right) = (Wide::Field(field("ip.src")), Wide::Field(field("ip.dst")));
    let v4 = u128::from(u32::from_be_bytes([10, 1, 0, 0]));
    for (text, expected) in [
        ("ip.src == 10.1.0.0", masked("ip.src", u128::MAX, mapped | v4, false)),
        ("10.1.0.0 != ip.src", masked("ip.src", u128::MAX, mapped | v4, true)),
        ("ip.src in 10.1.0.0/16", masked("ip.src", !0xffff, mapped | v4, false)),
        ("!(ip.src in 0.0.0.0/0)", masked("ip.src", !0xffff_ffff, mapped, true)),
        ("ip.src in ::/0", masked("ip.src", 0, 0, false)),
        ("ipv6.dst in 2001:db8::/32", masked("ipv6.dst", !0 << 96, 0x2001_0db8 << 96, false)),
        ("ipv4.src in 10.1.0.0/16", masked("ipv4.src", 0xffff_0000, v4, false)),
        ("eth.dst in 01:00:5e:00:00:00/25", masked("eth.dst", 0xffff_ff80_0000, 0x0100_5e00_0000, false)),
        ("ip.tos & 0xf0 == 0x40", masked("ip.tos", 0xf0, 0x40, false)),
        ("0x40 != 0xf0 & ip.tos", masked("ip.tos", 0xf0, 0x40, true)),
        ("tcp.is_syn", masked("tcp.is_syn", 1, 1, false)),
        ("!!tcp.is_syn", masked("tcp.is_syn", 1, 1, false)),
        ("!(ip.src == ip.dst)", Condition::Same { left, right, negated: true }),
        ("!(ip.src != ip.dst)", Condition::Same { left, right, negated: false }),
        ("!(l4.dport in 20..30)", Condition::Range { field: field("l4.dport"), low: 20, high: 30, negated: true }),
    ] {
        assert_eq!(condition(text), expected, "{text}");
    }
}

#[test]
fn writes_of_addresses_choose_their_family() {
    let write = |text: &str| {
        let write = row(&format!("on only {{ {text}; drop; }}")).actions.writes[0].clone();
        let WriteTarget::Field(field) = write.target else { panic!("{text}") };
        (field, write.value)
    };
    let v4 = NewValue::Number { value: Expr::Constant(0x0a00_0001), width: Width::W32 };
    assert_eq!(write("ip.src = 10.0.0.1"), (field("ipv4.src"), v4.clone()));
    assert_eq!(write("ipv4.dst = 10.0.0.1"), (field("ipv4.dst"), v4));
    assert_eq!(write("ip.dst = ::1"), (field("ipv6.dst"), NewValue::Wide(Wide::Constant(1))));
    assert_eq!(write("ipv6.dst = ::1"), (field("ipv6.dst"), NewValue::Wide(Wide::Constant(1))));
    assert_eq!(write("ip.dst = ip.src"), (field("ip.dst"), NewValue::Wide(Wide::Field(field("ip.src")))));
}

#[test]
fn negation_inverts_relations() {
    let shown = |text: &str| format!("{:?}", condition(text));
    for (negated, plain) in [("!(r8 < 5)", "r8 >= 5"), ("!(r8 == 5)", "r8 != 5"), ("!(r8 >= r16)", "r8 < r16")] {
        assert_eq!(shown(negated), shown(plain));
    }
    let all = row("on only when (r8 == 1 && r16 == 2) && r32 in 3..4 { drop; }");
    assert_eq!(all.conditions.len(), 3);
}

#[test]
fn ranges_of_numbers_are_one_comparison() {
    let constant = |n: i64| Expr::Constant(n as u64);
    let minus = |left: Expr, right: Expr| Expr::Binary(BinaryOp::Sub, Box::new(left), Box::new(right));
    let (r8, s16, r64) = (Expr::Register(0), Expr::Register(5), Expr::Register(3));
    use Relation::{Greater, GreaterEqual, Less, LessEqual};
    for (text, left, relation, right, width, signed) in [
        ("r8 in 3..9", minus(r8.clone(), constant(3)), LessEqual, 6, Width::W32, false),
        ("!(r8 in 3..9)", minus(r8.clone(), constant(3)), Greater, 6, Width::W32, false),
        ("r8 in 0..9", r8.clone(), LessEqual, 9, Width::W32, false),
        ("!(r8 in 0..9)", r8.clone(), Greater, 9, Width::W32, false),
        ("r8 in 9..255", r8.clone(), GreaterEqual, 9, Width::W32, false),
        ("!(r8 in 9..255)", r8, Less, 9, Width::W32, false),
        ("s16 in -5..9", minus(s16.clone(), constant(-5)), LessEqual, 14, Width::W32, false),
        ("s16 in -32768..-9", s16, LessEqual, -9, Width::W32, true),
        ("r64 in 1..big", minus(r64, constant(1)), LessEqual, 0xffff_ffff, Width::W64, false),
    ] {
        let expected = Condition::Compare { left, relation, right: constant(right), width, signed };
        assert_eq!(condition(text), expected, "{text}");
    }
}

#[test]
fn sets_are_sorted_constants() {
    let (ttl, src) = (Expr::Field(field("ip.ttl")), Expr::Field(field("ipv4.src")));
    for (text, operand, values, width, negated) in [
        ("ip.ttl in {64, 1, 64}", ttl.clone(), vec![1, 64], Width::W32, false),
        ("!(ip.ttl in {64})", ttl, vec![64], Width::W32, true),
        ("s16 in {5, -1}", Expr::Register(5), vec![5, 0xffff_ffff], Width::W32, false),
        ("r64 in {big, 3}", Expr::Register(3), vec![3, 0x1_0000_0000], Width::W64, false),
        ("us in {2ms, 1s}", Expr::Register(8), vec![2000, 1_000_000], Width::W32, false),
        ("ip.src in {10.0.0.2, 10.0.0.1}", src, vec![0x0a00_0001, 0x0a00_0002], Width::W32, false),
    ] {
        assert_eq!(condition(text), Condition::OneOf { operand, values, width, negated }, "{text}");
    }
    let operand = Wide::Field(field("ip.src"));
    let masked = |value, negated| Condition::Masked { operand, mask: u128::MAX, value, negated };
    assert_eq!(condition("ip.src in {2001::1}"), masked(0x2001 << 112 | 1, false));
    let row = row("on only when !(ip.src in {10.0.0.2, 10.0.0.1, ::1}) { drop; }");
    let v4 = |last: u128| 0xffff_0a00_0000 | last;
    assert_eq!(row.conditions, [masked(1, true), masked(v4(1), true), masked(v4(2), true)]);
}

#[test]
fn constants_are_exact() {
    for (text, value) in [
        ("r64 = 3 * 5 - 1", 14_u64),
        ("r64 = 0xffff_ffff * 0xffff_ffff", 0xffff_fffe_0000_0001),
        ("s64 = -1 - 1", (-2_i64) as u64),
        ("r64 = (1 << 40) >> 8", 1 << 32),
        ("r64 = min(7, max(2, 5))", 5),
        ("r64 = 2 * 1ms + 1us", 2_001_000),
        ("us = 2 * 1ms", 2000),
        ("us64 = 1m", 60_000_000),
        ("r32 = 10.0.0.1", 0x0a00_0001),
    ] {
        let row = row(&format!("on only {{ {text}; drop; }}"));
        assert_eq!(row.updates[0].value.expr(), Some(&Expr::Constant(value)), "{text}");
    }
}

#[test]
fn errors_have_their_code() {
    for (text, code) in [
        ("on only when s8 < r64 { drop; }", "sign_mismatch"),
        ("on only when s64 < now { drop; }", "sign_mismatch"),
        ("on only when us < ms { drop; }", "time_unit"),
        ("on only when now - ms < 5ms { drop; }", "time_unit"),
        ("on only { r64 = now - us; drop; }", "time_unit"),
        ("on only { r8 = 256; drop; }", "out_of_range"),
        ("on only { s8 = 128; drop; }", "out_of_range"),
        ("on only { r64 = -1; drop; }", "out_of_range"),
        ("on only when r8 == 256 { drop; }", "out_of_range"),
        ("on only when s16 < 40000 { drop; }", "out_of_range"),
        ("on only when r32 == ip.src { drop; }", "width_mismatch"),
        ("on only when tcp.is_syn before 5 && 3 before 4 { drop; }", "bad_condition"),
        ("on only { r64 = 18446744073709551615 + 1; drop; }", "out_of_range"),
        ("on only { us = 1ns; drop; }", "bad_time"),
        ("on only { us = 1500ns + now; drop; }", "bad_time"),
        ("on only -> only (idle 36m) { drop; }", "bad_time"),
        ("on only { forward(m64 >> 32); }", "width_mismatch"),
        ("on only { r64 = max(s8, r64); drop; }", "sign_mismatch"),
        ("on only { r64 = 1s * 1s; drop; }", "wrong_kind"),
        ("on only { r64 = 1 + 1s; drop; }", "wrong_kind"),
        ("on only { forward(256); }", "out_of_range"),
    ] {
        let errors = compile_row(text).err().unwrap_or_else(|| panic!("{text} is accepted"));
        assert_eq!(errors, [format!("efsm::{code}")], "{text}");
    }
    for (text, code) in [
        ("on only when r8 >= 0 { drop; }", "constant_condition"),
        ("on only when r8 > 255 { drop; }", "constant_condition"),
        ("on only when now > us { drop; }", "time_unit"),
        ("on only when tcp.seq == 1 && udp.len > 9 { drop; }", "constant_condition"),
    ] {
        let (_, warnings) = compile_row(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        assert_eq!(warnings, [format!("efsm::{code}")], "{text}");
    }
}
