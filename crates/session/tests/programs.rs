// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small programs for parts of pipelines that no program of `functions/ebpf` has.

use crate::stream::{Case, Source};

pub(crate) static PROGRAMS: [Case; 6] = [
    Case { name: "sums", source: Source::Text(SUMS, &[]), entries: &[], sends: true, changes: false },
    Case { name: "queued", source: Source::Text(QUEUED, &[]), entries: &[], sends: true, changes: false },
    Case { name: "squares", source: Source::Text(SQUARES, &[]), entries: &[], sends: true, changes: false },
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
    Case { name: "window", source: Source::Text(WINDOW, &[]), entries: &[], sends: true, changes: true },
];

/// The ports of redirects that are not absent.
const PORTS: &[(&str, u32, &[u8])] = &[("ports", 0, &[7, 0, 0, 0]), ("ports", 4, &[9, 0, 0, 0])];

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
        w6 %= 1000003
        r6 &= 3
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
const SQUARES: &str = r#".program squares
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

/// Redirects to a port, and then through a map in which some ports are absent. An absent one cancels the first redirect.
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
