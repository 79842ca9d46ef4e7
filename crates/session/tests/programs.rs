// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small programs for parts of pipelines that no program of `functions/ebpf` has.

use crate::stream::{Case, Source};

pub(crate) static PROGRAMS: [Case; 15] = [
    Case { name: "sums", source: Source::Text(SUMS, &[]), entries: &[], sends: true, changes: false },
    Case { name: "queued", source: Source::Text(QUEUED, &[]), entries: &[], sends: true, changes: false },
    Case { name: "squares", source: Source::Text(SQUARES, &[]), entries: &[], sends: true, changes: false },
    // A full map evicts the flow with the least recent use.
    Case {
        name: "recent",
        source: Source::Text(
            SQUARES,
            &[("hash key 4 value 8 entries 60 flags 1", "lru_hash key 4 value 8 entries 60")],
        ),
        entries: &[],
        sends: true,
        changes: false,
    },
    Case { name: "used", source: Source::Text(USED, &[]), entries: &[], sends: true, changes: false },
    Case {
        name: "redirects",
        source: Source::Text(REDIRECTS, &[("PORTS", "7")]),
        entries: PORTS,
        sends: true,
        changes: false,
    },
    // One key is beyond the map.
    Case {
        name: "redirects_beyond",
        source: Source::Text(REDIRECTS, &[("PORTS", "5")]),
        entries: PORTS,
        sends: true,
        changes: false,
    },
    // All ports of one map, and all but the ingress port of another one.
    Case { name: "broadcasts", source: Source::Text(BROADCASTS, &[]), entries: BOTH, sends: true, changes: true },
    Case { name: "known", source: Source::Text(KNOWN, &[]), entries: SEEN, sends: true, changes: true },
    Case { name: "clones", source: Source::Text(CLONES, &[]), entries: &[], sends: true, changes: true },
    Case { name: "emits", source: Source::Text(EMITS, &[]), entries: &[], sends: true, changes: true },
    // Which of the packet's numbers the later draws give depends on the earlier ones.
    Case { name: "draws", source: Source::Text(DRAWS, &[]), entries: &[], sends: true, changes: true },
    Case { name: "late_offset", source: Source::Text(LATE_OFFSET, &[]), entries: &[], sends: true, changes: true },
    // The effect chooses between offsets, of which one may be beyond the window.
    Case {
        name: "chosen_offset",
        source: Source::Text(LATE_OFFSET, &[("r8 += r7", CHOSEN)]),
        entries: &[],
        sends: true,
        changes: true,
    },
    Case { name: "window", source: Source::Text(WINDOW, &[]), entries: &[], sends: true, changes: true },
];

/// The ports of redirects that are not absent.
const PORTS: &[(&str, u32, &[u8])] = &[("ports", 0, &[7, 0, 0, 0]), ("ports", 4, &[9, 0, 0, 0])];

/// The ports of two maps.
const BOTH: &[(&str, u32, &[u8])] = &[
    ("near", 0, &[1, 0, 0, 0]),
    ("near", 3, &[3, 0, 0, 0]),
    ("far", 1, &[2, 0, 0, 0]),
    ("far", 2, &[3, 0, 0, 0]),
    ("far", 4, &[9, 0, 0, 0]),
];

/// Entries that the host wrote into an array which packets only look up.
const SEEN: &[(&str, u32, &[u8])] = &[
    ("seen", 0, &[1, 2, 3, 4, 5, 6, 7, 8]),
    ("seen", 2, &[0x80, 0, 0, 0, 0, 0, 0, 0xff]),
    ("seen", 4, &[9, 9, 9, 9, 9, 9, 9, 9]),
];

/// An array whose entries take several stages to change: x = x * x + a number of the packet.
const SUMS: &str = r#".program sums
.license "GPL"
.map cells array key 4 value 8 entries 4
        r2 = *(u32 *)(r1 + 4)           ; xdp_md.data_end
        r1 = *(u32 *)(r1 + 0)           ; xdp_md.data
        r0 = 1                          ; XDP_DROP
        r3 = r1
        r3 += 14
        if r3 > r2 goto out
        r6 = *(u8 *)(r1 + 13)
        r6 &= 3
        *(u32 *)(r10 - 4) = r6
        r7 = *(u16 *)(r1 + 6)
        r1 = map[cells] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        r1 = r0
        r0 = 1
        if r1 == 0 goto out
        r2 = *(u64 *)(r1 + 0)
        r2 *= r2
        r2 += r7
        r2 += 1
        *(u64 *)(r1 + 0) = r2
        r0 = 3                          ; XDP_TX
