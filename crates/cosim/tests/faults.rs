// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults planted in the blocks: each one makes a table differ from its twin.

use std::path::PathBuf;

use flowloom_cosim::Model;

use crate::common::{block_path, top};
use crate::cuckoo::{build_narrow, run_narrow};
use crate::finding::finding;
use crate::hash_map::{LRU_SHAPES, NARROW, Shape, build_hash_map, build_with, run_hash_map, run_with};
use crate::lpm::{build_lpm, run_lpm};
use crate::lru::{build_lru, run_lru};
use crate::slots::{build_slots, run_slots};

/// A fault: its name, the block, and texts with their replacements.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    block: &'static str,
    changes: &'static [(&'static str, &'static str)],
}

const ENGINE: &str = "table/fl_cuckoo_engine";
const SLOTS: &str = "table/fl_slots";
const TABLE: &str = "table/fl_cuckoo";
const MAP: &str = "table/fl_hash_map";
const PENDING: &str = "table/fl_pending";
const ARRAY: &str = "table/fl_array";
const ORDER: &str = "table/fl_lru";
const FORWARD: &str = "prim/fl_ram_forward";
const EVICTED: &str = "table/fl_evicted";
const LPM: &str = "table/fl_lpm";
const RANGES: &str = "table/fl_lpm_ranges";
const LEVEL: &str = "table/fl_lpm_level";

