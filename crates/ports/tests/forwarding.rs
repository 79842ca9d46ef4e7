// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices between two veth pairs: every packet once, in order, bit for bit.

use std::sync::atomic::{AtomicBool, Ordering};

use flowloom_engine::Port;
use flowloom_ports::{
    AfXdp, AfXdpOptions, BusyPoll, Device, Hooks, LoopOptions, Raw, RawOptions, Statistics, Tap, run_loop,
};
use flowloom_testkit::{PacketBuilder, require};

use crate::common::*;

const NOTHING: std::ops::Range<u64> = 0..0;

/// Sends packets through both directions of a device on two veth pairs.
fn both_ways(prepare: impl FnOnce() -> Box<dyn Device> + Send, wires: &Wires, packets: u64, window: u64) {
    let there = &wires.there;
    let ((), found) = beside(
        &wires.here,
        || Running::new(vec![prepare()], Cross),
        || {
            there.within(|| {
                let (one, two) = (Wire::open("far1"), Wire::open("far2"));
                exchange(&one, &two, 0..packets, window, swapped);
                exchange(&two, &one, 0..packets, window, swapped);
                exchange(&one, &two, NOTHING, window, swapped);
            });
        },
    );
    assert_lossless(&found.unwrap_or_else(|error| panic!("{error}")), 2 * packets);
}

#[test]
fn af_xdp_forwards_more_packets_than_it_has_chunks() {
    let wires = require!(Wires::new(2, 1));
    // Two queues of 2 x 32 chunks each.
    let options = AfXdpOptions { ring_entries: 32, ..AfXdpOptions::default() };
    let prepare = move || -> Box<dyn Device> {
        let device = opened(|| AfXdp::open(&near(2), &options));
        assert_eq!(device.chunks(), 128);
        Box::new(device)
    };
    both_ways(prepare, &wires, 1500, 16);
}

#[test]
fn af_xdp_forwards_in_skb_mode_and_busy_polling() {
    let wires = require!(Wires::new(2, 1));
    for options in [
        AfXdpOptions { mode: Some(flowloom_exec::Mode::Skb), ..AfXdpOptions::default() },
        AfXdpOptions { busy_poll: Some(BusyPoll { timeout_us: 20, budget: 64 }), ..AfXdpOptions::default() },
    ] {
        let prepare = move || -> Box<dyn Device> { Box::new(opened(|| AfXdp::open(&near(2), &options))) };
        both_ways(prepare, &wires, 300, 32);
    }
}

#[test]
fn af_xdp_forwards_on_several_queues() {
    let wires = require!(Wires::new(2, 2));
    let prepare = || -> Box<dyn Device> { Box::new(opened(|| AfXdp::open(&near(2), &AfXdpOptions::default()))) };
    both_ways(prepare, &wires, 300, 32);
}

#[test]
fn raw_sockets_forward() {
    let wires = require!(Wires::new(2, 1));
    let prepare = || -> Box<dyn Device> { Box::new(opened(|| Raw::open(&near(2), RawOptions::default()))) };
    both_ways(prepare, &wires, 1500, 32);
}

#[test]
fn tap_interfaces_forward() {
    let here = require!(Namespace::new());
    // The network stack that sends is in the same namespace as the TAP interfaces.
    let prepare = || {
        let tap = opened(|| Tap::open(&[(Port(1), "fltap%d"), (Port(2), "fltap%d")]));
        assert_eq!(tap.ports(), [(Port(1), "fltap0".to_owned()), (Port(2), "fltap1".to_owned())]);
        Running::new(vec![Box::new(tap)], Cross)
    };
    let (there, packets) = (&here, 1000);
    let ((), found) = beside(&here, prepare, || {
        there.within(|| {
            let (one, two) = (Wire::open("fltap0"), Wire::open("fltap1"));
            exchange(&one, &two, 0..packets, 32, swapped);
            exchange(&two, &one, 0..packets, 32, swapped);
        });
    });
    assert_lossless(&found.unwrap_or_else(|error| panic!("{error}")), 2 * packets);
    eventually("removed with the device", || here.within(|| ip("link show fltap0")).is_err());
}

#[test]
fn devices_of_different_kinds_forward_to_one_another() {
    let wires = require!(Wires::new(2, 1));
    let prepare = || {
        let options = AfXdpOptions { ring_entries: 64, ..AfXdpOptions::default() };
        let mut near = near(2);
        let two = near.split_off(1);
        let first = opened(|| AfXdp::open(&near, &options));
        let second = opened(|| Raw::open(&two, RawOptions::default()));
        Running::new(vec![Box::new(first), Box::new(second)], Cross)
    };
    let there = &wires.there;
    let ((), found) = beside(&wires.here, prepare, || {
        there.within(|| {
            let (one, two) = (Wire::open("far1"), Wire::open("far2"));
            exchange(&one, &two, 0..1000, 32, swapped);
            exchange(&two, &one, 0..1000, 32, swapped);
        });
    });
    assert_lossless(&found.unwrap_or_else(|error| panic!("{error}")), 2000);
}

