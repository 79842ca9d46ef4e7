// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two and three packets at every distance, on a small program for each way in which packets share state.
//!
//! ```text
//!   prepare A, B, C: delete or write ── pause ── packet 1 ── d1 cycles ── packet 2 ── d2 cycles ── packet 3 ── pause
//! ```
//!
//! The packets of a case are drawn from a small alphabet: access to key A, deletion of A, access to B, whose rows in
//! all banks are those of A, and access to another key C; for arrays, accesses to two indices. All words of this
//! alphabet, all distances from one cycle to the latency of the core and two more, and all states of A before are
//! tried; two packets with keys also at all distances at which the mover of a hash map is at work. The result of each
//! packet is in its bytes; it is compared with the interpreter, which runs the packets one after another, and so is
//! what the cases leave in the maps.

mod programs;

use flowloom_isa::asm;
use flowloom_rtl::Pipeline;
use flowloom_session::Loaded;
use flowloom_session::engines::{OutputStalls, Simulated};
use flowloom_state::{Parameters, RowHash};
use flowloom_vm::Interpreter;

use crate::faults::{Fault, planted};
use crate::stream::{Case, Source, compare, start};

use programs::{ADDED, DELETED_FIRST, HEAD, INSERTED, LOOKUP, SEVERAL_KEYS, STORED};

/// A way in which packets share state.
pub(crate) struct Scheme {
    pub(crate) name: &'static str,
    text: &'static str,
    /// Whether the map has keys that are inserted and deleted; else it is an array.
    has_keys: bool,
}

