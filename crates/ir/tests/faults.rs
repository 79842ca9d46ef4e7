// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults planted in sound dataflow: each is found, under its own name, by the validator of dataflow, by the checks that
//! relate a pass's result to its input, or by evaluation.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use crate::translation::{Difference, built, first_difference, nodes, program, reads_first, shipped};
use flowloom_ir::{
    Argument, Binary, Compare, Dataflow, Effect, Id, Input, Invalid, Kind, Mistranslation, Node, Reach, Reaching,
    missing_waits, mistranslations, pass,
};
use flowloom_isa::Program;
use flowloom_isa::insn::helper;
use flowloom_testkit::{Clang, Rng};
use flowloom_wire::Question;
use flowloom_wire::graph::{Header, Scope};

/// The finding that names a fault.
#[derive(Debug, thiserror::Error)]
enum Found {
    #[error("{0}")]
    Invalid(Invalid),
    #[error("{0}")]
    Mistranslation(Mistranslation),
    #[error("{0}")]
    Difference(Difference),
}

/// A fault: its name, the dataflow, how it is planted, and the finding that names it.
type Planted = (&'static str, &'static str, fn(&mut Dataflow), fn(&Found) -> bool);

macro_rules! is {
    ($fault:ident) => {
        |found| matches!(found, Found::Invalid(Invalid::$fault { .. }))
    };
    ($group:ident, $fault:ident) => {
        |found| matches!(found, Found::$group($group::$fault { .. }))
    };
}

