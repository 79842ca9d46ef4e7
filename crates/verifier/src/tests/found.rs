// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is found out of safe programs.

use super::*;
use flowloom_isa::BPF_F_RDONLY_PROG;

#[test]
fn memory_branches_and_dead_code() {
    let text = format!(
        "{PACKET}r3 = *(u16 *)(r6 + 12)\n*(u32 *)(r10 - 8) = r3\nif r2 > r7 goto out\nr4 = 3\nif r4 == 4 goto out\n\
         r0 = *(u32 *)(r10 - 8)\nr0 &= 1\nexit\n{OUT}"
    );
    let proof = proof(&text);
    let known = &proof.insns;
    let bytes = |first, end, align, touch| Bytes { first, end, align, touch };
    assert_eq!(known[6].memory, [(Memory::Packet, bytes(12, 14, 4, Touch::READ))].into());
    assert_eq!(known[7].memory, [(Memory::Stack { up: 0 }, bytes(-8, -4, 8, Touch::WRITE))].into());
    // The first comparison goes both ways; the same once more never jumps, and neither does one of constants.
    assert_eq!(known[5].edges, Edges { jumps: true, falls: true });
    assert_eq!([8, 10].map(|at| known[at].edges), [Edges { jumps: false, falls: true }; 2]);
    assert_eq!((proof.window(), proof.dead().count()), (14, 0));
    let dead = super::proof("r0 = 1\nif r0 == 1 goto +1\nr0 = 7\nexit");
    assert_eq!(dead.dead().collect::<Vec<_>>(), [2]);
}

#[test]
fn maps_of_helpers_and_values() {
    let proof = proof(&format!("{LOOKUP}if r0 == 0 goto out\nr1 = 1\nlock *(u64 *)(r0 + 8) += r1\n{OUT}"));
    assert_eq!(proof.insns[5].maps, [MapId::Of(0)].into());
    let expected = Bytes { first: 8, end: 16, align: 8, touch: Touch::BOTH };
    assert_eq!(proof.insns[8].memory, [(Memory::Value(MapId::Of(0)), expected)].into());
    assert!(proof.insns.iter().all(|known| !known.leaks));
}

/// One instruction, two places: joined over the paths.
#[test]
fn joined_places() {
    let text = format!(
        "{PACKET}r3 = r6\nr4 = *(u8 *)(r6 + 0)\nif r4 == 0 goto +1\nr3 += 7\nr0 = *(u8 *)(r3 + 2)\nr0 &= 1\nexit\n{OUT}"
    );
    let bytes = proof(&text).insns[10].memory[&Memory::Packet];
    assert_eq!((bytes.first, bytes.end, bytes.align), (2, 10, 1));
}

