// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans of the classical and of small programs: their schemes, and that each is sound.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{classical, on_packet, plan, planned};
use flowloom_plan::{Fault, Options, Scheme, check};
use flowloom_testkit::Clang;

/// Programs whose plans take long enough to be made once.
const LARGE: [&str; 3] = ["dnat", "katran", "tunnel"];

#[test]
fn a_gcra_bucket_is_updated_atomically() {
    let Some(clang) = Clang::find("a_gcra_bucket_is_updated_atomically") else { return };
    let program = classical(&clang).iter().find(|program| program.name == "leaky_bucket_gcra").unwrap();
    let plan = planned(program, &Options::default());
    let buckets = plan.maps.iter().find(|map| map.name == "buckets").unwrap();
    assert_eq!(buckets.scheme, Scheme::Atomic, "{}", buckets.reason);
}

/// Every scheme that a map can have gives a sound plan, or a refusal that says why not.
#[test]
fn requested_schemes_are_sound() {
    let Some(clang) = Clang::find("requested_schemes_are_sound") else { return };
    let mut flushed = 0;
    for program in classical(&clang).iter().filter(|program| !LARGE.contains(&program.name.as_str())) {
        let names: Vec<String> =
            planned(program, &Options::default()).maps.iter().map(|map| map.name.clone()).collect();
        for (name, scheme) in names.iter().flat_map(|name| Scheme::ALL.map(|scheme| (name, scheme))) {
            let schemes = [(name.clone(), scheme)].into();
            match plan(program, &Options { schemes, ..Options::default() }) {
                Ok(plan) => {
                    assert_eq!(check(&plan), [], "{} with {name} by {}", program.name, scheme.as_str());
                    let own = plan.maps.iter().find(|map| map.name == *name).unwrap();
                    assert_eq!(own.scheme, scheme);
                    flushed += usize::from(scheme == Scheme::Flush);
                }
                Err(refusal) => assert!(refusal.to_string().contains(name.as_str()), "{refusal}"),
            }
        }
    }
    assert!(flushed >= 10, "{flushed}");
}

/// Adds to a value what it computes out of the value first: the address of the atomic operation is there stages before
/// its operand.
const LATE_OPERAND: &str = "
        r6 = *(u32 *)(r6 + 0)
        *(u32 *)(r10 - 4) = r6
        r2 = r10
        r2 += -4
        r1 = map[first] ll
        call 1
        if r0 == 0 goto pass
        r7 = *(u64 *)(r0 + 0)
        r8 = r7
        r8 += r6
        r8 *= r7
        r8 += r6
        r8 *= r7
        *(u64 *)(r0 + 0) = r8
        lock *(u64 *)(r0 + 8) += r8
";

/// An atomic operation whose operand comes late is planned under every scheme; its change before the operand is found.
#[test]
fn an_atomic_operand_may_come_after_the_address() {
    let program = on_packet("late_operand", 14, &["first hash key 4 value 16 entries 16"], LATE_OPERAND);
    for scheme in [Scheme::Flush, Scheme::Schedule] {
        let schemes = [("first".to_owned(), scheme)].into();
        let plan = planned(&program, &Options { schemes, ..Options::default() });
        assert_eq!(check(&plan), [], "{}", scheme.as_str());
        let atomic = plan.maps[0].uses.atomics[0];
        let (read, commit) = (plan.schedule.spans[atomic.index()].begins.stage, plan.schedule.commits[&atomic]);
        assert!(read < commit, "the operand comes late: {read} and {commit}");
        let mut early = plan.clone();
        early.schedule.commits.insert(atomic, read);
        assert!(
            check(&early).iter().any(|fault| matches!(fault, Fault::EarlyEffect { .. })),
            "a change before its operand"
        );
        let mut early = plan;
        early.schedule.spans[atomic.index()].begins = Default::default();
        assert!(check(&early).iter().any(|fault| matches!(fault, Fault::TooEarly { .. })), "a read before its address");
    }
}

/// Moves the packet's head, copies bytes of what is there then, and does nothing else; the map of programs is not used.
const HEAD_MOVED: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u32);
} later SEC(".maps");
SEC("xdp") int head_moved(struct xdp_md *ctx)
{
	if (bpf_xdp_adjust_head(ctx, -8))
		return XDP_DROP;
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (data + 60 > end)
		return XDP_PASS;
	data[2] = data[10];
	data[31] = data[39];
#ifdef OPTIONS
	__u8 *options = data + 42 + (data[22] & 15) * 4;
	if (options + 4 > end)
		return XDP_PASS;
	options[1] ^= options[2];
#endif
	return XDP_PASS;
}
char _license[] SEC("license") = "GPL";
"#;