#[rustfmt::skip]
const PLANTED: &[Planted] = &[
    // References.
    ("an argument past the last node", "bucket", |flow| { let id = add(flow); edit(flow, id, |node| node.args[0] = Id::new(1_000_000)); }, is!(UnknownNode)),
    ("a verdict past the last node", "bucket", |flow| flow.ending.verdict = Id::new(flow.graph.nodes().len()), is!(UnknownNode)),
    ("a wait of an unknown node", "waits", |flow| { flow.waits.insert(Id::new(1_000_000), Vec::new()); }, is!(UnknownNode)),
    ("a cycle of two nodes", "bucket", |flow| { let id = add(flow); let first = flow.graph.node(id).args[0]; edit(flow, first, |node| node.args = vec![id; node.args.len().max(1)]); }, is!(Order)),
    ("a node before its argument", "toy", |flow| { let id = nodes(flow, |kind| kind == Kind::Concat)[0]; let first = flow.graph.node(id).args[0]; flow.graph.swap(id, first); }, is!(Order)),
    // Nodes.
    ("an adder of one argument", "bucket", |flow| { let id = add(flow); edit(flow, id, |node| { node.args.pop(); }); }, is!(Arity)),
    ("a load without an offset", "bucket", |flow| { let id = load(flow); edit(flow, id, |node| { node.args.pop(); }); }, is!(Arity)),
    ("a select without its default", "toy", |flow| { let id = select(flow); edit(flow, id, |node| { node.args.pop(); }); }, is!(Select)),
    ("a select that begins with its default", "toy", |flow| { let id = select(flow); edit(flow, id, |node| node.args.rotate_right(1)); }, is!(Condition)),
    ("a concatenation of nothing", "toy", |flow| { let id = nodes(flow, |kind| kind == Kind::Concat)[0]; edit(flow, id, |node| node.args.clear()); }, is!(EmptyConcat)),
    ("a predicate of 8 bits", "toy", |flow| { let (id, byte) = (lookup(flow), byte(flow)); edit(flow, id, |node| node.args[0] = byte); }, is!(Predicate)),
    ("a sum of values of different widths", "bucket", |flow| { let (id, byte) = (add(flow), byte(flow)); edit(flow, id, |node| node.args[1] = byte); }, is!(ArgumentWidth)),
    ("a comparison of 8 bits", "toy", |flow| { let id = compare(flow); edit(flow, id, |node| node.bits = 8); }, is!(Width)),
    ("a value of no bits", "toy", |flow| { let id = constant(flow, 32); edit(flow, id, |node| node.bits = 0); }, is!(WidthRange)),
    ("a slice past its argument", "walk", |flow| { let id = nodes(flow, |kind| matches!(kind, Kind::Slice { .. }))[0]; edit(flow, id, |node| node.kind = Kind::Slice { low: 60 }); }, is!(Slice)),
    ("a constant above its width", "toy", |flow| { let id = constant(flow, 8); edit(flow, id, |node| node.kind = Kind::Const(0x1ff)); }, is!(Constant)),
    ("an access of half a byte", "walk", |flow| { let id = nodes(flow, |kind| matches!(kind, Kind::Bytes { .. }))[0]; edit(flow, id, |node| node.bits = 4); }, is!(PartialByte)),
    ("a node computed twice", "toy", |flow| { let all = nodes(flow, |kind| matches!(kind, Kind::Input(Input::Byte(_)))); let first = flow.graph.node(all[0]).clone(); flow.graph.replace(all[1], first); }, is!(Duplicate)),
    ("the value of a map of several entries without a key", "toy", |flow| { let id = byte(flow); edit(flow, id, |node| *node = Node { kind: Kind::Input(Input::Only(0)), args: vec![], bits: 64 }); }, is!(SeveralEntries)),
    // Patterns.
    ("a call of an unknown pattern", "toy", |flow| { let id = lookup(flow); edit(flow, id, |node| node.kind = Kind::Effect(Effect::Call { helper: helper::MAP_LOOKUP_ELEM, pattern: 7 })); }, is!(UnknownPattern)),
    ("a call of another helper than its pattern's", "toy", |flow| { let id = lookup(flow); edit(flow, id, |node| node.kind = Kind::Effect(Effect::Call { helper: helper::MAP_DELETE_ELEM, pattern: 0 })); }, is!(PatternHelper)),
    ("a lookup without a key", "toy", |flow| { flow.patterns[0].arguments.pop(); }, is!(PatternForm)),
    ("a key a byte short", "toy", |flow| flow.patterns[0].arguments[1] = Argument::Read(3), is!(KeyBytes)),
    ("a value a byte short", "bucket", |flow| pattern(flow, helper::MAP_UPDATE_ELEM)[2] = Argument::Read(15), is!(ValueBytes)),
    ("a map that the program does not have", "toy", |flow| flow.patterns[0].arguments[0] = Argument::Map(1), is!(UnknownMap)),
    ("another map, with another key", "firewall", |flow| pattern(flow, helper::MAP_LOOKUP_ELEM)[0] = Argument::Map(1), is!(KeyBytes)),
    ("another map, of another kind", "firewall", |flow| pattern(flow, helper::REDIRECT_MAP)[0] = Argument::Map(0), is!(MapKind)),
    ("a written byte of a node that writes none", "text", |flow| { let (id, byte) = (changed(flow), byte(flow)); edit(flow, id, |node| node.args[0] = byte); }, is!(NotACall)),
    ("a written byte past the last one", "text", |flow| { let id = changed(flow); edit(flow, id, |node| node.kind = Kind::Changed { at: 8 }); }, is!(ChangedByte)),
    // Effects.
    ("a store to a number", "bucket", |flow| { let id = store(flow); edit(flow, id, |node| node.args[1] = node.args[3]); }, is!(Base)),
    ("a load past the value", "bucket", |flow| { let id = load(flow); let offset = flow.graph.node(id).args[2]; edit(flow, offset, |node| node.kind = Kind::Const(12)); }, is!(Extent)),
    ("a store that waits", "waits", |flow| { let id = nodes(flow, |kind| matches!(kind, Kind::Effect(Effect::Call { helper: helper::MAP_UPDATE_ELEM, .. })))[0]; flow.waits.insert(id, Vec::new()); }, is!(WaitingNode)),
    ("a wait for a lookup", "waits", |flow| { let id = lookup(flow); flow.waits.values_mut().for_each(|writes| writes[0] = id); }, is!(AwaitedNode)),
    ("a wait for a later effect", "waits", |flow| { let write = flow.waits.values().next().unwrap().clone(); let id = lookup(flow); flow.waits.insert(id, write); }, is!(WaitOrder)),
    // Outputs and reaches.
    ("a verdict of 8 bits", "toy", |flow| flow.ending.verdict = byte(flow), is!(Width)),
    ("a slow-path bit that depends on a lookup", "window", |flow| { let id = lookup(flow); let low = flow.graph.slice(id, 0, 1); flow.ending.slow = low; }, is!(EarlyEffect)),
    ("a reach that remains after the window is chosen", "window", |flow| { let when = flow.ending.slow; let base = flow.ending.tail; flow.reaches.push(Reach { when, by: Reaching::Access { base, end: 4 } }); }, is!(StaleReach)),
    ("a test of a reach that is no comparison", "walk", |flow| { let bit = nodes(flow, |kind| kind == Kind::Not)[0]; flow.reaches[0].by = Reaching::Test(bit); }, is!(ReachKind)),
    // The relation of a pass's result to its input.
    ("an event lost", "records", |flow| { let id = call(flow, helper::RINGBUF_OUTPUT); flow.graph.replace(id, unique(64)); }, is!(Mistranslation, LostEffect)),
    ("an event sent twice", "records", |flow| { let id = call(flow, helper::RINGBUF_OUTPUT); again(flow, id); }, is!(Mistranslation, NewEffect)),
    ("a store of another size", "bucket", |flow| { let id = load(flow); let Kind::Effect(Effect::Load(size)) = flow.graph.node(id).kind else { panic!() }; edit(flow, id, |node| (node.kind, node.bits) = (Kind::Effect(Effect::Atomic(flowloom_isa::op::AtomicOp::Xchg, size)), 64)); let zero = constant(flow, 64); edit(flow, id, |node| node.args.extend([zero, zero])); }, is!(Mistranslation, NewEffect)),
    ("two stores in the wrong order", "records", |flow| { let all = stores(flow); flow.graph.swap(all[0], all[1]); }, is!(Mistranslation, Reordered)),
    ("a wait lost", "waits", |flow| flow.waits.clear(), is!(Mistranslation, LostWait)),
    ("an effect of packets of the slow path", "window", |flow| { let id = store(flow); let slow = flow.ending.slow; let bit = nodes(flow, |_| true).into_iter().find(|id| *id < slow && flow.graph.bits(*id) == 1).unwrap(); edit(flow, id, |node| node.args[0] = bit); }, is!(Mistranslation, SlowEffect)),
    ("a byte of the packet lost", "records", |flow| { flow.ending.packet.pop_last(); }, is!(Mistranslation, Outputs)),
    ("the values of a map made longer", "bucket", |flow| flow.maps[0].max_entries += 1, is!(Mistranslation, Definitions)),
    // Values.
    ("the values of a select swapped", "toy", |flow| { let id = flow.ending.verdict; edit(flow, id, |node| { let last = node.args.len() - 1; node.args.swap(1, last); }); }, is!(Difference, Verdict)),
    ("a complement dropped", "guarded", |flow| { let id = nodes(flow, |kind| kind == Kind::Not).pop().unwrap(); edit(flow, id, |node| *node = Node { kind: Kind::Binary(Binary::And), args: vec![node.args[0]; 2], bits: 1 }); }, is!(Difference, State)),
    ("a predicate dropped", "guarded", |flow| { let (id, every) = (store(flow), flow.graph.node(lookup(flow)).args[0]); edit(flow, id, |node| node.args[0] = every); }, is!(Difference, State)),
    ("the operands of a comparison swapped", "guarded", |flow| { let id = nodes(flow, |kind| kind == Kind::Compare(Compare::Below))[0]; edit(flow, id, |node| node.args.reverse()); }, is!(Difference, State)),
    ("a sum for a difference", "bucket", |flow| { let id = nodes(flow, |kind| kind == Kind::Binary(Binary::Add)).pop().unwrap(); edit(flow, id, |node| node.kind = Kind::Binary(Binary::Sub)); }, is!(Difference, State)),
    ("another byte of the key", "guarded", |flow| { let id = lookup(flow); edit(flow, id, |node| node.args[1] = node.args[2]); }, is!(Difference, State)),
    ("another byte of the packet", "records", |flow| { let id = nodes(flow, |kind| kind == Kind::Input(Input::Byte(1)))[0]; edit(flow, id, |node| node.kind = Kind::Input(Input::Byte(40))); }, is!(Difference, Events)),
    ("bytes from a place further on", "walk", |flow| { let id = nodes(flow, |kind| matches!(kind, Kind::Bytes { .. }))[0]; edit(flow, id, |node| node.kind = Kind::Bytes { ahead: 9 }); }, is!(Difference, State)),
    ("a load that ignores an own earlier store", "forwarded", |flow| { let id = load(flow); let user = nodes(flow, |kind| kind == Kind::Select).into_iter().find(|user| flow.graph.node(*user).args.contains(&id)).unwrap(); edit(flow, user, |node| { let last = node.args.len() - 1; node.args[1] = node.args[last]; }); }, is!(Difference, Bytes)),
    // The values of the parser.
    ("another EtherType of IPv4", "parsed", |flow| change(flow, 0x0800, 16, 0x0bad), is!(Difference, Bytes)),
    ("another EtherType of IPv6", "parsed", |flow| change(flow, 0x86dd, 16, 0x0bad), is!(Difference, Bytes)),
    ("another version of IPv4", "parsed", |flow| change(flow, 4, 4, 7), is!(Difference, Bytes)),
    ("another protocol number of UDP", "parsed", |flow| change(flow, 17, 8, 0xfd), is!(Difference, Bytes)),
    ("another protocol number of TCP", "parsed", |flow| change(flow, 6, 8, 0xfd), is!(Difference, Bytes)),
    ("an IPv4 header of 20 bytes that is too short", "parsed", |flow| change(flow, 5, 4, 9), is!(Difference, Bytes)),
    ("an Ethernet header that is too short", "parsed", |flow| { let id = first(flow, |kind| kind == Kind::Compare(Compare::Below)); edit(flow, id, |node| node.args.reverse()); }, is!(Difference, Bytes)),
    ("two headers with each other's validity", "parsed", |flow| { let id = validity(flow); let at = [Header::Ipv4, Header::Udp].map(|header| header.bit().trailing_zeros() as usize); edit(flow, id, |node| node.args.swap(at[0], at[1])); }, is!(Difference, Bytes)),
    ("the payload of another header", "parsed", |flow| { let id = payload(flow); edit(flow, id, |node| node.args.swap(1, 3)); }, is!(Difference, Bytes)),
    ("a payload whose length counts backwards", "parsed", |flow| { let id = first(flow, |kind| kind == Kind::Binary(Binary::Sub)); edit(flow, id, |node| node.args.reverse()); }, is!(Difference, Bytes)),
];

