// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs as text.

/// The texts by name.
pub(crate) const SOURCES: [(&str, &str); 8] = [
    ("arithmetic", ARITHMETIC),
    ("arrays", ARRAYS),
    ("count", COUNT),
    ("divided", DIVIDED),
    ("header", HEADER),
    ("overlay", OVERLAY),
    ("probed", PROBED),
    ("slice", SLICE),
];

/// Multiplies, divides and shifts numbers of the packet and writes the results into it.
const ARITHMETIC: &str = r#".program arithmetic
.license "GPL"
        r2 = *(u32 *)(r1 + 4)
        r1 = *(u32 *)(r1 + 0)
        r0 = 1
        r3 = r1
        r3 += 64
        if r3 > r2 goto out
        r4 = *(u64 *)(r1 + 0)
        r5 = *(u16 *)(r1 + 8)
        r6 = *(u8 *)(r1 + 10)
        r7 = r4
        r7 *= r4
        *(u64 *)(r1 + 16) = r7
        r8 = *(u16 *)(r1 + 12)
        w8 /= w5
        *(u32 *)(r1 + 24) = r8
        w7 = w4
        r8 = (s8)r6
        w7 s%= w8
        *(u32 *)(r1 + 28) = r7
        r7 = r4
        r7 <<= r6
        *(u64 *)(r1 + 32) = r7
        r7 = (s16)r4
        r7 s>>= r6
        *(u64 *)(r1 + 40) = r7
        r0 = 2
        if r4 s< r5 goto out
        r0 = 3
out:    exit
"#;

/// Counts packets by their first byte, in an array, and stores the time of the last one.
const ARRAYS: &str = r#".program arrays
.license "GPL"
.map counters array key 4 value 16 entries 5
        r6 = r1
        r2 = *(u32 *)(r6 + 4)
        r1 = *(u32 *)(r6 + 0)
        r3 = r1
        r3 += 1
        if r3 > r2 goto drop
        r4 = *(u8 *)(r1 + 0)
        r4 &= 7
        *(u32 *)(r10 - 4) = r4
        r1 = map[counters] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        if r0 == 0 goto drop
        r1 = 1
        lock *(u64 *)(r0 + 0) += r1
        r7 = r0
        call ktime_get_ns
        *(u64 *)(r7 + 8) = r0
        r0 = 2
        exit
drop:   r0 = 1
        exit
"#;

/// Adds the first byte of each packet to a sum, and passes every packet that leaves the sum even.
const COUNT: &str = r#".program count
.license "GPL"
.map sum array key 4 value 8 entries 1
        r2 = *(u32 *)(r1 + 4)           ; xdp_md.data_end
        r1 = *(u32 *)(r1 + 0)           ; xdp_md.data
        r0 = 1                          ; XDP_DROP
        r3 = r1
        r3 += 1
        if r3 > r2 goto out
        r4 = *(u8 *)(r1 + 0)
        r5 = map[sum][0]+0 ll
        r6 = r4
        r6 = atomic_fetch_add((u64 *)(r5 + 0), r6)
        r6 += r4
        r6 &= 1
        if r6 != 0 goto out
        r0 = 2                          ; XDP_PASS
out:    exit
"#;

/// Divides numbers of the packet by constants, and writes quotients and remainders into it.
const DIVIDED: &str = r#".program divided
.license "GPL"
        r2 = *(u32 *)(r1 + 4)
        r1 = *(u32 *)(r1 + 0)
        r0 = 1
        r3 = r1
        r3 += 40
        if r3 > r2 goto out
        r4 = *(u64 *)(r1 + 0)
        r5 = *(u32 *)(r1 + 8)
        r7 = r4
        r7 /= 1000
        *(u64 *)(r1 + 16) = r7
        r7 = r4
        r7 %= 7
        *(u64 *)(r1 + 24) = r7
        w7 = w5
        w7 s/= -7
        *(u32 *)(r1 + 32) = r7
        w7 = w5
        w7 s%= 10
        *(u32 *)(r1 + 36) = r7
        r0 = 2