pub(crate) static SCHEMES: [Scheme; 17] = [
    Scheme {
        name: "register in one stage",
        text: ".map flows array key 4 value 8 entries 1\nHEAD *(u32 *)(r10 - 4) = 0\nLOOKUP if r5 == 0 goto out
               r3 = *(u64 *)(r5 + 0)\n r3 <<= 1\n r3 += r8\nSTORED",
        has_keys: false,
    },
    Scheme {
        name: "register in several stages",
        text: ".map flows array key 4 value 8 entries 1\nHEAD *(u32 *)(r10 - 4) = 0\nLOOKUP if r5 == 0 goto out
               r3 = *(u64 *)(r5 + 0)\n r3 *= r3\n r3 += r8\nSTORED",
        has_keys: false,
    },
    Scheme {
        name: "array in one stage",
        text: ".map flows array key 4 value 8 entries 8\nHEAD LOOKUP if r5 == 0 goto out
               r3 = *(u64 *)(r5 + 0)\n r3 <<= 1\n r3 += r8\nSTORED",
        has_keys: false,
    },
    Scheme {
        name: "array in several stages",
        text: ".map flows array key 4 value 8 entries 8\nHEAD LOOKUP if r5 == 0 goto out
               r3 = *(u64 *)(r5 + 0)\n r3 *= r3\n r3 += r8\nSTORED",
        has_keys: false,
    },
    Scheme {
        name: "hash map in one stage",
        text:
            ".map flows hash key 4 value 8 entries 40 flags 1\nHEAD if r7 == 1 goto delete\nLOOKUP if r5 == 0 goto new
               r3 = *(u64 *)(r5 + 0)\n r3 <<= 1\n r3 += r8\nINSERTED",
        has_keys: true,
    },
    Scheme {
        name: "hash map in several stages",
        text:
            ".map flows hash key 4 value 8 entries 40 flags 1\nHEAD if r7 == 1 goto delete\nLOOKUP if r5 == 0 goto new
               r3 = *(u64 *)(r5 + 0)\n r3 *= r3\n r3 += r8\nREPLACED",
        has_keys: true,
    },
    Scheme {
        name: "full hash map",
        text: ".map flows hash key 4 value 8 entries 1 flags 1\nHEAD if r7 == 1 goto delete\nLOOKUP if r5 == 0 goto new
               r3 = *(u64 *)(r5 + 0)\n r3 <<= 1\n r3 += r8\nINSERTED",
        has_keys: true,
    },
    Scheme {
        name: "LRU map in one stage",
        text: ".map flows lru_hash key 4 value 8 entries 70\nHEAD if r7 == 1 goto delete\nLOOKUP if r5 == 0 goto new
               r3 = *(u64 *)(r5 + 0)\n r3 <<= 1\n r3 += r8\nINSERTED",
        has_keys: true,
    },
    Scheme {
        name: "LRU map in several stages",
        text: ".map flows lru_hash key 4 value 8 entries 70\nHEAD if r7 == 1 goto delete\nLOOKUP if r5 == 0 goto new
               r3 = *(u64 *)(r5 + 0)\n r3 *= r3\n r3 += r8\nREPLACED",
        has_keys: true,
    },
    Scheme {
        name: FULL_LRU[0],
        // Half of the packets use an entry without a change of it.
        text: ".map flows lru_hash key 4 value 8 entries 2\nHEAD if r7 == 1 goto delete\nLOOKUP if r5 == 0 goto new
               r3 = *(u64 *)(r5 + 0)\n r3 <<= 1\n r3 += r8\n r4 = r8\n r4 &= 2\n if r4 == 0 goto uses\nINSERTED
uses:          *(u64 *)(r6 + 16) = r3\n r0 = 3\n exit",
        has_keys: true,
    },
    Scheme {
        name: FULL_LRU[1],
        text: ".map flows lru_hash key 4 value 8 entries 2\nHEAD if r7 == 1 goto delete\nLOOKUP if r5 == 0 goto new
               r3 = *(u64 *)(r5 + 0)\n r3 *= r3\n r3 += r8\nREPLACED",
        has_keys: true,
    },
    // The value of an entry is the index in an array, which packets change too.
    Scheme {
        name: "hash map before an array",
        text: ".map flows hash key 4 value 8 entries 40 flags 1\n.map cells array key 4 value 8 entries 8\nHEAD
               if r7 == 1 goto delete\nLOOKUP if r5 == 0 goto new
               r3 = *(u64 *)(r5 + 0)\n r3 += r8\n *(u64 *)(r5 + 0) = r3\n r3 &= 7\n *(u32 *)(r10 - 20) = r3
               r1 = map[cells] ll\n r2 = r10\n r2 += -20\n call map_lookup_elem\n r5 = r0\n r0 = 1\n if r5 == 0 goto out
               r3 = *(u64 *)(r5 + 0)\n r3 <<= 1\n r3 += r8\nINSERTED",
        has_keys: true,
    },
    // The slice gives results before its end.
    Scheme {
        name: "results of a hash map in several stages",
        text: ".map flows hash key 4 value 8 entries 2 flags 1\nHEAD if r7 == 1 goto delete\nLOOKUP if r5 == 0 goto new
               r3 = *(u64 *)(r5 + 0)\n r3 *= r3\n r3 += r8\nINSERTED",
        has_keys: true,
    },
    Scheme {
        name: "results that decide about changes",
        text: ".map flows hash key 4 value 8 entries 2 flags 1\n.map cells array key 4 value 8 entries 8\nHEAD
               if r7 == 1 goto delete\nLOOKUP if r5 == 0 goto new
               r3 = *(u64 *)(r5 + 0)\n r3 *= r3\n r3 += r8\nDELETED_FIRST",
        has_keys: true,
    },
    // Insertions and deletions take their keys from different places.
    Scheme {
        name: "hash map by one of two keys",
        text:
            ".map flows hash key 4 value 8 entries 40 flags 1\nHEAD if r7 == 1 goto delete\nLOOKUP if r5 == 0 goto new
               r3 = *(u64 *)(r5 + 0)\n r3 <<= 1\n r3 += r8\nOTHER_DELETED",
        has_keys: true,
    },
    // Packets that make an entry run alone, and so do those that delete one.
    Scheme {
        name: ALONE,
        text: ".map flows hash key 4 value 8 entries 2 flags 1\n.map owners hash key 4 value 8 entries 2 flags 1
               .map cells array key 4 value 8 entries 8\n.map total array key 4 value 8 entries 1\nHEAD
               if r7 == 1 goto delete\nLOOKUP if r5 == 0 goto new
               r3 = *(u64 *)(r5 + 0)\n r3 <<= 1\n r3 += r8\nSEVERAL_KEYS",
        has_keys: true,
    },
    // No packet touches the last four bytes of a value.
    Scheme { name: "partial arrays", text: ".map sums array key 4 value 16 entries 5\nHEAD ADDED", has_keys: false },
];

/// The LRU maps with fewer entries than keys.
pub(crate) const FULL_LRU: [&str; 2] = ["full LRU map in one stage", "full LRU map in several stages"];

/// The maps that are accessed by several keys.
pub(crate) const ALONE: &str = "maps by several keys";