/// Changes a constant of a width.
fn change(flow: &mut Dataflow, from: u64, bits: u16, to: u64) {
    let all = nodes(flow, |kind| kind == Kind::Const(from));
    let id = all.into_iter().find(|id| flow.graph.bits(*id) == bits).unwrap();
    edit(flow, id, |node| node.kind = Kind::Const(to));
}

/// The valid headers, a bit for each.
fn validity(flow: &Dataflow) -> Id {
    let all = nodes(flow, |kind| kind == Kind::Concat);
    all.into_iter().max_by_key(|id| flow.graph.node(*id).args.len()).unwrap()
}

/// The length of the payload of the first of two headers.
fn payload(flow: &Dataflow) -> Id {
    let all = nodes(flow, |kind| kind == Kind::Select);
    all.into_iter().rfind(|id| flow.graph.bits(*id) == 16 && flow.graph.node(*id).args.len() == 5).unwrap()
}

fn edit(flow: &mut Dataflow, id: Id, change: impl FnOnce(&mut Node)) {
    let mut node = flow.graph.node(id).clone();
    change(&mut node);
    flow.graph.replace(id, node);
}

fn first(flow: &Dataflow, is_it: impl Fn(Kind) -> bool) -> Id {
    nodes(flow, is_it)[0]
}