out:    exit
"#;

/// As [`SUMS`], with a key that is known only after some stages, and a number that is known after the key.
const QUEUED: &str = r#".program queued
.license "GPL"
.map cells array key 4 value 8 entries 4
        r2 = *(u32 *)(r1 + 4)           ; xdp_md.data_end
        r1 = *(u32 *)(r1 + 0)           ; xdp_md.data
        r0 = 1                          ; XDP_DROP
        r3 = r1
        r3 += 14
        if r3 > r2 goto out
        r6 = *(u32 *)(r1 + 10)
        w6 *= 0x1e3779b1
        r8 = *(u32 *)(r1 + 2)
        w6 += w8
        w6 >>= 30
        *(u32 *)(r10 - 4) = r6
        r7 = *(u64 *)(r1 + 6)
        r7 %= 1000003
        r1 = map[cells] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        r1 = r0
        r0 = 1
        if r1 == 0 goto out
        r2 = *(u64 *)(r1 + 0)
        r2 *= r2
        r2 += r7
        r2 += 1
        *(u64 *)(r1 + 0) = r2
        r0 = 3                          ; XDP_TX
out:    exit
"#;

/// A hash map by UDP source port whose entries take several stages to change.
pub(crate) const SQUARES: &str = r#".program squares
.license "GPL"
.map flows hash key 4 value 8 entries 60 flags 1
        r2 = *(u32 *)(r1 + 4)
        r1 = *(u32 *)(r1 + 0)
        r0 = 1
        r3 = r1
        r3 += 42
        if r3 > r2 goto out
        r6 = *(u16 *)(r1 + 34)
        *(u32 *)(r10 - 4) = r6
        r1 = map[flows] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        if r0 == 0 goto new
        r2 = *(u64 *)(r0 + 0)
        r2 *= r2
        r2 += 3
        *(u64 *)(r0 + 0) = r2
        r0 = 3
        exit
new:    *(u64 *)(r10 - 16) = 5
        r1 = map[flows] ll
        r2 = r10
        r2 += -4
        r3 = r10
        r3 += -16
        r4 = 0                          ; BPF_ANY
        call map_update_elem
        r0 = 2                          ; XDP_PASS
out:    exit
"#;

/// Copies between edits at offsets known before and at run time, with a start and an end that move, some of them for a
/// port that the packet names. The bits of a counter say which copies are sent, and what becomes of the packet. Packets
/// that reach beyond the window send nothing.
const CLONES: &str = r#".program clones
.license "GPL"
.map seen array key 4 value 8 entries 1
        r6 = r1
        r2 = *(u32 *)(r1 + 4)           ; xdp_md.data_end
        r8 = *(u32 *)(r1 + 0)           ; xdp_md.data
        r3 = r8
        r3 += 14
        r0 = 1                          ; XDP_DROP
        if r3 > r2 goto out
        *(u32 *)(r10 - 4) = 0
        r1 = map[seen] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        r1 = r0
        r0 = 1
        if r1 == 0 goto out
        r7 = 1
        r7 = atomic_fetch_add((u64 *)(r1 + 0), r7)
        r1 = r7
        r1 &= 1
        if r1 == 0 goto edit
        r1 = r6                         ; as received
        r2 = 5
        call fl_clone
edit:   r2 = *(u32 *)(r6 + 4)
        r8 = *(u32 *)(r6 + 0)
        r3 = r8
        r3 += 14
        r0 = 1
        if r3 > r2 goto out
        r9 = *(u8 *)(r8 + 13)
        r1 = *(u8 *)(r8 + 5)
        r9 += r1
        r9 *= 7
        r9 &= 127
        *(u8 *)(r8 + 1) = 0x5a
        r8 += r9                        ; an offset known at run time, some beyond the window
        r3 = r8
        r3 += 18
        if r3 > r2 goto copy
        r1 = *(u8 *)(r8 + 16)
        r1 += 1
        *(u8 *)(r8 + 16) = r1
        *(u8 *)(r8 + 17) = r7