#[test]
fn a_moved_head_has_a_plan() {
    let Some(clang) = Clang::find("a_moved_head_has_a_plan") else { return };
    for flags in [&[][..], &["-DOPTIONS"]] {
        let object = clang.compile(HEAD_MOVED, flags).unwrap();
        let object = flowloom_object::read(&object, "head_moved").unwrap();
        let plan = planned(&object.programs[0], &Options::default());
        assert_eq!(check(&plan), [], "{flags:?}");
        assert!(plan.window.moves, "{flags:?}");
    }
}

/// Stores to one word of an array's value and reads another, both by bytes of the packet.
const READ_AGAIN: &str = "
        *(u32 *)(r10 - 4) = 0
        r2 = r10
        r2 += -4
        r1 = map[values] ll
        call 1
        if r0 == 0 goto pass
        r1 = *(u8 *)(r6 + 0)
        r1 &= 7
        r1 <<= 3
        r2 = r0
        r2 += r1
        r3 = *(u8 *)(r6 + 1)
        r3 &= 7
        r3 <<= 3
        r4 = r0
        r4 += r3
        r5 = *(u64 *)(r2 + 0)
        r5 += 1
        *(u64 *)(r2 + 0) = r5
        r5 = *(u64 *)(r4 + 0)
        *(u8 *)(r6 + 2) = r5
";

/// A map that is read again after the packet's own write is planned under every scheme that fits.
#[test]
fn a_map_may_be_read_again_after_an_own_write() {
    let program = on_packet("read_again", 14, &["values array key 4 value 64 entries 1"], READ_AGAIN);
    let plan = planned(&program, &Options::default());
    assert_eq!(check(&plan), []);
    assert_eq!(plan.dataflow.waits.len(), 0, "no load waits for a store");
    let schemes = [("values".to_owned(), Scheme::Flush)].into();
    let plan = planned(&program, &Options { schemes, ..Options::default() });
    assert_eq!(check(&plan), []);
    let first_write = plan.maps[0].uses.writes().map(|id| plan.schedule.commits[&id]).min();
    let last_read = plan.maps[0].uses.loads.iter().map(|id| plan.schedule.spans[id.index()].begins.stage).max();
    assert!(last_read <= first_write, "{last_read:?} and {first_write:?}");
}

/// Adds an entry where none is, then looks for another; the keys differ in a byte if `KIND` is not 1. Deletes the
/// other where its value becomes 0.
const ADDED_BEFORE: &str = "
        r7 = *(u32 *)(r6 + 0)
        r8 = *(u8 *)(r6 + 4)
        *(u32 *)(r10 - 8) = r7
        *(u32 *)(r10 - 4) = 1
        r2 = r10
        r2 += -8
        r1 = map[limits] ll
        call 1
        if r0 != 0 goto second
        *(u64 *)(r10 - 16) = 100
        r2 = r10
        r2 += -8
        r3 = r10
        r3 += -16
        r4 = 0
        r1 = map[limits] ll
        call 2
second: *(u32 *)(r10 - 4) = KIND
        r2 = r10
        r2 += -8
        r1 = map[limits] ll
        call 1
        if r0 == 0 goto pass
        r1 = *(u64 *)(r0 + 0)
        r1 -= 1
        *(u64 *)(r0 + 0) = r1
        if r1 != 0 goto pass
        r2 = r10
        r2 += -8
        r1 = map[limits] ll
        call 3
        RESULT
";

