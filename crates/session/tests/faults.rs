// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults planted in pipelines and in blocks: each one makes a pipeline differ from the interpreter or the evaluator.

use flowloom_rtl::Pipeline;

use crate::frames;
use crate::stream::{case, compare_all, start};

/// The subject whose packets move and grow: a rewriting of `frames.rs`, of this seed and number.
const FRAMES: &str = "frames";
const FRAMES_SEED: u64 = 1;
const FRAMES_NUMBER: usize = 1;

const ARRAY: &str = "fl_array.sv";
const FRAMER: &str = "fl_framer.sv";
const EMITTER: &str = "fl_emitter.sv";
const RESULTS: &str = "fl_results.sv";
const BODY: &str = "fl_body.sv";
const ALIGN: &str = "fl_align.sv";
const JOBS: &str = "fl_jobs.sv";
const OVERLAY: &str = "fl_overlay.sv";
const MAP: &str = "fl_hash_map.sv";
const SCOREBOARD: &str = "fl_scoreboard.sv";

/// A fault.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// The case whose pipeline has the fault, or [`FRAMES`].
    pub(crate) subject: &'static str,
    /// The file that is changed, by the start of its name.
    pub(crate) file: &'static str,
    /// Texts, each of which is there once, with their replacements.
    pub(crate) changes: &'static [(&'static str, &'static str)],
}

