// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults of the shell and of maps, each of which a run finds.

#[path = "../../../cosim/tests/finding.rs"]
mod finding;

use super::{SOURCE, between_packets, build, pipeline, run};
use finding::finding;

/// A change of a file that a run must find.
struct Fault {
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const fn fault(file: &'static str, name: &'static str, from: &'static str, to: &'static str) -> Fault {
    Fault { name, file, from, to }
}

const AXIL: &str = "fl_axil.sv";
const ACCESS: &str = "fl_map_access.sv";
const REGISTERS: &str = "fl_shell_registers.sv";
const MAP_BLOCK: &str = "fl_hash_map.sv";

const FAULTS: [Fault; 20] = [
    fault(AXIL, "a response of a write is not held", "if (b_ready_i) begin", "if (b_ready_i || 1'b1) begin"),
    fault(AXIL, "a response of a read is not held", "if (r_ready_i) begin", "if (r_ready_i || 1'b1) begin"),
    fault(AXIL, "a write does not wait for its data", "aw_valid && w_valid &&", "aw_valid && (w_valid || 1'b1) &&"),
    fault(
        AXIL,
        "an address without a register has no error",
        "answer_i.response : Decerr",
        "answer_i.response : (answer_i.hit ? Decerr : Okay)",
    ),
    fault(
        REGISTERS,
        "an address after the blocks is that of the shell",
        "request_i.address[29:OffsetBits] == '0",
        "(request_i.address[29:OffsetBits] == '0 || request_i.address[21:16] != '0)",
    ),
    fault(
        REGISTERS,
        "an event adds too much to the upper word",
        "counters_q[i] + 64'(add_q[i])",
        "counters_q[i] + {31'(add_q[i] != '0), 33'(add_q[i])}",
    ),
    fault("fl_bus_pkg.sv", "strobes are ignored", "strobe[i] ?", "(strobe[i] || 1'b1) ?"),
    fault(
        ACCESS,
        "a register that is only read takes a write",
        "response: changes ? Slverr",
        "response: (changes && 1'b0) ? Slverr",
    ),
    fault(
        ACCESS,
        "a write of no byte is refused",
        "request_i.write && request_i.strobe != '0;",
        "request_i.write && (request_i.strobe != '0 || 1'b1);",
    ),
    fault(
        ACCESS,
        "the key of a busy map is read",
        "(busy && (changes || !request_i.write)) ? Slverr",
        "(busy && changes) ? Slverr",
    ),
    fault(
        REGISTERS,
        "the bytes of a last word are those of a full one",
        "if (!last) kept",
        "if (!last || (keep[0] || 1'b1)) kept",
    ),
    fault(
        REGISTERS,
        "a write of no byte to the shell is refused",
        "(request_i.write && request_i.strobe != '0)",
        "(request_i.write && (request_i.strobe != '0 || 1'b1))",
    ),
    fault(
        ACCESS,
        "an operation that does not exist starts",
        "request_i.data[7:0] <= 8'(OperationNext)",
        "request_i.data[7:0] <= 8'(OperationNext + 1)",
    ),
    fault(ACCESS, "a flag is ignored", "8'(FlagNoExist): operation_o = 3'd4;", "8'(FlagNoExist): operation_o = 3'd1;"),
    fault(
        ACCESS,
        "an index after the last entry is not refused",
        "!IsHash && index >= 32'(Entries)",
        "!IsHash && index > 32'(Entries)",
    ),
    fault(
        ACCESS,
        "a listing leaves out the last row",
        "end else if (is_last) begin",
        "end else if (is_last || cursor_q == 32'(Rows - 2)) begin",
    ),
    fault(
        ACCESS,
        "a listing goes on after an entry",
        "value_q <= found_value;\n        state_q <= Answer;",
        "value_q <= found_value;\n        if (open_d == '0) state_q <= Answer;",
    ),
    fault(
        MAP_BLOCK,
        "a full map takes another entry",
        "slice_write   = !was_present && (!is_full || Lru);",
        "slice_write   = !was_present;",
    ),
    fault(
        ACCESS,
        "a change of an absent entry makes one",
        "8'(FlagExist):   operation_o = 3'd5;",
        "8'(FlagExist):   operation_o = 3'd1;",
    ),
    fault(
        "fl_shell_shell.sv",
        "a word is taken twice",
        ".out_ready_i(in_ready),",
        ".out_ready_i(in_ready && (in_word.last || in_word.data[0] || in_word.data[8])),",
    ),
];

/// What the faults replace stands in their files.
#[test]
fn every_fault_of_the_shell_has_its_place() {
    let pipeline = pipeline(SOURCE);
    let shell = pipeline.shell();
    for Fault { name, file, from, .. } in FAULTS {
        let text = shell.files.iter().chain(&pipeline.files).find(|own| own.name == file).map(|own| &own.text);
        assert!(text.is_some_and(|text| text.contains(from)), "{name}: no `{from}` in {file}");
    }
}

/// Runs of many seeds, then each fault of a list: it makes a run panic. `None` without Verilator.
pub(crate) fn proof(test: &str) -> Option<()> {
    let (model, shell) = build(test, |_, text| text)?;
    for seed in 0..30 {
        run(&model, &shell, seed, 60);
        between_packets(&model, &shell, seed);
    }
    println!("30 seeds agree with a model of the kernel's maps");
    for Fault { name, file, from, to } in FAULTS {
        let (model, shell) = build(test, |own, text| {
            assert!(own != file || text.contains(from), "{name}: no `{from}` in {file}");
            if own == file { text.replace(from, to) } else { text }
        })?;
        let found = finding(|| {
            for seed in 0..3 {
                run(&model, &shell, seed, 40);
            }
            between_packets(&model, &shell, 1);
        });
        assert!(found.is_some(), "{name} is not found");
        println!("{name}: {}", found.unwrap());
    }
    println!("{} faults are found", FAULTS.len());
    Some(())
}
