// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loops of machine code over the packets of a batch: the pipeline, in which each runs behind its scout, and one
//! without scouts.
//!
//! Goal: the misses of several packets are on their way at any time, for lines of the cache and for pages.
//!
//! ```text
//!  group g + 3:           the views of packets of a capture ([`crate::feed`])
//!  group g of 8 packets:  their scouts              ──► key, registers, stack, in the record of each packet
//!                         their lines of the index, and the entries of group g - 1: prefetched
//!  group g - 2:           the code of each packet, from where its scout ended ──► r0 in its view
//! ```
//!
//! Prefetches of a group follow each other at once. A processor does not retire a prefetch before it knows its page,
//! and looks ahead 200 to 500 instructions at most, about as many as a packet takes. If each prefetch stood between
//! two packets, the table walks of pages that the TLB does not have would come one after the other. The walks of a
//! group overlap.
//!
//! After the first key, a scout goes on with the address of some entry, if it may find the key of a second lookup on
//! the way ([`Source::seconds`]).
//!
//! The loop is left, and goes on with the next packet when it is called again, for packets
//! - whose scout has no point to go on from: they run from the beginning;
//! - that called a helper, or spent their iterations: the engine looks at its environment.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Value, types};
use cranelift_frontend::Variable;
use flowloom_isa::insn::helper;
use flowloom_isa::op::Op;

use crate::compiled::Source;
use crate::feed::FEED_AHEAD;
use crate::frame::Frame;
use crate::function::{FIELD, Translation, declared};
use crate::prefetch::Access;
use crate::scout::InLoop;
use crate::state::{
    AT, BUDGET, KEY_TABLE, NO_HELPER, POINT, RECORD_BYTES, REDIRECT, ROUNDS, SECOND, TAIL_CALLS, VIEW_DATA, VIEW_R0,
    VIEW_REDIRECT, View,
};
use crate::{runtime, state};

/// The packets whose prefetches follow each other.
pub(crate) const GROUP: usize = 8;
/// The packets between a scout and the code.
pub(crate) const LEAD: usize = 2 * GROUP;
/// The records, by the last bits of the number of a packet: of three groups at least.
pub(crate) const RECORDS: usize = (LEAD + GROUP).next_power_of_two();
/// The packets between the first one of a group and the first one whose bytes are prefetched.
const PACKETS_AHEAD: usize = GROUP;
/// The views after those of the packets, whose addresses are read and prefetched: the last group begins at number
/// `packets + LEAD - 1` at most.
pub(crate) const SPARE_VIEWS: usize = LEAD + GROUP + PACKETS_AHEAD;

// The records of a group lie one after the other, and all groups that are on their way have records of their own.
const _: () = assert!(
    FEED_AHEAD <= SPARE_VIEWS && GROUP.is_power_of_two() && LEAD.is_multiple_of(GROUP) && RECORDS >= LEAD + GROUP
);

/// Why a pipeline returns: the lowest bits of what it returns. The others are the iteration to go on with.
pub(crate) const REASON_BITS: u32 = 2;
/// All packets have run.
pub(crate) const ENDED: u64 = 0;
/// The last packet runs from the beginning.
pub(crate) const PLAIN: u64 = 1;
/// The environment has results of the last packet.
pub(crate) const ODD: u64 = 2;

/// The distance in bytes from the view of a packet to that of another one, `packets` later.
const fn view_at(packets: i32) -> i32 {
    packets * size_of::<View>() as i32
}

/// The loop that the code of a packet is in.
#[derive(Debug, Clone, Copy)]
struct Ends {
    /// The iteration, and the address that all views have a fixed distance from in it.
    number: Variable,
    view: Variable,
    /// The distance of the packet's view in bytes.
    view_at: i32,
    /// Where the code ends ([`InLoop`]).
    quiet: Block,
    odd: Block,
    /// The end of the iteration.
    next: Block,
}

impl Source<'_> {
    /// True if the run of the program may call a helper that is noted.
    fn may_call(&self) -> bool {
        self.has(|op| matches!(op, Op::Call { .. }))
    }

    fn has(&self, is_wanted: impl Fn(&Op) -> bool) -> bool {
        self.code.iter().flatten().any(is_wanted)
    }

    pub(crate) fn has_helper(&self, wanted: &[i32]) -> bool {
        self.has(|op| matches!(op, Op::Call { helper } if wanted.contains(helper)))
    }
}