pub(crate) const FAULTS: &[Fault] = &[
    Fault {
        name: "hits in the stash are ignored",
        block: TABLE,
        changes: &[("(bank_hit_q != '0) || (stash_hit_q[Last] != '0)", "bank_hit_q != '0")],
    },
    Fault {
        name: "the source of a move is cleared before the copy",
        block: ENGINE,
        changes: &[
            ("assign bank_entry_o  = write_entry;", "assign bank_entry_o  = commits ? write_entry : '0;"),
            (
                "bank_row_o[node_q.place.way] = node_q.place.row;",
                "bank_row_o[node_q.place.way] = node_q.place.row;
      bank_write_o[node_q.place.way] = state_q == Move && phase_q == 4'd2;",
            ),
        ],
    },
    Fault {
        name: "the stash is cleared without a write to the bank",
        block: ENGINE,
        changes: &[(
            "Place: begin\n        last         = 1'b1;\n        writes_bank  = 1'b1;",
            "Place: begin\n        last = 1'b1;",
        )],
    },
    Fault {
        name: "a slot is free a cycle too early",
        block: SLOTS,
        changes: &[("CountBits'(resting_q[RestCycles-2])", "CountBits'(resting_q[RestCycles-3])")],
    },
    Fault {
        name: "slots are counted as rested twice",
        block: SLOTS,
        changes: &[("- CountBits'(take && !is_fresh)", "")],
    },
    Fault {
        name: "a deletion does not restart a step",
        block: ENGINE,
        changes: &[("if (deletes_i) disturbed_q <= 1'b1;", "if (deletes_i) disturbed_q <= disturbed_q;")],
    },
    Fault {
        name: "the engine moves an entry during its deletion",
        block: ENGINE,
        changes: &[(
            "!op_acts_i && !delete_pending_i && !disturbed_q",
            "!op_acts_i && (!delete_pending_i || 1'b1) && !disturbed_q",
        )],
    },
    Fault {
        name: "the engine writes in the cycle of an operation",
        block: ENGINE,
        changes: &[(
            "!op_acts_i && !delete_pending_i && !disturbed_q",
            "(!op_acts_i || !delete_pending_i) && !disturbed_q",
        )],
    },
    Fault {
        name: "the copy of a broken chain stays",
        block: ENGINE,
        changes: &[("writes_bank = has_stale_q;", "writes_bank = has_stale_q && !has_stale_q;")],
    },
    Fault {
        name: "the deletion of the served entry is not noticed",
        block: ENGINE,
        changes: &[(
            "if (is_serving_q && stash_deleted_i[served_q]) cancelled_q <= 1'b1;",
            "if (is_serving_q && stash_deleted_i[served_q]) cancelled_q <= cancelled_q;",
        )],
    },
    Fault {
        name: "an entry that has left its place moves",
        block: ENGINE,
        changes: &[("source.valid && source.slot == node_q.slot", "source.valid || source.slot == node_q.slot")],
    },
    Fault {
        name: "an entry moves to its own bank",
        block: ENGINE,
        changes: &[("if (state_q == Node) ways[node_q.place.way] = 1'b0;", "")],
    },
    Fault {
        name: "an exchange loses the entry of the table",
        block: ENGINE,
        changes: &[("assign stash_entry_o = swaps ? entries[way_q] : '0;", "assign stash_entry_o = '0;")],
    },
    Fault {
        name: "exchanges take the same candidate again",
        block: ENGINE,
        changes: &[("Exchange: way_q <= way_q + 1'b1;", "Exchange: way_q <= way_q;")],
    },
    Fault {
        name: "an insertion takes a place that was written in the cycle of its lookup",
        block: TABLE,
        changes: &[("wrote_row_q[way] == rows_q[2][way])", "wrote_row_q[way] == rows_q[2][way] && 1'b0)")],
    },
    Fault {
        name: "an insertion takes a place that was written after its lookup",
        block: TABLE,
        changes: &[("wrote_row_q[way] == rows_q[Last][way])", "wrote_row_q[way] == rows_q[Last][way] && 1'b0)")],
    },
    Fault {
        name: "an insertion takes the place that a chain of moves ends in",
        block: TABLE,
        changes: &[("!(target_valid && ", "!(target_valid && 1'b0 && ")],
    },
    Fault {
        name: "an insertion goes to a free place and to the stash",
        block: TABLE,
        changes: &[("if (inserts && free == '0)", "if (inserts)")],
    },
    Fault {
        name: "an insertion waits for the stash although a place is free",
        block: TABLE,
        changes: &[("(free != '0 || has_room)", "has_room")],
    },
    Fault {
        name: "the engine takes the word of an operation for its own",
        block: ENGINE,
        changes: &[("reads_places) && acted_q[2])", "reads_places) && acted_q[2] && 1'b0)")],
    },
    Fault {
        name: "the engine takes a place that was written after it was read",
        block: ENGINE,
        changes: &[("(reads_places && is_written)", "(reads_places && is_written && 1'b0)")],
    },
    Fault {
        name: "children of a search that has ended become nodes",
        block: ENGINE,
        changes: &[("        push_q       <= '0;\n        has_nodes_q", "        has_nodes_q")],
    },
    Fault {
        name: "insertions into free places during a search have no end",
        block: ENGINE,
        changes: &[("inserts_i && open_q != '0", "inserts_i && open_q != '0 && has_stale_q && has_target_q")],
    },
    Fault {
        name: "one entry more than declared is stored",
        block: TABLE,
        changes: &[("stored_q == StoredBits'(Entries)", "stored_q > StoredBits'(Entries)")],
    },
    Fault {
        name: "a round of the hash is missing",
        block: "table/fl_hash",
        changes: &[("RoundsBehind = 2", "RoundsBehind = 1")],
    },
    Fault {
        name: "a word is lost where the read-ahead is full",
        block: "prim/fl_fifo_ram",
        changes: &[("ahead + AheadBits'(reading_q[0]) + AheadBits'(reading_q[1])", "ahead")],
    },
];

