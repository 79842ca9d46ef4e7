// SPDX-License-Identifier: Apache-2.0 OR MIT
//! DPDK's virtual devices: captures, rings, raw sockets. Without huge pages.

use std::sync::atomic::AtomicBool;

use flowloom_engine::{Fate, Frame, Port, Verdict};
use flowloom_ports::{Departure, Device, Dpdk, DpdkOptions, Hooks, LoopOptions, PortsError, run_loop};
use flowloom_testkit::require;
use flowloom_trace::{CaptureReader, CaptureWriter};

use crate::common::*;

/// Skips without root; any other failure to start is an error.
fn permitted() -> Result<(), String> {
    Namespace::new().map(drop).map_err(|error| error.to_string())
}

fn open(devices: &[(Port, &str)], ring_entries: u16) -> Result<Dpdk, PortsError> {
    let options = DpdkOptions { huge_pages: false, memory_mib: 128, ring_entries, ..DpdkOptions::default() };
    Dpdk::open(devices, &options)
}

#[test]
fn captures_are_forwarded_bit_for_bit() {
    require!(permitted());
    let folder = std::env::temp_dir().join(format!("flowloom-dpdk-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = |name: &str| folder.join(name).display().to_string();
    const PACKETS: u64 = 3000;
    let mut writer = CaptureWriter::create(path("in.pcap")).expect("created");
    for number in 0..PACKETS {
        let bytes = packet(number);
        writer.write(number, 1, bytes.len() as u32, None, &bytes).expect("written");
    }
    writer.finish().expect("written");
    let (first, second) = (
        format!("net_pcap0,rx_pcap={},tx_pcap={}", path("in.pcap"), path("back.pcap")),
        format!("net_pcap1,rx_pcap={},tx_pcap={}", path("in.pcap"), path("out.pcap")),
    );
    {
        // Fewer buffers than packets.
        let device = open(&[(Port(1), &first), (Port(2), &second)], 128).unwrap_or_else(|error| panic!("{error}"));
        let mut devices: Vec<Box<dyn Device>> = vec![Box::new(device)];
        let options = LoopOptions { count: Some(2 * PACKETS), ..LoopOptions::default() };
        let stop = AtomicBool::new(false);
        let found = run_loop(&mut devices, &mut Cross, None, &options, &stop, Hooks::default());
        assert_lossless(&found.unwrap_or_else(|error| panic!("{error}")), 2 * PACKETS);
    }
    for name in ["out.pcap", "back.pcap"] {
        let found: Vec<_> = CaptureReader::open(path(name)).expect("readable").collect();
        assert_eq!(found.len() as u64, PACKETS);
        for (number, found) in (0..).zip(found) {
            assert_eq!(found.expect("whole").bytes, swapped(&packet(number)), "{name}: packet {number}");
        }
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn rings_keep_their_packets_and_buffers() {
    require!(permitted());
    let mut device = open(&[(Port(1), "net_ring0")], 128).unwrap_or_else(|error| panic!("{error}"));
    let idle = device.buffers_used();
    let send = |device: &mut Dpdk, number: u64| {
        let bytes = packet(number);
        let departure = Departure { port: Port(1), verdict: Verdict::Tx, time_ns: 0, bytes: &bytes };
        device.transmit(departure).expect("sent or counted");
    };
    (0..20).for_each(|number| send(&mut device, number));
    // What is sent comes back. Each time packets grow at the front as far as a program may, and shrink again, so that
    // more buffers pass than there are.
    for round in 0..200u64 {
        let mut next = 0;
        let mut run = |frames: &mut [Frame<'_>]| {
            for frame in frames {
                assert_eq!((frame.time_ns, frame.port, frame.start()), (round, Port(1), 256));
                let (start, end) = (frame.start(), frame.end());
                assert_eq!(frame.bytes(), packet(next), "round {round}");
                let bytes = frame.bytes().to_vec();
                frame.set_bounds(start - 216, end);
                frame.bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
                frame.set_bounds(start - 216, start - 216 + bytes.len());
                frame.fate = Fate::Redirect(Port(1));
                next += 1;
            }
            Ok(())
        };
        // The driver hands the packet back where it was put, so every other round moves it back first.
        let mut back = |frames: &mut [Frame<'_>]| {
            for frame in frames {
                let bytes = frame.bytes().to_vec();
                frame.set_bounds(256, 256 + bytes.len());
                frame.bytes_mut().copy_from_slice(&bytes);
                frame.fate = Fate::Redirect(Port(1));
            }
            Ok(())
        };
        assert_eq!(device.receive(round, &mut run).expect("received"), 20);
        assert_eq!(device.receive(round, &mut back).expect("received"), 20);
    }
    assert_eq!(device.buffers_used(), idle + 20);
    let mut dropped = |frames: &mut [Frame<'_>]| {
        frames.iter_mut().for_each(|frame| frame.fate = Fate::Drop);
        Ok(())
    };
    assert_eq!(device.receive(0, &mut dropped).expect("received"), 20);
    assert_eq!(device.buffers_used(), idle);
    let before = device.counters();
    assert_eq!((before.sent, before.tx_full), (20 + 200 * 40, 0));
    // The pool has 384 buffers.
    (0..1000).for_each(|number| send(&mut device, number));
    let found = device.counters();
    assert_eq!(found.sent - before.sent + found.tx_full, 1000, "{found:?}");
    assert!(found.tx_full >= 1000 - 384, "{found:?}");
}

#[test]
fn interfaces_are_forwarded_through_raw_sockets_of_dpdk() {
    let wires = require!(Wires::new(2, 1));
    let opened = wires.here.within(|| {
        let one = "net_af_packet0,iface=near1,blocksz=4096,framesz=2048,framecnt=512";
        let two = "net_af_packet1,iface=near2,blocksz=4096,framesz=2048,framecnt=512";
        open(&[(Port(1), one), (Port(2), two)], 256)
    });
    let device = opened.unwrap_or_else(|error| panic!("{error}"));
    let there = &wires.there;
    let ((), found) = beside(
        &wires.here,
        move || Running::new(vec![Box::new(device)], Cross),
        || {
            there.within(|| {
                let (one, two) = (Wire::open("far1"), Wire::open("far2"));
                exchange(&one, &two, 0..1000, 32, swapped);
                exchange(&two, &one, 0..1000, 32, swapped);
            });
        },
    );
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((found.packets, found.devices.sent, found.devices.tx_full), (2000, 2000, 0), "{found:?}");
}

#[test]
fn wrong_devices_are_refused() {
    require!(permitted());
    let error = open(&[(Port(1), "net_nothing0")], 128).expect_err("no driver");
    assert!(error.to_string().contains("device `net_nothing0` does not start") && error.is_environment(), "{error}");
    let pages = std::fs::read_to_string("/proc/meminfo").expect("readable");
    if pages.lines().any(|line| line.starts_with("HugePages_Free:") && line.ends_with(" 0")) {
        let error = Dpdk::open(&[(Port(1), "net_null7")], &DpdkOptions::default()).expect_err("no huge pages");
        let error = error.to_string();
        assert!(error.starts_with("dpdk net_null7: no huge page is free; reserve some, e.g. `echo 512 >"), "{error}");
    }
    let error = open(&[(Port(1), "net_null8"), (Port(1), "net_null9")], 128).expect_err("one port").to_string();
    assert!(error.starts_with("port 1 is bound twice, to net_null8 and to net_null9"), "{error}");
}
