// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A folder that simulates a pipeline with Verilator alone: test bench, vectors, Makefile, description.

use std::fmt::Write as _;

use crate::port::{Access, MapPort};
use crate::top::{File, Pipeline};

/// Packets that follow one another, and the contents of the maps before and after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The origin of the packets, for messages.
    pub name: String,
    /// The changes of the host that make the contents after the group before those before this one; after a reset for the
    /// first group.
    pub changes: Vec<Change>,
    /// The packets.
    pub vectors: Vec<Vector>,
    /// The entries in the end by the index of their map, keys and values; of arrays those that are not zero. Maps of
    /// ports are left out.
    pub entries: Vec<(u32, Vec<u8>, Vec<u8>)>,
}

/// A change of an entry by the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The index of the map.
    pub map: u32,
    /// The key, or the index as 4 bytes, little endian.
    pub key: Vec<u8>,
    /// The new value; none to delete the entry of a map with keys.
    pub value: Option<Vec<u8>>,
}

/// A packet and its result, after all packets before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vector {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its ingress port.
    pub port: u32,
    /// The time of its arrival in nanoseconds.
    pub now_ns: u64,
    /// The verdict's number as at `done_verdict_o`, or [`Vector::EITHER`].
    pub verdict: u8,
    /// The random numbers that it draws.
    pub random: [u32; 8],
    /// Egress port and bytes of the packets that leave: those that it sends besides itself, then itself unless it is
    /// dropped.
    pub sent: Vec<(u32, Vec<u8>)>,
}

/// Facts of the plan about a pipeline, for its description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The clock that the plan assumes, in megahertz.
    pub clock_mhz: u32,
    /// The device, and what the plan uses of it; none if any will do.
    pub device: Option<String>,
    /// The bytes of a packet that the program may access in hardware, if it may access others: such packets take the
    /// slow path.
    pub window_bytes: Option<u32>,
    /// The maps with entries that expire.
    pub expiring: Vec<Expiring>,
    /// The maps with entries from the start, which the host writes.
    pub preloaded: Vec<String>,
}

/// A map with entries that expire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expiring {
    /// Its name.
    pub map: String,
    /// The offsets of deadlines in a value.
    pub deadline_offsets: Vec<u32>,
    /// The period of the sweep in nanoseconds.
    pub sweep_ns: u64,
    /// The successors of expired entries that are not removed, in words, by the state that they are in.
    pub successors: Vec<String>,
}

impl Vector {
    /// The verdict of a packet that leaves for the slow path as it came.
    pub const SLOW: u8 = 5;
    /// The verdict of a packet to all ports of a map, whose index is the egress port.
    pub const ALL: u8 = 6;
    /// The same without the ingress port.
    pub const OTHERS: u8 = 7;
    /// One of these two: the ingress port is not among those of the map.
    pub const EITHER: u8 = 8;
}

impl Pipeline {
    /// The files besides those of SystemVerilog.
    pub fn bench(&self, groups: &[Group], facts: &Facts) -> Vec<File> {
        let file = |name: &str, text: String| File { name: name.to_owned(), text };
        vec![
            file("Makefile", self.makefile()),
            file(
                "bench.cpp",
                BENCH
                    .replace("$TOP", &self.module)
                    .replace("$MAPS", &self.core.maps.iter().map(map_row).collect::<String>())
                    .replace("$RANDOM_DRIVEN", if self.core.random_words > 0 { RANDOM_DRIVEN } else { "" }),
            ),
            file("vectors.txt", vectors_text(groups, self.core.random_words)),
            file("README.md", self.description(groups, facts)),
            file(&format!("{}.f", self.name()), self.file_list()),
            file(&format!("{}.xdc", self.name()), self.constraints(facts.clock_mhz)),
            file("LICENSE-APACHE", LICENSES[0].to_owned()),
            file("LICENSE-MIT", LICENSES[1].to_owned()),
        ]
    }