/// Faults of the hash map with pending keys.
pub(crate) const MAP_FAULTS: &[Fault] = &[
    Fault {
        name: "a pending key is not found",
        block: MAP,
        changes: &[("end else if (pending_hit) begin", "end else if (pending_hit && 1'b0) begin")],
    },
    Fault {
        name: "a pending key is found one cycle too late",
        block: PENDING,
        changes: &[("&& keys_q[i] == key_i", "&& timers_q[i] != TimerBits'(Quiet) && keys_q[i] == key_i")],
    },
    Fault {
        name: "the cuckoo table is asked before the pending keys",
        block: MAP,
        changes: &[("end else if (pending_hit) begin", "end else if (pending_hit && !cuckoo_hit) begin")],
    },
    Fault {
        name: "an adopted key has a row of its own",
        block: MAP,
        changes: &[(
            "pending_adopted ? IndexBits'(pending_slot)",
            "(pending_adopted && 1'b0) ? IndexBits'(pending_slot)",
        )],
    },
    Fault {
        name: "a pending entry moves although a packet refers to it",
        block: PENDING,
        changes: &[("timers_q[i] == '0 && !hit[i]", "timers_q[i] <= TimerBits'(Quiet) && !hit[i]")],
    },
    Fault {
        name: "the mover does not see the key of this cycle",
        block: PENDING,
        changes: &[("timers_q[i] == '0 && !hit[i]", "timers_q[i] == '0 && (!hit[i] || 1'b1)")],
    },
    Fault {
        name: "a pending entry is not found although its row is not copied",
        block: PENDING,
        changes: &[("if (copy_take_i) begin", "if (copy_take_i || copy_valid_o) begin")],
    },
    Fault {
        name: "a row is not copied to its slot",
        block: MAP,
        changes: &[(".host_copy_i  (copies),", ".host_copy_i  (copies && 1'b0),")],
    },
    Fault {
        name: "a row is copied before its key is inserted everywhere",
        block: PENDING,
        changes: &[("if (stored_q[i-1] && ", "if ((stored_q[i-1] || moving_q[i-1]) && ")],
    },
    Fault {
        name: "the row of a pending entry is present before it is written",
        block: MAP,
        changes: &[("row.present = own_present;", "row.present = own_present || word.present;")],
    },
    Fault {
        name: "the presence of a pending row is not noted",
        block: MAP,
        changes: &[(
            "assign marks       = (slice_write || clears)",
            "assign marks       = ((slice_write && !slice_present) || clears)",
        )],
    },
    Fault {
        name: "an entry whose key did not fit is lost",
        block: PENDING,
        changes: &[(
            "if (inserted_i && !inserted_stored_i) begin",
            "if (inserted_i && !inserted_stored_i && 1'b0) begin",
        )],
    },
    Fault {
        name: "a row is copied to the slot of an adopted entry",
        block: MAP,
        changes: &[(
            ".host_target_i(IndexBits'(copy_slot)),",
            ".host_target_i(IndexBits'(copy_slot ^ work_slot ^ work_slot ^ SlotBits'(1))),",
        )],
    },
    Fault {
        name: "an entry is let go before its key has left the table",
        block: PENDING,
        changes: &[("      moving_q[work_entry_i]  <= 1'b1;", "      moving_q[work_entry_i]  <= 1'b0;")],
    },
    Fault {
        name: "deleted keys stay in the cuckoo table",
        block: MAP,
        changes: &[("!inserts && candidate_valid &&", "!inserts && candidate_valid && 1'b0 &&")],
    },
    Fault {
        name: "keys that leave the cuckoo table are removed although they are present again",
        block: MAP,
        changes: &[
            ("work_quiet && word.present;", "work_quiet && word.present && 1'b0;"),
            ("work_quiet && !word.present;", "work_quiet && (!word.present || 1'b1);"),
        ],
    },
    Fault {
        name: "an entry that is present again is removed although a packet came",
        block: MAP,
        changes: &[(
            "!copied_q[2] && work_quiet && !word.present;",
            "!copied_q[2] && (work_quiet || 1'b1) && !word.present;",
        )],
    },
    Fault {
        name: "a map is full one entry too early",
        block: MAP,
        changes: &[("stored_q == StoredBits'(Entries);", "stored_q >= StoredBits'(Entries - 1);")],
    },
    Fault {
        name: "a map is never full",
        block: MAP,
        changes: &[("stored_q == StoredBits'(Entries);", "stored_q > StoredBits'(Entries);")],
    },
    Fault {
        name: "an entry that is written again counts twice",
        block: MAP,
        changes: &[(
            "StoredBits'(slice_write && slice_present && !was_present)",
            "StoredBits'(slice_write && slice_present)",
        )],
    },
    Fault {
        name: "the host updates a full map",
        block: MAP,
        changes: &[("slice_write   = was_present || !is_full || Lru;", "slice_write   = 1'b1;")],
    },
    Fault {
        name: "packets enter although there is no room",
        block: MAP,
        changes: &[("FreeBits'(Ahead + Hit + 3)", "FreeBits'(Ahead - Ahead)")],
    },
    Fault {
        name: "the next packet reads a row before it is written",
        block: ARRAY,
        changes: &[("(same_q && result_q.valid) ?", "(same_q && result_q.valid && 1'b0) ?")],
    },
    Fault {
        name: "the second packet reads a row before it is written",
        block: ARRAY,
        changes: &[(
            "if (result_q.valid && result_q.index == access1_q.index)",
            "if (result_q.valid && result_q.index == access1_q.index && 1'b0)",
        )],
    },
    Fault {
        name: "the third packet reads a row before it is written",
        block: ARRAY,
        changes: &[(
            "if (older_q.valid && older_q.index == access1_q.index)",
            "if (older_q.valid && older_q.index == access1_q.index && 1'b0)",
        )],
    },
    Fault {
        name: "a copy is written to the row that it was read from",
        block: ARRAY,
        changes: &[(
            "result_d.index = access2_q.host_target;",
            "result_d.index = access2_q.host_target[0] ? access2_q.index : access2_q.index;",
        )],
    },
];