#[test]
fn addresses_that_become_numbers_are_told() {
    let moved = format!("{PACKET}r1 = r9\nr2 = 4\ncall xdp_adjust_head\nr0 = r6\nr0 &= 1\nexit\n{OUT}");
    // The way on which the packet did not move is walked first.
    let late = format!(
        "{PACKET}r8 = 0\nr3 = *(u8 *)(r6 + 0)\nr1 = r9\nr2 = 4\nif r3 == 0 goto moved\nr6 = 1\njoin: r4 = 0\nr4 = 1\nr4 = 2\n\
         r4 = 3\nr4 = 4\nif r3 == 9 goto +1\nr4 = 5\nr0 = r6\nr0 &= 1\nexit\nmoved: call xdp_adjust_head\nr3 = 7\ngoto join\n{OUT}"
    );
    let compared = format!("{PACKET}r0 = 2\nif r6 > 1000 goto +1\nr0 = 1\nexit\n{OUT}");
    let exchanged = "*(u64 *)(r10 - 8) = 0\nr0 = r10\nr2 = 1\nr0 = cmpxchg_64(r10 - 8, r0, r2)\nr0 = 2\nexit";
    let failed = "*(u64 *)(r10 - 8) = r10\nr2 = 5000\nr3 = r10\nr3 += -8\nr4 = 8\ncall xdp_load_bytes\nr0 = 2\nexit";
    let released = "r1 = map[ring] ll\nr2 = 8\nr3 = 0\ncall ringbuf_reserve\nif r0 == 0 goto +5\nr6 = r0\nr1 = r0\nr2 = 0\n\
                    call ringbuf_discard\nr0 = r6\nr0 &= 1\nexit";
    let shown = "r1 = map[table] ll\nr2 = subprog[f] ll\nr3 = r10\nr3 += -8\n*(u64 *)(r10 - 8) = 0\nr4 = 0\ncall for_each_map_elem\n\
                 r0 = *(u64 *)(r10 - 8)\nr0 &= 1\nexit\nf: *(u64 *)(r4 + 0) = r2\nr0 = 0\nexit";
    // Used as a number that matters on the way that is walked first.
    let used = "r6 = r1\ncall get_prandom_u32\nr7 = r0\nr8 = *(u32 *)(r6 + 0)\nif r7 & 2 goto one\nr1 = 1\none: if r7 & 1 goto moved\n\
                call ktime_get_ns\nr8 = r0\nr0 = 0\ngoto join\nmoved: r1 = r6\nr2 = 0\ncall xdp_adjust_head\nr0 = 0\ngoto join\n\
                join: r1 = 1\nr7 = 2\nr1 = 3\nr1 = 4\nr1 = 5\nr1 = 6\nr1 = 7\nr1 = 8\nr8 &= 7\nr3 = r10\nr3 += -8\nr3 += r8\n\
                *(u8 *)(r3 + 0) = 1\nr0 = 2\nexit";
    // Of what was an address, and lies on the stack.
    let stored = "r6 = r1\nr8 = *(u32 *)(r6 + 0)\n*(u64 *)(r10 - 8) = r8\nr1 = r6\nr2 = 0\ncall xdp_adjust_head\n";
    let part = &format!("{stored}r0 = *(u32 *)(r10 - 8)\nr0 &= 1\nexit");
    let key = &format!(
        "{stored}r1 = map[programs] ll\nr2 = r10\nr2 += -8\nr1 = map[table] ll\ncall map_lookup_elem\nr0 = 2\nexit"
    );
    let filled = "*(u64 *)(r10 - 8) = r10\nr1 = r10\nr1 += -8\nr2 = 4\nr3 = 0\ncall probe_read_kernel\nr0 = *(u64 *)(r10 - 8)\nr0 &= 1\nexit";
    let texts = [moved.as_str(), &late, &compared, exchanged, failed, released, shown, used, part, key, filled];
    for text in texts.into_iter().chain(["r0 = r10\nr0 -= r1\nr0 &= 1\nexit", "w0 = w10\nexit", "r0 = r1\nexit"]) {
        assert!(proof(text).insns.iter().any(|known| known.leaks), "{text}");
    }
}

#[test]
fn helpers_read_what_they_leave_an_answer_in() {
    let known = proof("r2 = r10\nr2 += -64\nr3 = 64\nr4 = 0\ncall fib_lookup\nr0 = 2\nexit").insns.swap_remove(4);
    assert_eq!(known.memory[&Memory::Stack { up: 0 }].touch, Touch::BOTH);
    assert!(known.reads_unwritten);
    // What fails fills nothing: what was never written is read behind it.
    let failing = "r2 = 0\nr3 = r10\nr3 += -8\nr4 = 8\ncall xdp_load_bytes\nr0 = *(u64 *)(r10 - 8)\nr0 &= 1\nexit";
    assert_eq!([4, 5].map(|at| proof(failing).insns[at].reads_unwritten), [false, true]);
}

/// Iterations that leave the loop early are counted too.
#[test]
fn a_trip_count_is_the_maximum_over_all_paths() {
    let text =
        "r6 = 0\nround: call get_prandom_u32\nr6 += 1\nif r6 > 3000 goto out\nif r0 != 0 goto round\nr0 = 1\nexit\n";
    assert_eq!(proof(&format!("{text}{OUT}")).loops, [(1, Some(3000))].into());
}

/// What a helper reads besides the packet, and what of it nobody checks; of a text all bytes with its end.
#[test]
fn what_helpers_read() {
    let mut program = program(
        "*(u64 *)(r10 - 8) = 0\nr1 = r10\nr1 += -8\nr2 = 4\nr3 = map[table][0]+3 ll\ncall strncmp\n\
         r1 = r10\nr1 += -8\nr2 = 8\ncall trace_printk\nr0 = 2\nexit",
    );
    let text = &mut program.maps[0];
    (text.kind, text.max_entries, text.key_bytes) = (MapKind::Array, 1, 4);
    (text.flags, text.initial) = (BPF_F_RDONLY_PROG, Some(b"???flow\0???????\0".to_vec()));
    text.value_bytes = 16;
    let proof = verify(&program, &Options::default()).unwrap();
    let expected = [
        (Memory::Stack { up: 0 }, Bytes { first: -8, end: -4, align: 8, touch: Touch::READ }),
        (Memory::Value(MapId::Of(0)), Bytes { first: 3, end: 8, align: 1, touch: Touch::READ }),
    ];
    assert_eq!((&proof.insns[6].memory, proof.insns[6].probes), (&expected.into(), false));
    assert!(proof.insns[10].probes);
}