fn add(flow: &Dataflow) -> Id {
    first(flow, |kind| kind == Kind::Binary(Binary::Add))
}

fn select(flow: &Dataflow) -> Id {
    let all = nodes(flow, |kind| kind == Kind::Select);
    all.into_iter().find(|id| flow.graph.bits(*id) > 1).unwrap()
}

fn compare(flow: &Dataflow) -> Id {
    first(flow, |kind| matches!(kind, Kind::Compare(_)))
}

fn byte(flow: &Dataflow) -> Id {
    first(flow, |kind| matches!(kind, Kind::Input(Input::Byte(_))))
}

fn constant(flow: &Dataflow, bits: u16) -> Id {
    let all = nodes(flow, |kind| matches!(kind, Kind::Const(_)));
    all.into_iter().find(|id| flow.graph.bits(*id) == bits).unwrap()
}

fn call(flow: &Dataflow, number: i32) -> Id {
    first(flow, |kind| matches!(kind, Kind::Effect(Effect::Call { helper, .. }) if helper == number))
}

fn lookup(flow: &Dataflow) -> Id {
    call(flow, helper::MAP_LOOKUP_ELEM)
}

fn load(flow: &Dataflow) -> Id {
    first(flow, |kind| matches!(kind, Kind::Effect(Effect::Load(_))))
}