impl Translation<'_, '_> {
    /// Translates the loop without scouts: the code of each packet from the beginning. Its parameters are those of
    /// [`Translation::pipeline`].
    pub(crate) fn plain_loop(&mut self) {
        let params = self.begin();
        let (views, first, count) = (params[1], params[2], params[3]);
        let [number, view] = [(); 2].map(|()| self.builder.declare_var(types::I64));
        self.begin_iterations(number, view, first, views);
        let [start, quiet, odd, next, end] = [(); 5].map(|()| self.builder.create_block());
        self.builder.append_block_param(quiet, types::I64);
        self.builder.append_block_param(odd, types::I64);
        self.builder.set_cold_block(odd);
        self.builder.ins().jump(start, &[]);

        self.builder.switch_to_block(start);
        // Without scouts, there are no records.
        self.packet = Some(InLoop { view, view_at: 0, record: view, next: quiet, odd });
        self.begin_packet_of_code();
        self.begin_registers(&[]);
        self.translate_from(0);
        let ends = Ends { number, view, view_at: 0, quiet, odd, next };
        self.end_packet_of_code(ends);
        self.end_iteration(ends, count, [start, end]);
        self.return_at_end();
    }

    /// Translates the pipeline. Its parameters are the state, the views, the first iteration, the number of packets,
    /// the records, and the feed.
    pub(crate) fn pipeline(&mut self) {
        let params = self.begin();
        let (views, first, count, records, feed) = (params[1], params[2], params[3], params[4], params[5]);
        let iterations = self.builder.ins().iadd_imm_s(count, LEAD as i64);
        let [number, view, record] = [(); 3].map(|()| self.builder.declare_var(types::I64));
        let zero = self.number(0);
        self.builder.def_var(record, zero);
        self.begin_iterations(number, view, first, views);
        let [group, later, enter, old, code, plain, quiet, odd, next, end] =
            [(); 10].map(|()| self.builder.create_block());
        for with_result in [quiet, odd] {
            self.builder.append_block_param(with_result, types::I64);
        }
        for cold in [later, plain, odd] {
            self.builder.set_cold_block(cold);
        }
        // The loop may have been left in the middle of a group, whose scouts and prefetches are done: they come once
        // a packet, since a prefetched entry changes what the record says of the place.
        self.branch_in_group(first, enter, group);

        self.builder.switch_to_block(group);
        self.feed(number, views, feed);
        self.scouts((number, view), count, records);
        self.prefetches((number, view), records, feed);
        let current = self.builder.use_var(number);
        let is_old = self.builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, current, LEAD as i64);
        self.builder.ins().brif(is_old, enter, &[], later, &[]);

        self.builder.switch_to_block(later);
        self.advance(&[(number, GROUP as i64), (view, (GROUP * size_of::<View>()) as i64)]);
        self.builder.ins().jump(group, &[]);

        self.builder.switch_to_block(enter);
        let current = self.builder.use_var(number);
        let run = self.builder.ins().iadd_imm_s(current, -(LEAD as i64));
        let own = self.record_of(records, run);
        self.builder.def_var(record, own);
        self.builder.ins().jump(old, &[]);

        self.builder.switch_to_block(old);
        let own = self.builder.use_var(record);
        let point = self.builder.ins().load(types::I32, FIELD, own, POINT);
        self.builder.ins().brif(point, code, &[], plain, &[]);

        self.builder.switch_to_block(plain);
        self.return_from(number, PLAIN);

        self.builder.switch_to_block(code);
        self.is_scout = false;
        self.registers = declared(&mut self.builder);
        self.frame = Frame::default();
        let ends = Ends { number, view, view_at: view_at(-(LEAD as i32)), quiet, odd, next };
        self.packet = Some(InLoop { view, view_at: ends.view_at, record, next: quiet, odd });
        self.begin_packet_of_code();
        self.begin_registers(&[]);
        self.translate_points(point);