/// Faults of the order of use, and of the maps that evict the entry with the least recent use.
pub(crate) const LRU_FAULTS: &[Fault] = &[
    Fault {
        name: "the row read for a copy counts as that of the adopted entry",
        block: MAP,
        changes: &[("array_host_valid = inspects || may_copy;", "array_host_valid = inspects || copy_valid;")],
    },
    Fault {
        name: "the link that a taken out row leaves does not count",
        block: ORDER,
        changes: &[("(later_newer.tag == own.newer_tag) ?", "(later_newer.tag == own.newer_tag && is_oldest) ?")],
    },
    Fault {
        name: "the link to a taken out older row counts",
        block: ORDER,
        changes: &[("(later_older.tag == own.older_tag) ?", "(later_older.tag == own.older_tag && is_oldest) ?")],
    },
    Fault {
        name: "a row that becomes the newest keeps its link to a newer one",
        block: ORDER,
        changes: &[("(write_q.unlinks && is_newest), link", "(write_q.unlinks && is_newest && is_oldest), link")],
    },
    Fault {
        name: "an appended row keeps the tag of an earlier link",
        block: ORDER,
        changes: &[("assign newer_tag = !last_newer_tag;", "assign newer_tag = last_newer_tag;")],
    },
    Fault {
        name: "a read does not see the write of its cycle",
        block: FORWARD,
        changes: &[(
            "(write_q && write_address_q == read_address_q) ?",
            "(write_q && write_address_q == read_address_q && write_data_q == word) ?",
        )],
    },
    Fault {
        name: "the tags of a row are not those of its links",
        block: ORDER,
        changes: &[(".write_data_i   (newer_d.word.tag)", ".write_data_i   (newer_d.word.tag ^ newer_d.row[0])")],
    },
    Fault {
        name: "a replacement takes the newest row for its older neighbour",
        block: ORDER,
        changes: &[("own_d.word.older  = older;", "own_d.word.older  = write_q.unlinks ? older : newest_q;")],
    },
    Fault {
        name: "a replaced oldest row stays the oldest",
        block: ORDER,
        changes: &[("if (is_oldest) oldest_q <= write_q.to;", "if (is_oldest && is_newest) oldest_q <= write_q.to;")],
    },
    Fault {
        name: "the row before the oldest one becomes the oldest",
        block: ORDER,
        changes: &[("if (is_oldest) oldest_q <= newer.row;", "if (is_oldest) oldest_q <= older.row;")],
    },
    Fault {
        name: "the newest row is taken out when it is used again",
        block: ORDER,
        changes: &[(
            "write_q.appends && is_newest && write_q.row",
            "write_q.appends && is_newest && is_oldest && write_q.row",
        )],
    },
    Fault {
        name: "an eviction does not wait for the operation before",
        block: ORDER,
        changes: &[("evicts_q && write_q.valid;", "evicts_q && write_q.valid && write_q.replaces;")],
    },
    Fault {
        name: "the first row of an empty list is not the oldest one",
        block: ORDER,
        changes: &[("if (is_empty_q || empties) oldest_q", "if (empties) oldest_q")],
    },
    Fault {
        name: "a lookup is no use",
        block: MAP,
        changes: &[(
            "slice_write : touch_i || !was_present);",
            "slice_write : (touch_i && slice_write) || !was_present);",
        )],
    },
    Fault {
        name: "a lookup by the host is a use",
        block: MAP,
        changes: &[("(slice.host ? slice_write :", "(slice.host ? slice_write || was_present :")],
    },
    Fault {
        name: "an update by the host is no use",
        block: MAP,
        changes: &[("(slice.host ? slice_write :", "(slice.host ? slice_write && !was_present :")],
    },
    Fault {
        name: "a deleted row stays in the order",
        block: MAP,
        changes: &[(
            "was_present && !slice_present;\n    // A present",
            "was_present && !slice_present && slice.host;\n    // A present",
        )],
    },
    Fault {
        name: "an eviction does not make room",
        block: MAP,
        changes: &[("- StoredBits'(evicts);", "- StoredBits'(evicts && slice.host);")],
    },
    Fault {
        name: "the key of an evicted entry stays in the cuckoo table",
        block: MAP,
        changes: &[(
            "clears ? written_row < IndexBits'(Slots)",
            "clears ? written_row < IndexBits'(Slots) && slice_write",
        )],
    },
    Fault {
        name: "a copied row loses its place in the order",
        block: MAP,
        changes: &[("= copies && copy_present;", "= copies && copy_present && evicting;")],
    },
    Fault {
        name: "an absent row that is copied enters the order",
        block: MAP,
        changes: &[("= copies && copy_present;", "= copies && (copy_present || !evicting);")],
    },
    Fault {
        name: "rows are copied while one is evicted",
        block: MAP,
        changes: &[("is_ordering = evicting || evicted_busy ||", "is_ordering = (evicting && evicted_busy) ||")],
    },
    Fault {
        name: "a row that was written again is cleared",
        block: MAP,
        changes: &[("= clear_now && is_evicted;", "= clear_now && (is_evicted || evicting || !evicting);")],
    },
    Fault {
        name: "a row is cleared when a packet writes",
        block: MAP,
        changes: &[(
            "assign clear_take = clear_valid && !access_d.valid && !clears_late;",
            "assign clear_take = clear_valid && !access_d.valid && !(clears_late && clear_now);",
        )],
    },
    Fault {
        name: "packets of a nearly full map come in every cycle",
        block: MAP,
        changes: &[("tight_q <= (Delay != 0 || Lru) &&", "tight_q <= (Delay != 0 || (Lru && !Lru)) &&")],
    },
    Fault {
        name: "packets see an evicted entry until its row is cleared",
        block: EVICTED,
        changes: &[(
            "evicted_o |= valid_q[i] && rows_q[i] == row_i;",
            "evicted_o |= valid_q[i] && taken_q[i] && rows_q[i] == row_i;",
        )],
    },
    Fault {
        name: "a row that was written again stays absent",
        block: EVICTED,
        changes: &[(
            "if (written_i && rows_q[i] == written_row_i)",
            "if (written_i && taken_q[i] && rows_q[i] == written_row_i)",
        )],
    },
];