fn stores(flow: &Dataflow) -> Vec<Id> {
    nodes(flow, |kind| matches!(kind, Kind::Effect(Effect::Store(_))))
}

fn store(flow: &Dataflow) -> Id {
    stores(flow)[0]
}

fn changed(flow: &Dataflow) -> Id {
    first(flow, |kind| matches!(kind, Kind::Changed { .. }))
}

fn pattern(flow: &mut Dataflow, helper: i32) -> &mut Vec<Argument> {
    &mut flow.patterns.iter_mut().find(|pattern| pattern.helper == helper).unwrap().arguments
}

/// A node that no dataflow has.
fn unique(bits: u16) -> Node {
    Node { kind: Kind::Const(0x5a5a_5a5a_5a5a_5a5a >> (64 - bits)), args: Vec::new(), bits }
}

fn again(flow: &mut Dataflow, id: Id) {
    let Node { kind: Kind::Effect(effect), args, bits } = flow.graph.node(id).clone() else { panic!("no effect") };
    flow.graph.effect(effect, args, bits);
}

/// A sound dataflow in which faults are planted: the program, and the dataflow before and after a pass.
struct Subject {
    name: &'static str,
    program: Program,
    before: Dataflow,
    after: Dataflow,
}

fn subjects(clang: &Clang) -> Vec<Subject> {
    let values = ["values array key 4 value 16 entries 4"];
    let limits = ["limits hash key 4 value 8 entries 16"];
    let ring = ["values array key 4 value 16 entries 4", "ring ringbuf key 0 value 0 entries 4096"];
    let lookup = "r1 = *(u8 *)(r7 + 1)\nr1 &= 3\n*(u32 *)(r10 - 4) = r1\nr1 = map[values] ll\nr2 = r10\nr2 += -4\ncall 1\n\
                  if r0 == 0 goto none\nr9 = r0\n";
    // Two stores, and an event.
    let records = format!(
        "{lookup}r1 = *(u8 *)(r7 + 2)\nr2 = *(u8 *)(r7 + 3)\n*(u8 *)(r9 + 0) = r1\n*(u8 *)(r9 + 0) = r2\n*(u8 *)(r7 + 20) = r1\n\
         none: r1 = *(u32 *)(r7 + 0)\n*(u32 *)(r10 - 8) = r1\nr1 = map[ring] ll\nr2 = r10\nr2 += -8\nr3 = 4\nr4 = 0\n\
         call ringbuf_output\nr0 = 2\n"
    );
    // A header at an offset that only the run knows.
    let walk = format!(
        "r3 = *(u8 *)(r7 + 0)\nr3 &= 15\nr3 += r7\nr4 = r3\nr4 += 21\nif r4 > r8 goto out\nr5 = *(u8 *)(r3 + 20)\n\
         *(u64 *)(r10 - 16) = r5\n{lookup}r5 = *(u64 *)(r10 - 16)\n*(u32 *)(r9 + 4) = r5\nnone: r0 = 2\n"
    );
    let guarded = format!("{lookup}r1 = *(u8 *)(r7 + 30)\nif r1 > 99 goto none\n*(u32 *)(r9 + 4) = r1\nnone: r0 = 2\n");
    // A lookup of a key that may be the one that was just inserted.
    let key = "r2 = r10\nr2 += -4\n";
    let waits = format!(
        "r1 = *(u16 *)(r7 + 0)\n*(u32 *)(r10 - 4) = r1\nr1 = map[limits] ll\n{key}call 1\nif r0 != 0 goto known\n\
         *(u64 *)(r10 - 16) = 7\nr1 = map[limits] ll\n{key}r3 = r10\nr3 += -16\nr4 = 0\ncall 2\nknown: r1 = *(u16 *)(r7 + 0)\nr1 &= -2\n\
         *(u32 *)(r10 - 4) = r1\nr1 = map[limits] ll\n{key}call 1\nif r0 == 0 goto none\nr1 = *(u64 *)(r0 + 0)\n\
         *(u64 *)(r7 + 8) = r1\nnone: r0 = 2\n"
    );
    // A load at an offset that may be that of an own store.
    let forwarded = format!(
        "{lookup}r2 = *(u8 *)(r7 + 2)\nr2 &= 8\nr2 += r9\nr3 = *(u64 *)(r7 + 8)\n*(u64 *)(r9 + 8) = r3\n\
         r4 = *(u64 *)(r2 + 0)\n*(u64 *)(r7 + 16) = r4\nnone: r0 = 2\n"
    );
    let text = "r1 = *(u16 *)(r7 + 0)\nr1 |= 0x3030\n*(u64 *)(r10 - 8) = r1\n*(u64 *)(r10 - 16) = -1\nr1 = r10\nr1 += -8\nr2 = 4\n\
                r3 = 10\nr4 = r10\nr4 += -16\ncall strtol\nr1 = *(u64 *)(r10 - 16)\n*(u64 *)(r7 + 16) = r1\nr0 = 2\n";
    // Answers of the parser, written into the packet after all questions.
    let ask = |question: Question, place: &str| {
        format!("r1 = r6\nr2 = {:#x} ll\ncall fl_parse\n{place} = r0\n", question.encode())
    };
    let parsed = [
        ask(Question::Valid(u32::MAX), "r9"),
        ask(Question::Offset(Header::Udp.bit() | Header::Tcp.bit()), "*(u64 *)(r10 - 8)"),
        ask(Question::Payload(Header::Ipv4.bit() | Header::Ipv6.bit()), "*(u64 *)(r10 - 16)"),
        ask(Question::Protocol(Scope::Outer), "*(u64 *)(r10 - 24)"),
        "*(u32 *)(r7 + 40) = r9\n".to_owned(),
        "r1 = *(u64 *)(r10 - 8)\n*(u32 *)(r7 + 44) = r1\nr1 = *(u64 *)(r10 - 16)\n*(u32 *)(r7 + 48) = r1\n".to_owned(),
        "r1 = *(u64 *)(r10 - 24)\n*(u32 *)(r7 + 52) = r1\nr0 = 2\n".to_owned(),
    ];
    let parsed = parsed.concat();
    // The dataflow in which faults are planted, from the one that is built.
    type Then = fn(&Dataflow) -> Dataflow;
    let as_built: Then = Dataflow::clone;
    let programs = [
        ("bucket", shipped(clang, "leaky_bucket/leaky_bucket.bpf.c"), as_built),
        ("firewall", shipped(clang, "simple_firewall/simple_firewall.bpf.c"), as_built),
        ("toy", shipped(clang, "toy/toy_printed.bpf"), as_built),
        ("records", program("records", &ring, &records), as_built),
        ("walk", program("walk", &values, &walk), as_built),
        ("window", program("window", &values, &walk), |flow| pass::one_hot_offsets(flow, 64, 128)),
        ("guarded", program("guarded", &values, &guarded), as_built),
        ("waits", program("waits", &limits, &waits), pass::forward_stores),
        ("forwarded", program("forwarded", &values, &forwarded), pass::forward_stores),
        ("text", program("text", &[], text), as_built),
        ("parsed", program("parsed", &[], &parsed), as_built),
    ];
    let subjects = programs.into_iter().map(|(name, program, then)| {
        let before = built(&program);
        let after = then(&before);
        // Waits are compared with those that the pass has added.
        let before = if after.waits.is_empty() { before } else { after.clone() };
        Subject { name, program, before, after }
    });
    subjects.collect()
}

