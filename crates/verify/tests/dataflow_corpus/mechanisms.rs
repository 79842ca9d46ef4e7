// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One small program for each mechanism of the dataflow.

use flowloom_isa::{MapDef, MapKind, Member, Program, Sibling, asm};

/// Name, maps, and instructions after the bounds check for 64 bytes: `r6` is the context, `r7` the packet, `r8` its
/// end. `packet 40` reloads both pointers and checks for 40 bytes.
const PROGRAMS: &[(&str, &str, &str)] = &[
    (
        "null_and_numbers_beside_addresses",
        ".map values array key 4 value 32 entries 1\n",
        "*(u32 *)(r10 - 4) = 0\nr1 = map[values] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\nif r0 == 0 goto out\nr9 = r0\n\
         r2 = *(u8 *)(r7 + 0)\nr2 &= 3\nr3 = r9\nif r2 != 0 goto joined\nr3 = 0\njoined: r3 += 4\nif r2 != 0 goto address\n\
         *(u64 *)(r7 + 8) = r3\naddress: r4 = *(u8 *)(r7 + 1)\nr3 = r9\nif r2 != 1 goto again\nr3 = r4\nagain: r3 += 8\n\
         if r2 != 1 goto store\n*(u64 *)(r7 + 16) = r3\ngoto last\nstore: *(u64 *)(r3 + 0) = r4\n\
         last: r1 = r10\nr1 += -16\nr3 = r10\nr3 -= r1\n*(u64 *)(r7 + 24) = r3",
    ),
    (
        "words_read_again_after_own_writes",
        ".map values array key 4 value 72 entries 1\n",
        "*(u32 *)(r10 - 4) = 0\nr1 = map[values] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\nif r0 == 0 goto out\nr1 = *(u8 *)(r7 + 0)\nr1 &= 7\nr1 <<= 3\nr2 = r0\nr2 += r1\nr3 = *(u8 *)(r7 + 1)\nr3 &= 7\nr3 <<= 3\nr4 = r0\n\
         r4 += r3\nr5 = *(u64 *)(r7 + 8)\n*(u64 *)(r2 + 8) = r5\nr9 = *(u64 *)(r4 + 8)\n*(u64 *)(r7 + 16) = r9\nr9 += 1\n\
         *(u64 *)(r4 + 8) = r9\nr5 = *(u64 *)(r2 + 8)\n*(u64 *)(r7 + 24) = r5\nr5 = *(u64 *)(r0 + 32)\n*(u64 *)(r7 + 32) = r5\n\
         r5 = *(u32 *)(r2 + 12)\n*(u32 *)(r7 + 40) = r5\nr5 = *(u64 *)(r2 + 0)\n*(u64 *)(r7 + 48) = r5",
    ),
    (
        "bytes_read_again_after_own_writes",
        ".map values array key 4 value 32 entries 1\n",
        "*(u32 *)(r10 - 4) = 0\nr1 = map[values] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\nif r0 == 0 goto out\nr1 = *(u8 *)(r7 + 0)\nr1 &= 15\nr2 = r0\nr2 += r1\nr3 = *(u8 *)(r7 + 1)\nr3 &= 7\nr4 = r0\nr4 += r3\n\
         r5 = *(u32 *)(r7 + 8)\n*(u32 *)(r2 + 2) = r5\nr5 = *(u16 *)(r7 + 12)\n*(u16 *)(r4 + 5) = r5\nr5 = *(u8 *)(r7 + 2)\n\
         if r5 > 99 goto past\n*(u8 *)(r0 + 9) = r5\npast: r5 = *(u64 *)(r2 + 0)\n*(u64 *)(r7 + 16) = r5\nr5 = *(u64 *)(r4 + 4)\n\
         *(u64 *)(r7 + 24) = r5\nr5 = *(u16 *)(r0 + 8)\n*(u16 *)(r7 + 32) = r5\nr5 = *(u8 *)(r4 + 6)\n*(u8 *)(r7 + 34) = r5",
    ),
    (
        "loads_after_own_atomic_operations",
        ".map values array key 4 value 32 entries 1\n",
        "*(u32 *)(r10 - 4) = 0\nr1 = map[values] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\nif r0 == 0 goto out\nr6 = r0\nr1 = *(u8 *)(r7 + 0)\nr1 &= 3\nr1 <<= 3\nr2 = r6\nr2 += r1\nr3 = *(u8 *)(r7 + 1)\nr3 &= 1\n\
         lock *(u64 *)(r2 + 0) += r3\nr4 = *(u64 *)(r6 + 8)\n*(u64 *)(r7 + 8) = r4\nr0 = *(u8 *)(r7 + 2)\nr0 &= 1\nr5 = 77\n\
         r0 = cmpxchg_64(r6 + 16, r0, r5)\n*(u64 *)(r7 + 16) = r0\nr4 = *(u64 *)(r6 + 16)\n*(u64 *)(r7 + 24) = r4\nw0 = 0\nw5 = 9\n\
         w0 = cmpxchg32_32(r6 + 4, w0, w5)\nr4 = *(u64 *)(r6 + 0)\n*(u64 *)(r7 + 32) = r4",
    ),
    (
        "metadata_moves_along",
        "",
        "r1 = r6\nr2 = -4\ncall xdp_adjust_head\nr1 = r6\nr2 = -8\ncall xdp_adjust_meta\nif r0 != 0 goto out\nr1 = *(u32 *)(r6 + 8)\nr2 = *(u32 *)(r6 + 0)\nr3 = r1\nr3 += 8\n\
         if r3 > r2 goto out\n*(u32 *)(r1 + 0) = 0x11223344\nr4 = *(u8 *)(r1 + 5)\nr1 = r6\nr2 = -20\ncall xdp_adjust_head\n\
         r1 = *(u32 *)(r6 + 8)\nr2 = *(u32 *)(r6 + 0)\nr3 = r1\nr3 += 8\nif r3 > r2 goto out\nr9 = *(u32 *)(r1 + 0)\npacket 60\n\
         *(u32 *)(r7 + 20) = r9",
    ),
    (
        "headers_before_the_first_byte",
        "",
        "r9 = 0\nagain: r1 = r6\nr2 = -4\ncall xdp_adjust_head\npacket 32\nr9 += 1\nif r9 < 4 goto again\nr3 = *(u64 *)(r7 + 18)\n\
         r3 += 1\n*(u64 *)(r7 + 3) = r3",
    ),
    (
        "metadata_of_any_length",
        "",
        "r2 = *(u8 *)(r7 + 0)\nr2 <<= 1\nr2 = -r2\nr1 = r6\ncall xdp_adjust_meta\n*(u64 *)(r10 - 8) = r0\nr1 = *(u32 *)(r6 + 8)\n\
         r2 = *(u32 *)(r6 + 0)\nr3 = r1\nr3 += 4\nif r3 > r2 goto none\n*(u32 *)(r1 + 0) = 0x11223344\nnone: packet 64\n\
         r2 = *(u8 *)(r7 + 1)\nr2 -= 4\nr1 = r6\ncall xdp_adjust_head\nr9 = r0\nr1 = *(u32 *)(r6 + 8)\nr2 = *(u32 *)(r6 + 0)\nr3 = r1\n\
         r3 += 4\nif r3 > r2 goto out\nr4 = *(u32 *)(r1 + 0)\n*(u64 *)(r10 - 16) = r4\nr4 = *(u8 *)(r1 + 3)\n*(u64 *)(r10 - 24) = r4\n\
         packet 50\nr1 = *(u64 *)(r10 - 8)\n*(u64 *)(r7 + 20) = r1\nr1 = *(u64 *)(r10 - 16)\n*(u64 *)(r7 + 28) = r1\n\
         r1 = *(u64 *)(r10 - 24)\n*(u32 *)(r7 + 36) = r1\n*(u32 *)(r7 + 42) = r9",
    ),
    (
        "a_counter_on_the_stack",
        "",
        "r1 = *(u64 *)(r7 + 0)\n*(u64 *)(r10 - 8) = r1\n*(u64 *)(r10 - 16) = r1\nr2 = *(u32 *)(r7 + 8)\nlock *(u64 *)(r10 - 8) += r2\n\
         lock *(u32 *)(r10 - 4) ^= w2\nw3 = w2\nw3 = atomic_fetch_add((u32 *)(r10 - 16), w3)\nr4 = r2\n\
         r4 = atomic_fetch_or((u64 *)(r10 - 16), r4)\nr5 = r4\nr5 = atomic_fetch_and((u64 *)(r10 - 8), r5)\nr9 = 7\n\
         r9 = xchg_64(r10 - 8, r9)\nr0 = *(u32 *)(r7 + 12)\nr0 &= 1\nr0 += r9\nr1 = 77\nr0 = cmpxchg_64(r10 - 8, r0, r1)\nw0 = 0\n\
         w1 = 5\nw0 = cmpxchg32_32(r10 - 12, w0, w1)\nr3 ^= r4\nr3 ^= r5\nr3 ^= r0\n*(u64 *)(r7 + 16) = r3\nr1 = *(u64 *)(r10 - 8)\n\
         *(u64 *)(r7 + 24) = r1\nr1 = *(u64 *)(r10 - 16)\n*(u64 *)(r7 + 32) = r1",
    ),
    (
        "a_loop_that_may_end",
        "",
        "r1 = 0\nr2 = *(u8 *)(r7 + 0)\nr3 = 6\nagain: may_goto +5\nr1 += 3\nr1 ^= r2\nif r1 == 9 goto last\nr3 -= 1\nif r3 != 0 goto again\nlast: *(u32 *)(r7 + 8) = r1",
    ),
    (
        "bytes_at_any_offset",
        "",
        "r1 = r6\nr2 = *(u8 *)(r7 + 0)\nr4 = *(u8 *)(r7 + 1)\nif r4 != 3 goto near\nr2 <<= 13\nnear: r3 = r10\nr3 += -8\n*(u64 *)(r10 - 8) = 0x55\n\
         r4 = 6\ncall xdp_load_bytes\nr9 = r0\nr1 = r6\nr2 = *(u8 *)(r10 - 8)\nr2 += 40\nr3 = r10\nr3 += -7\nr4 = 4\ncall xdp_store_bytes\n\
         packet 64\n*(u32 *)(r7 + 8) = r9\n*(u32 *)(r7 + 12) = r0\nr1 = *(u64 *)(r10 - 8)\n*(u64 *)(r7 + 16) = r1",
    ),
    (
        "distances_in_32_bits",
        "",
        "r1 = r7\nw1 -= w8\nr3 = *(u8 *)(r7 + 0)\nr3 &= 7\nr2 = r10\nr2 += -16\nr2 += r3\nr4 = r10\nr4 += -12\nr5 = 0\nif r2 > r4 goto high\n\
         r5 = 1\nhigh: *(u32 *)(r7 + 4) = r1\n*(u32 *)(r7 + 8) = r5",
    ),
    (
        "a_number_out_of_a_text",
        "",
        "r1 = *(u16 *)(r7 + 0)\nr1 |= 0x3030\n*(u64 *)(r10 - 8) = r1\n*(u64 *)(r10 - 16) = -1\nr1 = r10\nr1 += -8\nr2 = 4\nr3 = *(u8 *)(r7 + 4)\n\
         r4 = r10\nr4 += -16\nr5 = *(u8 *)(r7 + 5)\nif r5 > 7 goto unsigned\ncall strtol\ngoto met\nunsigned: call strtoul\nmet: r9 = r0\n\
         r1 = *(u64 *)(r10 - 16)\n*(u64 *)(r7 + 16) = r1\n*(u32 *)(r7 + 24) = r9",
    ),
    (
        "a_route_is_asked_for",
        "",
        "r1 = 0\n*(u64 *)(r10 - 64) = r1\n*(u64 *)(r10 - 56) = r1\n*(u64 *)(r10 - 48) = r1\n*(u64 *)(r10 - 40) = r1\n*(u64 *)(r10 - 32) = r1\n\
         *(u64 *)(r10 - 24) = r1\n*(u64 *)(r10 - 16) = r1\n*(u64 *)(r10 - 8) = r1\nr1 = *(u8 *)(r7 + 0)\nif r1 > 7 goto ask\n\
         *(u8 *)(r10 - 64) = 2\nask: r1 = *(u32 *)(r7 + 4)\n*(u32 *)(r10 - 44) = r1\nr1 = *(u8 *)(r7 + 1)\nr1 &= 3\n*(u32 *)(r10 - 56) = r1\n\
         r1 = r6\nr2 = r10\nr2 += -64\nr3 = 64\nr4 = 0\ncall fib_lookup\n*(u32 *)(r7 + 8) = r0\nr1 = *(u64 *)(r10 - 8)\n\
         *(u64 *)(r7 + 16) = r1\nr1 = *(u64 *)(r10 - 56)\n*(u64 *)(r7 + 24) = r1\nr1 = *(u32 *)(r7 + 32)\nr1 &= 0x7ff\n*(u32 *)(r10 - 4) = r1\n\
         r1 = r6\nr2 = *(u8 *)(r7 + 1)\nr2 &= 3\nr3 = r10\nr3 += -4\nr4 = *(u8 *)(r7 + 2)\nr5 = 0\ncall check_mtu\n*(u32 *)(r7 + 36) = r0\n\
         r1 = *(u32 *)(r10 - 4)\n*(u32 *)(r7 + 40) = r1",
    ),
    (
        "records_are_reserved",
        ".map ring ringbuf key 0 value 0 entries 4096\n",
        "r1 = map[ring] ll\nr2 = 24\nr3 = 0\ncall ringbuf_reserve\nif r0 == 0 goto out\nr9 = r0\nr1 = *(u64 *)(r7 + 0)\n*(u64 *)(r9 + 0) = r1\n\
         r2 = *(u32 *)(r7 + 8)\n*(u32 *)(r9 + 8) = r2\n*(u32 *)(r9 + 12) = 9\nr3 = *(u16 *)(r9 + 6)\n*(u64 *)(r9 + 16) = r3\n\
         r4 = *(u8 *)(r7 + 4)\nr1 = r9\nr2 = 0\nif r4 > 7 goto drop\ncall ringbuf_submit\ngoto out\ndrop: r5 = *(u32 *)(r9 + 8)\n\
         *(u32 *)(r7 + 20) = r5\ncall ringbuf_discard",
    ),
    // Bytes that no path stores, or only one of two; offsets known at run time only; two records submitted out of
    // order.
    (
        "records_are_stored_in_part",
        ".map ring ringbuf key 0 value 0 entries 4096\n",
        "r1 = map[ring] ll\nr2 = 40\nr3 = 0\ncall ringbuf_reserve\nif r0 == 0 goto out\nr9 = r0\nr1 = map[ring] ll\nr2 = 12\nr3 = 0\n\
         call ringbuf_reserve\nif r0 == 0 goto back\nr6 = r0\nr1 = *(u64 *)(r7 + 8)\n*(u64 *)(r9 + 2) = r1\nr2 = *(u8 *)(r7 + 0)\n\
         if r2 > 7 goto other\n*(u32 *)(r9 + 12) = r1\n*(u16 *)(r6 + 2) = r1\ngoto met\nother: *(u16 *)(r9 + 14) = 0x1234\n\
         *(u64 *)(r6 + 0) = 7\nmet: r3 = *(u8 *)(r7 + 1)\nr3 &= 7\nr4 = r9\nr4 += r3\n*(u16 *)(r4 + 20) = r2\nr3 = *(u32 *)(r4 + 4)\n\
         *(u32 *)(r7 + 16) = r3\nr3 = 5\nlock *(u32 *)(r6 + 4) += w3\nr3 = *(u64 *)(r9 + 8)\n*(u64 *)(r7 + 24) = r3\n\
         *(u64 *)(r10 - 8) = r9\nr1 = r6\nr2 = 0\nr4 = *(u8 *)(r7 + 2)\nif r4 > 7 goto drop\ncall ringbuf_submit\ngoto back\n\
         drop: call ringbuf_discard\nback: r1 = r9\nr2 = 0\ncall ringbuf_submit",
    ),
    (
        "packets_are_reported",
        ".map log perf_event_array key 4 value 4 entries 4\n",
        "r1 = *(u8 *)(r7 + 3)\n*(u8 *)(r7 + 2) = r1\nr1 = *(u8 *)(r7 + 0)\nr1 &= 15\nr1 += r7\nr2 = r1\nr2 += 8\nif r2 > r8 goto out\n\
         *(u16 *)(r1 + 5) = 0x4142\nr1 = r6\nr2 = -4\ncall xdp_adjust_head\npacket 64\nr3 = *(u8 *)(r7 + 5)\nr3 <<= 34\nr1 = 0xffffffff ll\nr3 |= r1\n\
         r1 = *(u32 *)(r7 + 8)\n*(u64 *)(r10 - 8) = r1\nr1 = r6\nr2 = map[log] ll\nr4 = r10\nr4 += -8\nr5 = 6\ncall perf_event_output\n\
         *(u32 *)(r7 + 12) = r0\n*(u64 *)(r10 - 8) = 0x782578\nr1 = r10\nr1 += -8\nr2 = 4\nr3 = *(u8 *)(r7 + 4)\ncall trace_printk\n\
         *(u32 *)(r7 + 16) = r0",
    ),
    (
        "maps_in_a_map",
        ".map inside array key 4 value 8 entries 4\n.map inside_too array key 4 value 8 entries 4\n.map outer array key 4 value 4 entries 3\n",
        "r1 = *(u8 *)(r7 + 0)\nr1 &= 3\n*(u32 *)(r10 - 4) = r1\nr1 = map[outer] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\n\
         if r0 == 0 goto own\nr9 = r0\nr1 = *(u8 *)(r7 + 1)\nr1 &= 3\n*(u32 *)(r10 - 8) = r1\nr1 = r0\nr2 = r10\nr2 += -8\ncall map_lookup_elem\n\
         if r0 == 0 goto own\nr8 = r0\nr1 = map[inside] ll\nr2 = r10\nr2 += -8\ncall map_lookup_elem\nif r0 == 0 goto out\n\
         r1 = *(u64 *)(r0 + 0)\nr2 = *(u64 *)(r7 + 24)\n*(u64 *)(r8 + 0) = r2\nr1 += 5\n*(u64 *)(r0 + 0) = r1\nr0 = r8\n\
         r1 = *(u64 *)(r0 + 0)\nr1 += 1\n*(u64 *)(r0 + 0) = r1\n*(u64 *)(r7 + 8) = r1\n\
         own: r1 = *(u8 *)(r7 + 1)\nr1 &= 3\n*(u32 *)(r10 - 8) = r1\nr1 = map[inside] ll\nr2 = r10\nr2 += -8\ncall map_lookup_elem\n\
         if r0 == 0 goto out\nr1 = *(u64 *)(r0 + 0)\n*(u64 *)(r7 + 16) = r1\nr1 += 5\n*(u64 *)(r0 + 0) = r1",
    ),
    (
        "the_end_is_moved_twice",
        "",
        "*(u8 *)(r7 + 40) = 7\nr1 = *(u8 *)(r7 + 3)\nr1 += r7\nr2 = r1\nr2 += 24\nif r2 > r8 goto out\n*(u16 *)(r1 + 21) = 0x4142\n\
         r2 = *(u8 *)(r7 + 0)\nr2 <<= 1\nr2 = -r2\nr1 = r6\ncall xdp_adjust_tail\npacket 14\nr2 = *(u8 *)(r7 + 1)\nr1 = r6\n\
         call xdp_adjust_tail\npacket 50\nr1 = *(u32 *)(r7 + 38)\n*(u32 *)(r7 + 4) = r1\nr2 = *(u8 *)(r7 + 2)\nr2 -= 4\nr1 = r6\n\
         call xdp_adjust_tail",
    ),
    (
        "a_function_is_called_back",
        "",
        "r1 = *(u8 *)(r7 + 0)\n*(u64 *)(r10 - 8) = r1\n*(u64 *)(r10 - 16) = r7\nr9 = 0\nagain: r1 = 7\nr2 = subprog[f] ll\nr3 = r10\nr3 += -8\nr4 = 0\n\
         call loop\nr9 += 1\n*(u64 *)(r10 - 24) = r0\nif r9 < 3 goto again\nr1 = *(u8 *)(r7 + 1)\nr1 &= 3\nr2 = subprog[g] ll\nr3 = r10\n\
         r3 += -32\n*(u64 *)(r10 - 32) = 1\nr4 = 0\ncall loop\n*(u32 *)(r7 + 28) = r0\nr1 = *(u64 *)(r10 - 8)\n*(u64 *)(r7 + 8) = r1\n\
         r1 = *(u64 *)(r10 - 24)\n*(u32 *)(r7 + 16) = r1\nr1 = *(u64 *)(r10 - 32)\n*(u64 *)(r7 + 20) = r1\nfunctions\n\
         f: r3 = *(u64 *)(r2 + 0)\nr3 += r1\nr3 ^= 5\n*(u64 *)(r2 + 0) = r3\nr0 = 0\nif r3 != 12 goto f_out\nr0 = 1\nf_out: exit\n\
         g: r6 = r2\nr7 = r1\nr1 = r7\nr1 += 2\nr2 = subprog[h] ll\nr3 = r6\nr4 = 0\nr1 &= 3\ncall loop\nr0 = 0\nexit\n\
         h: r3 = *(u64 *)(r2 + 0)\nr3 *= 3\nr3 += r1\n*(u64 *)(r2 + 0) = r3\nr0 = 0\nexit\n",
    ),
    (
        "entries_are_gone_through",
        ".map array array key 4 value 8 entries 5\n",
        "r1 = map[array] ll\nr2 = subprog[f] ll\nr3 = r10\nr3 += -8\n*(u64 *)(r10 - 8) = 1\nr4 = 0\ncall for_each_map_elem\n\
         *(u32 *)(r7 + 4) = r0\nr1 = *(u64 *)(r10 - 8)\n*(u64 *)(r7 + 8) = r1\nfunctions\n\
         f: r1 = *(u32 *)(r2 + 0)\nr5 = *(u64 *)(r3 + 0)\nr5 += r1\n*(u64 *)(r3 + 0) = r5\nr1 = *(u64 *)(r4 + 0)\nr1 *= 3\nr1 += r5\n\
         *(u64 *)(r4 + 0) = r1\nr0 = 0\nif r1 s> 0 goto f_out\nr0 = 1\nf_out: exit\n",
    ),
    (
        "another_program_goes_on",
        ".map programs array key 4 value 4 entries 4\n.map counts array key 4 value 8 entries 2\n",
        "*(u8 *)(r7 + 1) = 9\nr3 = *(u8 *)(r7 + 0)\nr3 &= 7\nif r3 != 5 goto same\nr3 = 6\nsame: r1 = r6\nr2 = map[programs] ll\ncall tail_call\n*(u8 *)(r7 + 2) = 8\n\
         r1 = r6\nr2 = *(u8 *)(r7 + 4)\nr2 &= 3\nif r2 != 0 goto keep\nr2 = 3\nkeep: call f\nr0 &= 3\nexit\nfunctions\n\
         f: r3 = r2\nr2 = map[programs] ll\ncall tail_call\nr0 = 44\nexit",
    ),
    (
        "one_of_several_maps",
        ".map near hash key 4 value 8 entries 8\n.map far hash key 4 value 8 entries 8\n.map old array key 4 value 8 entries 4\n",
        "*(u64 *)(r10 - 16) = 0x77\nr1 = *(u8 *)(r7 + 0)\nr1 &= 3\n*(u32 *)(r10 - 4) = r1\nr2 = *(u8 *)(r7 + 1)\nr2 &= 3\n*(u32 *)(r10 - 8) = r2\n\
         r9 = *(u8 *)(r7 + 2)\nr9 &= 3\nr2 = r10\nr2 += -4\nif r9 == 0 goto is_near\nif r9 == 1 goto is_far\nif r9 == 2 goto is_own\n\
         r1 = map[old] ll\ngoto find\nis_far: r1 = map[far] ll\nr2 = r10\nr2 += -8\ngoto find\nis_near: r1 = map[near] ll\n\
         find: call map_lookup_elem\nif r0 == 0 goto none\ngoto use\nis_own: r0 = r10\nr0 += -16\n\
         use: r3 = *(u64 *)(r0 + 0)\nr3 += 3\n*(u64 *)(r0 + 0) = r3\n*(u64 *)(r7 + 8) = r3\nr3 = 5\n\
         lock *(u64 *)(r0 + 0) += r3\nr3 = *(u64 *)(r10 - 16)\n*(u64 *)(r7 + 16) = r3\n\
         none: r1 = *(u64 *)(r7 + 3)\n*(u64 *)(r10 - 24) = r1\nr5 = *(u8 *)(r7 + 24)\nif r9 == 0 goto to_far\nr1 = map[near] ll\n\
         r2 = r10\nr2 += -8\ngoto change\nto_far: r1 = map[far] ll\nr2 = r10\nr2 += -4\n\
         change: if r5 > 7 goto remove\nr3 = r10\nr3 += -24\nr4 = 0\ncall map_update_elem\ngoto done\n\
         remove: call map_delete_elem\ndone: *(u32 *)(r7 + 28) = r0",
    ),
    (
        "one_of_several_rings",
        ".map one ringbuf key 0 value 0 entries 4096\n.map two ringbuf key 0 value 0 entries 4096\n",
        "r1 = *(u8 *)(r7 + 0)\nif r1 > 7 goto other\nr1 = map[one] ll\ngoto take\nother: r1 = map[two] ll\n\
         take: r2 = 8\nr3 = 0\ncall ringbuf_reserve\nif r0 == 0 goto out\nr1 = *(u64 *)(r7 + 1)\n*(u64 *)(r0 + 0) = r1\n\
         r4 = *(u8 *)(r7 + 1)\nr1 = r0\nr2 = 0\nif r4 > 7 goto drop\ncall ringbuf_submit\ngoto out\ndrop: call ringbuf_discard",
    ),
    // Different states enter the same program after the same number of tail calls.
    (
        "paths_meet_in_another_program",
        ".map programs array key 4 value 4 entries 4\n.map counts array key 4 value 8 entries 2\n",
        "r5 = *(u8 *)(r7 + 0)\nr3 = *(u8 *)(r7 + 3)\nr3 &= 3\n*(u64 *)(r10 - 8) = r3\nif r5 > 7 goto other\n*(u8 *)(r7 + 4) = 1\nr1 = r6\n\
         r2 = map[programs] ll\ncall tail_call\n*(u8 *)(r7 + 2) = 8\ngoto again\nother: *(u8 *)(r7 + 5) = 7\nr3 ^= 1\nr1 = r6\n\
         r2 = map[programs] ll\ncall tail_call\n*(u8 *)(r7 + 2) = 9\nagain: r1 = r6\nr2 = map[programs] ll\nr3 = *(u64 *)(r10 - 8)\n\
         r3 ^= 3\ncall tail_call\n*(u8 *)(r7 + 6) = 10",
    ),
    (
        "one_of_several_tables_of_programs",
        ".map programs array key 4 value 4 entries 4\n.map values array key 4 value 8 entries 1\n\
         .map programs_too array key 4 value 4 entries 4\n",
        "r3 = *(u8 *)(r7 + 1)\nr3 &= 3\nr4 = *(u8 *)(r7 + 0)\nr2 = map[programs] ll\nif r4 > 7 goto call\nr2 = map[programs_too] ll\n\
         r3 ^= 1\ncall: r1 = r6\ncall tail_call\n*(u8 *)(r7 + 2) = 9",
    ),
    (
        "an_address_is_printed",
        "",
        "*(u64 *)(r10 - 8) = 0x782578\nr1 = r10\nr1 += -8\nr2 = 4\nr3 = r7\ncall trace_printk\nr1 = *(u8 *)(r7 + 1)\n*(u8 *)(r7 + 2) = r1",
    ),
    (
        "null_is_a_number",
        ".map array array key 4 value 8 entries 4\n",
        "r1 = *(u8 *)(r7 + 0)\nr1 &= 7\n*(u32 *)(r10 - 4) = r1\nr1 = map[array] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\n\
         if r0 != 0 goto found\nr1 = r0\nr0 += 1\nif r1 > 7 goto out\nexit\nfound: *(u64 *)(r0 + 0) = 5",
    ),
    (
        "another_entry_is_changed_before",
        ".map limits hash key 8 value 8 entries 5\n",
        "r1 = *(u8 *)(r7 + 0)\nr1 &= 3\n*(u32 *)(r10 - 8) = r1\n*(u32 *)(r10 - 4) = 1\nr1 = map[limits] ll\nr2 = r10\nr2 += -8\n\
         call map_lookup_elem\nif r0 == 0 goto add\nr1 = *(u64 *)(r0 + 0)\nr1 += 3\n*(u64 *)(r0 + 0) = r1\nif r1 < 9 goto second\n\
         r1 = map[limits] ll\nr2 = r10\nr2 += -8\ncall map_delete_elem\ngoto second\n\
         add: r1 = *(u8 *)(r7 + 2)\n*(u64 *)(r10 - 16) = r1\nr1 = map[limits] ll\nr2 = r10\nr2 += -8\nr3 = r10\nr3 += -16\nr4 = 0\n\
         call map_update_elem\n*(u32 *)(r7 + 16) = r0\n\
         second: r1 = *(u8 *)(r7 + 1)\nr1 &= 3\n*(u32 *)(r10 - 8) = r1\n*(u32 *)(r10 - 4) = 2\nr1 = map[limits] ll\nr2 = r10\nr2 += -8\n\
         call map_lookup_elem\nif r0 == 0 goto add_second\nr1 = *(u64 *)(r0 + 0)\n*(u64 *)(r7 + 8) = r1\nr1 += 5\n*(u64 *)(r0 + 0) = r1\n\
         goto out\nadd_second: *(u64 *)(r10 - 16) = 7\nr1 = map[limits] ll\nr2 = r10\nr2 += -8\nr3 = r10\nr3 += -16\nr4 = 1\n\
         call map_update_elem",
    ),
    // Three entries for four keys: whether the second update finds room depends on the first, and that of the third on
    // the second.
    (
        "an_entry_is_deleted_before_another_is_added",
        ".map limits hash key 4 value 8 entries 3\n",
        "r1 = *(u8 *)(r7 + 0)\nr1 &= 3\n*(u32 *)(r10 - 4) = r1\nr1 = *(u8 *)(r7 + 2)\nr1 &= 1\nif r1 == 0 goto second\n\
         r1 = map[limits] ll\nr2 = r10\nr2 += -4\ncall map_delete_elem\n\
         second: r1 = *(u8 *)(r7 + 1)\nr1 &= 3\n*(u32 *)(r10 - 4) = r1\n*(u64 *)(r10 - 16) = 7\nr1 = map[limits] ll\nr2 = r10\nr2 += -4\n\
         r3 = r10\nr3 += -16\nr4 = 0\ncall map_update_elem\n*(u32 *)(r7 + 16) = r0\nif r0 == 0 goto out\nr1 = *(u8 *)(r7 + 3)\nr1 &= 3\n\
         *(u32 *)(r10 - 4) = r1\nr1 = map[limits] ll\nr2 = r10\nr2 += -4\ncall map_delete_elem",
    ),
    // Keys that differ lead to one row.
    (
        "a_row_of_two_prefixes",
        ".map prefixes lpm_trie key 8 value 8 entries 4 flags 1\n",
        "*(u64 *)(r10 - 8) = 0\nr1 = map[prefixes] ll\nr2 = r10\nr2 += -8\ncall map_lookup_elem\nif r0 != 0 goto found\n\
         r1 = *(u64 *)(r7 + 0)\n*(u64 *)(r10 - 16) = r1\nr1 = map[prefixes] ll\nr2 = r10\nr2 += -8\nr3 = r10\nr3 += -16\nr4 = 0\n\
         call map_update_elem\ngoto out\nfound: r9 = r0\nr3 = *(u64 *)(r9 + 0)\n*(u64 *)(r7 + 24) = r3\n*(u32 *)(r10 - 8) = 19\nr1 = map[prefixes] ll\nr2 = r10\nr2 += -8\n\
         call map_lookup_elem\nif r0 == 0 goto out\nr1 = *(u64 *)(r7 + 8)\n*(u64 *)(r0 + 0) = r1\nr2 = *(u64 *)(r9 + 0)\n\
         *(u64 *)(r7 + 16) = r2",
    ),
    // An old address leads to the entry of another key.
    (
        "a_freed_slot_of_another_key",
        ".map flows hash key 4 value 8 entries 4\n",
        "*(u32 *)(r10 - 4) = 1\n*(u64 *)(r10 - 16) = 5\nr1 = map[flows] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\nif r0 != 0 goto found\n\
         r1 = map[flows] ll\nr2 = r10\nr2 += -4\nr3 = r10\nr3 += -16\nr4 = 0\ncall map_update_elem\ngoto out\nfound: r9 = r0\n\
         r1 = map[flows] ll\nr2 = r10\nr2 += -4\ncall map_delete_elem\n*(u32 *)(r10 - 4) = 2\nr1 = map[flows] ll\nr2 = r10\nr2 += -4\nr3 = r10\n\
         r3 += -16\nr4 = 0\ncall map_update_elem\nr1 = map[flows] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\nif r0 == 0 goto out\n\
         r3 = *(u64 *)(r0 + 0)\n*(u64 *)(r7 + 24) = r3\nr1 = *(u64 *)(r7 + 8)\n*(u64 *)(r9 + 0) = r1\nr2 = *(u64 *)(r0 + 0)\n*(u64 *)(r7 + 16) = r2\nr1 = map[flows] ll\nr2 = r10\n\
         r2 += -4\ncall map_delete_elem",
    ),
    // Of the distance of a shift, only the low bits count.
    (
        "offsets_of_long_shifts",
        "",
        "r9 = 0x494 ll\nr1 = *(u64 *)(r7 + 0)\nw1 >>= w9\nr1 &= 31\nr2 = r7\nr2 += r1\nr3 = r2\nr3 += 8\nif r3 > r8 goto out\n\
         *(u16 *)(r2 + 1) = 0x1234\nr9 = 40\nr1 = *(u64 *)(r7 + 8)\nw1 >>= w9\nr1 &= 31\nr2 = r7\nr2 += r1\nr3 = r2\nr3 += 8\n\
         if r3 > r8 goto out\nr4 = *(u16 *)(r2 + 3)\n*(u16 *)(r7 + 40) = r4\nr9 = 108\nr1 = *(u64 *)(r7 + 16)\nr1 >>= r9\nr1 &= 31\n\
         r2 = r7\nr2 += r1\nr3 = r2\nr3 += 8\nif r3 > r8 goto out\nr4 = *(u16 *)(r2 + 5)\n*(u16 *)(r7 + 42) = r4",
    ),
    // A second update takes the slot in which the first address still points: what was stored there is replaced.
    (
        "a_store_before_updates",
        ".map flows hash key 4 value 8 entries 4 flags 1\n",
        "*(u32 *)(r10 - 4) = 1\n*(u64 *)(r10 - 16) = 0\nr1 = map[flows] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\nif r0 == 0 goto add\n\
         r1 = *(u32 *)(r7 + 8)\n*(u32 *)(r0 + 1) = r1\nadd: r9 = 0\nagain: r1 = map[flows] ll\nr2 = r10\nr2 += -4\nr3 = r10\nr3 += -16\n\
         r4 = 0\ncall map_update_elem\nr1 = map[flows] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\nif r0 == 0 goto out\n\
         r2 = *(u16 *)(r0 + 1)\n*(u64 *)(r0 + 0) = r2\n*(u16 *)(r7 + 16) = r2\nr9 += 1\nif r9 < 2 goto again",
    ),
    // An update of an array writes in place: what was stored before is replaced, what is stored later is not.
    (
        "an_atomic_operation_before_an_update",
        ".map values array key 4 value 8 entries 2\n",
        "r1 = *(u8 *)(r7 + 0)\nr1 &= 1\n*(u32 *)(r10 - 4) = r1\nr1 = map[values] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\n\
         if r0 == 0 goto out\nr9 = r0\nr1 = *(u32 *)(r7 + 8)\nlock *(u32 *)(r9 + 4) |= w1\nr1 = *(u64 *)(r7 + 16)\n\
         *(u64 *)(r10 - 16) = r1\nr1 = *(u8 *)(r7 + 1)\nr1 &= 1\n*(u32 *)(r10 - 4) = r1\nr1 = map[values] ll\nr2 = r10\nr2 += -4\nr3 = r10\n\
         r3 += -16\nr4 = 0\ncall map_update_elem\nr1 = *(u32 *)(r9 + 4)\n*(u32 *)(r7 + 24) = r1\nr1 = *(u8 *)(r7 + 2)\n*(u8 *)(r9 + 5) = r1\n\
         r1 = *(u32 *)(r9 + 3)\n*(u32 *)(r7 + 28) = r1",
    ),
    // The only jump to the header comes from outside of the loop; iterations fall into it.
    (
        "a_loop_entered_by_a_jump_back",
        "",
        "r1 = *(u8 *)(r7 + 0)\nr1 &= 7\nr3 = 0\ngoto enter\nlow: r9 += 16\nhead: r3 += 1\nif r3 == r1 goto done\n\
         if r3 > 6 goto done\ngoto low\nenter: r9 = 0\ngoto head\ndone: *(u32 *)(r7 + 8) = r9",
    ),
    // A CPU that does not exist has no value, whatever the key.
    (
        "a_cpu_that_does_not_exist",
        ".map cpus percpu_array key 4 value 8 entries 2\n",
        "*(u32 *)(r10 - 4) = 0\nr1 = map[cpus] ll\nr2 = r10\nr2 += -4\nr3 = *(u8 *)(r7 + 0)\nr3 &= 1\nr3 <<= 7\n\
         call map_lookup_percpu_elem\nif r0 == 0 goto none\nr1 = *(u64 *)(r0 + 0)\n*(u64 *)(r7 + 8) = r1\ngoto out\n\
         none: *(u64 *)(r7 + 8) = 7",
    ),
    // Of two redirects, the last one counts, also where lookups are merged around them.
    (
        "the_last_redirect_counts",
        ".map values hash key 4 value 8 entries 8\n.map ports devmap key 4 value 4 entries 4\n",
        "r9 = *(u8 *)(r7 + 0)\n*(u64 *)(r10 - 16) = 0\n*(u32 *)(r10 - 4) = 1\nif r9 > 7 goto both\n\
         r1 = map[values] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\nif r0 == 0 goto both\nr1 = *(u32 *)(r0 + 0)\n\
         *(u64 *)(r10 - 16) = r1\nboth: r1 = map[ports] ll\nr2 = *(u64 *)(r10 - 16)\nr2 &= 3\nr3 = 0\n\
         call redirect_map\nr1 = map[ports] ll\nr2 = 2\nr3 = 0\ncall redirect_map\n*(u64 *)(r10 - 24) = r0\n\
         if r9 <= 7 goto end\n*(u32 *)(r10 - 4) = 2\nr1 = map[values] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\n\
         if r0 == 0 goto end\nr1 = *(u64 *)(r0 + 0)\nr1 += 1\n*(u64 *)(r0 + 0) = r1\nend: r0 = *(u64 *)(r10 - 24)\n\
         exit",
    ),
    // One comparison is a bounds test on one path and the check of a helper on another.
    (
        "a_test_shared_with_stored_bytes",
        "",
        "r9 = *(u8 *)(r7 + 0)\nr9 &= 15\nr9 <<= 4\nr2 = *(u8 *)(r7 + 1)\nr2 &= 1\nif r2 == 0 goto copy\nr3 = r7\nr3 += r9\n\
         r3 += 4\nr5 = 1\nif r3 > r8 goto far\nr5 = 2\nfar: *(u32 *)(r7 + 12) = r5\ngoto out\n\
         copy: *(u64 *)(r10 - 8) = 0x55\nr1 = r6\nr2 = r9\nr3 = r10\nr3 += -8\nr4 = 4\ncall xdp_store_bytes\nr9 = r0\n\
         packet 64\n*(u32 *)(r7 + 8) = r9",
    ),
    // The order of lookups decides which entry is evicted.
    (
        "uses_in_turn",
        ".map recent lru_hash key 4 value 8 entries 2\n",
        "r9 = *(u8 *)(r7 + 0)\n*(u64 *)(r10 - 16) = 7\nr9 &= 1\nif r9 != 0 goto touch\nr1 = *(u8 *)(r7 + 1)\nr1 &= 3\n\
         *(u32 *)(r10 - 4) = r1\nr1 = map[recent] ll\nr2 = r10\nr2 += -4\nr3 = r10\nr3 += -16\nr4 = 0\n\
         call map_update_elem\ngoto out\ntouch: *(u32 *)(r10 - 4) = 1\nr1 = map[recent] ll\nr2 = r10\nr2 += -4\n\
         call map_lookup_elem\n*(u32 *)(r10 - 4) = 2\nr1 = map[recent] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\n\
         *(u32 *)(r10 - 4) = 1\nr1 = map[recent] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem",
    ),
    // What a packet has found is what was there before its own insertion, however late it asks.
    (
        "a_late_lookup_before_an_insertion",
        ".map recent lru_hash key 4 value 8 entries 64\n",
        "r1 = *(u8 *)(r7 + 0)\nr1 &= 3\n*(u32 *)(r10 - 4) = r1\nr9 = 1\nr1 = *(u8 *)(r7 + 4)\nif r1 > 7 goto slow\n\
         r1 = map[recent] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\nif r0 == 0 goto slow\nr9 = *(u64 *)(r0 + 0)\n\
         slow: r9 *= r9\nr9 += 1\n*(u64 *)(r10 - 16) = r9\nr1 = *(u8 *)(r7 + 8)\nr1 &= 1\nr2 = r1\nr1 *= r2\nr1 += 1\nr1 *= r2\n\
         r1 += 1\nr1 *= r2\nr1 += 1\nr1 *= r2\nif r1 != 4 goto add\nr1 = map[recent] ll\nr2 = r10\nr2 += -4\n\
         call map_lookup_elem\nif r0 == 0 goto add\n*(u8 *)(r7 + 16) = 1\nadd: r1 = map[recent] ll\nr2 = r10\nr2 += -4\n\
         r3 = r10\nr3 += -16\nr4 = 0\ncall map_update_elem",
    ),
    // Of a CPU's number, 32 bits count.
    (
        "cpus_beyond_32_bits",
        ".map cpus percpu_array key 4 value 8 entries 2\n",
        "*(u32 *)(r10 - 4) = 0\nr1 = map[cpus] ll\nr2 = r10\nr2 += -4\nr3 = 0\ncall map_lookup_percpu_elem\n\
         if r0 == 0 goto out\nr9 = r0\nr1 = map[cpus] ll\nr2 = r10\nr2 += -4\nr3 = 0x100000000 ll\n\
         call map_lookup_percpu_elem\nif r0 == 0 goto out\nr1 = *(u64 *)(r0 + 0)\n*(u64 *)(r7 + 8) = r1\n\
         r2 = *(u64 *)(r7 + 16)\n*(u64 *)(r9 + 0) = r2\nr3 = *(u64 *)(r0 + 0)\n*(u64 *)(r7 + 24) = r3",
    ),
    // Which map a key is for depends on the path.
    (
        "keys_of_a_map_in_a_map",
        ".map inside hash key 4 value 8 entries 4\n.map inside_too hash key 4 value 8 entries 4\n.map outer array key 4 value 4 entries 3\n",
        "r1 = *(u64 *)(r7 + 16)\n*(u64 *)(r10 - 16) = r1\nr2 = *(u8 *)(r7 + 1)\nr2 &= 1\n*(u32 *)(r10 - 4) = r2\n\
         r2 = *(u8 *)(r7 + 2)\nr2 &= 1\n*(u32 *)(r10 - 8) = r2\nr9 = *(u8 *)(r7 + 0)\nr9 &= 1\nif r9 == 0 goto other\n\
         r1 = map[outer] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\nif r0 == 0 goto out\nr1 = r0\nr2 = r10\nr2 += -4\n\
         r3 = r10\nr3 += -16\nr4 = 0\ncall map_update_elem\ngoto out\nother: r1 = map[outer] ll\nr2 = r10\nr2 += -8\n\
         call map_lookup_elem\nif r0 == 0 goto out\nr1 = r0\nr2 = r10\nr2 += -8\ncall map_delete_elem",
    ),
    // Terms whose range is that of all numbers.
    (
        "offsets_that_cancel_out",
        "",
        "r1 = *(u64 *)(r7 + 8)\nr2 = *(u64 *)(r7 + 16)\nr4 = *(u64 *)(r7 + 24)\nr3 = r1\nr3 /= r2\nr2 /= r4\n\
         r1 /= r4\nif r3 != 0 goto out\nif r2 != 0 goto out\nif r1 != 0 goto out\nr3 *= 0x7fffffff\nr2 *= 0x7fffffff\n\
         r1 *= 0x7fffffff\nr5 = r7\nr5 += r3\nr5 += r2\nr5 += r1\n*(u8 *)(r5 + 5) = 9\nr0 = *(u8 *)(r7 + 5)\n\
         *(u8 *)(r7 + 6) = r0",
    ),
    // The greatest value of an offset's part is near 2^63.
    (
        "an_offset_below_a_large_number",
        "",
        "r1 = *(u64 *)(r7 + 8)\nr1 >>= 1\nr1 |= 1\nr1 &= 31\nr2 = r7\nr2 += r1\nr3 = r2\nr3 += 8\n\
         if r3 > r8 goto out\nr4 = *(u8 *)(r2 + 0)\n*(u8 *)(r7 + 40) = r4",
    ),
];

