// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parts of the small programs.

/// The start of each program: operation, operand and key of the packet in `r7`, `r8` and on the stack.
pub(super) const HEAD: &str = r#"
        r2 = *(u32 *)(r1 + 4)           ; xdp_md.data_end
        r6 = *(u32 *)(r1 + 0)           ; xdp_md.data
        r0 = 1                          ; XDP_DROP
        r3 = r6
        r3 += 40
        if r3 > r2 goto out
        r7 = *(u8 *)(r6 + 0)
        r8 = *(u8 *)(r6 + 4)
        r9 = *(u32 *)(r6 + 8)
        *(u32 *)(r10 - 4) = r9
"#;

/// The end of programs without keys: the new value in `r3` is stored and sent.
pub(super) const STORED: &str = r#"
        *(u64 *)(r5 + 0) = r3
        *(u64 *)(r6 + 16) = r3
        r0 = 3                          ; XDP_TX
        exit
out:    exit
"#;

/// The end of programs with keys: as [`STORED`], and insertions and deletions.
pub(super) const INSERTED: &str = r#"
        *(u64 *)(r5 + 0) = r3
        *(u64 *)(r6 + 16) = r3
        r0 = 3                          ; XDP_TX
        exit
new:    *(u64 *)(r10 - 16) = r8
        r1 = map[flows] ll
        r2 = r10
        r2 += -4
        r3 = r10
        r3 += -16
        r4 = 0                          ; BPF_ANY
        call map_update_elem
        *(u32 *)(r6 + 24) = r0
        r0 = 2                          ; XDP_PASS
        exit
delete: r1 = map[flows] ll
        r2 = r10
        r2 += -4
        call map_delete_elem
        *(u32 *)(r6 + 24) = r0
        r0 = 3
        exit
out:    exit
"#;

pub(super) const LOOKUP: &str = r#"
        r1 = map[flows] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        r5 = r0
        r0 = 1
"#;

/// As [`INSERTED`], but an entry that is there is deleted and inserted anew if that succeeds; so is its counterpart in an
/// array. The results are in the packet and decide about the next change.
pub(super) const DELETED_FIRST: &str = r#"
        *(u64 *)(r10 - 16) = r3
        r1 = map[flows] ll
        r2 = r10
        r2 += -4
        call map_delete_elem
        *(u32 *)(r6 + 24) = r0
        if r0 != 0 goto out
        r1 = map[flows] ll
        r2 = r10
        r2 += -4
        r3 = r10
        r3 += -16
        r4 = 1                          ; BPF_NOEXIST
        call map_update_elem
        *(u32 *)(r6 + 28) = r0
        r0 = 3                          ; XDP_TX
        exit
new:    *(u64 *)(r10 - 16) = r8
        r1 = map[flows] ll
        r2 = r10
        r2 += -4
        r3 = r10
        r3 += -16
        r4 = 0                          ; BPF_ANY
        call map_update_elem
        *(u32 *)(r6 + 24) = r0
        r7 = r0
        r9 &= 7
        *(u32 *)(r10 - 4) = r9
        r1 = map[cells] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        r5 = r0
        r0 = 1
        if r5 == 0 goto out
        if r7 == 0 goto kept
        r1 = *(u64 *)(r5 + 0)
        r1 += 1
        *(u64 *)(r5 + 0) = r1
kept:   r0 = 3
        exit
delete: r1 = map[flows] ll
        r2 = r10
        r2 += -4
        call map_delete_elem
        *(u32 *)(r6 + 24) = r0
        r0 = 3
        exit
out:    exit
"#;

/// A packet without an entry is counted, makes one, deletes another one, and changes entries of further maps by two keys each.
pub(super) const SEVERAL_KEYS: &str = r#"
        *(u64 *)(r5 + 0) = r3
        *(u64 *)(r6 + 16) = r3
        r0 = 3                          ; XDP_TX
        exit