fn findings(subject: &Subject, after: &Dataflow, seed: u64) -> Vec<Found> {
    let broken = mistranslations(&subject.before, after).into_iter();
    let mut found: Vec<Found> = broken
        .map(|broken| match broken {
            Mistranslation::Invalid(invalid) => Found::Invalid(invalid),
            broken => Found::Mistranslation(broken),
        })
        .collect();
    if found.is_empty() {
        // Before state slices, reads are in program order.
        let order = match after.waits.is_empty() && subject.name != "forwarded" {
            true => after.graph.ids().collect(),
            false => reads_first(after),
        };
        let difference = first_difference(&subject.program, &subject.before, (after, order), seed);
        found.extend(difference.map(Found::Difference));
    }
    found
}

/// Each planted fault is found by its name, and nothing is found without it.
#[test]
fn planted_faults_are_found_by_name() {
    let Some(clang) = Clang::find("planted_faults_are_found_by_name") else { return };
    let seed = Rng::from_env(1).next_u64();
    let subjects = subjects(&clang);
    for subject in &subjects {
        let found = findings(subject, &subject.after, seed);
        assert!(found.is_empty(), "{}: {found:?}", subject.name);
    }
    let mut missed = Vec::new();
    for (name, of, plant, is_it) in PLANTED {
        let subject = subjects.iter().find(|subject| subject.name == *of).unwrap();
        let mut after = subject.after.clone();
        plant(&mut after);
        let found = findings(subject, &after, seed);
        match found.iter().find(|found| is_it(found)) {
            Some(found) => eprintln!("{name} ({of}): {found}"),
            None => missed.push(format!("{name} ({of}): {found:?}")),
        }
    }
    assert!(missed.is_empty(), "{} of {} are missed:\n{}", missed.len(), PLANTED.len(), missed.join("\n"));
    assert!(PLANTED.len() >= 40);
}

/// The pass after which reads are ordered by waits has to leave a wait for each write that a read may see.
#[test]
fn a_missing_wait_is_found_where_reads_leave_the_program_order() {
    let Some(clang) = Clang::find("a_missing_wait_is_found_where_reads_leave_the_program_order") else { return };
    let subjects = subjects(&clang);
    let subject = subjects.iter().find(|subject| subject.name == "waits").unwrap();
    let before = built(&subject.program);
    assert_eq!(mistranslations(&before, &subject.after), []);
    assert_eq!(missing_waits(&subject.after), []);
    let mut after = subject.after.clone();
    after.waits.clear();
    let found = missing_waits(&after);
    assert!(found.iter().all(|found| matches!(found, Mistranslation::MissingWait { .. })), "{found:?}");
    assert!(!found.is_empty());
    let order = reads_first(&after);
    let difference = first_difference(&subject.program, &before, (&after, order), 1);
    assert!(matches!(difference, Some(Difference::Bytes { .. })), "{difference:?}");
}
