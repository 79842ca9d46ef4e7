// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The models of the shipped functions: `models/NAME.txt` shows some of them. `FLOWLOOM_BLESS=1` rewrites the goldens.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{check_model, given, shipped};

use std::fmt::Write as _;
use std::path::Path;

use flowloom_efsm::compile;
use flowloom_efsm::model::{Actions, Function, Terminal, Variable};
use flowloom_testkit::golden;
use flowloom_wire::field::FieldId;

/// Functions with a golden in `models/`; together they cover every part of a model.
const SHOWN: [&str; 5] = ["port_knocking", "big_flow", "rewrite", "udp_flows", "pass_all"];

/// A function as text: one line for each declaration and row, fields by name, without spans.
fn show(function: &Function) -> String {
    let mut text = format!("function {}\n", function.name);
    let variables = |text: &mut String, what: &str, list: &[Variable]| {
        for v in list {
            let sign = if v.ty.signed { 'i' } else { 'u' };
            writeln!(text, "  {what} {}: {sign}{} = {:#x}", v.name, v.ty.width_bits, v.initial).unwrap();
        }
    };
    let actions = |text: &mut String, actions: &Actions| {
        for write in &actions.writes {
            writeln!(text, "    {:?} = {:?}", write.target, write.value).unwrap();
        }
        writeln!(text, "    {:?}", actions.terminal).unwrap();
    };
    variables(&mut text, "meta", &function.metadata);
    for element in &function.elements {
        writeln!(text, "\nelement {}", element.name).unwrap();
        if let Some(s) = &element.stateful {
            writeln!(text, "  key {:?}", s.key).unwrap();
            writeln!(text, "  size {}, sweep {} ns, states {}", s.size, s.sweep_ns, s.states.join(", ")).unwrap();
            variables(&mut text, "reg", &s.registers);
            variables(&mut text, "global", &s.globals);
        }
        for (i, row) in element.rows.iter().enumerate() {
            let (line, _, source) = function.source.locate(row.span.start);
            writeln!(text, "\n  row {i}, line {line}: {}", source.trim()).unwrap();
            writeln!(text, "    states {:?}, next {:?}", row.states, row.next).unwrap();
            for condition in &row.conditions {
                writeln!(text, "    {condition:?}").unwrap();
            }
            for update in &row.updates {
                writeln!(text, "    {:?} = {:?}", update.destination, update.value).unwrap();
            }
            actions(&mut text, &row.actions);
        }
        writeln!(text, "\n  otherwise").unwrap();
        actions(&mut text, &element.otherwise.actions);
    }
    for id in FieldId::all() {
        text = text.replace(&format!("{id:?}"), &id.name());
    }
    text
}

#[test]
fn shipped_functions_compile_without_diagnostics() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models");
    for (name, text) in shipped() {
        let (function, warnings) = compile(&name, &text, &[]).unwrap();
        assert!(warnings.is_empty(), "{name}: {warnings:?}");
        check_model(&function);
        if SHOWN.contains(&function.name.as_str()) {
            golden(folder.join(&name).with_extension("txt"), &show(&function));
        }
    }
}

#[test]
fn forward_uses_the_port_out_or_passes() {
    for (name, text) in shipped().into_iter().filter(|(_, text)| text.contains("param out: port")) {
        let terminals = |params: &[&str]| {
            let (function, _) = compile(&name, &text, &given(params)).unwrap();
            let rows = function.elements.into_iter().flat_map(|e| e.rows);
            rows.map(|r| r.actions.terminal).collect::<Vec<_>>()
        };
        let to_7 = |t: &Terminal| *t == Terminal::Forward(flowloom_efsm::model::Expr::Constant(7));
        assert!(!terminals(&[]).iter().any(to_7), "{name}");
        let (unset, set) = (terminals(&[]), terminals(&["out=7"]));
        let changed = unset.iter().zip(&set).filter(|(a, b)| a != b).inspect(|(a, b)| {
            assert_eq!(**a, Terminal::Pass, "{name}");
            assert!(to_7(b), "{name}: {b:?}");
        });
        assert!(changed.count() > 0, "{name}");
    }
}

#[test]
fn parameters_become_constants() {
    let (_, text) = shipped().into_iter().find(|(n, _)| n == "big_flow.efsm").unwrap();
    let (function, _) = compile("f", &text, &given(&["threshold=7", "quiet=3ms", "mark=0x20"])).unwrap();
    let shown = show(&function);
    for part in ["Constant(7)", "idle_ns: Some(3000000)", "Constant(32)"] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}

#[test]
fn states_of_a_row_are_in_order() {
    let text = "function f; stateful s { key ip.src; states a, b, c; on c, a -> b { drop; } on any -> c { pass; } }";
    let (function, _) = compile("f", text, &[]).unwrap();
    let states: Vec<_> = function.elements[0].rows.iter().map(|r| r.states.clone()).collect();
    assert_eq!(states, [vec![0, 2], vec![0, 1, 2]]);
}