out:    exit
"#;

/// Reads a byte at an offset that the packet gives, and the end of the packet at a fixed one.
const HEADER: &str = r#".program header
.license "GPL"
        r2 = *(u32 *)(r1 + 4)
        r1 = *(u32 *)(r1 + 0)
        r0 = 1
        r3 = r1
        r3 += 4
        if r3 > r2 goto out
        r4 = *(u8 *)(r1 + 0)
        r4 &= 127
        r5 = r1
        r5 += r4
        r6 = r5
        r6 += 4
        if r6 > r2 goto short
        r7 = *(u32 *)(r5 + 0)
        *(u32 *)(r1 + 0) = r7
short:  r0 = 2
        r3 = r1
        r3 += 66
        if r3 > r2 goto out
        r4 = *(u8 *)(r1 + 65)
        if r4 != 0 goto out
        r0 = 3
out:    exit
"#;

/// Writes twice at offsets that the packet gives, and then at a fixed one, where these writes can overlap.
const OVERLAY: &str = r#".program overlay
.license "GPL"
        r2 = *(u32 *)(r1 + 4)
        r1 = *(u32 *)(r1 + 0)
        r0 = 1
        r3 = r1
        r3 += 8
        if r3 > r2 goto out
        r4 = *(u8 *)(r1 + 0)
        r4 &= 63
        r5 = r1
        r5 += r4
        r6 = r5
        r6 += 6
        if r6 > r2 goto fixed
        r7 = *(u32 *)(r1 + 2)
        *(u32 *)(r5 + 2) = r7
        r4 = *(u8 *)(r1 + 1)
        r4 &= 7
        r5 = r1
        r5 += r4
        r6 = r5
        r6 += 4
        if r6 > r2 goto fixed
        *(u16 *)(r5 + 1) = r7
fixed:  r7 = 7
        *(u8 *)(r1 + 3) = r7
        r0 = 2
out:    exit
"#;

/// Passes packets whose first byte is an index of an array whose values nothing reads.
const PROBED: &str = r#".program probed
.license "GPL"
.map known array key 4 value 8 entries 5
        r2 = *(u32 *)(r1 + 4)
        r1 = *(u32 *)(r1 + 0)
        r3 = r1
        r3 += 1
        if r3 > r2 goto drop
        r4 = *(u8 *)(r1 + 0)
        r4 &= 7
        *(u32 *)(r10 - 4) = r4
        r1 = map[known] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        if r0 == 0 goto drop
        r0 = 2
        exit
drop:   r0 = 1
        exit
"#;

/// Several accesses of a packet to one value, some under a condition, and the value before and after them in the
/// packet.
const SLICE: &str = r#".program slice
.license "GPL"
.map value array key 4 value 16 entries 1
        r2 = *(u32 *)(r1 + 4)
        r1 = *(u32 *)(r1 + 0)
        r0 = 1
        r3 = r1
        r3 += 80
        if r3 > r2 goto out
        r5 = map[value][0]+0 ll
        r6 = *(u8 *)(r1 + 70)
        r7 = *(u32 *)(r1 + 72)
        r8 = r7
        r8 = atomic_fetch_add((u64 *)(r5 + 0), r8)
        *(u32 *)(r1 + 4) = r8
        r8 = r7
        r8 = atomic_fetch_xor((u64 *)(r5 + 0), r8)
        *(u32 *)(r1 + 8) = r8
        if r6 == 0 goto next
        *(u16 *)(r5 + 10) = r7
next:   r9 = 3
        r0 = *(u8 *)(r1 + 71)
        r0 &= 3
        r0 = cmpxchg_64(r5 + 0, r0, r9)
        *(u32 *)(r1 + 76) = r0
        r9 = r6
        w9 = xchg32_32(r5 + 12, w9)
        *(u8 *)(r1 + 65) = r9
        r0 = 2
out:    exit
"#;