/// A scheme by name.
pub(crate) fn scheme(name: &str) -> &'static Scheme {
    SCHEMES.iter().find(|scheme| scheme.name == name).unwrap_or_else(|| panic!("no scheme `{name}`"))
}

const ARRAY: &str = "fl_array.sv";
const SCOREBOARD: &str = "fl_scoreboard.sv";
const MAP: &str = "fl_hash_map.sv";
const PENDING: &str = "fl_pending.sv";

/// Faults in what makes packets at small distances serial.
pub(crate) const FAULTS: &[Fault] = &[
    Fault {
        name: "the next packet reads an entry before it is written",
        subject: "array in one stage",
        file: ARRAY,
        changes: &[("(same_q && result_q.valid) ?", "(same_q && result_q.valid && 1'b0) ?")],
    },
    Fault {
        name: "the second packet reads an entry before it is written",
        subject: "array in one stage",
        file: ARRAY,
        changes: &[(
            "if (result_q.valid && result_q.index == access1_q.index)",
            "if (result_q.valid && result_q.index == access1_q.index && 1'b0)",
        )],
    },
    Fault {
        name: "the third packet reads an entry before it is written",
        subject: "array in one stage",
        file: ARRAY,
        changes: &[(
            "if (older_q.valid && older_q.index == access1_q.index)",
            "if (older_q.valid && older_q.index == access1_q.index && 1'b0)",
        )],
    },
    Fault {
        name: "the scoreboard gives its entries up a cycle too early",
        subject: "array in several stages",
        file: SCOREBOARD,
        changes: &[("issued_q[age].valid && (", "issued_q[age].valid && age < Cycles && (")],
    },
    Fault {
        name: "the scoreboard of a register gives its entries up a cycle too early",
        subject: "register in several stages",
        file: SCOREBOARD,
        changes: &[("issued_q[age].valid && (", "issued_q[age].valid && age < Cycles && (")],
    },
    Fault {
        name: "the scoreboard of a hash map drops its entries",
        subject: "hash map in several stages",
        file: SCOREBOARD,
        changes: &[("'{valid: issue_i && uses_i,", "'{valid: issue_i && uses_i && 1'b0,")],
    },
    Fault {
        name: "an insertion in several stages does not see that the map is full",
        subject: "results of a hash map in several stages",
        file: "fl_core_",
        changes: &[("map0_full_s6_end = map0_full;", "map0_full_s6_end = map0_full && 1'b0;")],
    },
    Fault {
        name: "a deletion in an earlier stage makes no room",
        subject: "results that decide about changes",
        file: "fl_core_",
        changes: &[("map0_full && !map0_happens0_s6;", "map0_full && !(map0_happens0_s6 && 1'b0);")],
    },
    Fault {
        name: "an insertion sees the entry that the packet has deleted",
        subject: "results that decide about changes",
        file: "fl_core_",
        changes: &[(
            "map0_present_s6_end = map0_present0_s6;",
            "map0_present_s6_end = map0_present0_s6 || map0_present;",
        )],
    },
    Fault {
        name: "packets are not kept apart where the map is nearly full",
        subject: "results of a hash map in several stages",
        file: MAP,
        changes: &[("tight_q <= (Delay != 0 || Lru) && 32'(stored_q)", "tight_q <= Delay == 0 && 32'(stored_q)")],
    },
    Fault {
        name: "a partial array is missing in the sum",
        subject: "partial arrays",
        file: "fl_core_",
        changes: &[("+ map0_v37_host_value[0+:64];", "+ (map0_v37_host_value[0+:64] & 64'h0);")],
    },
    Fault {
        name: "a row is copied while packets refer to it",
        subject: "hash map in one stage",
        file: PENDING,
        changes: &[(
            "copy_valid_o   = copy_q.valid && quiet[copy_q.entry];",
            "copy_valid_o   = copy_q.valid && (quiet[copy_q.entry] || 1'b1);",
        )],
    },
    Fault {
        name: "an absent entry is given up while a packet refers to it",
        subject: "hash map in one stage",
        file: PENDING,
        changes: &[(
            "gives_up       = absent_q.valid && quiet[absent_q.entry]",
            "gives_up       = absent_q.valid && (quiet[absent_q.entry] || 1'b1)",
        )],
    },
    Fault {
        name: "a pending entry is quiet while a further packet is on its way",
        subject: "hash map in one stage",
        file: PENDING,
        changes: &[("timers_q[i] <= TimerBits'(Quiet);", "timers_q[i] <= '0;")],
    },
    Fault {
        name: "a deleted entry counts",
        subject: "full hash map",
        file: MAP,
        changes: &[(
            "- StoredBits'(slice_write && !slice_present && was_present)",
            "- StoredBits'(slice_write && !slice_present && was_present && 1'b0)",
        )],
    },
    Fault {
        name: "packets see an evicted entry until its row is cleared",
        subject: FULL_LRU[0],
        file: "fl_evicted.sv",
        changes: &[(
            "evicted_o |= valid_q[i] && rows_q[i] == row_i;",
            "evicted_o |= valid_q[i] && taken_q[i] && rows_q[i] == row_i;",
        )],
    },
    Fault {
        name: "packets of a nearly full LRU map are not kept apart",
        subject: FULL_LRU[1],
        file: MAP,
        changes: &[("assign tight_o = tight_q && Changes;", "assign tight_o = tight_q && Changes && !Lru;")],
    },
    Fault {
        name: "a lookup in an LRU map is no use",
        subject: FULL_LRU[0],
        file: MAP,
        changes: &[(
            "slice_write : touch_i || !was_present);",
            "slice_write : (touch_i && slice_write) || !was_present);",
        )],
    },
    Fault {
        name: "a packet that has to run alone does not",
        subject: ALONE,
        file: "fl_core_",
        changes: &[("assign kill = ", "assign kill = 1'b0 && ")],
    },
    Fault {
        name: "packets after one that runs alone do not come again",
        subject: ALONE,
        file: "fl_replay.sv",
        changes: &[
            ("read_q    <= oldest_q;", "read_q    <= oldest_q + AddressBits'(count_q - waiting_q > CountBits'(1));"),
            (
                "waiting_q <= count_q + CountBits'(in_valid_i);",
                "waiting_q <= count_q - CountBits'(count_q - waiting_q > CountBits'(1)) + CountBits'(in_valid_i);",
            ),
        ],
    },
    Fault {
        name: "a packet that comes again is not taken out of the stages",
        subject: ALONE,
        file: "fl_core_",
        changes: &[("valid_s3_q <= valid_s2_q && !kill && !rst_i;", "valid_s3_q <= valid_s2_q && !rst_i;")],
    },
    Fault {
        name: "what a packet finds first changes with its own steps",
        subject: ALONE,
        file: "fl_core_",
        changes: &[("assign keeps = alone && !first_run;", "assign keeps = alone && !first_run && 1'b0;")],
    },
    Fault {
        name: "a packet leaves before its last step",
        subject: ALONE,
        file: "fl_alone.sv",
        changes: &[(
            "assign left           = wanted_i & ~done_q;",
            "assign left           = (done_q == '0) ? wanted_i : '0;",
        )],
    },
    Fault {
        name: "a later step is made first",
        subject: ALONE,
        file: "fl_alone.sv",
        changes: &[("if (left[step-1]) begin", "if (left[step-1] && next_step == '0) begin")],
    },
    Fault {
        name: "packets are issued while one runs alone",
        subject: ALONE,
        file: "fl_core_",
        changes: &[("&& !alone && !kill", "&& (!alone || 1'b1) && !kill")],
    },
    Fault {
        name: "a write of a step does not read its entry",
        subject: ALONE,
        file: "fl_core_",
        changes: &[("map2_read_q <= map2_host_value;", "map2_read_q <= map2_host_value & '0;")],
    },
];

