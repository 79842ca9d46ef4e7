// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C++ program around a model: one process, driven through its standard input and output.

use std::fmt::Write as _;

use crate::port::Port;

/// The clock's name, toggled by the harness and not part of the inputs.
pub(crate) const CLOCK: &str = "clk_i";

/// The program for a top module. Its arguments are a seed and, with waves, a file.
///
/// Input: a count of cycles (32 bits, little endian), then the inputs of each. Output: the outputs of each.
pub(crate) fn source(top: &str, ports: &[Port], has_clock: bool, has_waves: bool) -> String {
    let (mut sets, mut gets) = (String::new(), String::new());
    let total = |is_input| ports.iter().filter(|port| port.is_input == is_input).map(Port::len_bytes).sum::<usize>();
    for port in ports {
        let Port { name, offset_bytes, .. } = port;
        let len = port.len_bytes();
        if port.is_input {
            let last = offset_bytes + len - 1;
            _ = writeln!(sets, "      in[{last}] &= {};", port.last_mask());
            _ = writeln!(sets, "      std::memcpy(&top->{name}, in + {offset_bytes}, {len});");
        } else {
            _ = writeln!(gets, "      std::memcpy(out + {offset_bytes}, &top->{name}, {len});");
        }
    }
    let edge = |level: u8| if has_clock { format!("      top->{CLOCK} = {level};\n") } else { String::new() };
    let (include, open, dump, close) = if has_waves {
        (
            "#include \"verilated_vcd_c.h\"\n",
            "  VerilatedVcdC waves;\n  context->traceEverOn(true);\n  top->trace(&waves, 99);\n  if (argc > 2) waves.open(argv[2]);\n",
            "      if (waves.isOpen()) waves.dump(time++);\n",
            "  waves.close();\n",
        )
    } else {
        ("", "", "", "")
    };
    let (low, high) = (edge(0), edge(1));
    let (in_bytes, out_bytes) = (total(true).max(1), total(false).max(1));
    let out_len = total(false);
    let in_len = total(true);
    let time = if has_waves { "  std::uint64_t time = 0;\n" } else { "" };
    format!(
        r#"// Generated: drives V{top} through standard input and output.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unistd.h>
#include <vector>
#include "V{top}.h"
#include "verilated.h"
{include}
int main(int argc, char** argv) {{
  // What the design prints goes to standard error, beside the answers.
  std::FILE* const answers = fdopen(dup(STDOUT_FILENO), "wb");
  if (answers == nullptr || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 1;
  const auto context = std::make_unique<VerilatedContext>();
  context->randReset(2);
  context->randSeed(argc > 1 ? std::atoi(argv[1]) : 1);
  const auto top = std::make_unique<V{top}>(context.get());
{open}{time}  std::uint8_t in[{in_bytes}], out[{out_bytes}];
  std::vector<std::uint8_t> answer;
  std::uint32_t cycles;
  while (std::fread(&cycles, sizeof cycles, 1, stdin) == 1) {{
    answer.clear();
    for (std::uint32_t cycle = 0; cycle < cycles; ++cycle) {{
      if ({in_len} != 0 && std::fread(in, {in_len}, 1, stdin) != 1) return 1;
{sets}{low}      top->eval();
{dump}{gets}      answer.insert(answer.end(), out, out + {out_len});
{high}      top->eval();
{dump}    }}
    if (std::fwrite(answer.data(), 1, answer.size(), answers) != answer.size() || std::fflush(answers) != 0) return 1;
  }}
{close}  top->final();
  return 0;
}}
"#
    )
}