// Faults leave no signal unused, which Verilator would refuse.
pub(crate) const FAULTS: &[Fault] = &[
    Fault {
        name: "the next packet reads an entry before it is written",
        subject: "toy",
        file: ARRAY,
        changes: &[("(same_q && result_q.valid) ?", "(same_q && result_q.valid && 1'b0) ?")],
    },
    Fault {
        name: "the second packet reads an entry before it is written",
        subject: "toy",
        file: ARRAY,
        changes: &[(
            "if (result_q.valid && result_q.index == access1_q.index)",
            "if (result_q.valid && result_q.index == access1_q.index && 1'b0)",
        )],
    },
    Fault {
        name: "the third packet reads an entry before it is written",
        subject: "toy",
        file: ARRAY,
        changes: &[(
            "if (older_q.valid && older_q.index == access1_q.index)",
            "if (older_q.valid && older_q.index == access1_q.index && 1'b0)",
        )],
    },
    Fault {
        name: "the older one of two results is forwarded",
        subject: "toy",
        file: ARRAY,
        changes: &[(
            "if (result_q.valid && result_q.index == access1_q.index)",
            "if (result_q.valid && result_q.index == access1_q.index && !(older_q.valid && older_q.index == \
                     access1_q.index))",
        )],
    },
    Fault {
        name: "the last bytes of a packet are not counted",
        subject: "xdp2",
        file: FRAMER,
        changes: &[("last_bytes |= 16'(i + 1);", "last_bytes |= 16'(i | 1);")],
    },
    Fault {
        name: "a packet has the ingress port of the next one",
        subject: "toy",
        file: FRAMER,
        changes: &[("port_o   <= packet.port;", "port_o   <= packet.port ^ packet.port ^ in_port_i;")],
    },
    Fault {
        name: "bytes after the end of a packet are not 0",
        subject: FRAMES,
        file: FRAMER,
        changes: &[("in_keep_i[i] ? in_data_i[8*i+:8] : 8'h0", "in_keep_i[i] ? in_data_i[8*i+:8] : 8'ha5")],
    },
    Fault {
        name: "bytes after the end of a packet are those at the input",
        subject: FRAMES,
        file: FRAMER,
        changes: &[("in_keep_i[i] ? in_data_i[8*i+:8]", "(in_keep_i[i] || 1'b1) ? in_data_i[8*i+:8]")],
    },
    Fault {
        name: "the last word leaves with bytes after its end",
        subject: FRAMES,
        file: ALIGN,
        changes: &[("keep_o[i] ? aligned_q[8*i+:8] : 8'h0;", "(keep_o[i] || 1'b1) ? aligned_q[8*i+:8] : 8'h0;")],
    },
    Fault {
        name: "words after the end of a packet are not 0",
        subject: FRAMES,
        file: BODY,
        changes: &[("if (!has_high_q[2])", "if (!has_high_q[2] && 1'b0)")],
    },
    Fault {
        name: "words before the start of a packet are not 0",
        subject: FRAMES,
        file: BODY,
        changes: &[(
            "return !index[IndexBits-1] && 16'(index) < 16'(stored);",
            "return index[IndexBits-1] || 16'(index) < 16'(stored);",
        )],
    },
    Fault {
        name: "a word of the window is overwritten under back-pressure",
        subject: "window",
        file: FRAMER,
        changes: &[("waiting_q != SlotCountBits'(WindowDepth)", "(waiting_q != SlotCountBits'(WindowDepth) || 1'b1)")],
    },
    Fault {
        name: "a packet begins while the one before has words in the window",
        subject: "window",
        file: FRAMER,
        changes: &[("start_i && left_q == '0", "start_i && (left_q == '0 || 1'b1)")],
    },
    Fault {
        name: "packets wait for the wrong number of words in the window",
        subject: "window",
        file: FRAMER,
        changes: &[("start ? packet.words - 1'b1 : left_q", "start ? LeftBits'(packet.words > 0) - 1'b1 : left_q")],
    },
    Fault {
        name: "body words are free before they are read",
        subject: "toy",
        file: EMITTER,
        changes: &[
            ("assign free_o         = done;", "assign free_o         = take;"),
            ("assign free_words_o   = job_q.stored;", "assign free_words_o   = job_d.stored;"),
        ],
    },
    Fault {
        name: "body words are free twice",
        subject: "toy",
        file: EMITTER,
        changes: &[("assign free_words_o   = job_q.stored;", "assign free_words_o   = job_q.stored << is_last;")],
    },
    Fault {
        name: "body words of dropped packets are never free",
        subject: "xdp2",
        file: EMITTER,
        changes: &[("assign free_o         = done;", "assign free_o         = done && job_q.sends;")],
    },
    Fault {
        name: "body words are overwritten where the store is full",
        subject: "toy",
        file: FRAMER,
        changes: &[("stored_q != CountBits'(BodyWords)", "(stored_q != CountBits'(BodyWords) || 1'b1)")],
    },
    Fault {
        name: "two neighbouring words are swapped",
        subject: FRAMES,
        file: BODY,
        changes: &[
            (
                "pair_d[WordBits-1:0]          = is_odd_q[2] ? odd : even;",
                "pair_d[WordBits-1:0]          = is_odd_q[2] ? even : odd;",
            ),
            (
                "pair_d[2*WordBits-1:WordBits] = is_odd_q[2] ? even : odd;",
                "pair_d[2*WordBits-1:WordBits] = is_odd_q[2] ? odd : even;",
            ),
        ],
    },
    Fault {
        name: "the even word after an odd one is read from the row of the odd one",
        subject: FRAMES,
        file: BODY,
        changes: &[("odd_row + (PlaceBits - 1)'(place_i[0])", "odd_row + (PlaceBits - 1)'(place_i[0] && 1'b0)")],
    },
    Fault {
        name: "a shift is one byte too short",
        subject: FRAMES,
        file: ALIGN,
        changes: &[(
            "by4_q >> {shift_word_q[2].shift[1:0], 3'b0}",
            "by4_q >> {shift_word_q[2].shift[1] & 1'b1, 1'b0 & shift_word_q[2].shift[0], 3'b0}",
        )],
    },
    Fault {
        name: "a shift takes the distance of the next word",
        subject: FRAMES,
        file: ALIGN,
        changes: &[(
            "by4_q >> {shift_word_q[2].shift[1:0], 3'b0}",
            "by4_q >> {shift_word_q[1].shift[1:0] | (shift_word_q[2].shift[1:0] & 2'b0), 3'b0}",
        )],
    },
    Fault {
        name: "the last word keeps one byte more",
        subject: "xdp2",
        file: ALIGN,
        changes: &[("(OffsetBits + 1)'(i) < aligned_word_q.bytes", "(OffsetBits + 1)'(i) <= aligned_word_q.bytes")],
    },
    Fault {
        name: "packets end where they ended at the input",
        subject: FRAMES,
        file: RESULTS,
        changes: &[("? packet.length : result.tail;", "? packet.length : packet.length | (result.tail & 16'h0);")],
    },
    Fault {
        name: "packets of the slow path are edited",
        subject: "window",
        file: RESULTS,
        changes: &[(
            "assign has_edits_o = result.verdict != Slow;",
            "assign has_edits_o = result.verdict != Slow || 1'b1;",
        )],
    },
    Fault {
        name: "packets of the slow path have a verdict of the core",
        subject: "window",
        file: RESULTS,
        changes: &[("if (slow_i) begin", "if (slow_i && 1'b0) begin")],
    },
    Fault {
        name: "an edit is made in each word",
        subject: "xdp2",
        file: "fl_patch_",
        changes: &[(
            "at0_q <= valid_i && index_i == 10'h0;",
            "at0_q <= valid_i && index_i[0] == 1'h0 && ^(index_i & 10'h0) == 1'h0;",
        )],
    },
    Fault {
        name: "edits are those of the next packet",
        subject: "xdp2",
        file: EMITTER,
        changes: &[("assign patch_edits_o = job_q.edits;", "assign patch_edits_o = job_d.edits | (job_q.edits & '0);")],
    },
    Fault {
        name: "an overlay is placed one byte too far",
        subject: FRAMES,
        file: OVERLAY,
        changes: &[("fine1_q     <= first[3:0];", "fine1_q     <= first[3:0] | 4'h1;")],
    },
    Fault {
        name: "a word is lost at an output that stalls",
        subject: "toy",
        file: EMITTER,
        changes: &[(
            "assign has_room = out_q != OutBits'(OutDepth);",
            "assign has_room = out_q != OutBits'(OutDepth) || 1'b1;",
        )],
    },
    Fault {
        name: "more packets are in the core than have a place for their result",
        subject: "toy",
        file: RESULTS,
        changes: &[(
            "assign start_o     = flight_q != FlightBits'(InFlight);",
            "assign start_o     = flight_q != FlightBits'(InFlight) || 1'b1;",
        )],
    },
    Fault {
        name: "the scoreboard of an array drops its entries",
        subject: "sums",
        file: SCOREBOARD,
        changes: &[("'{valid: issue_i && uses_i,", "'{valid: issue_i && uses_i && 1'b0,")],
    },
    Fault {
        name: "the scoreboard of an array gives its entries up a cycle too early",
        subject: "sums",
        file: SCOREBOARD,
        changes: &[("issued_q[age].valid && (", "issued_q[age].valid && age < Cycles && (")],
    },
    Fault {
        name: "the scoreboard of a hash map drops its entries",
        subject: "squares",
        file: SCOREBOARD,
        changes: &[("'{valid: issue_i && uses_i,", "'{valid: issue_i && uses_i && 1'b0,")],
    },
    Fault {
        name: "the scoreboard compares keys the wrong way",
        subject: "sums",
        file: SCOREBOARD,
        changes: &[("issued_q[age].key == key_i", "(issued_q[age].key ^ key_i) == '1")],
    },
    Fault {
        name: "a result is not forwarded to a packet that was held",
        subject: "sums",
        file: ARRAY,
        changes: &[("access1_q.index == result_d.index;", "access1_q.index == result_d.index && Delay == 0;")],
    },
    Fault {
        name: "a late result is lost while packets wait",
        subject: "queued",
        file: "fl_core_",
        changes: &[(".in_valid_i(arrived_s10)", ".in_valid_i(arrived_s10 && !queue_count[2])")],
    },
    Fault {
        name: "a packet does not wait until its late result is there",
        subject: "queued",
        file: "fl_core_",
        changes: &[("assign go = ripe &&", "assign go = (ripe || 1'b1) &&")],
    },
    Fault {
        name: "packets enter although the queue of the scheduler is full",
        subject: "queued",
        file: "fl_pipeline_",
        changes: &[(".start_i(start && room)", ".start_i(start && (room || 1'b1))")],
    },
    Fault {
        name: "a packet has the random numbers of the next one",
        subject: "draws",
        file: FRAMER,
        changes: &[(
            "time_o   <= packet.arrival;",
            "time_o   <= {in_time_i[TimeBits-1:64], packet.arrival[63:0]} | (packet.arrival & '0);",
        )],
    },
    Fault {
        name: "random numbers do not travel with their packet",
        subject: "draws",
        file: "fl_core_",
        changes: &[("random_s2_q <= random_s1_q;", "random_s2_q <= random_i | (random_s1_q & '0);")],
    },
    Fault {
        name: "an absent port does not cancel an earlier redirect",
        subject: "redirects",
        file: "fl_core_",
        changes: &[("[32] : (", "[32] || 1'b1 : (")],
    },
    Fault {
        name: "a redirect without a target is not aborted",
        subject: "redirects",
        file: RESULTS,
        changes: &[(
            "verdict_i == 32'(Redirect) && has_target_i",
            "verdict_i == 32'(Redirect) && (has_target_i || 1'b1)",
        )],
    },
    Fault {
        name: "a packet for all ports names another map",
        subject: "broadcasts",
        file: "fl_core_",
        changes: &[("? 32'd0 : (", "? 32'd1 : (")],
    },
    Fault {
        name: "the ingress port is one of all but it",
        subject: "broadcasts",
        file: "fl_core_",
        changes: &[("? 2'd3 : (", "? 2'd2 : (")],
    },
    Fault {
        name: "a later redirect does not replace one to all ports",
        subject: "broadcasts",
        file: "fl_core_",
        changes: &[("? 2'd0 : (v", "&& 1'b0 ? 2'd0 : (v")],
    },
    Fault {
        name: "a packet for all ports has the verdict of one without the ingress port",
        subject: "broadcasts",
        file: RESULTS,
        changes: &[("spread_i[0] ? Others : All;", "(spread_i[0] || 1'b1) ? Others : All;")],
    },
    Fault {
        name: "a packet that is not redirected leaves through all ports",
        subject: "broadcasts",
        file: RESULTS,
        changes: &[(
            "result_d.verdict == Redirect && spread_i[1]",
            "(result_d.verdict == Redirect || 1'b1) && spread_i[1]",
        )],
    },
    Fault {
        name: "an array is read with another index",
        subject: "known",
        file: "fl_core_",
        changes: &[(".index_i(3'(", ".index_i(3'd1 ^ 3'(")],
    },
    Fault {
        name: "packets enter although a hash map has no room",
        subject: "simple_firewall",
        file: "fl_pipeline_",
        changes: &[(".start_i(start && room)", ".start_i(start && (room || 1'b1))")],
    },
    Fault {
        name: "a hash map is full one entry too early",
        subject: "simple_firewall",
        file: MAP,
        changes: &[("stored_q == StoredBits'(Entries);", "stored_q >= StoredBits'(Entries - 1);")],
    },
    Fault {
        name: "extra packets leave in the reverse order",
        subject: "clones",
        file: JOBS,
        changes: &[("if (left[Sends-1-i]) job_o = JobBits'(Sends - 1 - i);", "if (left[i]) job_o = JobBits'(i);")],
    },
    Fault {
        name: "calls that do not happen send packets",
        subject: "emits",
        file: JOBS,
        changes: &[("assign left      = sends & ~made_q;", "assign left      = (sends | '1) & ~made_q;")],
    },
    Fault {
        name: "the calls of the packet before are taken as made",
        subject: "clones",
        file: JOBS,
        changes: &[("made_q | (Sends'(1) << job_o) : '0;", "made_q | (Sends'(1) << job_o) : made_q;")],
    },
    Fault {
        name: "a packet leaves before its last extra packet",
        subject: "clones",
        file: JOBS,
        changes: &[(".out_ready_i(ready_i && !is_extra_o),", ".out_ready_i(ready_i && (left & (left - 1'b1)) == '0),")],
    },
    Fault {
        name: "an extra packet gives up the body",
        subject: "clones",
        file: EMITTER,
        changes: &[("assign free_o         = done;", "assign free_o         = job_done;")],
    },
    Fault {
        name: "an extra packet takes the place of its packet",
        subject: "emits",
        file: RESULTS,
        changes: &[(
            "assign take_packet = valid_o && ready_i && !result.is_extra;",
            "assign take_packet = valid_o && ready_i && (!result.is_extra || 1'b1);",
        )],
    },
    Fault {
        name: "an extra packet leaves through the ingress port",
        subject: "clones",
        file: RESULTS,
        changes: &[(
            "(result.is_extra || result.verdict inside",
            "((result.is_extra && 1'b0) || result.verdict inside",
        )],
    },
    Fault {
        name: "an extra packet has the verdict of its packet",
        subject: "emits",
        file: RESULTS,
        changes: &[("if (is_extra_i) begin", "if (is_extra_i && 1'b0) begin")],
    },
    Fault {
        name: "an extra packet counts as a packet",
        subject: "emits",
        file: EMITTER,
        changes: &[(
            "assign done       = job_done && !job_q.is_extra;",
            "assign done       = job_done && (!job_q.is_extra || 1'b1);",
        )],
    },
    Fault {
        name: "a copy has bytes that are written after it",
        subject: "clones",
        file: "fl_patch_",
        changes: &[("mask_d[1+:1] = edits_q[8+:1];", "mask_d[1+:1] = edits_q[8+:1] | 1'b1;")],
    },
    Fault {
        name: "a copy begins where the packet as received does",
        subject: "clones",
        file: "fl_sends_",
        changes: &[("head_o = record_i[81+:16];", "head_o = record_i[81+:16] & 16'h0;")],
    },
    Fault {
        name: "a given packet is one byte too long",
        subject: "emits",
        file: "fl_sends_",
        changes: &[("tail_o = 16'h8f;", "tail_o = 16'h90;")],
    },
];