copy:   r1 = r7
        r1 &= 2
        if r1 == 0 goto move
        r1 = r6                         ; edited, for a port of the packet
        r2 = r9
        call fl_clone
        if r0 != 0 goto out
move:   r1 = r7
        r1 &= 4
        if r1 == 0 goto last
        r1 = r6
        r2 = -6
        call xdp_adjust_head
        r2 = *(u32 *)(r6 + 4)
        r8 = *(u32 *)(r6 + 0)
        r3 = r8
        r3 += 14
        r0 = 1
        if r3 > r2 goto out
        *(u16 *)(r8 + 0) = r7
        *(u32 *)(r8 + 2) = r7
        r1 = r6                         ; longer
        r2 = 6
        call fl_clone
        r1 = r6
        r2 = 14
        call xdp_adjust_head
        r1 = r6
        r2 = -9
        call xdp_adjust_tail
        r1 = r6                         ; shorter at both ends
        r2 = 7
        call fl_clone
last:   r7 >>= 3
        r7 &= 3
        r0 = r7
        if r0 != 0 goto out
        r1 = r6                         ; aborted, but for its copy
        r2 = 8
        call fl_clone
        r0 = 0
out:    exit
"#;

/// Packets of given bytes, one of them longer than two words, with bytes of the packet and of its edits; some of the
/// packets that send them are dropped. Their results are used.
const EMITS: &str = r#".program emits
.license "GPL"
.map seen array key 4 value 8 entries 1
        r6 = r1
        r2 = *(u32 *)(r1 + 4)           ; xdp_md.data_end
        r8 = *(u32 *)(r1 + 0)           ; xdp_md.data
        r3 = r8
        r3 += 14
        r0 = 1                          ; XDP_DROP
        if r3 > r2 goto out
        r9 = *(u64 *)(r8 + 6)
        *(u32 *)(r8 + 2) = r9
        *(u32 *)(r10 - 4) = 0
        r1 = map[seen] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        r1 = r0
        r0 = 1
        if r1 == 0 goto out
        r7 = 1
        r7 = atomic_fetch_add((u64 *)(r1 + 0), r7)
        *(u64 *)(r10 - 16) = r9
        *(u64 *)(r10 - 24) = r7
        *(u64 *)(r10 - 160) = r7
        *(u64 *)(r10 - 152) = 1
        *(u64 *)(r10 - 144) = 2
        *(u64 *)(r10 - 136) = r9
        *(u64 *)(r10 - 128) = 4
        *(u64 *)(r10 - 120) = 5
        *(u64 *)(r10 - 112) = -1
        *(u64 *)(r10 - 104) = 7
        *(u64 *)(r10 - 96) = r7
        *(u64 *)(r10 - 88) = 9
        *(u64 *)(r10 - 80) = 10
        *(u64 *)(r10 - 72) = r9
        *(u64 *)(r10 - 64) = 12
        *(u64 *)(r10 - 56) = 13
        *(u64 *)(r10 - 48) = 14
        *(u64 *)(r10 - 40) = 15
        *(u64 *)(r10 - 32) = r7
        r1 = r7
        r1 &= 1
        if r1 == 0 goto long
        r1 = r6                         ; a single byte
        r2 = 5
        r3 = r10
        r3 += -24
        r4 = 1
        call fl_emit
        if r0 != 0 goto out
long:   r1 = r7
        r1 &= 6
        if r1 == 0 goto copy
        r1 = r6                         ; three words, for a port of the packet
        r2 = r9
        r2 &= 7
        r3 = r10
        r3 += -160
        r4 = 143
        call fl_emit
        r7 += r0
copy:   r1 = r7
        r1 &= 8
        if r1 == 0 goto last
        r1 = r6                         ; the packet itself between two others
        r2 = 6
        call fl_clone
        r1 = r6
        r2 = 7
        r3 = r10
        r3 += -24
        r4 = 16
        call fl_emit
last:   r7 >>= 1
        r7 &= 3
        r0 = r7
out:    exit
"#;