/// A lookup waits for an insertion of the same packet only where their keys may be the same.
#[test]
fn an_entry_of_another_key_is_looked_up_after_an_insertion() {
    let of = |map: &str, kind: &str, result: &str| {
        let body = ADDED_BEFORE.replace("KIND", kind).replace("RESULT", result);
        plan(&on_packet("limits", 14, &[map], &body), &Options::default())
    };
    for map in ["limits hash key 8 value 8 entries 64", "limits lru_hash key 8 value 8 entries 64"] {
        let plan = of(map, "2", "").unwrap_or_else(|refusal| panic!("{map}: {refusal}"));
        assert_eq!(check(&plan), [], "{map}");
        assert!(plan.dataflow.waits.is_empty(), "{map}");
    }
    for (map, kind, result) in [
        ("limits hash key 8 value 8 entries 64", "1", ""),
        ("limits hash key 8 value 8 entries 64", "r8", ""),
        // The result of the deletion is given before the insertion commits.
        ("limits hash key 8 value 8 entries 64", "2", "if r0 == 0 goto out"),
        // Its only entry is evicted for the new one.
        ("limits lru_hash key 8 value 8 entries 1", "2", ""),
        // A longer prefix may be found instead.
        ("limits lpm_trie key 8 value 8 entries 64 flags 1", "2", ""),
    ] {
        let refusal = of(map, kind, result).map(|plan| plan.schedule.stages).unwrap_err();
        assert_eq!(refusal.reason.code(), "own-write", "{map}, {kind}, {result}: {refusal}");
    }
}

/// Updates the entry of a key that was looked up, then accesses the entry by the old address.
const REPLACED: &str = "
        r7 = *(u32 *)(r6 + 0)
        r8 = *(u8 *)(r6 + 4)
        *(u32 *)(r10 - 4) = r7
        r2 = r10
        r2 += -4
        r1 = map[limits] ll
        call 1
        r9 = r0
        if r0 == 0 goto pass
        BEFORE
        *(u64 *)(r10 - 16) = r8
        r2 = r10
        r2 += -4
        r3 = r10
        r3 += -16
        r4 = 0
        r1 = map[limits] ll
        call 2
        ACCESS
        r0 = 1
        if r1 > 100 goto out
";

/// An update of a hash map takes a new slot, so the old address leads to the old value; in other maps, or where the old
/// slot is free again, it leads to the new one.
#[test]
fn an_old_address_is_used_only_where_it_leads_to_the_old_value() {
    const LOAD: &str = "r1 = *(u64 *)(r9 + 0)";
    const STORE: &str = "r1 = 7\n*(u64 *)(r9 + 0) = r1";
    const ADD: &str = "r1 = 7\nlock *(u64 *)(r9 + 0) += r1";
    const DELETE: &str = "r2 = r10\nr2 += -4\nr1 = map[limits] ll\ncall 3";
    const UPDATE: &str =
        "*(u64 *)(r10 - 16) = 3\nr2 = r10\nr2 += -4\nr3 = r10\nr3 += -16\nr4 = 0\nr1 = map[limits] ll\ncall 2";
    let of = |kind: &str, before: &str, access: &str| {
        let body = REPLACED.replace("BEFORE", before).replace("ACCESS", access);
        plan(
            &on_packet("limits", 14, &[&format!("limits {kind} key 4 value 8 entries 64")], &body),
            &Options::default(),
        )
    };
    for kind in ["hash", "lru_hash"] {
        for (before, access) in [("", LOAD), (STORE, LOAD), (ADD, LOAD), (STORE, "r1 = 3")] {
            let plan =
                of(kind, before, access).unwrap_or_else(|refusal| panic!("{kind}, {before}, {access}: {refusal}"));
            assert_eq!(check(&plan), [], "{kind}, {before}, {access}");
        }
    }
    for (kind, before, access, verb) in [
        ("hash", "", STORE, "written"),
        ("hash", "", ADD, "written"),
        ("hash", DELETE, LOAD, "read"),
        ("hash", UPDATE, LOAD, "read"),
        ("percpu_hash", "", LOAD, "read"),
        ("array", "", LOAD, "read"),
        ("array", "", STORE, "written"),
    ] {
        let refusal = of(kind, before, access).map(|plan| plan.schedule.stages).unwrap_err();
        assert_eq!(refusal.reason.code(), "own-write", "{kind}, {before}, {access}: {refusal}");
        let found = refusal.reason.to_string();
        let expected =
            format!("an entry of map `limits` is {verb} by an address found before the update at instruction ");
        assert!(found.starts_with(&expected), "{kind}, {before}, {access}: {found}");
    }
}

/// Deletes an expired entry of `block`, then updates the entry of one of two maps, by one call that the paths of both
/// share; `r7` is 0 where the packet is not IPv4.
const ONE_CALL_FOR_TWO_MAPS: &str = "
        r1 = r6
        r7 = r1
        r7 += 14
        r3 = 0
        *(u64 *)(r10 - 8) = r3
        *(u64 *)(r10 - 16) = r3
        r3 = *(u8 *)(r1 + 12)
        r8 = *(u8 *)(r1 + 13)
        r8 <<= 8
        r8 |= r3
        if r8 != 8 goto longer
        r1 += 34
        if r1 > r2 goto pass
        goto time
