// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C++ program around a model: one process, driven through its standard input and output.

use std::fmt::Write as _;

use crate::design::{Design, Streams};
use crate::port::Port;

/// The clock's name, toggled by the harness and not part of the inputs.
pub(crate) const CLOCK: &str = "clk_i";

/// The mark of a request for a transfer, among the counts of cycles.
pub(crate) const TRANSFER: u32 = u32::MAX;

/// The mark of a request for changed words of memories.
pub(crate) const CHANGED: u32 = u32::MAX - 1;

/// The number of 32-bit words after [`TRANSFER`] in a request.
pub(crate) const TRANSFER_WORDS: usize = 8;

/// The bit of an event in which a word was taken at the input.
pub(crate) const TAKEN: u8 = 1;
/// The bit of an event in which a word was given at the output.
pub(crate) const GIVEN: u8 = 2;
/// The bit of an event of the first monitor; those of the others follow.
pub(crate) const MONITORED: u8 = 4;
/// The bit of an event in which an access was made.
pub(crate) const MADE: u8 = 64;
/// The bit of an event in which an access had its answer.
pub(crate) const ANSWERED: u8 = 128;

/// The program for a top module. Its arguments are a seed and, with waves, a file.
///
/// A request for cycles: their count (32 bits, little endian), then the inputs of each. The answer: the outputs of
/// each.
///
/// A request for a transfer: [`TRANSFER`], the number of words to send, the cycles without an event after which it
/// ends, the same once all is done, the events of the first monitor until then, the greatest number of cycles, the
/// cycles of 256 in which the output stalls, a seed for them, the number of accesses; the inputs of cycles without a
/// word; then each access: the words taken before it, the cycles of delay after them, the bytes of its ready and of its
/// answer's valid among the outputs, and inputs that are added to the others; then each word: the cycles of delay
/// before it, and its inputs. The answer: each event, as its cycle (64 bits), its bits, and the outputs; after them the
/// number of all cycles with no bit set.
///
/// A request for changed words: [`CHANGED`]. The answer: the number of memories (32 bits), then of each the length of its
/// name, its name, the number of its words, the number of words that are not as they were at the request before, which
/// takes all words for zeros at first, and the index of each.
pub(crate) fn source(design: &Design, ports: &[Port], has_clock: bool) -> String {
    let (top, has_waves, streams) = (design.top(), design.has_waves(), design.streams());
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
    let transfer = streams.map_or_else(String::new, |streams| transfer(streams, (in_len, out_len), (&sets, &gets)));
    let transfer = transfer.replace("$LOW", &low).replace("$HIGH", &high).replace("$DUMP", dump);
    let (symbols, memories, changed) = memories(design);
    let time = if has_waves { "  std::uint64_t time = 0;\n" } else { "" };
    format!(
        r#"// Generated: drives V{top} through standard input and output.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unistd.h>
#include <vector>
#include "V{top}.h"
#include "verilated.h"
{symbols}{include}
int main(int argc, char** argv) {{
  // What the design prints goes to standard error, beside the answers.
  std::FILE* const answers = fdopen(dup(STDOUT_FILENO), "wb");
  if (answers == nullptr || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 1;
  const auto context = std::make_unique<VerilatedContext>();
  context->randReset(2);
  context->randSeed(argc > 1 ? std::atoi(argv[1]) : 1);
  const auto top = std::make_unique<V{top}>(context.get());
{open}{time}{memories}  std::uint8_t in[{in_bytes}], out[{out_bytes}];
  std::vector<std::uint8_t> answer;
  std::uint32_t cycles;
  while (std::fread(&cycles, sizeof cycles, 1, stdin) == 1) {{
    answer.clear();
{changed}{transfer}    for (std::uint32_t cycle = 0; cycle < cycles; ++cycle) {{
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

/// The parts of the program for memories: what it includes, how it finds them, and a request for changed words.
fn memories(design: &Design) -> (&'static str, String, String) {
    let memories = design.memories();
    if memories.is_empty() {
        return ("", String::new(), String::new());
    }
    let signals: Vec<String> = memories.iter().map(|memories| format!("\"{}\"", memories.signal)).collect();
    let found = format!(
        r#"  struct Memory {{
    const char* name;
    const std::uint8_t* at;
    std::uint32_t words;
    std::size_t word_bytes;
    std::vector<std::uint8_t> seen;
  }};
  std::vector<Memory> memories;
  for (const auto& scope : *context->scopeNameMap()) {{
    for (const char* const signal : {{{}}}) {{
      const VerilatedVar* const var = scope.second->varFind(signal);
      if (var == nullptr || var->udims() != 1) continue;
      const std::uint32_t words = var->unpacked().elements();
      const std::size_t bytes = var->totalSize();
      const auto* const at = static_cast<const std::uint8_t*>(var->datap());
      memories.push_back({{scope.first, at, words, bytes / words, std::vector<std::uint8_t>(bytes)}});
    }}
  }}
"#,
        signals.join(", ")
    );
    let changed = format!(
        r#"    if (cycles == {CHANGED}u) {{
      const auto put = [&](std::uint32_t number) {{
        const auto* const at = reinterpret_cast<const std::uint8_t*>(&number);
        answer.insert(answer.end(), at, at + sizeof number);
      }};
      put(memories.size());
      for (auto& memory : memories) {{
        const std::size_t name_bytes = std::strlen(memory.name);
        put(name_bytes);
        answer.insert(answer.end(), memory.name, memory.name + name_bytes);
        put(memory.words);
        std::vector<std::uint32_t> changed;
        const auto* const now = memory.at;
        auto* const seen = memory.seen.data();
        const std::size_t word_bytes = memory.word_bytes;
        // Blocks in which nothing has changed are passed over at once.
        for (std::uint32_t first = 0; first < memory.words; first += 1024) {{
          const std::uint32_t end = first + std::min<std::uint32_t>(1024, memory.words - first);
          const std::size_t block_bytes = (end - first) * word_bytes;
          if (std::memcmp(now + first * word_bytes, seen + first * word_bytes, block_bytes) == 0) continue;
          for (std::uint32_t word = first; word < end; ++word) {{
            const std::size_t at = word * word_bytes;
            if (std::memcmp(now + at, seen + at, word_bytes) != 0) changed.push_back(word);
          }}
          std::memcpy(seen + first * word_bytes, now + first * word_bytes, block_bytes);
        }}
        put(changed.size());
        for (const std::uint32_t word : changed) put(word);
      }}
      if (std::fwrite(answer.data(), 1, answer.size(), answers) != answer.size() || std::fflush(answers) != 0) return 1;
      continue;
    }}
"#
    );
    ("#include \"verilated_sym_props.h\"\n#include \"verilated_syms.h\"\n", found, changed)
}

/// The part of the program that handles a transfer.
fn transfer(streams: &Streams, (in_len, out_len): (usize, usize), (sets, gets): (&str, &str)) -> String {
    let Streams { input, output, monitors } = streams;
    assert!(monitors.len() <= 4, "{} monitors, expected at most 4: each has a bit of an event", monitors.len());
    let mut events = String::new();
    for (number, monitor) in monitors.iter().enumerate() {
        _ = writeln!(events, "        if (top->{monitor}_valid_o) event |= {};", MONITORED << number);
    }
    format!(
        r#"    if (cycles == {TRANSFER}u) {{
      std::uint32_t words, idle_limit, settle_limit, monitored, limit, stalls, seed, access_count, delay = 0;
      for (std::uint32_t* const word : {{&words, &idle_limit, &settle_limit, &monitored, &limit, &stalls, &seed,
                                        &access_count}}) {{
        if (std::fread(word, sizeof *word, 1, stdin) != 1) return 1;
      }}
      std::uint8_t rest[{in_len}], next[{in_len}];
      if (std::fread(rest, {in_len}, 1, stdin) != 1) return 1;
      struct Access {{
        std::uint32_t after, delay, ready, answer;
        std::uint8_t in[{in_len}];
      }};
      std::vector<Access> accesses(access_count);
      std::vector<std::uint32_t> answer_ports;
      for (auto& access : accesses) {{
        for (std::uint32_t* const word : {{&access.after, &access.delay, &access.ready, &access.answer}}) {{
          if (std::fread(word, sizeof *word, 1, stdin) != 1) return 1;
        }}
        if (access.ready >= {out_len} || access.answer >= {out_len}) return 1;
        if (std::fread(access.in, {in_len}, 1, stdin) != 1) return 1;
        const auto known = std::find(answer_ports.begin(), answer_ports.end(), access.answer);
        if (known == answer_ports.end()) answer_ports.push_back(access.answer);
      }}
      std::uint32_t made = 0, unanswered = 0;
      std::uint32_t left = words;
      const auto fetch = [&] {{
        return left == 0 || (std::fread(&delay, sizeof delay, 1, stdin) == 1 && std::fread(next, {in_len}, 1, stdin) == 1);
      }};
      if (!fetch()) return 1;
      std::uint64_t cycle = 0;
      bool is_done = false;
      for (std::uint32_t idle = 0; idle < (is_done ? settle_limit : idle_limit) && cycle < limit; ++cycle) {{
        const bool sends = left > 0 && delay == 0;
        if (left > 0 && delay > 0) --delay;
        std::memcpy(in, sends ? next : rest, {in_len});
        bool accesses_now = false, waits = false;
        if (made < access_count && words - left >= accesses[made].after) {{
          accesses_now = accesses[made].delay == 0;
          waits = !accesses_now;
          if (waits) --accesses[made].delay;
          for (std::uint32_t i = 0; accesses_now && i < {in_len}; ++i) in[i] |= accesses[made].in[i];
        }}
{sets}        seed = seed * 1664525u + 1013904223u;
        top->{output}_ready_i = (seed >> 24) >= stalls;
$LOW      top->eval();
$DUMP        std::uint8_t event = 0;
        if (sends && top->{input}_ready_o) event |= {TAKEN};
        if (top->{output}_valid_o && top->{output}_ready_i) event |= {GIVEN};
{events}        if (accesses_now || unanswered > 0) {{
{gets}          if (accesses_now && (out[accesses[made].ready] & 1) != 0) {{
            event |= {MADE};
            ++made;
            ++unanswered;
          }}
          for (const std::uint32_t port : answer_ports) {{
            if ((out[port] & 1) == 0 || unanswered == 0) continue;
            event |= {ANSWERED};
            --unanswered;
          }}
        }}
        if ((event & {MONITORED}) != 0 && monitored > 0) --monitored;
        is_done = monitored == 0 && left <= ((event & {TAKEN}) ? 1 : 0) && made == access_count && unanswered == 0;
        idle = (event != 0 || (left > 0 && !sends) || waits) ? 0 : idle + 1;
        if (event != 0) {{
{gets}          const auto* const at = reinterpret_cast<const std::uint8_t*>(&cycle);
          answer.insert(answer.end(), at, at + sizeof cycle);
          answer.push_back(event);
          answer.insert(answer.end(), out, out + {out_len});
        }}
$HIGH      top->eval();
$DUMP        if (event & {TAKEN}) {{
          --left;
          if (!fetch()) return 1;
        }}
        if (answer.size() > (1u << 20)) {{
          if (std::fwrite(answer.data(), 1, answer.size(), answers) != answer.size()) return 1;
          answer.clear();
        }}
      }}
      // Words that were not taken.
      for (; left > 1; --left) {{
        if (std::fread(&delay, sizeof delay, 1, stdin) != 1 || std::fread(next, {in_len}, 1, stdin) != 1) return 1;
      }}
      const auto* const at = reinterpret_cast<const std::uint8_t*>(&cycle);
      answer.insert(answer.end(), at, at + sizeof cycle);
      answer.push_back(0);
      answer.insert(answer.end(), {out_len}, 0);
      if (std::fwrite(answer.data(), 1, answer.size(), answers) != answer.size() || std::fflush(answers) != 0) return 1;
      continue;
    }}
"#
    )
}
