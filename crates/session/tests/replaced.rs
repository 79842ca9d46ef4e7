// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entries that a packet updates after it has looked them up: the engine `pipeline` against the interpreter.

use flowloom_engine::{Choices, Packet, Port};
use flowloom_isa::asm;
use flowloom_session::Loaded;
use flowloom_session::engines::{EngineName, EngineOptions};
use flowloom_testkit::{Rng, skip};

/// Looks up the entry of a byte of the packet, stores a byte in it, replaces it, and reads its old value, to which the
/// address still leads. The new value has bytes of the packet at the place of the lock, which the
/// update clears.
const REPLACED: &str = r#".program replaced
.license "GPL"
.map flows hash key 4 value 16 entries 12
        r2 = *(u32 *)(r1 + 4)           ; xdp_md.data_end
        r6 = *(u32 *)(r1 + 0)           ; xdp_md.data
        r0 = 1                          ; XDP_DROP
        r3 = r6
        r3 += 30
        if r3 > r2 goto out
        r7 = *(u8 *)(r6 + 13)
        r7 &= 15
        *(u32 *)(r10 - 4) = r7
        r1 = *(u64 *)(r6 + 14)
        *(u64 *)(r10 - 24) = r1
        r1 = *(u64 *)(r6 + 22)
        *(u64 *)(r10 - 16) = r1
        r8 = *(u8 *)(r6 + 12)
        r1 = map[flows] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        r9 = r0
        if r9 == 0 goto put
        if r8 > 127 goto put
        *(u8 *)(r9 + 1) = r8
put:    r1 = map[flows] ll
        r2 = r10
        r2 += -4
        r3 = r10
        r3 += -24
        r4 = 0                          ; BPF_ANY
        call map_update_elem
        r0 = 2                          ; XDP_PASS
        if r9 == 0 goto out
        r1 = *(u64 *)(r9 + 0)
        *(u64 *)(r6 + 0) = r1
        r1 = *(u32 *)(r9 + 12)
        r0 = 3                          ; XDP_TX
        r1 &= 1
        if r1 == 0 goto out
        r0 = 1
out:    exit
"#;

#[test]
fn an_old_address_leads_to_the_old_value() {
    const TEST: &str = "an_old_address_leads_to_the_old_value";
    let mut program = asm::program("replaced", REPLACED).unwrap();
    program.maps[0].spin_lock = Some(8);
    let loaded = Loaded::of_program(program);
    let engine = |name: &str| EngineName::by_name(name).unwrap();
    if let Err(reason) = (engine("pipeline").kind().available)() {
        return skip(TEST, &reason);
    }
    let load = |name: &str| engine(name).load(&loaded, &EngineOptions::default()).unwrap().engine;
    let (mut pipeline, mut interp) = (load("pipeline"), load("interp"));
    let mut rng = Rng::from_env(1);
    let seed = rng.next_u64();
    let packets: Vec<Vec<u8>> = (0..600).map(|_| rng.bytes(60)).collect();
    let choices = |at: usize| Choices::seeded(1000 * at as u64, 0, seed);
    let packet = |(at, bytes)| (Packet { bytes, port: Port(0) }, choices(at));
    let all: Vec<(Packet<'_>, Choices)> = packets.iter().map(Vec::as_slice).enumerate().map(packet).collect();
    let mut kinds = [0; 4];
    for chunk in all.chunks(200) {
        pipeline.announce(chunk).unwrap();
        for (packet, choices) in chunk {
            let one = pipeline.process(packet, choices).unwrap();
            let other = interp.process(packet, choices).unwrap();
            assert_eq!(one, other, "seed {seed}, {packet:02x?}");
            kinds[other.verdict.number() as usize] += 1;
        }
        assert_eq!(pipeline.snapshot().unwrap(), interp.snapshot().unwrap(), "seed {seed}");
    }
    assert!(kinds[1..].iter().all(|count| *count > 10), "{kinds:?}");
}