/// Faults of longest prefix match.
pub(crate) const LPM_FAULTS: &[Fault] = &[
    Fault {
        name: "a range begins after its first address",
        block: LEVEL,
        changes: &[("range.start <= key_i;", "range.start < key_i;")],
    },
    Fault {
        name: "a range of a leaf begins after its first address",
        block: RANGES,
        changes: &[("leaves[lane].start <= keys_q[Found]", "leaves[lane].start < keys_q[Found]")],
    },
    Fault {
        name: "ranges of an earlier list count",
        block: LEVEL,
        changes: &[("range.exists && range.start", "(range.exists || range.start != '0) && range.start")],
    },
    Fault {
        name: "leaves of an earlier list count",
        block: RANGES,
        changes: &[("leaves[lane].exists && leaves", "(leaves[lane].exists || leaves[lane].start != '0) && leaves")],
    },
    Fault {
        name: "roots of an earlier list count",
        block: RANGES,
        changes: &[("root_count_q && roots_q", "(root_count_q | (RootBits + 1)'(Roots)) && roots_q")],
    },
    Fault {
        name: "searches that have begun read the new list",
        block: RANGES,
        changes: &[("read[banks_q[Found]]", "read[banks_q[Found] ? bank_q : bank_q]")],
    },
    Fault {
        name: "the last row of the middle level is not padded",
        block: RANGES,
        changes: &[(
            "(state_q == PadMiddle && !starts_leaf);",
            "(state_q == PadMiddle && !starts_leaf && starts_middle);",
        )],
    },
    Fault {
        name: "a prefix takes over ranges of longer ones",
        block: LPM,
        changes: &[("&& next == from) begin", "&& (next == from || next.found)) begin")],
    },
    Fault {
        name: "a prefix has no end",
        block: LPM,
        changes: &[("begin_start <= last_address && next", "(begin_start <= last_address || grows) && next")],
    },
    Fault {
        name: "no range begins after a prefix",
        block: LPM,
        changes: &[
            ("(cut_q == 2'd1 && has_end);", "(cut_q == 2'd1 && has_end && begins);"),
            (
                "assign begins       = state_q == Merge && !cuts && !is_over;",
                "assign begins       = state_q == Merge && !is_over && !(cut_q == 2'd0 && cut < range_start);",
            ),
            (
                "assign cuts         = state_q == Merge && has_cut && (is_over || cut < range_start);",
                "assign cuts         = state_q == Merge && cut_q == 2'd0 && (is_over || cut < range_start);",
            ),
        ],
    },
    Fault {
        name: "adjacent ranges of one prefix stay apart",
        block: LPM,
        changes: &[("(!has_last_q || next != last_q));", "(!has_last_q || next != last_q || cuts || begins));")],
    },
    Fault {
        name: "the shortest prefix around another one counts as the longest",
        block: LPM,
        changes: &[("row.length > around_length_q)", "row.length < around_length_q)")],
    },
    Fault {
        name: "a prefix is another one of its length",
        block: LPM,
        changes: &[("if (covers && row.length == length_q)", "if ((covers || row.present) && row.length == length_q)")],
    },
    Fault {
        name: "deleted prefixes are found again",
        block: LPM,
        changes: &[(
            "assign covers      = row.present &&",
            "assign covers      = (row.present || row.length != '0) &&",
        )],
    },
    Fault {
        name: "a new prefix takes the slot of another one",
        block: LPM,
        changes: &[("if (!row.present && !free_q.found)", "if (!free_q.found)")],
    },
    Fault {
        name: "slots of deleted prefixes are not used again",
        block: LPM,
        changes: &[
            ("free_q.found ? free_q :", "(free_q.found && free_q.slot == '1) ? free_q :"),
            ("if (!free_q.found) high_q", "if (!(free_q.found && free_q.slot == '1)) high_q"),
        ],
    },
    Fault {
        name: "one prefix more than declared is stored",
        block: LPM,
        changes: &[("stored_q == StoredBits'(Entries)));", "stored_q > StoredBits'(Entries)));")],
    },
    Fault {
        name: "a prefix longer than an address is stored",
        block: LPM,
        changes: &[
            ("(!is_known || (!own_q", "((!is_known && own_q.found) || (!own_q"),
            ("if (!is_known || is_refused", "if (is_refused"),
        ],
    },
    Fault {
        name: "the value of an entry that is updated again stays",
        block: LPM,
        changes: &[("(state_q == Access && is_update)", "(state_q == Access && grows)")],
    },
    Fault {
        name: "a new list is written while packets search it",
        block: LPM,
        changes: &[("localparam int unsigned SettleCycles = 10 + Delay;", "localparam int unsigned SettleCycles = 1;")],
    },
    Fault {
        name: "the host lists the address with its bytes in reverse",
        block: LPM,
        changes: &[("row.address[8*(Width/8-1-i)+:8];", "row.address[8*i+:8];")],
    },
];