/// A pipeline with a fault, under another name.
pub(crate) fn planted(number: usize, fault: &Fault, mut pipeline: Pipeline) -> Pipeline {
    let file = pipeline.files.iter_mut().find(|file| file.name.starts_with(fault.file));
    let file = file.unwrap_or_else(|| panic!("{}: no file `{}`", fault.name, fault.file));
    for (from, to) in fault.changes {
        assert_eq!(file.text.matches(from).count(), 1, "{}: `{from}`", fault.name);
        file.text = file.text.replace(from, to);
    }
    let module = format!("{}_fault{number}", pipeline.module);
    let top = pipeline.files.last_mut().unwrap();
    top.name = format!("{module}.sv");
    top.text = top.text.replace(&format!("module {} (", pipeline.module), &format!("module {module} ("));
    pipeline.module = module;
    pipeline
}

/// The pipeline of a subject.
fn pipeline(subject: &str) -> Pipeline {
    if subject == FRAMES {
        return frames::subject(FRAMES_SEED, FRAMES_NUMBER).pipeline;
    }
    let case = case(subject);
    case.pipeline(&case.load())
}

/// What a fault leads to.
pub(crate) enum Finding {
    /// The first difference.
    Difference(String),
    Equal,
    /// There is no simulation.
    Skipped,
}

