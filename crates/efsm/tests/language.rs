// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lowering of language constructs to the model: contexts, addresses, steps and declared headers.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{check_model, field};

use flowloom_efsm::compile;
use flowloom_efsm::model::{
    Condition, Destination, Function, KeyPart, NewValue, Policy, Preloaded, Stateful, Successor, Terminal, Type, Wide,
    WriteTarget,
};
use flowloom_wire::field::IPV4_MAPPED;

/// Compiles a valid function; also returns the codes of its warnings.
fn function(text: &str) -> (Function, Vec<String>) {
    let (function, warnings) = compile("f", &format!("function f;\n{text}"), &[]).unwrap_or_else(|e| {
        panic!("{text}: {:#?}", e.list.iter().map(|d| (&d.message, d.position())).collect::<Vec<_>>())
    });
    check_model(&function);
    (function, warnings.into_iter().map(|w| w.code.to_string()).collect())
}

fn quiet(text: &str) -> Function {
    let (function, warnings) = function(text);
    assert!(warnings.is_empty(), "{text}: {warnings:?}");
    function
}

fn stateful(text: &str) -> Stateful {
    quiet(text).elements.pop().unwrap().stateful.unwrap()
}

/// The codes of the warnings of a valid function.
fn warnings(text: &str) -> Vec<String> {
    function(text).1
}

/// The code of the first error of an invalid function.
fn error(text: &str) -> String {
    compile("f", &format!("function f;\n{text}"), &[]).expect_err(text).list[0].code.to_string()
}

#[test]
fn full_tables_have_a_policy() {
    for (clause, policy) in [
        ("", Policy::Reject),
        ("full reject;", Policy::Reject),
        ("full evict oldest;", Policy::EvictOldest),
        ("full evict lowest b;", Policy::EvictLowest(1)),
        ("full evict highest a;", Policy::EvictHighest(0)),
    ] {
        let text = format!(
            "stateful s {{ key ip.src; {clause} states s; reg a: i64; reg b: u8; \
             on s -> s (idle 9s) {{ a = 1; b = 2; pass; }} }}"
        );
        assert_eq!(stateful(&text).policy, policy, "{clause}");
    }
}

#[test]
fn full_is_a_condition() {
    let text = "stateful s { key ip.src; states s; on s when full { drop; } on s when !full && ip.ttl > 1 { pass; } }";
    let function = quiet(text);
    let conditions: Vec<_> = function.elements[0].rows.iter().map(|row| row.conditions[0].clone()).collect();
    assert_eq!(conditions, [Condition::Full { negated: false }, Condition::Full { negated: true }]);
    let text = "stateful s { key none; size 5; full evict oldest; states s; on s when full { drop; } }";
    assert_eq!(warnings(text), ["efsm::unused", "efsm::unused", "efsm::constant_condition"]);
}

#[test]
fn states_have_successors() {
    let s = stateful(
        "const quiet = 5s;\nstateful s { key ip.src; expire open -> closing (idle quiet, hard 1m); expire half -> closing; \
         states start, open, half, closing; on start when tcp.is_syn -> open (idle 1s) { pass; } \
         on start -> half (hard 1s) { pass; } }",
    );
    let closing = |idle_ns, hard_ns| Some(Successor { state: 3, idle_ns, hard_ns });
    let expected = [None, closing(Some(5_000_000_000), Some(60_000_000_000)), closing(None, None), None];
    assert_eq!(s.successors, expected);
    let text =
        "stateful s { key ip.src; states start, open, closing; expire open -> closing; on start -> open { pass; } }";
    assert_eq!(warnings(text), ["efsm::unused", "efsm::never_removed"]);
}

#[test]
fn contexts_are_preloaded() {
    let s = stateful(
        "param server: ip = 192.0.2.1;\nmeta zone: u16;\nstateless first { always { zone = 3; goto next; } }\n\
         stateful s { key zone, ip.src; states a, b; reg r: i8 = 7; reg who: ip; \
         preload (3, server) -> b { r = -1; who = 10.0.0.1; } preload (0x102, 2001:db8::1) -> a; \
         on any { r += 1; who = ip.dst; pass; } }",
    );
    let key = |zone: [u8; 2], address: u128| [&zone[..], &address.to_be_bytes(), &[0, 0]].concat();
    let expected = [
        Preloaded {
            key: key([0, 3], IPV4_MAPPED | 0xc000_0201),
            state: 1,
            registers: vec![0xff, IPV4_MAPPED | 0x0a00_0001],
        },
        Preloaded { key: key([1, 2], 0x2001_0db8 << 96 | 1), state: 0, registers: vec![7, 0] },
    ];
    assert_eq!(s.preloaded, expected);
}