/// Redirects to a port, and then through a map in which some ports are absent. An absent one cancels the first
/// redirect.
const REDIRECTS: &str = r#".program redirects
.license "GPL"
.map ports devmap key 4 value 4 entries PORTS
        r2 = *(u32 *)(r1 + 4)
        r6 = *(u32 *)(r1 + 12)          ; xdp_md.ingress_ifindex
        r1 = *(u32 *)(r1 + 0)
        r0 = 1
        r3 = r1
        r3 += 14
        if r3 > r2 goto out
        r7 = *(u8 *)(r1 + 13)
        r7 &= 4
        r6 <<= 1
        r1 = 3
        r2 = 0
        call redirect
        r1 = map[ports] ll
        r2 = r6
        r3 = 2                          ; XDP_PASS for an absent port
        call redirect_map
        if r7 != 0 goto out
        r0 = 4                          ; XDP_REDIRECT
out:    exit
"#;

/// Draws up to eleven random numbers, of which the packet chooses; they are in its bytes and in a map. After eight they
/// repeat.
const DRAWS: &str = r#".program draws
.license "GPL"
.map sums array key 4 value 8 entries 4
        r2 = *(u32 *)(r1 + 4)
        r6 = *(u32 *)(r1 + 0)
        r0 = 1
        r3 = r6
        r3 += 40
        if r3 > r2 goto out
        r7 = *(u8 *)(r6 + 35)           ; the low byte of a source port
        r8 = r7
        r8 &= 3
        *(u32 *)(r10 - 4) = r8
        r1 = map[sums] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        r8 = r0
        r9 = 0
        r1 = r7
        r1 &= 4
        if r1 == 0 goto second
        call get_prandom_u32
        *(u32 *)(r6 + 0) = r0
second: r1 = r7
        r1 &= 8
        if r1 == 0 goto third
        call get_prandom_u32
        r9 = r0
        call get_prandom_u32
        r9 += r0
        call get_prandom_u32
        r9 += r0
        call get_prandom_u32
        r9 += r0
        call get_prandom_u32
        r9 += r0
        call get_prandom_u32
        r9 += r0
        call get_prandom_u32
        *(u32 *)(r6 + 4) = r0
third:  call get_prandom_u32
        *(u32 *)(r6 + 8) = r0
        r9 += r0
        r0 = 3
        if r8 == 0 goto out
        r1 = *(u64 *)(r8 + 0)
        if r1 > r9 goto less
        call get_prandom_u32            ; whether it is drawn depends on the entry
        *(u16 *)(r6 + 20) = r0
        r9 += r0
        *(u64 *)(r8 + 0) = r9
        goto sent
less:   r1 >>= 1
        *(u64 *)(r8 + 0) = r1
sent:   call get_prandom_u32
        *(u16 *)(r6 + 22) = r0
        r0 = 3
out:    exit
"#;

/// Reads the second word of a packet, and a byte at an offset that the packet gives; far ones are beyond the window.
/// Writes both into the packet.
const WINDOW: &str = r#".program window
.license "GPL"
        r2 = *(u32 *)(r1 + 4)
        r1 = *(u32 *)(r1 + 0)
        r0 = 3
        r3 = r1
        r3 += 72
        if r3 > r2 goto out
        r4 = *(u8 *)(r1 + 70)
        r5 = r1
        r5 += r4
        r6 = r5
        r6 += 4
        if r6 > r2 goto out
        r7 = *(u32 *)(r5 + 0)
        *(u32 *)(r1 + 0) = r7
        *(u8 *)(r1 + 20) = r4
out:    exit
"#;

/// Redirects by two bits of the packet: through a map, to all its ports, to all but the ingress port of another one, or
/// to all and then through a map, where a later redirect replaces the one before. Writes into the packet.
const BROADCASTS: &str = r#".program broadcasts
.license "GPL"
.map near devmap key 4 value 4 entries 5
.map far devmap key 4 value 4 entries 6
        r2 = *(u32 *)(r1 + 4)
        r6 = *(u32 *)(r1 + 12)          ; xdp_md.ingress_ifindex
        r1 = *(u32 *)(r1 + 0)
        r0 = 1
        r3 = r1
        r3 += 36
        if r3 > r2 goto out
        r7 = *(u8 *)(r1 + 35)           ; the low byte of a source port
        r8 = r7
        r7 &= 3
        r8 >>= 2
        r8 &= 7
        *(u8 *)(r1 + 6) = r8
        if r7 == 0 goto one
        if r7 == 1 goto others
        r1 = map[near] ll
        r2 = 0
        r3 = 8                          ; BPF_F_BROADCAST
        call redirect_map
        if r7 == 2 goto out
