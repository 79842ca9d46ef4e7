// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions under test, as models: these tests do not depend on the language.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::panic, clippy::print_stderr)]

pub mod captures;
pub mod engines;
pub mod faulty;
pub mod random;
pub mod shipped;

use std::sync::Arc;

use flowloom_efsm::model::{
    Actions, BinaryOp, Condition, Destination, Element, Expr, Function, Key, KeyPart, NewValue, NextState, Otherwise,
    Policy, Relation, Row, Source, Span, Stateful, Terminal, Type, Update, Variable, Wide, Width, Write, WriteTarget,
};
use flowloom_wire::field::FIVE_TUPLE;
use flowloom_wire::{FieldId, Graph};

pub const SECOND: u64 = 1_000_000_000;

pub fn field(name: &str) -> FieldId {
    FieldId::by_name(name).unwrap_or_else(|| panic!("no field {name}"))
}

pub fn u32_variable(name: &str) -> Variable {
    Variable { name: name.into(), ty: Type { width_bits: 32, signed: false }, initial: 0, span: Span::default() }
}

pub fn compare(left: Expr, relation: Relation, right: Expr) -> Condition {
    Condition::Compare { left, relation, right, width: Width::W32, signed: false }
}

pub fn field_is(name: &str, value: u64) -> Condition {
    compare(Expr::Field(field(name)), Relation::Equal, Expr::Constant(value))
}

pub fn add(register: u16, amount: u64) -> Update {
    Update {
        destination: Destination::Register(register),
        value: NewValue::Number {
            value: Expr::Binary(BinaryOp::Add, Expr::Register(register).into(), Expr::Constant(amount).into()),
            width: Width::W32,
        },
        span: Span::default(),
    }
}

pub fn write(name: &str, value: Expr) -> Write {
    Write {
        target: WriteTarget::Field(field(name)),
        value: NewValue::Number { value, width: Width::W32 },
        span: Span::default(),
    }
}

pub fn actions(writes: Vec<Write>, terminal: Terminal) -> Actions {
    Actions { writes, steps: Vec::new(), terminal }
}

pub fn row(states: &[u16], conditions: Vec<Condition>, next: NextState, updates: Vec<Update>, actions: Actions) -> Row {
    Row { span: Span::default(), states: states.to_vec(), conditions, next, updates, actions }
}

pub fn idle(state: u16, seconds: u64) -> NextState {
    NextState::To { state, idle_ns: Some(seconds * SECOND), hard_ns: None }
}

pub fn function(name: &str, elements: Vec<Element>) -> Arc<Function> {
    let source = Source { name: format!("{name}.efsm"), text: format!("{name}\n") };
    let graph = Arc::new(Graph::standard().clone());
    Arc::new(Function { name: name.into(), source: Arc::new(source), graph, metadata: Vec::new(), elements })
}

pub fn element(
    name: &str,
    key: &[&str],
    states: &[&str],
    registers: &[&str],
    rows: Vec<Row>,
    otherwise: Terminal,
) -> Element {
    Element {
        name: name.into(),
        span: Span::default(),
        stateful: Some(Stateful {
            key: Some(Key { biflow: false, parts: key.iter().map(|n| KeyPart::Field(field(n))).collect() }),
            size: 64,
            sweep_ns: SECOND,
            policy: Policy::Reject,
            policy_span: Default::default(),
            states: states.iter().map(|s| (*s).to_owned()).collect(),
            successors: vec![None; states.len()],
            registers: registers.iter().map(|r| u32_variable(r)).collect(),
            globals: Vec::new(),
            preloaded: Vec::new(),
        }),
        rows,
        otherwise: Otherwise { span: Span::default(), actions: actions(Vec::new(), otherwise) },
    }
}

/// Port knocking: 5123, 6234, 7345, 8456, then port 22 is open.
pub fn knock() -> Arc<Function> {
    let drop = || actions(Vec::new(), Terminal::Drop);
    let knock = |from: u16, port: u64, to: u16, seconds: u64| {
        row(&[from], vec![field_is("l4.dport", port)], idle(to, seconds), Vec::new(), drop())
    };
    let rows = vec![
        knock(0, 5123, 1, 1),
        knock(1, 6234, 2, 1),
        knock(2, 7345, 3, 1),
        knock(3, 8456, 4, 60),
        row(
            &[4],
            vec![field_is("l4.dport", 22)],
            NextState::Stay,
            Vec::new(),
            actions(Vec::new(), Terminal::Forward(Expr::Constant(2))),
        ),
        row(&[1, 2, 3], Vec::new(), NextState::To { state: 0, idle_ns: None, hard_ns: None }, Vec::new(), drop()),
    ];
    let states = ["closed", "one", "two", "three", "open"];
    function("knock", vec![element("knocks", &["ip.src"], &states, &[], rows, Terminal::Drop)])
}

/// Big flow detector: after `threshold` packets of a 5-tuple its packets are marked.
pub fn big_flow(threshold: u64) -> Arc<Function> {
    let out = || Terminal::Forward(Expr::Constant(1));
    let mark = || vec![write("ip.tos", Expr::Constant(1))];
    let count = |relation| vec![compare(Expr::Register(0), relation, Expr::Constant(threshold))];
    let rows = vec![
        row(&[0], count(Relation::Less), NextState::Stay, vec![add(0, 1)], actions(Vec::new(), out())),
        row(&[0], count(Relation::GreaterEqual), idle(1, 10), vec![add(0, 1)], actions(mark(), out())),
        row(&[1], Vec::new(), NextState::Stay, Vec::new(), actions(mark(), out())),
    ];
    function("bigflow", vec![element("flows", &FIVE_TUPLE, &["small", "big"], &["packets"], rows, Terminal::Pass)])
}