        self.end_packet_of_code(ends);
        let goes_on = self.builder.create_block();
        self.builder.switch_to_block(goes_on);
        // The records of a group lie one after the other.
        self.advance(&[(record, RECORD_BYTES as i64)]);
        let current = self.builder.use_var(number);
        self.branch_in_group(current, old, group);
        self.end_iteration(ends, iterations, [goes_on, end]);
        self.return_at_end();
    }

    /// The scouts of a group, whose first packet has this number and view.
    fn scouts(&mut self, (number, view): (Variable, Variable), count: Value, records: Value) {
        let [scouted, scouted_view, record] = [(); 3].map(|()| self.builder.declare_var(types::I64));
        let current = self.builder.use_var(number);
        let own = self.record_of(records, current);
        let of_first = self.builder.use_var(view);
        for (variable, value) in [(scouted, current), (scouted_view, of_first), (record, own)] {
            self.builder.def_var(variable, value);
        }
        let [start, scout, none, next, end] = [(); 5].map(|()| self.builder.create_block());
        self.builder.set_cold_block(none);
        self.builder.ins().jump(start, &[]);

        self.builder.switch_to_block(start);
        let current = self.builder.use_var(scouted);
        let is_new = self.builder.ins().icmp(IntCC::UnsignedLessThan, current, count);
        self.builder.ins().brif(is_new, scout, &[], none, &[]);

        // After the last packet, there is nothing to announce.
        self.builder.switch_to_block(none);
        let (own, zero) = (self.builder.use_var(record), self.number(0));
        self.builder.ins().store(FIELD, zero, own, KEY_TABLE);
        self.builder.ins().store(FIELD, zero, own, SECOND);
        self.builder.ins().jump(next, &[]);

        self.builder.switch_to_block(scout);
        self.is_scout = true;
        self.begin_packet_of_scout(InLoop { view: scouted_view, view_at: 0, record, next, odd: next });
        self.begin_registers(&[]);
        self.translate_from(0);

        self.builder.switch_to_block(next);
        self.advance(&[(scouted, 1), (scouted_view, size_of::<View>() as i64), (record, RECORD_BYTES as i64)]);
        let current = self.builder.use_var(scouted);
        self.branch_in_group(current, start, end);
        self.builder.switch_to_block(end);
    }

    /// Goes to `within` if the number is not that of the first packet of a group, otherwise to `first`.
    fn branch_in_group(&mut self, number: Value, within: Block, first: Block) {
        let place = self.builder.ins().band_imm_u(number, GROUP as i64 - 1);
        self.builder.ins().brif(place, within, &[], first, &[]);
    }

    /// Adds to variables.
    fn advance(&mut self, steps: &[(Variable, i64)]) {
        for (variable, step) in steps {
            let value = self.builder.use_var(*variable);
            let value = self.builder.ins().iadd_imm_s(value, *step);
            self.builder.def_var(*variable, value);
        }
    }

    /// The first values of the iteration and of the address of its view.
    fn begin_iterations(&mut self, number: Variable, view: Variable, first: Value, views: Value) {
        self.builder.def_var(number, first);
        let offset = self.builder.ins().imul_imm_s(first, size_of::<View>() as i64);
        let own = self.builder.ins().iadd(views, offset);
        self.builder.def_var(view, own);
    }

    /// The prefetches of a group, whose first packet has this number and view: the lines of the index of its keys,
    /// the entries of the group before, and the first lines of the packets of the next one, unless the feed has done
    /// that.
    fn prefetches(&mut self, (number, view): (Variable, Variable), records: Value, feed: Value) {
        let current = self.builder.use_var(number);
        let new = self.record_of(records, current);
        let before = self.builder.ins().iadd_imm_s(current, -(GROUP as i64));
        let before = self.record_of(records, before);
        let function = self.number(flowloom_flowtable::prefetch_ahead as *const () as usize as u64);
        let (step, count) = (self.number(RECORD_BYTES as u64), self.number(GROUP as u64));
        let second = self.seconds.is_some().then_some(SECOND);
        for key_at in [KEY_TABLE].into_iter().chain(second) {
            let [new, before] = [new, before].map(|record| self.builder.ins().iadd_imm_s(record, i64::from(key_at)));
            self.builder.ins().call_indirect(self.callees.ahead, function, &[new, before, step, count]);
        }
        if !cfg!(target_arch = "x86_64") {
            return;
        }
        let [packets, done] = [(); 2].map(|()| self.builder.create_block());
        self.builder.ins().brif(feed, done, &[], packets, &[]);
        self.builder.switch_to_block(packets);
        let access = if self.source.writes_packets() { Access::Write } else { Access::Read };
        let view = self.builder.use_var(view);
        for packet in PACKETS_AHEAD..PACKETS_AHEAD + GROUP {
            let data = self.builder.ins().load(types::I64, FIELD, view, view_at(packet as i32) + VIEW_DATA);
            self.prefetch(access, data, 0);
        }
        self.builder.ins().jump(done, &[]);
        self.builder.switch_to_block(done);
    }

    /// The end of an iteration, which leads to the beginning of the next one or to the end; goes on at the end.
    fn end_iteration(&mut self, ends: Ends, iterations: Value, [start, end]: [Block; 2]) {
        let Ends { number, view, next, .. } = ends;
        self.builder.switch_to_block(next);
        self.advance(&[(view, size_of::<View>() as i64), (number, 1)]);
        let current = self.builder.use_var(number);
        let goes_on = self.builder.ins().icmp(IntCC::UnsignedLessThan, current, iterations);
        self.builder.ins().brif(goes_on, start, &[], end, &[]);
        self.builder.switch_to_block(end);
    }

    /// The ends of the code of a packet: its result goes to the view.
    fn end_packet_of_code(&mut self, ends: Ends) {
        let Ends { number, view, view_at, quiet, odd, next } = ends;
        self.builder.switch_to_block(quiet);
        let r0 = self.builder.block_params(quiet)[0];
        let own = self.builder.use_var(view);
        self.builder.ins().store(FIELD, r0, own, view_at + VIEW_R0);
        self.keep_redirect(own, view_at);
        if self.source.may_call() {
            let at = self.builder.ins().load(types::I32, FIELD, self.state, AT);
            let is_quiet = self.builder.ins().icmp_imm_s(IntCC::Equal, at, i64::from(NO_HELPER as i32));
            self.builder.ins().brif(is_quiet, next, &[], odd, &[r0.into()]);
        } else {
            self.builder.ins().jump(next, &[]);
        }

        self.builder.switch_to_block(odd);
        let r0 = self.builder.block_params(odd)[0];
        let own = self.builder.use_var(view);
        self.builder.ins().store(FIELD, r0, own, view_at + VIEW_R0);
        self.return_from(number, ODD);
    }

    /// Returns after the last iteration, and ends the function.
    fn return_at_end(&mut self) {
        let ended = self.number(ENDED);
        self.builder.ins().return_(&[ended]);
        self.builder.seal_all_blocks();
    }

    /// Returns after an iteration.
    fn return_from(&mut self, number: Variable, reason: u64) {
        let next = self.builder.use_var(number);
        let next = self.builder.ins().iadd_imm_s(next, 1);
        let next = self.builder.ins().ishl_imm_u(next, i64::from(REASON_BITS));
        let result = self.builder.ins().bor_imm_u(next, reason as i64);
        self.builder.ins().return_(&[result]);
    }

    /// The record of a packet.
    fn record_of(&mut self, records: Value, packet: Value) -> Value {
        let place = self.builder.ins().band_imm_u(packet, RECORDS as i64 - 1);
        let offset = self.builder.ins().imul_imm_s(place, RECORD_BYTES as i64);
        self.builder.ins().iadd(records, offset)
    }

    /// What the engine sets for a packet, as far as the program reads it.
    fn begin_packet_of_code(&mut self) {
        let calls = self.source.has(|op| matches!(op, Op::Call { helper: helper::TAIL_CALL }));
        if let Some(packet) = self.packet.filter(|_| self.source.calls_functions() || self.source.moves()) {
            self.show(packet);
        }
        if self.source.counts_iterations() || calls {
            let iterations = self.number(runtime::ITERATIONS as u64);
            self.builder.ins().store(FIELD, iterations, self.state, BUDGET);
        }
        let zero = self.number(0);
        if self.source.has(|op| matches!(op, Op::MayGoto { .. })) || calls {
            self.builder.ins().istore32(FIELD, zero, self.state, ROUNDS);
        }
        if calls {
            self.builder.ins().istore32(FIELD, zero, self.state, TAIL_CALLS);
        }
    }

    /// Moves the target of a redirect to the view of its packet, unless it is there.
    fn keep_redirect(&mut self, view: Value, view_at: i32) {
        if self.source.has_helper(&[helper::REDIRECT, helper::REDIRECT_MAP]) && !self.source.redirects_in_view() {
            let target = self.builder.ins().load(types::I64, FIELD, self.state, REDIRECT);
            self.builder.ins().store(FIELD, target, view, view_at + VIEW_REDIRECT);
            let none = self.number(state::BY_HELPER as u64);
            self.builder.ins().store(FIELD, none, self.state, REDIRECT);
        }
    }
}