pub fn programs() -> Vec<Program> {
    PROGRAMS.iter().map(|(name, maps, text)| program(name, maps, text)).collect()
}

fn program(name: &str, maps: &str, text: &str) -> Program {
    const ANEW: &str = "r7 = *(u32 *)(r6 + 0)\nr8 = *(u32 *)(r6 + 4)\n";
    let check = |bytes: &str| format!("{ANEW}r2 = r7\nr2 += {bytes}\nif r2 > r8 goto out\n");
    let line = |line: &str| {
        let (label, rest) = line.split_once(": ").unwrap_or(("", line));
        let label = if label.is_empty() { String::new() } else { format!("{label}: ") };
        match rest.trim().strip_prefix("packet ") {
            // The return value of the previous call is preserved.
            Some(bytes) => format!("{label}{}", check(bytes)),
            None => format!("{line}\n"),
        }
    };
    let (text, functions) = text.split_once("functions\n").unwrap_or((text, ""));
    let text: String = text.lines().map(line).collect();
    let text = format!(
        ".program {name}\n.license \"GPL\"\n{maps}r6 = r1\n{}{text}out: r0 = 2\nexit\n{functions}",
        check("64")
    );
    let mut program = asm::program(name, &text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    // The assembler has no syntax for maps of maps or of programs.
    let inside = program.maps.first().cloned();
    for map in program.maps.iter_mut().filter(|map| map.name == "outer") {
        map.kind = MapKind::ArrayOfMaps;
        map.members = vec![(0, Member::Map(0)), (1, Member::Map(1))];
        map.inner = inside.clone().map(|inside| Box::new(MapDef { name: "inner".to_owned(), ..inside }));
    }
    for map in program.maps.iter_mut().filter(|map| map.name.starts_with("programs")) {
        map.kind = MapKind::ProgArray;
        map.members = (0..SIBLINGS.len()).map(|number| (number as u32, Member::Program(number))).collect();
        let siblings = SIBLINGS.iter().map(|(name, text)| (*name, *text));
        program.siblings = siblings.map(|(name, text)| sibling(name, text)).collect();
    }
    program
}

/// Targets of tail calls; they share the maps of the program that calls them.
const SIBLINGS: [(&str, &str); 3] = [
    ("drops", "r0 = 1\nexit"),
    (
        "counts",
        "r6 = r1\n*(u32 *)(r10 - 4) = 0\nr1 = map[1] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\nif r0 == 0 goto out\n\
         r1 = *(u64 *)(r0 + 0)\nr1 += 3\n*(u64 *)(r0 + 0) = r1\nr0 = r1\nr0 &= 1\nr0 += 2\nexit\nout: r0 = 3\nexit",
    ),
    (
        "calls_again",
        "r6 = r1\nr7 = *(u32 *)(r6 + 0)\nr8 = *(u32 *)(r6 + 4)\nr2 = r7\nr2 += 14\nif r2 > r8 goto out\nr3 = *(u8 *)(r7 + 3)\nr3 &= 3\n\
         r4 = *(u8 *)(r7 + 5)\nr4 += 1\n*(u8 *)(r7 + 5) = r4\nr1 = r6\nr2 = map[0] ll\ncall tail_call\nout: r0 = 3\nexit",
    ),
];

fn sibling(name: &str, text: &str) -> Sibling {
    let maps = [MapDef { name: "programs".to_owned(), ..MapDef::default() }, MapDef::default()];
    let insns = asm::assemble(text, &maps).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    Sibling { name: name.to_owned(), section: "xdp".to_owned(), insns, lines: Vec::new() }
}