/// A mix of features: two elements, `biflow`, both timers, globals, signed registers, metadata, header writes, a small
/// table.
pub fn many_things() -> Arc<Function> {
    let register = |i| Expr::Register(i);
    let signed = |name: &str| Variable { ty: Type { width_bits: 32, signed: true }, ..u32_variable(name) };
    let meta = |value: Expr| Write {
        target: WriteTarget::Metadata(0),
        value: NewValue::Number { value, width: Width::W32 },
        span: Span::default(),
    };
    let set = |destination, value| Update {
        destination,
        value: NewValue::Number { value, width: Width::W32 },
        span: Span::default(),
    };
    let to = |state, idle_ns: Option<u64>, hard_ns: Option<u64>| NextState::To { state, idle_ns, hard_ns };
    let out = || Terminal::Goto(1);
    let minus_len = || Expr::Binary(BinaryOp::Sub, register(2).into(), Expr::Field(field("pkt.len")).into());
    let below = |limit: i64| Condition::Compare {
        left: register(2),
        relation: Relation::Less,
        right: Expr::Constant(limit as u64),
        width: Width::W32,
        signed: true,
    };
    let private = |negated| Condition::Masked {
        operand: Wide::Field(field("ipv4.src")),
        mask: 0xff00_0000,
        value: 0x0a00_0000,
        negated,
    };
    let ports = Condition::Range { field: field("l4.dport"), low: 53, high: 81, negated: false };
    let rows = vec![
        // An inner host opens; a second register stores the port, a global counts flows.
        row(
            &[0],
            vec![field_is("tcp.is_syn", 1), private(false)],
            to(1, Some(1_000_000), None),
            vec![
                set(Destination::Register(0), Expr::Constant(1)),
                set(Destination::Register(1), Expr::Field(field("l4.dport"))),
                set(
                    Destination::Global(0),
                    Expr::Binary(BinaryOp::Add, Expr::Global(0).into(), Expr::Constant(1).into()),
                ),
            ],
            actions(vec![meta(Expr::Constant(1))], out()),
        ),
        // The second register keeps the previous count.
        row(
            &[1],
            vec![compare(register(0), Relation::Less, Expr::Constant(3))],
            NextState::Stay,
            vec![add(0, 1), set(Destination::Register(1), register(0)), set(Destination::Register(2), minus_len())],
            actions(vec![meta(register(0))], out()),
        ),
        row(
            &[1],
            vec![compare(register(0), Relation::GreaterEqual, Expr::Constant(3))],
            to(2, None, Some(2_000_000)),
            vec![set(Destination::Register(2), minus_len())],
            actions(vec![meta(Expr::Constant(2))], out()),
        ),
        row(
            &[2],
            vec![below(-100)],
            to(0, None, None),
            vec![
                set(Destination::Register(0), Expr::Constant(0)),
                set(Destination::Register(1), Expr::Constant(0)),
                set(Destination::Register(2), Expr::Constant(0)),
            ],
            actions(Vec::new(), Terminal::Drop),
        ),
        row(
            &[2],
            Vec::new(),
            NextState::Stay,
            vec![set(Destination::Register(2), minus_len())],
            actions(Vec::new(), Terminal::Reply),
        ),
        row(
            &[0],
            vec![ports, private(true)],
            to(2, Some(3_000_000), Some(5_000_000)),
            Vec::new(),
            actions(vec![meta(Expr::Constant(2))], out()),
        ),
    ];
    let mut gate = element("gate", &FIVE_TUPLE, &["new", "open", "closing"], &["count", "last"], rows, Terminal::Pass);
    if let Some(stateful) = &mut gate.stateful {
        stateful.key = Some(Key { biflow: true, parts: FIVE_TUPLE.iter().map(|n| KeyPart::Field(field(n))).collect() });
        stateful.size = 4;
        stateful.sweep_ns = 4_000_000;
        stateful.registers.push(signed("credit"));
        stateful.globals.push(u32_variable("flows"));
    }
    let ttl = || Expr::Binary(BinaryOp::Sub, Expr::Field(field("ip.ttl")).into(), Expr::Constant(1).into());
    let metadata_is = |value| vec![compare(Expr::Metadata(0), Relation::Equal, Expr::Constant(value))];
    let rewrite = Element {
        name: "rewrite".into(),
        span: Span::default(),
        stateful: None,
        rows: vec![
            row(
                &[],
                metadata_is(1),
                NextState::Stay,
                Vec::new(),
                actions(
                    vec![write("ipv4.src", Expr::Constant(0xcb00_7101)), write("ip.ttl", ttl())],
                    Terminal::Forward(Expr::Constant(2)),
                ),
            ),
            row(
                &[],
                metadata_is(2),
                NextState::Stay,
                Vec::new(),
                actions(
                    vec![write("ip.tos", Expr::Metadata(0)), write("l4.dport", Expr::Constant(8080))],
                    Terminal::Forward(Expr::Metadata(0)),
                ),
            ),
        ],
        otherwise: Otherwise { span: Span::default(), actions: actions(Vec::new(), Terminal::Drop) },
    };
    let base = function("many", vec![gate, rewrite]);
    Arc::new(Function { metadata: vec![u32_variable("way")], ..Function::clone(&base) })
}