/// The bench that finds a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Slots,
    Map,
    /// A hash map whose cuckoo table is narrow.
    Narrow,
    Order,
    /// An LRU map of a shape.
    Lru(Shape),
    Lpm,
    Table,
}

/// The benches of the free list, the hash map, the order of use or longest prefix match for their own, that of the
/// table for all others.
fn kinds(fault: &Fault) -> Vec<Kind> {
    let is_lru = LRU_FAULTS.iter().any(|own| own.name == fault.name);
    match fault.block {
        SLOTS => vec![Kind::Slots],
        ORDER | FORWARD => vec![Kind::Order],
        MAP | EVICTED if is_lru => LRU_SHAPES.map(Kind::Lru).to_vec(),
        MAP | PENDING | ARRAY => vec![Kind::Map, Kind::Narrow],
        LPM | RANGES | LEVEL => vec![Kind::Lpm],
        _ => vec![Kind::Table],
    }
}

/// A design with a fault.
fn plant(fault: &Fault, kind: Kind) -> Option<Model> {
    let text = std::fs::read_to_string(block_path(fault.block)).unwrap();
    let changed = fault.changes.iter().fold(text, |text, (old, new)| {
        assert_eq!(text.matches(old).count(), 1, "{}: `{old}`", fault.name);
        text.replace(old, new)
    });
    let folder = top().join("target/cosim/faults").join(fault.name.replace(' ', "-"));
    std::fs::create_dir_all(&folder).unwrap();
    let own = folder.join(block_path(fault.block).file_name().unwrap());
    std::fs::write(&own, changed).unwrap();
    let path = |block: &str| if block == fault.block { own.clone() } else { block_path(block) };
    match kind {
        Kind::Slots => build_slots(fault.name, path),
        Kind::Map => build_hash_map(fault.name, path),
        Kind::Narrow => build_with(fault.name, path, NARROW),
        Kind::Order => build_lru(fault.name, path),
        Kind::Lru(shape) => build_with(fault.name, path, shape),
        Kind::Lpm => build_lpm(fault.name, path),
        Kind::Table => build_narrow(fault.name, path),
    }
}

