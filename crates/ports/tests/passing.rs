// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Passed packets reach the network stack.

use std::net::UdpSocket;
use std::time::Duration;

use flowloom_engine::{Fate, Verdict};
use flowloom_exec::Mode;
use flowloom_ports::{AfXdp, AfXdpOptions, Device, Raw, RawOptions, Stack, ToDevice};
use flowloom_testkit::require;

use crate::common::*;

const DATAGRAMS: u64 = 200;

fn af_xdp(mode: Mode) -> Box<dyn Device> {
    let options = AfXdpOptions { mode: Some(mode), ..AfXdpOptions::default() };
    Box::new(opened(|| AfXdp::open(&near(1), &options)))
}

fn raw() -> Box<dyn Device> {
    Box::new(opened(|| Raw::open(&near(1), RawOptions::default())))
}

fn wires() -> Result<Wires, String> {
    let wires = Wires::new(1, 1)?;
    wires.here.within(|| ip("addr add 10.9.0.1/24 dev near1")).map_err(|error| error.to_string())?;
    wires.there.within(|| {
        without_checksum_offload("far1");
        ip("addr add 10.9.0.2/24 dev far1").map_err(|error| error.to_string())
    })?;
    Ok(wires)
}

#[test]
fn the_stack_receives_passed_packets_and_answers() {
    let wires = require!(wires());
    for name in ["native", "skb", "raw"] {
        let open = || match name {
            "native" => af_xdp(Mode::Native),
            "skb" => af_xdp(Mode::Skb),
            _ => raw(),
        };
        let prepare = || {
            let device = open();
            let modes: &[Mode] = match name {
                "native" => &[Mode::Native],
                "skb" => &[Mode::Skb],
                _ => &[],
            };
            let stack = opened(|| Stack::open(&near(1), modes));
            Running { host: Some(Box::new(stack)), ..Running::new(vec![device], Always(Fate::Pass)) }
        };
        let ((), found) = beside(&wires.here, prepare, || {
            // Addresses are resolved through the loop too.
            wires.there.within(|| ip("neigh flush dev far1")).expect("flushed");
            let server = wires.here.within(|| UdpSocket::bind("10.9.0.1:0")).expect("an address of near1");
            let client = wires.there.within(|| UdpSocket::bind("10.9.0.2:0")).expect("an address of far1");
            for socket in [&server, &client] {
                socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
            }
            client.connect(server.local_addr().expect("bound")).expect("connected");
            for number in 0..DATAGRAMS {
                let (sent, mut found) = (number.to_be_bytes(), [0; 16]);
                client.send(&sent).expect("sent");
                let (len, from) = server.recv_from(&mut found).unwrap_or_else(|e| panic!("{name} {number}: {e}"));
                assert_eq!(found[..len], sent);
                server.send_to(&found[..len], from).expect("answered");
                assert_eq!(client.recv(&mut found).expect("answered"), 8, "{name} {number}");
                assert_eq!(found[..8], sent);
            }
            server.set_read_timeout(Some(Duration::from_millis(20))).expect("a socket");
            server.recv(&mut [0; 16]).expect_err("no datagram is doubled");
        });
        let found = found.unwrap_or_else(|error| panic!("{error}"));
        // Besides the datagrams, a few packets that resolve addresses; none comes back into the loop.
        assert!((DATAGRAMS..DATAGRAMS + 10).contains(&found.packets), "{name}: {found:?}");
        assert_eq!((found.count(Verdict::Pass), found.passed, found.pass_lost), (found.packets, found.packets, 0));
    }
    eventually("removed with the host", || wires.here.within(|| ip("link show flpass0")).is_err());
}

#[test]
fn passed_packets_leave_through_another_interface() {
    let wires = require!(Wires::new(2, 1));
    let prepare = || {
        let host = opened(|| ToDevice::open(&interface(0, "near2")));
        Running { host: Some(Box::new(host)), ..Running::new(vec![af_xdp(Mode::Native)], Always(Fate::Pass)) }
    };
    let ((), found) = beside(&wires.here, prepare, || {
        wires.there.within(|| exchange(&Wire::open("far1"), &Wire::open("far2"), 0..500, 32, <[u8]>::to_vec));
    });
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((found.packets, found.passed, found.pass_lost), (500, 500, 0), "{found:?}");
}