new:    *(u32 *)(r10 - 24) = 0
        r1 = map[total] ll
        r2 = r10
        r2 += -24
        call map_lookup_elem
        r5 = r0
        r0 = 1
        if r5 == 0 goto out
        r1 = *(u64 *)(r5 + 0)
        r1 += r8
        *(u64 *)(r5 + 0) = r1
        *(u64 *)(r10 - 16) = r8
        r1 = map[flows] ll
        r2 = r10
        r2 += -4
        r3 = r10
        r3 += -16
        r4 = 1                          ; BPF_NOEXIST
        call map_update_elem
        *(u32 *)(r6 + 24) = r0
        *(u64 *)(r10 - 32) = r0
        r9 = *(u32 *)(r6 + 12)
        r9 ^= 0x5a5a5a5a
        r9 += 7
        *(u32 *)(r10 - 20) = r9
        r1 = map[flows] ll
        r2 = r10
        r2 += -20
        call map_delete_elem
        *(u32 *)(r6 + 28) = r0
        r9 &= 1
        *(u32 *)(r10 - 20) = r9
        r1 = map[owners] ll
        r2 = r10
        r2 += -20
        call map_lookup_elem
        if r0 == 0 goto first
        r1 = *(u64 *)(r0 + 0)
        r1 += r8
        *(u64 *)(r0 + 0) = r1
        *(u64 *)(r6 + 32) = r1
        goto sums
first:  r1 = map[owners] ll
        r2 = r10
        r2 += -20
        r3 = r10
        r3 += -16
        r4 = 0                          ; BPF_ANY
        call map_update_elem
        *(u32 *)(r6 + 32) = r0
sums:   r1 = map[cells] ll
        r2 = r10
        r2 += -20
        call map_lookup_elem
        r5 = r0
        r0 = 1
        if r5 == 0 goto out
        r7 = *(u64 *)(r5 + 0)
        r7 += r8
        *(u64 *)(r5 + 0) = r7
        *(u32 *)(r10 - 20) = 1
        r1 = *(u64 *)(r10 - 32)
        if r1 == 0 goto again           ; a full map leads to another entry
        *(u32 *)(r10 - 20) = 2
again:  r1 = map[cells] ll
        r2 = r10
        r2 += -20
        call map_lookup_elem
        r5 = r0
        r0 = 1
        if r5 == 0 goto out
        r1 = *(u64 *)(r5 + 0)
        r1 += r7
        *(u32 *)(r5 + 4) = r1
        *(u64 *)(r6 + 16) = r1
        r0 = 2                          ; XDP_PASS
        exit
delete: r1 = map[flows] ll
        r2 = r10
        r2 += -4
        call map_delete_elem
        *(u32 *)(r6 + 24) = r0
        r0 = 3
        exit
out:    exit
"#;

/// Additions by three keys to two places of an array, which nothing reads.
pub(super) const ADDED: &str = r#"
        *(u64 *)(r10 - 16) = r9
        r9 &= 7
        *(u32 *)(r10 - 4) = r9
        r1 = map[sums] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        if r0 == 0 goto second
        r1 = *(u64 *)(r0 + 0)
        r1 += r8
        *(u64 *)(r0 + 0) = r1
second: r9 = r8
        r9 &= 7
        *(u32 *)(r10 - 4) = r9
        r1 = map[sums] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        if r0 == 0 goto third
        r1 = *(u32 *)(r0 + 8)
        r1 += 0x12345677
        *(u32 *)(r0 + 8) = r1
third:  if r7 == 1 goto done
        *(u32 *)(r10 - 4) = 1
        r1 = map[sums] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        if r0 == 0 goto done
        r1 = *(u64 *)(r0 + 0)
        r1 += -77
        *(u64 *)(r0 + 0) = r1
done:   *(u64 *)(r6 + 16) = r8
        r0 = 3
        exit
out:    exit
"#;