/// A packet: its operation and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Letter {
    deletes: bool,
    key: usize,
}

/// The states of key A before a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Absent,
    /// In the table, or where an array has it.
    Stored,
}

/// The farthest packets for which the mover of a hash map is still at work.
const MOVER_CYCLES: u32 = 90;
/// Idle cycles in which the mover is done with what a case and its preparation have left.
const PAUSE_CYCLES: u32 = 100;
/// Cases sent at once.
const CASES: usize = 1000;
/// The bytes of a packet: one word.
const BYTES: usize = 60;
/// Offsets in packets: operation, operand, key, and the key with some bits inverted.
const OPERATION: usize = 0;
const OPERAND: usize = 4;
const KEY: usize = 8;
const OTHER_KEY: usize = 12;
/// The keys of a case: the second one has the rows of the first one in a hash map.
const KEYS: usize = 3;

impl Scheme {
    pub(crate) fn load(&self) -> Loaded {
        self.load_text(self.text)
    }

    fn load_text(&self, text: &str) -> Loaded {
        // Without uses of results, all changes are made at the end of the slice.
        let replaced = INSERTED.replace("        *(u32 *)(r6 + 24) = r0\n", "");
        let other = "r9 = *(u32 *)(r6 + 12)\nr9 ^= 0x5a5a5a5a\n*(u32 *)(r10 - 4) = r9\nr1";
        let deleted = INSERTED.replace("delete: r1", &format!("delete: {other}"));
        let parts = [
            ("HEAD", HEAD),
            ("LOOKUP", LOOKUP),
            ("STORED", STORED),
            ("INSERTED", INSERTED),
            ("REPLACED", &replaced),
            ("DELETED_FIRST", DELETED_FIRST),
            ("ADDED", ADDED),
            ("SEVERAL_KEYS", SEVERAL_KEYS),
            ("OTHER_DELETED", &deleted),
        ];
        let text = parts.iter().fold(text.to_owned(), |text, (name, part)| text.replace(name, part));
        let name = self.name.replace(' ', "_");
        let text = format!(".program {name}\n.license \"GPL\"\n{text}");
        Loaded::of_program(asm::program(&name, &text).unwrap_or_else(|errors| panic!("{}: {errors}", self.name)))
    }