    fn makefile(&self) -> String {
        let sources: Vec<&str> = self.files.iter().map(|file| file.name.as_str()).collect();
        let shell = self.shell();
        // Its packages come before the modules that use them.
        let own: Vec<&str> = shell.files.iter().map(|file| file.name.as_str()).collect();
        format!(
            "# Simulates the pipeline on vectors.txt with Verilator and a C++ compiler.\nTOP := {}\nSOURCES := {}\n\
             # The shell around it, with AXI4-Stream and AXI4-Lite.\nSHELL_TOP := {}\nSHELL_SOURCES := {}\n\n\
             sim: build/bench\n\t./build/bench vectors.txt\n\n\
             build/bench: $(SOURCES) bench.cpp\n\tverilator --cc --exe --build -j 0 --assert -Wall -O3 --x-assign unique --x-initial unique \\\n\
             \t  --output-split 20000 --output-split-cfuncs 500 -MAKEFLAGS OPT_FAST=-O1 --Mdir build -o bench --top-module $(TOP) $(SOURCES) bench.cpp\n\n\
             lint:\n\tverilator --lint-only --assert -Wall --top-module $(TOP) $(SOURCES)\n\
             \tverilator --lint-only --assert -Wall --top-module $(SHELL_TOP) $(SOURCES) $(SHELL_SOURCES)\n\n\
             clean:\n\trm -rf build\n\n.PHONY: sim lint clean\n",
            self.module,
            sources.join(" "),
            shell.module,
            own.join(" ")
        )
    }

    /// The name of the function.
    fn name(&self) -> &str {
        self.module.strip_prefix("fl_pipeline_").unwrap_or(&self.module)
    }

    /// The sources in the order in which tools read them: packages, then the others.
    fn file_list(&self) -> String {
        let shell = self.shell();
        let all: Vec<&str> = self.files.iter().chain(&shell.files).map(|file| file.name.as_str()).collect();
        let (packages, modules): (Vec<&str>, Vec<&str>) = all.into_iter().partition(|name| name.ends_with("_pkg.sv"));
        let names: String = packages.into_iter().chain(modules).map(|name| format!("{name}\n")).collect();
        format!("// The sources of {} and of what it instantiates, packages first.\n{names}", shell.module)
    }

    /// Constraints of the clock for the tools of AMD.
    fn constraints(&self, clock_mhz: u32) -> String {
        format!(
            "# The clock of {}, as the plan assumes it: {clock_mhz} MHz. Where the clock of the design is made elsewhere, leave \
             this out.\ncreate_clock -name aclk -period {:.3} [get_ports aclk]\n",
            self.shell().module,
            1000.0 / f64::from(clock_mhz.max(1))
        )
    }

    /// The rows of the largest table: a reset clears one in each cycle.
    fn cleared_rows(&self) -> u32 {
        let rows = self.core.maps.iter().map(|map| match map.access {
            Access::Single => 0,
            Access::Index { .. } | Access::Ports { .. } => map.entries,
            Access::Key { rows, .. } => rows,
        });
        rows.max().unwrap_or(0)
    }