longer: r1 += 54
        r7 = 0
        if r1 > r2 goto pass
time:   call 5
        r6 = r0
        r1 = 0
        *(u64 *)(r10 - 24) = r1
        *(u64 *)(r10 - 32) = r1
        *(u64 *)(r10 - 40) = r1
        if r7 == 0 goto block6
        r2 = r7
        r2 += 12
        r1 = map[block] ll
        call 1
        if r0 == 0 goto which
        goto found
which:  if r7 == 0 goto sixth
fourth: r1 = *(u32 *)(r7 + 12)
        *(u32 *)(r10 - 44) = r1
        r2 = r10
        r2 += -44
        r1 = map[four] ll
        call 1
        if r0 == 0 goto pass
        r2 = r10
        r2 += -44
        r3 = r10
        r3 += -40
        r1 = map[four] ll
put:    r4 = 0
        call 2
        goto pass
block6: r2 = r10
        r2 += -16
        r1 = map[block6] ll
        call 1
        if r0 == 0 goto which
found:  r1 = *(u64 *)(r0 + 0)
        if r1 == 0 goto which
        if r7 == 0 goto which
        if r1 >= r6 goto which
        r2 = r7
        r2 += 12
        r1 = map[block] ll
        call 3
        goto fourth
sixth:  if r8 == 8 goto pass
        r2 = r10
        r2 += -16
        r1 = map[six] ll
        call 1
        if r0 == 0 goto pass
        r2 = r10
        r2 += -16
        r3 = r10
        r3 += -40
        r1 = map[six] ll
        goto put
";

/// The region of the two maps waits for `block` where it is updated atomically, and `block` waits for the region.
#[test]
fn a_map_that_a_region_waits_for_is_flushed_with_it() {
    let maps = [
        "block lru_hash key 4 value 8 entries 10000",
        "block6 lru_hash key 16 value 8 entries 10000",
        "four lru_hash key 4 value 24 entries 10000",
        "six lru_hash key 16 value 24 entries 10000",
    ];
    let program = on_packet("circle", 14, &maps, ONE_CALL_FOR_TWO_MAPS);
    let plan = planned(&program, &Options::default());
    assert_eq!(check(&plan), []);
    let block = plan.maps.iter().find(|map| map.name == "block").unwrap();
    assert_eq!(block.scheme, Scheme::Flush, "{}", block.reason);
    assert!(plan.schedule.stages <= 8, "{} stages", plan.schedule.stages);
}

/// An address in a stack slot that only the run knows is refused as that, at its instruction.
#[test]
fn an_address_in_a_variable_stack_slot_is_refused() {
    let text = "        *(u64 *)(r10 - 8) = 0
        *(u64 *)(r10 - 16) = 0
        r4 = *(u8 *)(r6 + 0)
        r4 &= 1
        r4 <<= 3
        r5 = r10
        r5 += -16
        r5 += r4
        *(u64 *)(r5 + 0) = r6
";
    let program = on_packet("spills", 14, &[], text);
    let refusal = plan(&program, &Options::default()).unwrap_err();
    assert_eq!((refusal.reason.code(), refusal.insn), ("stack-spill-offset", Some(14)), "{refusal}");
    assert!(refusal.line.is_some() && refusal.to_string().contains("a stack slot whose offset"), "{refusal}");
}

/// A hundred divisions, each of what the one before gives, are more stages than any pipeline has: refused at once, with
/// the place.
#[test]
fn a_pipeline_that_is_too_deep_is_refused() {
    let body = "r3 = *(u8 *)(r6 + 0)\n".to_owned()
        + &"r3 |= 0x100000\nr4 = 77\nr4 += r3\nr4 /= r3\nr3 += r4\n".repeat(100)
        + "*(u8 *)(r6 + 0) = r3\n";
    let program = on_packet("deep", 14, &[], &body);
    let refusal = plan(&program, &Options::default()).map(|plan| plan.schedule.stages).unwrap_err();
    assert_eq!(refusal.reason.code(), "budget", "{refusal}");
    assert!(refusal.insn.is_some() && refusal.to_string().contains("expected at most 2048"), "{refusal}");
}
