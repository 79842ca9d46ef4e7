// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices between two veth pairs: every packet once, in order, bit for bit.

use flowloom_engine::Port;
use flowloom_ports::{AfXdp, AfXdpOptions, BusyPoll, Device, Raw, RawOptions, Tap};
use flowloom_testkit::require;

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
        let device = AfXdp::open(&near(2), &options).unwrap_or_else(|error| panic!("{error}"));
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
        let prepare = move || -> Box<dyn Device> {
            Box::new(AfXdp::open(&near(2), &options).unwrap_or_else(|error| panic!("{error}")))
        };
        both_ways(prepare, &wires, 300, 32);
    }
}

#[test]
fn af_xdp_forwards_on_several_queues() {
    let wires = require!(Wires::new(2, 2));
    let prepare = || -> Box<dyn Device> {
        Box::new(AfXdp::open(&near(2), &AfXdpOptions::default()).unwrap_or_else(|error| panic!("{error}")))
    };
    both_ways(prepare, &wires, 300, 32);
}

#[test]
fn raw_sockets_forward() {
    let wires = require!(Wires::new(2, 1));
    let prepare = || -> Box<dyn Device> {
        Box::new(Raw::open(&near(2), RawOptions::default()).unwrap_or_else(|error| panic!("{error}")))
    };
    both_ways(prepare, &wires, 1500, 32);
}

#[test]
fn tap_interfaces_forward() {
    let here = require!(Namespace::new());
    // The network stack that sends is in the same namespace as the TAP interfaces.
    let prepare = || {
        let tap = Tap::open(&[(Port(1), "fltap%d"), (Port(2), "fltap%d")]).unwrap_or_else(|error| panic!("{error}"));
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
    assert!(here.within(|| ip("link show fltap0")).is_err(), "removed with the device");
}

#[test]
fn devices_of_different_kinds_forward_to_one_another() {
    let wires = require!(Wires::new(2, 1));
    let prepare = || {
        let options = AfXdpOptions { ring_entries: 64, ..AfXdpOptions::default() };
        let mut near = near(2);
        let two = near.split_off(1);
        let first = AfXdp::open(&near, &options).unwrap_or_else(|error| panic!("{error}"));
        let second = Raw::open(&two, RawOptions::default()).unwrap_or_else(|error| panic!("{error}"));
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