    fn description(&self, groups: &[Group], facts: &Facts) -> String {
        let vectors: usize = groups.iter().map(|group| group.vectors.len()).sum();
        let (module, shell, name) = (&self.module, self.shell().module, self.name());
        let words = self.core.random_words;
        let random = match words {
            0 => String::new(),
            _ => format!(
                "| `in_random_i` | {words} random numbers of 32 bits; a packet takes those of its last word |\n"
            ),
        };
        let extra = match self.core.sends.len() {
            0 => String::new(),
            most => format!(
                "| `extra_valid_o` | high once for each extra packet, before the verdict of its packet; up to {most} a packet |\n"
            ),
        };
        let device = match &facts.device {
            Some(device) => format!("Device: {device}."),
            None => "Device: none was named.".to_owned(),
        };
        let mut text = format!(
            "# {module}\n\nA packet pipeline in SystemVerilog, generated by Flowloom. `make sim` simulates it on {vectors}\n\
             packets in {groups} groups of `vectors.txt` (Verilator 5.006 or later, a C++ compiler, make): each group\n\
             begins with its own contents of maps; verdicts, packets and the maps in the end are compared with\n\
             those of Flowloom's interpreter.\n\n\
             - Top module: `{module}`. Clock `clk_i`; reset `rst_i`, synchronous, active high.\n\
             - `{shell}` around it has AXI4-Stream for packets and AXI4-Lite for\n  maps and counters; `registers.md` lists its registers. `make lint` checks both.\n\
             - `{name}.f` lists the sources, packages first; `{name}.xdc` has the clock.\n\
             - Latency: {latency} cycles from the last word of a packet to its first word at the output,\n  without contention; 2 more in the shell.\n\
             - Throughput: a word a cycle at both ends{exceptions}.\n\
             - Packets: up to {max} bytes; longer ones are discarded, with a pulse on `discarded_o`.\n\
             - Clock: the plan assumes {clock} MHz. The folder was not placed and routed by any vendor's tool.\n\
             - {device}\n\n\
             ## Streams\n\n| port | meaning |\n| --- | --- |\n\
             | `in_data_i`, `in_keep_i`, `in_last_i` | words of a packet, its first byte in the lowest bits |\n\
             | `in_port_i` | the ingress port; a packet takes that of its last word |\n\
             | `in_time_i` | the time in nanoseconds; a packet takes that of its last word, or the largest of those before |\n{random}\
             | `restart_i` | times before it do not count from the next packet on: for a clock that was set back |\n\
             | `out_data_o`, `out_keep_o`, `out_last_o` | the packet as it leaves |\n\
             | `out_verdict_o` | 0 extra packet, which a packet sends besides itself and before itself, 2 pass, 3 send back, 4 redirect, 5 slow path: it leaves as it came, 6 to all ports of map `out_port_o`, 7 to all but the ingress port |\n\
             | `out_port_o` | the egress port |\n\
             | `done_valid_o`, `done_verdict_o` | the verdict of each packet in order; 0 aborted, 1 dropped |\n{extra}\
             | `ready_o` | high from when the maps are cleared after a reset |\n\n\
             `{shell}` has the same in the fields of AXI4-Stream:\n\n| port | bits | meaning |\n| --- | --- | --- |\n\
             | `s_axis_tuser` | 31:0 | ingress port |\n\
             | | 95:32 | time in nanoseconds; the last word of a packet counts for both |\n\
             | `m_axis_tuser` | 31:0 | egress port |\n\
             | | 34:32 | verdict, as `out_verdict_o` |\n\
             | `s_axis_tkeep`, `m_axis_tkeep` | {keep}:0 | a bit for each byte, the first byte in bit 0 |\n\n\
             All bits of `tkeep` are set in words before the last one of a packet; in the last one those of its first\n\
             bytes, without gaps. A word without a byte is left out, and a packet without one is discarded, with a pulse\n\
             on `discarded_o`. Nothing checks `s_axis_tkeep` otherwise: with gaps, packets give other results. There is no\n\
             field for an error: a packet with a bad FCS has to be dropped before the input, and packets come without\n\
             FCS.\n\n\
             ## Clock and reset\n\n\
             Both AXI ports of the shell have one clock, `aclk`; put FIFOs of two clocks where a MAC or a host has\n\
             another one. A reset has to hold the source and the sink of packets too, or the source has to begin with the\n\
             first word of a packet: after a reset the next word counts as the first one of a packet, so that the rest of\n\
             an interrupted frame becomes a packet of its own. `ready_o` is high some {ready} cycles after the reset; until then\n\
             no word is taken, and the host should not access maps.\n\n",
            groups = groups.len(),
            latency = self.latency_cycles(),
            exceptions = self.core.exceptions,
            max = self.max_bytes(),
            clock = facts.clock_mhz,
            keep = self.word_bytes() - 1,
            ready = self.cleared_rows() + READY_CYCLES,
        );
        text.push_str(&self.host_duties(facts));
        text.push_str("## Maps\n\n");
        if self.core.maps.is_empty() {
            text.push_str("None.\n");
            return text;
        }
        text.push_str(
            "The host accesses whole entries through the ports of each map: `_valid_i` with `_ready_o` makes an\naccess, \
             `_valid_o` comes with its answer, the value before the access in `_value_o`. `_write_i` writes\n`_value_i`, \
             `_index_i` names the entry.\n\nFor a map with keys, `_operation_i` is 0 to look up, 1 to update, 2 to delete, 3 to \
             read the row\nwhose number is in `_key_i`, continued in `_value_i`, 4 to update only an absent entry, 5 only a \
             present\none. `_present_o`, `_key_o` and `_value_o` are the entry before the access, `_full_o` is an update \
             that\nfound no room, `_count_o` the number of entries. The key of a map of prefixes is the length of the \
             prefix\nin bits (32 bits), then the address; 0 finds the longest prefix. The first byte is in the lowest \
             bits.\n\n",
        );
        if self.core.maps.iter().any(|map| matches!(map.access, Access::Ports { .. })) {
            text.push_str(
                "A value of a map of ports is 5 bytes: the egress port, the lowest byte first, and in byte 4 a 1 if there is\n\
                 a port, or 0. Through the shell's registers, an update writes that byte.\n\n",
            );
        }
        text.push_str("| ports | map | entries | key | bytes of a value |\n| --- | --- | --- | --- | --- |\n");
        for MapPort { map, name, value_bytes, entries, access, .. } in &self.core.maps {
            let key = match access {
                Access::Single => "none".to_owned(),
                Access::Index { .. } => "index".to_owned(),
                Access::Ports { .. } => "index; the value is an egress port".to_owned(),
                Access::Key { bytes, .. } => format!("{bytes} bytes"),
            };
            _ = writeln!(text, "| `map{map}_*` | `{name}` | {entries} | {key} | {value_bytes} |");
        }
        text
    }