#[test]
fn workers_share_the_queues_of_interfaces() {
    const FLOWS: u64 = 64;
    const PACKETS: u64 = 16;
    let wires = require!(Wires::new(2, 2));
    let devices = wires.here.within(|| AfXdp::open_workers(&near(2), &AfXdpOptions::default(), 2));
    let devices = devices.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(devices.len(), 2);
    let stop = AtomicBool::new(false);
    // A packet of a flow, in which the source port tells the flow and the payload the packet.
    let packet = |flow: u64, number: u64| {
        PacketBuilder::new()
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(1000 + flow as u16, 9)
            .payload(&number.to_be_bytes())
            .build()
    };
    let found: Vec<Statistics> = std::thread::scope(|scope| {
        let (here, stop) = (&wires.here, &stop);
        let workers: Vec<_> = devices
            .into_iter()
            .map(|device| {
                scope.spawn(move || {
                    here.within(|| {
                        let mut devices: [Box<dyn Device>; 1] = [Box::new(device)];
                        let options = LoopOptions::default();
                        run_loop(&mut devices, &mut Cross, None, &options, stop, Hooks::default())
                    })
                })
            })
            .collect();
        let received = std::panic::catch_unwind(|| {
            wires.there.within(|| {
                let (one, two) = (Wire::open("far1"), Wire::open("far2"));
                let mut next = vec![0; FLOWS as usize];
                for number in 0..PACKETS {
                    (0..FLOWS).for_each(|flow| one.send(&packet(flow, number)));
                    for _ in 0..FLOWS {
                        let (_, found) = two.receive_tagged(PATIENCE).expect("a packet");
                        let flow = u64::from(u16::from_be_bytes([found[34], found[35]])) - 1000;
                        // Flows may overtake one another; packets of a flow may not.
                        assert_eq!(found, swapped(&packet(flow, next[flow as usize])), "flow {flow}");
                        next[flow as usize] += 1;
                    }
                }
                assert_eq!(next, vec![PACKETS; FLOWS as usize]);
            });
        });
        stop.store(true, Ordering::Relaxed);
        let found = workers.into_iter().map(|worker| worker.join().expect("no panic")).collect::<Result<_, _>>();
        received.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        found.unwrap_or_else(|error| panic!("{error}"))
    });
    let by_worker: Vec<u64> = found.iter().map(|found| found.devices.sent).collect();
    assert_eq!(by_worker.iter().sum::<u64>(), FLOWS * PACKETS, "{found:?}");
    assert!(by_worker.iter().all(|sent| *sent > 0), "{by_worker:?}");
}

#[test]
fn packets_longer_than_a_buffer_are_counted() {
    let wires = require!(Wires::new(2, 1));
    let longer = |place: &Namespace, name| {
        place.within(|| (1..=2).for_each(|n| drop(ip(&format!("link set {name}{n} mtu 9000")).expect("a longer MTU"))));
    };
    longer(&wires.here, "near");
    longer(&wires.there, "far");
    let long = |len: usize| [packet(1), vec![7; len - packet(1).len()]].concat();
    // AF_XDP has chunks of 4096 bytes, 256 of them headroom; raw sockets have buffers for the MTU.
    for (name, longest) in [("af_xdp", 3840), ("raw", 9014)] {
        let prepare = || -> Running<'_> {
            let options = AfXdpOptions { mode: Some(flowloom_exec::Mode::Skb), ..AfXdpOptions::default() };
            let device: Box<dyn Device> = match name {
                "raw" => Box::new(opened(|| Raw::open(&near(2), RawOptions::default()))),
                _ => Box::new(opened(|| AfXdp::open(&near(2), &options))),
            };
            Running::new(vec![device], Cross)
        };
        let ((), found) = beside(&wires.here, prepare, || {
            wires.there.within(|| {
                let (one, two) = (Wire::open("far1"), Wire::open("far2"));
                one.send(&long(longest));
                assert!(two.receive(PATIENCE) == Some(swapped(&long(longest))), "{name}");
                if name == "af_xdp" {
                    one.send(&long(longest + 1));
                }
                one.send(&packet(2));
                assert_eq!(two.receive(PATIENCE), Some(swapped(&packet(2))), "{name}");
            });
        });
        let found = found.unwrap_or_else(|error| panic!("{error}"));
        let missed = u64::from(name == "af_xdp");
        assert_eq!((found.packets, found.devices.sent, found.devices.rx_missed), (2, 2, missed), "{name} {found:?}");
    }
}