/// Compares packets through a pipeline with a fault.
pub(crate) fn find(test: &str, fault: &Fault, seed: u64, count: usize) -> Finding {
    let number = FAULTS.iter().position(|one| one.name == fault.name).unwrap();
    let pipeline = planted(number, fault, pipeline(fault.subject));
    let Some(mut simulated) = start(test, &pipeline, seed as u32) else { return Finding::Skipped };
    let found = if fault.subject == FRAMES {
        let mut subject = frames::subject(FRAMES_SEED, FRAMES_NUMBER);
        frames::compare(&mut subject, &mut simulated, seed, count / 4).err()
    } else {
        let case = case(fault.subject);
        compare_all(case, &case.load(), &mut simulated, seed, count).err()
    };
    found.map_or(Finding::Equal, Finding::Difference)
}

#[test]
fn faults_in_pipelines_are_found() {
    are_found("faults_in_pipelines_are_found", FAULTS.iter().filter(|fault| QUICK.contains(&fault.name)));
}

fn are_found<'a>(test: &str, faults: impl Iterator<Item = &'a Fault>) {
    for fault in faults {
        match find(test, fault, 1, 2000) {
            Finding::Difference(found) => println!("{}: {found:.300}", fault.name),
            Finding::Equal => panic!("{} is not found", fault.name),
            Finding::Skipped => return,
        }
    }
}

/// The faults of the normal test.
const QUICK: [&str; 3] = [
    "the next packet reads an entry before it is written",
    "body words are free before they are read",
    "an extra packet gives up the body",
];

/// Each fault has its place in the sources.
#[test]
fn every_fault_has_its_place() {
    let mut pipelines = std::collections::BTreeMap::new();
    for (number, fault) in FAULTS.iter().enumerate() {
        let whole = pipelines.entry(fault.subject).or_insert_with(|| pipeline(fault.subject));
        planted(number, fault, whole.clone());
    }
}