#[test]
fn without_a_host_passed_packets_are_counted() {
    let wires = require!(Wires::new(1, 1));
    let ((), found) = beside(
        &wires.here,
        || Running::new(vec![af_xdp(Mode::Native)], Always(Fate::Pass)),
        || {
            wires.there.within(|| {
                let one = Wire::open("far1");
                (0..50).for_each(|number| one.send(&packet(number)));
                std::thread::sleep(Duration::from_millis(100));
            });
        },
    );
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((found.packets, found.passed, found.pass_lost), (50, 0, 50), "{found:?}");
}

/// Passes everything on `near1` to the network stack, beside `test`.
fn passing(wires: &Wires, open: fn() -> Box<dyn Device>, modes: &[Mode], test: impl FnOnce() + Send) {
    let prepare = || {
        let device = open();
        let stack = opened(|| Stack::open(&near(1), modes));
        Running { host: Some(Box::new(stack)), ..Running::new(vec![device], Always(Fate::Pass)) }
    };
    let ((), found) = beside(&wires.here, prepare, test);
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((found.pass_lost, found.passed), (0, found.packets), "{found:?}");
}

#[test]
fn packets_for_other_stations_do_not_become_packets_for_this_host() {
    let wires = require!(wires());
    for (open, modes) in [(|| af_xdp(Mode::Native)) as fn() -> _, raw].into_iter().zip([&[Mode::Native][..], &[]]) {
        passing(&wires, open, modes, || {
            let server = wires.here.within(|| UdpSocket::bind("10.9.0.1:9").expect("an address of near1"));
            server.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
            wires
                .there
                .within(|| ip("neigh replace 10.9.0.1 lladdr 02:00:00:00:00:77 dev far1 nud permanent"))
                .expect("a neighbour");
            let client = wires.there.within(|| UdpSocket::bind("10.9.0.2:0").expect("an address of far1"));
            client.send_to(b"another", "10.9.0.1:9").expect("sent");
            server.recv(&mut [0; 16]).expect_err("it was for another station");
            wires.there.within(|| ip("neigh del 10.9.0.1 dev far1")).expect("removed");
            client.send_to(b"own", "10.9.0.1:9").expect("sent");
            assert_eq!(server.recv(&mut [0; 16]).expect("it is for this one"), 3);
        });
    }
}

/// A bridge and a macvlan on the interface take passed packets for other stations.
#[test]
fn passed_packets_reach_bridges_and_macvlans() {
    let wires = require!(Wires::new(2, 1));
    let exchanged = |wires: &Wires| {
        wires.there.within(|| exchange(&Wire::open("far1"), &Wire::open("far2"), 0..100, 16, <[u8]>::to_vec));
    };
    wires.here.within(|| {
        // No address table: everything goes to the other port.
        ip("link add bridge1 type bridge ageing_time 0").expect("a bridge");
        ["near1", "near2"]
            .iter()
            .for_each(|name| drop(ip(&format!("link set {name} master bridge1")).expect("joined")));
        ip("link set bridge1 up").expect("turned on");
    });
    eventually("the bridge forwards", || {
        wires.there.within(|| {
            let (one, two) = (Wire::open("far1"), Wire::open("far2"));
            one.send(&packet(7));
            two.receive(Duration::from_millis(50)).is_some()
        })
    });
    exchanged(&wires);
    for (open, modes) in [(|| af_xdp(Mode::Native)) as fn() -> _, raw].into_iter().zip([&[Mode::Native][..], &[]]) {
        passing(&wires, open, modes, || exchanged(&wires));
    }
    wires.here.within(|| {
        ip("link del bridge1").expect("removed");
        ip("link add macvlan1 link near1 address 02:00:00:00:00:aa type macvlan mode bridge").expect("a macvlan");
        ip("link set macvlan1 up").expect("turned on");
    });
    passing(
        &wires,
        || af_xdp(Mode::Native),
        &[Mode::Native],
        || {
            let inner = wires.here.within(|| Wire::open("macvlan1"));
            wires.there.within(|| exchange(&Wire::open("far1"), &inner, 0..100, 16, <[u8]>::to_vec));
        },
    );
}