    pub(crate) fn pipeline(&self, loaded: &Loaded) -> Pipeline {
        loaded.pipeline(&Default::default()).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// A packet with an operation, an operand and a key.
    pub(crate) fn packet(&self, deletes: bool, operand: u8, key: u32) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        bytes[OPERATION] = u8::from(deletes && self.has_keys);
        bytes[OPERAND] = operand;
        bytes[KEY..KEY + 4].copy_from_slice(&key.to_le_bytes());
        bytes[OTHER_KEY..OTHER_KEY + 4].copy_from_slice(&(key ^ 0x5a5a_5a5a).to_le_bytes());
        bytes
    }

    /// The keys of a case.
    fn keys(&self, pipeline: &Pipeline) -> [u32; KEYS] {
        if !self.has_keys {
            return [1, 2, 1];
        }
        let hash = hash_of(pipeline, 4);
        let first = 0x0a00_0001_u32;
        let rows = hash.rows_of(&first.to_le_bytes());
        let mut others = (first + 1..).filter(|key| hash.rows_of(&key.to_le_bytes()) == rows);
        [first, others.next().unwrap(), first + 7]
    }

    fn alphabet(&self) -> Vec<Letter> {
        let all = [(false, 0), (true, 0), (false, 1), (false, 2)];
        let all = all.map(|(deletes, key)| Letter { deletes, key });
        all.into_iter().filter(|letter| self.has_keys || (!letter.deletes && letter.key < 2)).collect()
    }

    /// The cases of two and of three packets. Up to `near` cycles, packets meet in the core.
    fn cases(&self, near: u32, distances: Distances) -> Vec<Trial> {
        let (step, far) = match distances {
            Distances::All => (1, near),
            Distances::Few => (5, 3),
        };
        let farthest = if self.has_keys { near.max(MOVER_CYCLES) } else { near };
        let gaps: Vec<u32> = (1..=near).chain((near + 1..=farthest).step_by(step)).collect();
        let befores = if self.has_keys { &[Before::Absent, Before::Stored][..] } else { &[Before::Stored] };
        let alphabet = self.alphabet();
        let mut all = Vec::new();
        for &before in befores {
            for &first in &alphabet {
                for &second in &alphabet {
                    let pairs = gaps.iter().map(|&gap| Trial { before, letters: vec![(first, 0), (second, gap)] });
                    all.extend(pairs);
                    for &third in &alphabet {
                        let gaps = (1..=far).flat_map(|one| (1..=far).map(move |other| (one, other)));
                        all.extend(gaps.map(|(one, other)| Trial {
                            before,
                            letters: vec![(first, 0), (second, one), (third, other)],
                        }));
                    }
                }
            }
        }
        all
    }
}

/// A case: packets with their distances in cycles.
#[derive(Debug, Clone)]
struct Trial {
    before: Before,
    letters: Vec<(Letter, u32)>,
}

