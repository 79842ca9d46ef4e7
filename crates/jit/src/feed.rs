// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of a capture, whose views the pipeline makes while it runs.
//!
//! ```text
//!  packet  bytes, length, time, port ──► view: first byte, byte after the last one, time, port
//!                                        prefetch of the first byte
//! ```
//!
//! Goal: bytes that come from memory arrive while other packets run. A loop that makes the views of a whole batch before
//! its first packet runs computes nothing, so that it waits for memory at each prefetch.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use cranelift_frontend::Variable;
use flowloom_engine::Arrival;
use flowloom_isa::insn::helper;

use crate::function::{FIELD, Translation};
use crate::pipeline::GROUP;
use crate::prefetch::Access;
use crate::state::{BY_HELPER, VIEW_DATA, VIEW_DATA_END, VIEW_INGRESS, VIEW_NOW, VIEW_REDIRECT, View};

/// How many packets ahead of the scouts views are made: in the time that they take, a line arrives from memory.
pub(crate) const FEED_AHEAD: usize = 3 * GROUP;

/// The packets of a batch: those of a capture one after the other, or those with these numbers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Feed<'a> {
    packets: *const Arrival<'a>,
    /// Null if all packets are wanted.
    numbers: *const u32,
    /// The views to make: also those of packets after the batch, whose bytes the next one finds in the cache.
    limit: u64,
}

/// The two words of a slice.
const SLICE_DATA: i32 = 0;
const SLICE_LEN: i32 = 8;

/// True if slices have their address before their length, which the language does not promise.
fn is_address_first() -> bool {
    let bytes: &[u8] = &[0; 3];
    // SAFETY: a slice has two words, and any is a number.
    let words: [usize; 2] = unsafe { std::mem::transmute(bytes) };
    words == [bytes.as_ptr() as usize, bytes.len()]
}

impl<'a> Feed<'a> {
    /// A batch of this many packets, from number `first` on: those of a capture, or of `numbers`, which are numbers of
    /// its packets.
    ///
    /// # Safety
    /// All numbers are those of packets; machine code reads the packets with them while the feed is used.
    ///
    /// # Panics
    /// There are fewer packets or numbers.
    pub(crate) unsafe fn new(
        packets: &'a [Arrival<'a>],
        numbers: Option<&'a [u32]>,
        first: usize,
        count: usize,
    ) -> Feed<'a> {
        let (packets, numbers, left) = match numbers {
            Some(numbers) => (packets.as_ptr(), numbers[first..].as_ptr(), numbers.len() - first),
            None => (packets[first..].as_ptr(), std::ptr::null(), packets.len() - first),
        };
        assert!(count <= left, "{count} packets of {left}");
        Feed { packets, numbers, limit: left.min(count + FEED_AHEAD) as u64 }
    }

    /// True if machine code can read packets here.
    pub(crate) fn is_readable() -> bool {
        cfg!(target_arch = "x86_64") && is_address_first()
    }
}

impl Translation<'_, '_> {
    /// Makes the views of a group of packets, [`FEED_AHEAD`] after the number of the iteration. `feed` is the address
    /// of a [`Feed`], or null if all views have been made.
    pub(crate) fn feed(&mut self, number: Variable, views: Value, feed: Value) {
        let [some, begin, make, listed, made, end] = [(); 6].map(|()| self.builder.create_block());
        let packet = self.builder.append_block_param(made, types::I64);
        let [own, last] = [(); 2].map(|()| self.builder.declare_var(types::I64));
        self.builder.ins().brif(feed, some, &[], end, &[]);

        self.builder.switch_to_block(some);
        let current = self.builder.use_var(number);
        let first = self.builder.ins().iadd_imm_s(current, FEED_AHEAD as i64);
        let after = self.builder.ins().iadd_imm_s(first, GROUP as i64);
        let limit = self.builder.ins().load(types::I64, FIELD, feed, offset_of!(Feed<'_>, limit) as i32);
        let is_whole = self.builder.ins().icmp(IntCC::UnsignedLessThan, after, limit);
        let after = self.builder.ins().select(is_whole, after, limit);
        self.builder.def_var(own, first);
        self.builder.def_var(last, after);
        self.builder.ins().jump(begin, &[]);

        self.builder.switch_to_block(begin);
        let (current, after) = (self.builder.use_var(own), self.builder.use_var(last));
        let is_left = self.builder.ins().icmp(IntCC::UnsignedLessThan, current, after);
        self.builder.ins().brif(is_left, make, &[], end, &[]);

        self.builder.switch_to_block(make);
        let numbers = self.builder.ins().load(types::I64, FIELD, feed, offset_of!(Feed<'_>, numbers) as i32);
        self.builder.ins().brif(numbers, listed, &[], made, &[current.into()]);

        self.builder.switch_to_block(listed);
        let offset = self.builder.ins().ishl_imm_u(current, 2);
        let place = self.builder.ins().iadd(numbers, offset);
        let found = self.builder.ins().uload32(FIELD, place, 0);
        self.builder.ins().jump(made, &[found.into()]);

        self.builder.switch_to_block(made);
        let packets = self.builder.ins().load(types::I64, FIELD, feed, offset_of!(Feed<'_>, packets) as i32);
        let offset = self.builder.ins().imul_imm_s(packet, size_of::<Arrival<'_>>() as i64);
        let packet = self.builder.ins().iadd(packets, offset);
        let bytes = offset_of!(Arrival<'_>, bytes) as i32;
        let data = self.builder.ins().load(types::I64, FIELD, packet, bytes + SLICE_DATA);
        let len = self.builder.ins().load(types::I64, FIELD, packet, bytes + SLICE_LEN);
        let now = self.builder.ins().load(types::I64, FIELD, packet, offset_of!(Arrival<'_>, now_ns) as i32);
        let port = self.builder.ins().load(types::I32, FIELD, packet, offset_of!(Arrival<'_>, port) as i32);
        let data_end = self.builder.ins().iadd(data, len);
        let offset = self.builder.ins().imul_imm_s(current, size_of::<View>() as i64);
        let view = self.builder.ins().iadd(views, offset);
        for (value, at) in [(data, VIEW_DATA), (data_end, VIEW_DATA_END), (now, VIEW_NOW), (port, VIEW_INGRESS)] {
            self.builder.ins().store(FIELD, value, view, at);
        }
        if self.source.has_helper(&[helper::REDIRECT, helper::REDIRECT_MAP]) {
            // Not all packets write the redirect of their view, which was that of an earlier packet.
            let none = self.number(BY_HELPER as u64);
            self.builder.ins().store(FIELD, none, view, VIEW_REDIRECT);
        }
        if cfg!(target_arch = "x86_64") {
            self.prefetch(Access::Read, data, 0);
        }
        let next = self.builder.ins().iadd_imm_s(current, 1);
        self.builder.def_var(own, next);
        self.builder.ins().jump(begin, &[]);
        self.builder.switch_to_block(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_what_machine_code_reads() {
        assert!(is_address_first());
        assert_eq!(size_of::<flowloom_engine::Port>(), size_of::<u32>());
    }
}