#[test]
fn preloaded_keys_of_both_directions_are_equal() {
    let text = |preload: &str| {
        format!(
            "stateful s {{ key biflow(ipv4.src, ipv4.dst, udp.sport, udp.dport); states a; {preload} on a {{ pass; }} }}"
        )
    };
    let forth = stateful(&text("preload (10.0.0.2, 10.0.0.1, 5, 6) -> a;"));
    let back = stateful(&text("preload (10.0.0.1, 10.0.0.2, 6, 5) -> a;"));
    assert_eq!(forth.preloaded, back.preloaded);
    assert_eq!(forth.preloaded[0].key, [10, 0, 0, 1, 10, 0, 0, 2, 0, 6, 0, 5]);
    let both = text("preload (10.0.0.2, 10.0.0.1, 5, 6) -> a; preload (10.0.0.1, 10.0.0.2, 6, 5) -> a;");
    assert_eq!(error(&both), "efsm::duplicate");
}

#[test]
fn preloaded_states_are_reachable() {
    quiet("stateful s { key ip.src; states a, b, c; preload 10.0.0.1 -> b; on b -> c { pass; } }");
}

#[test]
fn metadata_is_part_of_keys() {
    let function = quiet(
        "meta zone: u8; meta host: ip;\nstateless first { always { zone = 1; host = ip.src; goto next; } }\n\
         stateful s { key biflow(host, ip.src, ip.dst, zone); states a; on a { pass; } }",
    );
    let key = function.elements[1].stateful.as_ref().unwrap().key.clone().unwrap();
    let parts =
        [KeyPart::Metadata(1), KeyPart::Field(field("ip.src")), KeyPart::Field(field("ip.dst")), KeyPart::Metadata(0)];
    assert!(key.biflow && key.parts == parts);
    let text = "meta zone: u8;\nstateful s { key zone, ip.src; states a; on a { zone = 1; pass; } }";
    assert_eq!(warnings(text), ["efsm::constant_condition"]);
}

#[test]
fn addresses_are_assigned_and_compared() {
    let function = quiet(
        "param server: ip = 192.0.2.1;\nmeta from: ip;\nstateful s { key ip.src; states a;\n\
         reg opener: ip = 10.0.0.1; reg six: ipv6 = 2001:db8::1; reg four: ipv4 = 10.0.0.9; global last: ip;\n\
         on a when opener == ip.src && six != opener && ip.dst in 10.0.0.0/8 && opener in 192.0.2.0/24 {\n\
         opener = ip.dst; six = ip.src; last = opener; four = ipv4.dst; from = last; ip.dst = opener; drop; }\n\
         on a when last == server && from == 2001:db8::1 && !(opener in 10.0.0.0/8) && four in 10.0.0.0/8 {\n\
         opener = server; last = ::; from = 10.0.0.2; ip.src = server; ip.dst = from; drop; } }",
    );
    let address = Type { width_bits: 128, signed: false };
    let v4 = |low: u128| IPV4_MAPPED | low;
    let s = function.elements[0].stateful.as_ref().unwrap();
    assert_eq!((s.registers[0].ty, s.registers[0].initial), (address, v4(0x0a00_0001)));
    assert_eq!(s.registers[1].initial, 0x2001_0db8 << 96 | 1);
    assert_eq!((s.registers[2].ty.width_bits, s.registers[2].initial), (32, 0x0a00_0009));
    let [first, second] = function.elements[0].rows.as_slice() else { panic!() };
    let same = |left, right, negated| Condition::Same { left, right, negated };
    let masked = |operand, mask, value, negated| Condition::Masked { operand, mask, value, negated };
    let (opener, six) = (Wide::Register(0), Wide::Register(1));
    let top = |bits: u32| u128::MAX << (32 - bits);
    assert_eq!(
        first.conditions,
        [
            same(opener, Wide::Field(field("ip.src")), false),
            same(six, opener, true),
            masked(Wide::Field(field("ip.dst")), top(8), v4(0x0a00_0000), false),
            masked(opener, top(24), v4(0xc000_0200), false),
        ]
    );
    let updates: Vec<_> = first.updates.iter().map(|u| (u.destination, u.value.wide())).collect();
    assert_eq!(updates[0], (Destination::Register(0), Some(Wide::Field(field("ip.dst")))));
    assert_eq!(updates[2], (Destination::Global(0), Some(opener)));
    assert_eq!(updates[3].1, None);
    let writes: Vec<_> = first.actions.writes.iter().map(|w| (w.target, w.value.wide())).collect();
    assert_eq!(writes[0], (WriteTarget::Metadata(0), Some(Wide::Global(0))));
    assert_eq!(writes[1], (WriteTarget::Field(field("ip.dst")), Some(opener)));
    assert_eq!(second.conditions[0], masked(Wide::Global(0), u128::MAX, v4(0xc000_0201), false));
    assert!(matches!(second.conditions[3], Condition::Compare { .. }));
    assert_eq!(second.updates[1].value, NewValue::Wide(Wide::Constant(0)));
    assert_eq!(second.actions.writes[1].target, WriteTarget::Field(field("ipv4.src")));
}