    /// The duties of software and of the surrounding design.
    fn host_duties(&self, facts: &Facts) -> String {
        let mut text = "## What the host does\n\n".to_owned();
        match facts.window_bytes {
            Some(bytes) => {
                _ = write!(
                    text,
                    "- Slow path: a packet in which the function reads or writes beyond byte {bytes} leaves as it came, with\n  \
                 verdict 5 and the ingress port as egress port, and changes no map. It was **not** processed: software has to run\n  \
                 the function on it, with the contents of the maps, and to write the changes of maps back. A design that\n  \
                 wires `m_axis` to a MAC and does not look at the verdict forwards such packets unfiltered; without\n  \
                 software, drop packets with verdict 5.\n"
                )
            }
            None => text.push_str("- Slow path: none; no packet leaves with verdict 5.\n"),
        }
        for Expiring { map, deadline_offsets, sweep_ns, successors } in &facts.expiring {
            let offsets: Vec<String> = deadline_offsets.iter().map(u32::to_string).collect();
            _ = writeln!(
                text,
                "- Sweeps of `{map}`: nothing in hardware removes expired contexts; one stays until its flow returns, and a\n  \
                 full map has no room for new flows. Every {sweep_ns} ns, software lists the entries and deletes those with a\n  \
                 deadline at or before the time of `in_time_i`. Deadlines are numbers of 64 bits in nanoseconds, the lowest\n  \
                 byte first, at offset {} of a value; all ones is no deadline.",
                offsets.join(" and ")
            );
            successors.iter().for_each(|successor| _ = writeln!(text, "  {successor}"));
        }
        text.push_str(
            "- Time: `in_time_i` (in the shell a part of `s_axis_tuser`) is nanoseconds since any moment, from the clock that\n  \
             software reads for sweeps and for times that it writes into maps. If it goes back, packets take the largest\n  \
             time so far.\n\
             - Contents after a reset: ",
        );
        text.push_str(match self.core.maps.iter().any(|map| matches!(map.access, Access::Single)) {
            true => {
                "arrays are zero and tables empty; arrays of one entry, such as global variables, have the\n  \
                 values that the program gives them.\n"
            }
            false => "arrays are zero and tables empty.\n",
        });
        for map in self.core.maps.iter().filter(|map| matches!(map.access, Access::Ports { .. })) {
            _ = write!(
                text,
                "- Ports: map `{}` is empty after a reset, so redirects through it take the fallback of the call, by default\n  \
                 verdict 0 (aborted), until the host has written its ports.\n",
                map.name
            );
        }
        for map in &facts.preloaded {
            _ = writeln!(
                text,
                "- Entries of `{map}` from the start: the host writes them; the first group of `vectors.txt` shows them."
            );
        }
        text.push('\n');
        text
    }
}

/// The cycles from a reset to `ready_o` besides those of the rows of the largest table.
const READY_CYCLES: u32 = 4;

/// The licenses of the blocks and templates.
const LICENSES: [&str; 2] = [include_str!("../../../LICENSE-APACHE"), include_str!("../../../LICENSE-MIT")];