/// The hash unit of the only hash map of a pipeline, by the parameters in its text.
pub(crate) fn hash_of(pipeline: &Pipeline, key_bytes: u32) -> RowHash {
    let text = &pipeline.core.text;
    let rows = text.split(".Rows(").nth(1).and_then(|rest| rest.split(')').next()).unwrap();
    let seed = Parameters::for_entries(1, key_bytes, 0).seed;
    RowHash::new(key_bytes as usize, rows.parse().unwrap(), seed)
}

/// Which distances are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Distances {
    /// Every one.
    All,
    /// Between three packets, those up to 3 cycles; of those at which only the mover is at work, every fifth.
    Few,
}

/// What was tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tried {
    pub(crate) cases: usize,
    pub(crate) packets: usize,
    /// The latency of the core in cycles.
    pub(crate) latency_cycles: u32,
}

/// Runs the cases of a scheme; the first difference.
pub(crate) fn try_all(
    scheme: &Scheme,
    pipeline: &Pipeline,
    simulated: &mut Simulated,
    distances: Distances,
) -> Result<Tried, String> {
    let loaded = scheme.load();
    let mut interp = Interpreter::new(loaded.program().unwrap()).unwrap();
    let case = Case { name: scheme.name, source: Source::Text("", &[]), entries: &[], sends: true, changes: true };
    let latency_cycles = pipeline.core.latency_cycles;
    let near = latency_cycles.max(pipeline.core.hold_cycles) + 2;
    let keys = scheme.keys(pipeline);
    let mut operand = 0_u8;
    let mut packet = |letter: Letter, distance: u32| {
        // Small odd numbers, so that products differ from one another and from 0.
        operand = (operand + 2) % 64;
        (scheme.packet(letter.deletes, operand | 1, keys[letter.key]), 1, distance.saturating_sub(1))
    };
    let mut tried = Tried { latency_cycles, ..Tried::default() };
    for trials in scheme.cases(near, distances).chunks(CASES) {
        let mut packets = Vec::new();
        for trial in trials {
            let access = Letter { deletes: false, key: 0 };
            if scheme.has_keys {
                let unused = (0..KEYS).map(|key| Letter { deletes: true, key });
                packets.extend(unused.map(|letter| packet(letter, 2)));
                packets.extend((trial.before == Before::Stored).then(|| packet(access, PAUSE_CYCLES)));
            }
            for (number, (letter, distance)) in trial.letters.iter().enumerate() {
                packets.push(packet(*letter, if number == 0 { PAUSE_CYCLES } else { *distance }));
            }
            // After the case, what is there of each key.
            packets.extend((0..KEYS).map(|key| packet(Letter { deletes: false, key }, PAUSE_CYCLES)));
        }
        let compared = compare(&case, simulated, &mut interp, &packets, OutputStalls::default()).map_err(|found| {
            format!("{}, one of {} cases from {trials:?}: {found}", scheme.name, trials.len(), trials = &trials[0])
        })?;
        if compared.slow > 0 {
            return Err(format!("{}: {} packets took the slow path", scheme.name, compared.slow));
        }
        tried.cases += trials.len();
        tried.packets += compared.packets;
    }
    Ok(tried)
}

/// Each fault has its place in the sources.
#[test]
fn every_fault_of_schemes_has_its_place() {
    for (number, fault) in FAULTS.iter().enumerate() {
        let scheme = scheme(fault.subject);
        planted(1000 + number, fault, scheme.pipeline(&scheme.load()));
    }
    for (number, fault) in crate::host::FAULTS.iter().enumerate() {
        let scheme = scheme(fault.subject);
        planted(2000 + number, fault, scheme.pipeline(&scheme.load()));
    }
}

#[test]
fn packets_at_every_distance_give_the_serial_result() {
    let names = [
        "array in one stage",
        "hash map in one stage",
        "results that decide about changes",
        "hash map by one of two keys",
        "partial arrays",
        ALONE,
        FULL_LRU[1],
    ];
    for name in names {
        let scheme = scheme(name);
        let pipeline = scheme.pipeline(&scheme.load());
        let test = "packets_at_every_distance_give_the_serial_result";
        let Some(mut simulated) = start(test, &pipeline, 1) else { return };
        let tried =
            try_all(scheme, &pipeline, &mut simulated, Distances::Few).unwrap_or_else(|found| panic!("{found}"));
        println!("{name}: {tried:?}");
    }
}
