// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program in the interpreter between interfaces: as offline, bit for bit.

use std::sync::Arc;

use flowloom_engine::{Choices, Copying, Datapath, Packet, Port, Ports, Verdict};
use flowloom_isa::{Program, asm};
use flowloom_ports::{AfXdp, AfXdpOptions, Device, Raw, RawOptions};
use flowloom_testkit::require;
use flowloom_vm::Interpreter;

use crate::common::*;

/// By the low bits of the packet's number: aborts, drops, sends back, redirects through port 77, which is unbound, or
/// pushes a header of 4 bytes that counts packets and redirects through port 2. Verdicts other than the last change
/// the byte after the number.
const CODE: &str = "
.program numbers
.license \"GPL\"
.map count array key 4 value 8 entries 1
        r6 = r1
        r2 = *(u32 *)(r6 + 0)
        r3 = *(u32 *)(r6 + 4)
        r4 = r2
        r4 += 60
        r0 = 0
        if r4 > r3 goto out
        r7 = *(u8 *)(r2 + 21)
        r7 &= 7
        *(u8 *)(r2 + 22) = 99
        if r7 == 0 goto out
        r0 = 1
        if r7 == 1 goto out
        r0 = 3
        if r7 == 2 goto out
        if r7 == 3 goto unbound
        *(u32 *)(r10 - 4) = 0
        r1 = map[count] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        if r0 == 0 goto out
        r8 = *(u64 *)(r0 + 0)
        r8 += 1
        *(u64 *)(r0 + 0) = r8
        r1 = r6
        r2 = -4
        call xdp_adjust_head
        if r0 != 0 goto out
        r2 = *(u32 *)(r6 + 0)
        r3 = *(u32 *)(r6 + 4)
        r4 = r2
        r4 += 64
        if r4 > r3 goto out
        r1 = *(u64 *)(r2 + 4)
        *(u64 *)(r2 + 0) = r1
        r1 = *(u32 *)(r2 + 12)
        *(u32 *)(r2 + 8) = r1
        r1 = 0xb588
        *(u16 *)(r2 + 12) = r1
        *(u16 *)(r2 + 14) = r8
        r1 = 2
        r2 = 0
        call redirect
        goto out
unbound: r1 = 77
        r2 = 0
        call redirect
out:    exit
";

fn program() -> Arc<Program> {
    Arc::new(asm::program("numbers.bpf", CODE).unwrap_or_else(|errors| panic!("{errors}")))
}

#[test]
fn the_interpreter_forwards_as_offline() {
    let wires = require!(Wires::new(2, 1));
    const PACKETS: u64 = 800;
    let mut offline = Interpreter::new(program()).expect("valid");
    offline.bind_ports(&Ports::bound([Port(1), Port(2)]));
    let (mut expected, mut verdicts) = ([Vec::new(), Vec::new()], [0u64; 5]);
    for number in 0..PACKETS {
        let bytes = packet(number);
        let choices = Choices::seeded(0, 0, number);
        let outcome = offline.process(&Packet { bytes: &bytes, port: Port(1) }, &choices).expect("no fault");
        verdicts[outcome.verdict.number() as usize] += 1;
        for output in outcome.outputs {
            expected[output.port.0 as usize - 1].push(output.bytes);
        }
    }
    assert_eq!(verdicts, [PACKETS / 4, PACKETS / 8, 0, PACKETS / 8, PACKETS / 2]);
    let state = offline.snapshot().expect("readable");

    for name in ["af_xdp", "raw"] {
        let mut engine = Copying::new(Box::new(Interpreter::new(program()).expect("valid")), 0);
        let kept = &mut engine;
        let (expected, there) = (&expected, &wires.there);
        let ((), found) = beside(
            &wires.here,
            move || {
                let options = AfXdpOptions { ring_entries: 64, ..AfXdpOptions::default() };
                let device: Box<dyn Device> = match name {
                    "raw" => Box::new(opened(|| Raw::open(&near(2), RawOptions::default()))),
                    _ => Box::new(opened(|| AfXdp::open(&near(2), &options))),
                };
                Running::new(vec![device], ByReference(kept))
            },
            || {
                there.within(|| {
                    let (one, two) = (Wire::open("far1"), Wire::open("far2"));
                    let mut places = [0; 2];
                    for first in (0..PACKETS).step_by(16) {
                        (first..first + 16).for_each(|number| one.send(&packet(number)));
                        // Of 16 packets, 2 return and 8 leave on the other side.
                        for ((wire, place), (outputs, count)) in
                            [&one, &two].into_iter().zip(&mut places).zip(expected.iter().zip([2, 8]))
                        {
                            for _ in 0..count {
                                let found = wire.receive(PATIENCE);
                                assert!(
                                    found.as_ref() == Some(&outputs[*place]),
                                    "{name} output {place}: {found:02x?}"
                                );
                                *place += 1;
                            }
                        }
                    }
                });
            },
        );
        let found = found.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((found.packets, found.verdicts, found.pass_lost), (PACKETS, verdicts, 0), "{name} {found:?}");
        assert_eq!(found.count(Verdict::Aborted), PACKETS / 4);
        assert_eq!(engine.datapath_mut().snapshot().expect("readable"), state, "{name}");
    }
}

#[test]
fn raw_sockets_restore_tags_and_checksums() {
    use std::net::UdpSocket;
    let wires = require!(Wires::new(2, 1));
    wires.there.within(|| {
        ip("addr add 10.9.0.2/24 dev far1").expect("an address");
        ip("neigh add 10.9.0.9 lladdr 02:00:00:00:00:09 dev far1 nud permanent").expect("a neighbour");
    });
    let prepare = || {
        let raw = opened(|| Raw::open(&near(2), RawOptions::default()));
        Running::new(vec![Box::new(raw)], Cross)
    };
    let there = &wires.there;
    let ((), found) = beside(&wires.here, prepare, || {
        there.within(|| {
            let (one, two) = (Wire::open("far1"), Wire::open("far2"));
            // The kernel takes VLAN tags out of packets that raw sockets receive, the test's own included.
            let mut tagged = packet(7);
            tagged.splice(12..12, [0x81, 0, 0x60, 0x05]);
            one.send(&tagged);
            let found = two.receive_tagged(PATIENCE).expect("a packet");
            assert_eq!(found, (Some([0x81, 0, 0x60, 0x05]), swapped(&packet(7))));
            // The sender leaves the checksum to its interface, which is no hardware.
            let socket = UdpSocket::bind("10.9.0.2:0").expect("an address of far1");
            socket.send_to(b"hello", "10.9.0.9:9").expect("sent");
            let (_, found) = two.receive_tagged(PATIENCE).expect("a packet");
            let (ip, udp) = (&found[14..34], &found[34..]);
            let words = |bytes: &[u8]| -> u32 {
                bytes.chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(*b.get(1).unwrap_or(&0))).sum()
            };
            let sum = words(&ip[12..20]) + 17 + udp.len() as u32 + words(udp);
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "{found:02x?}");
        });
    });
    assert_lossless(&found.unwrap_or_else(|error| panic!("{error}")), 2);
}