/// What the co-simulation says of a fault; none if nothing differs in `seeds` runs.
pub(crate) fn find(fault: &Fault, seeds: u64) -> Option<String> {
    kinds(fault).into_iter().find_map(|kind| find_with(fault, kind, seeds))
}

fn find_with(fault: &Fault, kind: Kind, seeds: u64) -> Option<String> {
    let model = plant(fault, kind)?;
    (1..=seeds).find_map(|seed| {
        finding(|| match kind {
            Kind::Slots => run_slots(&model, seed),
            Kind::Map => _ = run_hash_map(&model, seed),
            Kind::Narrow => _ = run_with(&model, seed, NARROW),
            Kind::Order => _ = run_lru(&model, seed),
            Kind::Lru(shape) => _ = run_with(&model, seed, shape),
            Kind::Lpm => _ = run_lpm(&model, seed),
            Kind::Table => _ = run_narrow(&model, seed),
        })
    })
}

#[test]
fn a_table_that_ignores_its_stash_is_found() {
    if build_narrow("a_table_that_ignores_its_stash_is_found", block_path).is_some() {
        let found = find(&FAULTS[0], 1).unwrap();
        assert!(found.starts_with("assertion"), "{found}");
    }
}

#[test]
fn a_hash_map_that_ignores_its_pending_keys_is_found() {
    if build_hash_map("a_hash_map_that_ignores_its_pending_keys_is_found", block_path).is_some() {
        assert!(find(&MAP_FAULTS[0], 5).is_some());
    }
}

#[test]
fn an_insertion_whose_refusal_is_lost_is_found() {
    if build_hash_map("an_insertion_whose_refusal_is_lost_is_found", block_path).is_some() {
        let fault = MAP_FAULTS.iter().find(|fault| fault.name == "an entry whose key did not fit is lost").unwrap();
        assert!(find_with(fault, Kind::Narrow, 20).is_some());
    }
}

#[test]
fn a_prefix_that_takes_over_longer_ones_is_found() {
    if build_lpm("a_prefix_that_takes_over_longer_ones_is_found", block_path).is_some() {
        let fault = LPM_FAULTS.iter().find(|fault| fault.name == "a prefix takes over ranges of longer ones").unwrap();
        assert!(find(fault, 3).is_some());
    }
}

#[test]
fn an_evicted_entry_that_stays_is_found() {
    if build_lru("an_evicted_entry_that_stays_is_found", block_path).is_some() {
        let fault = LRU_FAULTS
            .iter()
            .find(|fault| fault.name == "packets see an evicted entry until its row is cleared")
            .unwrap();
        assert!(find(fault, 5).is_some());
    }
}

/// Each fault has its place in the sources.
#[test]
fn every_fault_has_its_place() {
    for fault in FAULTS.iter().chain(MAP_FAULTS).chain(LRU_FAULTS).chain(LPM_FAULTS) {
        let text = std::fs::read_to_string::<PathBuf>(block_path(fault.block)).unwrap();
        for (old, _) in fault.changes {
            assert_eq!(text.matches(old).count(), 1, "{}: `{old}`", fault.name);
        }
    }
}
