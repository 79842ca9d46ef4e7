// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Golden code of two functions, interleaved with source lines, so that every change of code generation is visible.
//! `FLOWLOOM_BLESS=1` rewrites the goldens.

use std::fmt::Write as _;
use std::path::Path;

use flowloom_efsm::compile;
use flowloom_isa::Program;
use flowloom_isa::disasm::Text;
use flowloom_isa::op::Op;
use flowloom_lower::{LowerOptions, lower};
use flowloom_testkit::golden;

/// Stack depth that the program accesses, in bytes.
pub(crate) fn stack_bytes(program: &Program) -> i16 {
    let mut deepest = 0;
    for insn in &program.insns {
        let is_access = matches!(insn.code & 7, 1..=3);
        if is_access && (insn.dst == 10 && insn.code & 7 != 1 || insn.src == 10 && insn.code & 7 == 1) {
            deepest = deepest.max(-insn.off);
        }
    }
    deepest
}

fn listing(program: &Program) -> String {
    let mut text =
        format!("# {}: {} slots, {} bytes of stack\n", program.name, program.insns.len(), stack_bytes(program));
    for map in &program.maps {
        writeln!(
            text,
            "# map {}: {:?}, {} + {} bytes, {} entries",
            map.name, map.kind, map.key_bytes, map.value_bytes, map.max_entries
        )
        .unwrap();
    }
    let mut at = 0;
    let mut line = None;
    while at < program.insns.len() {
        let now = program.line_of(at);
        if now != line {
            line = now;
            if let Some(l) = line {
                writeln!(text, "\n; {}: {}", l.line, l.text).unwrap();
            }
        }
        let op = Op::decode(&program.insns, at).unwrap();
        writeln!(text, "{at:4}: {}", Text { op, maps: &program.maps }).unwrap();
        at += op.slots();
    }
    text
}

#[test]
fn lowered_code_equals_its_golden() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["port_knocking", "big_flow"] {
        let source = root.join(format!("../../functions/{name}/{name}.efsm"));
        let params = [("out".to_owned(), "2".to_owned())];
        let (function, _) =
            compile(&format!("{name}.efsm"), &std::fs::read_to_string(source).unwrap(), &params).unwrap();
        let program = lower(&function, &LowerOptions::default()).unwrap();
        golden(root.join(format!("tests/lowering/golden/{name}.txt")), &listing(&program));
    }
}