/// The row of a map in the test bench.
fn map_row(port: &MapPort) -> String {
    let MapPort { map, name, value_bytes, entries, access, .. } = port;
    let top = |suffix: &str| format!("&top->map{map}_{suffix}");
    let sized = |suffix: &str| format!("{}, sizeof(top->map{map}_{suffix})", top(suffix));
    let none = || "nullptr, 0".to_owned();
    let (kind, key_bytes, rows, command, key) = match *access {
        Access::Single => ("kSingle", 4, 1, "write_i", none()),
        Access::Index { .. } => ("kIndex", 4, *entries, "write_i", sized("index_i")),
        Access::Ports { .. } => ("kPorts", 4, *entries, "write_i", sized("index_i")),
        Access::Key { bytes, rows, .. } => ("kKeyed", bytes, rows, "operation_i", sized("key_i")),
    };
    let answers = match access {
        Access::Key { .. } => ["present_o", "full_o", "key_o", "count_o"].map(top).join(", "),
        _ => ["nullptr"; 4].join(", "),
    };
    format!(
        "        {{{map}, \"{}\", {kind}, {key_bytes}, {value_bytes}, {rows}, {}, {}, {},\n         {key}, {},\n         {}, {}, \
         {answers}}},\n",
        escaped(name),
        top("valid_i"),
        top("ready_o"),
        top(command),
        sized("value_i"),
        top("valid_o"),
        top("value_o"),
    )
}

/// A name in a string of C++: other characters than printable ones of ASCII are octal.
fn escaped(name: &str) -> String {
    let escape = |byte: u8| match byte {
        // Two question marks may begin a trigraph.
        b'"' | b'\\' | b'?' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    };
    name.bytes().map(escape).collect()
}

/// The head of `vectors.txt`.
const FORMAT: &str = "\
# Groups of packets. Before its packets, a group changes entries of maps, from those that the group before has left, or
# from those after a reset; after them, all entries are compared. Bytes are hexadecimal, the first one first.
#
#   group NAME
#   write MAP KEY VALUE    the host writes an entry; the key of an array is the index, in 4 bytes, the lowest one first;
#                          the fifth byte of a value of a map of ports is 1 if there is a port
#   delete MAP KEY         the host deletes an entry
#   packet INGRESS NANOSECONDS BYTES VERDICT RANDOM [EGRESS BYTES]...
#                          RANDOM: the words of in_random_i, or -; then the packets that leave, the packet itself last;
#                          VERDICT: as done_verdict_o, or 8 for 6 or 7
#   entry MAP KEY VALUE    an entry after the packets; those of arrays that are zero are left out
";

/// The text of `vectors.txt`.
fn vectors_text(groups: &[Group], random_words: u32) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut text = FORMAT.to_owned();
    for Group { name, changes, vectors, entries } in groups {
        _ = writeln!(text, "group {name}");
        for Change { map, key, value } in changes {
            _ = match value {
                Some(value) => writeln!(text, "write {map} {} {}", hex(key), hex(value)),
                None => writeln!(text, "delete {map} {}", hex(key)),
            };
        }
        for Vector { bytes, port, now_ns, verdict, random, sent } in vectors {
            let drawn: Vec<u8> =
                random.iter().take(random_words as usize).flat_map(|word| word.to_le_bytes()).collect();
            let drawn = if drawn.is_empty() { "-".to_owned() } else { hex(&drawn) };
            let sent: String = sent.iter().map(|(port, bytes)| format!(" {port} {}", hex(bytes))).collect();
            _ = writeln!(text, "packet {port} {now_ns} {} {verdict} {drawn}{sent}", hex(bytes));
        }
        for (map, key, value) in entries {
            _ = writeln!(text, "entry {map} {} {}", hex(key), hex(value));
        }
    }
    text
}

/// Drives random words.
const RANDOM_DRIVEN: &str = "        std::memcpy(&top_->in_random_i, next.random.data(), next.random.size());\n";

/// The test bench.
const BENCH: &str = include_str!("bench.cpp");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_end_strings() {
        for (name, expected) in
            [("flows", "flows"), (".rodata", ".rodata"), ("a\"b\\", r#"a\"b\\"#), ("\né??", r"\012\303\251\?\?")]
        {
            assert_eq!(escaped(name), expected);
        }
    }
}