one:    r1 = map[far] ll
        r2 = r8
        r3 = 2                          ; XDP_PASS for an absent port
        call redirect_map
        exit
others: r1 = map[far] ll
        r2 = r6
        r3 = 24                         ; BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS
        call redirect_map
        if r8 > 1 goto out
        r0 = 3                          ; XDP_TX, which does not use the target
out:    exit
"#;

/// Copies an entry of an array that packets only look up into the packet. Packets of 60 bytes and more are answered.
const KNOWN: &str = r#".program known
.license "GPL"
.map seen array key 4 value 8 entries 5
        r2 = *(u32 *)(r1 + 4)
        r6 = *(u32 *)(r1 + 0)
        r0 = 1
        r3 = r6
        r3 += 36
        if r3 > r2 goto out
        r8 = r2
        r4 = *(u8 *)(r6 + 35)           ; the low byte of a source port
        r4 &= 7
        *(u32 *)(r10 - 4) = r4
        r1 = map[seen] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        r1 = r0
        r0 = 2
        if r1 == 0 goto out
        r2 = *(u64 *)(r1 + 0)
        *(u32 *)(r6 + 0) = r2
        r2 >>= 32
        *(u16 *)(r6 + 4) = r2
        r3 = r6
        r3 += 60
        if r3 > r8 goto out
        r0 = 3
out:    exit
"#;

/// An LRU map by a part of the UDP source port, whose entries change in one stage. A packet counts in its entry,
/// deletes it, or inserts one; some packets look nothing up, and some insert an entry and delete it again.
const USED: &str = r#".program used
.license "GPL"
.map flows lru_hash key 4 value 8 entries 60
        r2 = *(u32 *)(r1 + 4)
        r7 = *(u32 *)(r1 + 12)          ; xdp_md.ingress_ifindex
        r1 = *(u32 *)(r1 + 0)
        r0 = 1
        r3 = r1
        r3 += 42
        if r3 > r2 goto out
        r6 = *(u16 *)(r1 + 34)
        r6 &= 0x7f7f
        *(u32 *)(r10 - 4) = r6
        *(u64 *)(r10 - 16) = 1
        r7 <<= 2
        r8 = r6
        r8 >>= 8
        r8 &= 3
        r7 |= r8
        if r7 == 4 goto out
        if r7 == 8 goto remove
        r1 = map[flows] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        if r0 == 0 goto new
        r1 = 1
        lock *(u64 *)(r0 + 0) += r1
        r0 = 3
        exit
new:    r1 = map[flows] ll
        r2 = r10
        r2 += -4
        r3 = r10
        r3 += -16
        r4 = 0
        call map_update_elem
        r0 = 3
        if r7 != 13 goto out
remove: r1 = map[flows] ll
        r2 = r10
        r2 += -4
        call map_delete_elem
        r0 = 2
out:    exit
"#;

/// An offset that a byte of the packet gives, for every other 64 packets.
const CHOSEN: &str = "r3 = r8
        r3 += 14
        r0 = 2
        if r3 > r2 goto out
        r9 = *(u8 *)(r8 + 13)
        r9 &= 127
        if r7 < 64 goto near
        r8 += r9
near:   r8 += 3";

/// An offset in the packet that only an effect gives, some of them beyond the window.
const LATE_OFFSET: &str = r#".program late_offset
.license "GPL"
.map seen array key 4 value 8 entries 1
        r2 = *(u32 *)(r1 + 4)           ; xdp_md.data_end
        r8 = *(u32 *)(r1 + 0)           ; xdp_md.data
        r5 = map[seen][0]+0 ll
        r7 = 1
        r7 = atomic_fetch_add((u64 *)(r5 + 0), r7)
        r7 &= 127
        r8 += r7
        r3 = r8
        r3 += 18
        r0 = 2                          ; XDP_PASS
        if r3 > r2 goto out
        r4 = *(u8 *)(r8 + 16)
        r4 += 1
        *(u8 *)(r8 + 16) = r4
        *(u8 *)(r8 + 17) = r7
        r0 = 3                          ; XDP_TX
out:    exit
"#;
