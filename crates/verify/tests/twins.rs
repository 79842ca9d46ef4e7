// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hand-written C twins agree with the functions, and the kernel accepts them.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use crate::common::random;
use crate::twin;

use flowloom_engine::Port;
use flowloom_testkit::scratch::Scratch;
use flowloom_testkit::{Extension, PacketBuilder};
use flowloom_verify::Arrival;
use twin::{CHANGED, CPUS, Clang, DEFAULTS, LOCKED, captured, side_by_side, stimulus};

#[test]
fn twins_do_what_the_functions_do() {
    let test = "twins_do_what_the_functions_do";
    let Some(clang) = Clang::find(test) else { return };
    let seed = random::seed(1);
    for variant in DEFAULTS.iter().chain(&CHANGED).chain([&LOCKED]) {
        let packets = stimulus(&variant.compile(), seed, 25_000);
        for cpu in CPUS {
            let title = format!("{}, {cpu}", variant.title());
            side_by_side(&title, variant.built(), variant.twin(&clang, cpu), &packets);
        }
    }
}

#[test]
fn twins_do_what_the_functions_do_on_captures() {
    let test = "twins_do_what_the_functions_do_on_captures";
    let Some(clang) = Clang::find(test) else { return };
    for (number, (name, packets)) in captured(test).into_iter().enumerate() {
        // Changed parameters run on generated packets above: one capture will do.
        let changed = if number == 0 { &CHANGED[..] } else { &[] };
        for variant in DEFAULTS.iter().chain(changed) {
            let title = format!("{} on {name}", variant.title());
            side_by_side(&title, variant.lowered(), variant.twin(&clang, CPUS[0]), &packets);
        }
    }
}

/// Corrupted packets, one byte or the length at a time, and every value of the IPv4 checksum. The door of port knocking
/// is open and big flow marks from the second packet of a flow on, so that the output depends on the fields that each
/// reads.
#[test]
fn twins_read_broken_packets_alike() {
    let Some(clang) = Clang::find("twins_read_broken_packets_alike") else { return };
    let mut packets = Vec::new();
    // Ports are those of the variants with changed parameters.
    for shape in shapes(443) {
        for frame in broken(&shape) {
            packets.extend([frame.clone(), frame]);
        }
    }
    let packet = v4().udp(9, 443).build();
    for checksum in 0..=u16::MAX {
        let mut frame = packet.clone();
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        packets.push(frame);
    }
    let knocks =
        [7, 6234, 65535, 8456].into_iter().flat_map(|port| [v4().udp(9, port).build(), v6().udp(9, port).build()]);
    let packets: Vec<Arrival> =
        knocks.chain(packets).map(|bytes| Arrival { time_ns: 1, port: Port(0), bytes }).collect();
    for variant in &CHANGED {
        side_by_side(&variant.title(), variant.lowered(), variant.twin(&clang, CPUS[0]), &packets);
    }
}

fn v4() -> PacketBuilder {
    PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2])
}

fn v6() -> PacketBuilder {
    PacketBuilder::new().ipv6([1; 16], [2; 16])
}

/// A packet to `port` for every path through the parse graph.
fn shapes(port: u16) -> Vec<Vec<u8>> {
    let chain = |kinds: &[Extension]| kinds.iter().fold(v6(), |packet, kind| packet.extension(kind.clone()));
    let first = Extension::Fragment { offset_units: 0, more: true };
    let full = [Extension::HopByHop(1), Extension::Authentication(2), Extension::Routing(0), first.clone()];
    let five = [&full[..], &[Extension::Destination(0)]].concat();
    let packets = [
        v4().udp(9, port),
        v4().tcp(9, port).tcp_options(&[1; 8]),
        v4().ipv4_options(&[1; 8]).tcp(9, port).payload(&[7; 40]),
        v4().fragment(0, true).udp(9, port).payload(&[7; 40]),
        v4().icmp(8, 0, 1, 2),
        v6().udp(9, port),
        v6().tcp(9, port).vlan(5),
        v6().icmp(128, 0, 1, 2),
        v4().udp(9, port).vlan(5).tag(0x88a8, 6),
        v4().udp(9, port).vlan(5).vlan(6).vlan(7),
        chain(&[Extension::Destination(0)]).udp(9, port),
        chain(&[Extension::Authentication(0)]).tcp(9, port),
        chain(&[first]).udp(9, port).payload(&[7; 40]),
        chain(&full).udp(9, port).payload(&[7; 40]),
        chain(&five).udp(9, port).payload(&[7; 40]),
    ];
    packets.iter().map(PacketBuilder::build).collect()
}

/// The frame, truncated at every length and with each byte of its headers changed.
fn broken(frame: &[u8]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = (0..=frame.len()).map(|len| frame[..len].to_vec()).collect();
    for at in 12..frame.len() {
        let old = frame[at];
        let near = [1, 2, 4, 8, 16].into_iter().flat_map(|by| [old.wrapping_add(by), old.wrapping_sub(by)]);
        let flipped = (0..8).map(|bit| old ^ 1 << bit);
        let known = [0, 6, 17, 43, 44, 51, 58, 60, 255];
        for value in near.chain(flipped).chain(known) {
            let mut changed = frame.to_vec();
            changed[at] = value;
            all.push(changed);
        }
    }
    all
}

#[test]
fn the_kernel_takes_the_twins() {
    let test = "the_kernel_takes_the_twins";
    let Some(clang) = Clang::find(test) else { return };
    let Some(scratch) = Scratch::with_kernel(test) else { return };
    for (i, variant) in DEFAULTS.iter().chain(&CHANGED).enumerate() {
        for cpu in CPUS {
            println!("{}, {cpu}", variant.title());
            scratch.load(&variant.twin_object(&clang, cpu), &format!("twin{i}_{cpu}"));
        }
    }
}