#[test]
fn flood_ends_a_row() {
    let function = quiet("stateless s { when tcp.is_syn { flood; } otherwise { flood; } }");
    assert_eq!(function.elements[0].rows[0].actions.terminal, Terminal::Flood);
    assert_eq!(function.elements[0].otherwise.actions.terminal, Terminal::Flood);
}

#[test]
fn context_parts_cannot_name_registers() {
    let text = |name: &str| {
        format!(
            "stateful s {{ key ip.src; full evict oldest; states a, b; reg {name}: u64;\n\
             on a -> b (idle 1s, hard 1s) {{ {name} = 1; pass; }} }}"
        )
    };
    let function = quiet(&text("plain"));
    let s = function.elements[0].stateful.as_ref().unwrap();
    let record = flowloom_efsm::layout::RecordLayout::of(&function.elements[0], s).describe(&function.elements[0], s);
    assert!(record.fields.len() > 5);
    for part in record.fields.iter().filter(|part| part.name != "plain") {
        assert_eq!(error(&text(&part.name)), "efsm::reserved_name", "{}", part.name);
    }
}

#[test]
fn names_may_be_used_before_their_declaration() {
    quiet(
        "stateless s { when ip.ttl < limit { mark = most; goto next; } otherwise { pass; } } \
         stateless t { when mark == most { forward(out); } otherwise { pass; } } \
         meta mark: u8; const most = 9; param limit: u8 = 3; param out: port;",
    );
}

#[test]
fn table_size_is_limited_by_map_entries() {
    let text = |size: &str| {
        format!("stateful s {{ key ip.src; size {size}; states s; reg n: u8; on s -> s (idle 9s) {{ n = 1; pass; }} }}")
    };
    assert_eq!(stateful(&text("2147483647")).size, 2_147_483_647);
    for size in ["2147483648", "4294967295"] {
        assert_eq!(error(&text(size)), "efsm::out_of_range", "{size}");
    }
}

#[test]
fn a_byte_order_mark_is_allowed_only_at_the_start() {
    let element = "stateless s { always { pass; } }";
    let read = |text: String| compile("f", &text, &[]);
    let (function, warnings) = read(format!("\u{feff}function f;\n{element}")).unwrap();
    assert_eq!((function.elements.len(), warnings.len()), (1, 0));
    let errors = read(format!("function f;\n\u{feff}{element}")).unwrap_err();
    let error = &errors.list[0];
    assert_eq!(error.message, "`\u{fffd}` is not part of the language", "the mark itself is invisible");
    assert!(error.help.as_ref().unwrap().contains("byte order mark"), "{error:?}");
}

#[test]
fn times_of_several_units_are_sums() {
    let read = |time: &str| {
        let text =
            format!("function f;\nstateful s {{ key ip.src; states a, b; on a -> b (idle {time}) {{ pass; }} }}");
        compile("f", &text, &[])
    };
    let idle = |time: &str| read(time).unwrap().0.elements[0].rows[0].next;
    assert_eq!(idle("9m59s"), idle("599s"));
    assert_eq!(idle("1h1ms1us1ns"), idle("3600001001001ns"));
    for wrong in ["9m59", "9x59s", "3000000h3000000h", "1h18446744073709551615ns"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn very_long_words_are_shortened_in_messages() {
    let word = "z".repeat(1 << 20);
    let errors = compile("f", &format!("function f;\nstateless t {{ {word} }}"), &[]).unwrap_err();
    assert!(!errors.list.is_empty());
    for error in &errors.list {
        let texts = error.labels.iter().map(|label| &label.text).chain([&error.message]).chain(&error.help);
        assert!(texts.into_iter().all(|text| text.len() < 3000), "{} bytes", error.message.len());
    }
    assert!(errors.list.iter().any(|error| error.message.contains("zz .. zz")), "{:.100}", errors.list[0].message);
}
