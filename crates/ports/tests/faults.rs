// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes wrong: unbound ports, full rings, interfaces that disappear, processes that are killed.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flowloom_engine::{EngineError, Fate, Frame, InPlace, Output, Port, Ports, Verdict};
use flowloom_ports::{AfXdp, AfXdpOptions, Device, LoopOptions, PortsError, Raw, RawOptions, Tap};
use flowloom_testkit::require;

use crate::common::*;

/// Set for a child process: it runs a device until it is killed.
const CHILD: &str = "FLOWLOOM_PORTS_CHILD";

fn af_xdp(ring_entries: u32) -> Box<dyn Device> {
    let options = AfXdpOptions { ring_entries, ..AfXdpOptions::default() };
    Box::new(opened(|| AfXdp::open(&near(2), &options)))
}

fn raw() -> Box<dyn Device> {
    Box::new(opened(|| Raw::open(&near(2), RawOptions::default())))
}

#[test]
fn packets_for_unbound_ports_are_aborted() {
    let wires = require!(Wires::new(2, 1));
    // The rings hold all, and the loop ends with the last.
    for open in [|| af_xdp(512), raw] {
        let prepare = || {
            let options = LoopOptions { count: Some(500), ..LoopOptions::default() };
            Running { options, ..Running::new(vec![open()], Always(Fate::Redirect(Port(9)))) }
        };
        let ((), found) = stopped_after(10 * PATIENCE, &wires.here, prepare, || {
            wires.there.within(|| {
                let (one, two) = (Wire::open("far1"), Wire::open("far2"));
                // Few enough at a time for the driver.
                for number in 0..500 {
                    one.send(&packet(number));
                    if number % 16 == 15 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                assert_eq!(two.receive(Duration::from_millis(100)), None);
            });
        });
        let found = found.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((found.packets, found.unbound, found.count(Verdict::Aborted)), (500, 500, 500), "{found:?}");
        assert_eq!(found.devices.sent, 0);
    }
}

#[test]
fn a_full_transmission_ring_is_counted_and_drains() {
    let wires = require!(Wires::new(2, 1));
    let ((), found) = beside(
        &wires.here,
        || Running::new(vec![af_xdp(32)], Cross),
        || {
            let (one, two) = wires.there.within(|| (Wire::open("far1"), Wire::open("far2")));
            wires.here.within(|| ip("link set near2 down")).expect("turned off");
            for number in 0..200 {
                one.send(&packet(number));
                if number % 8 == 7 {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            std::thread::sleep(Duration::from_millis(100));
            wires.here.within(|| ip("link set near2 up")).expect("turned on");
            // What fits the ring was kept.
            for number in 0..32 {
                assert_eq!(two.receive(PATIENCE), Some(swapped(&packet(number))), "packet {number}");
            }
            assert_eq!(two.receive(Duration::from_millis(50)), None);
            // And all is as before.
            exchange(&one, &two, 1000..1500, 16, swapped);
        },
    );
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((found.packets, found.devices.tx_full, found.devices.sent), (700, 168, 532), "{found:?}");
}

/// In copy mode the kernel takes packets that the driver then drops.
#[test]
fn packets_that_the_driver_drops_are_not_sent() {
    let wires = require!(Wires::new(2, 1));
    let ((), found) = beside(
        &wires.here,
        || Running::new(vec![af_xdp(64)], Cross),
        || {
            let (one, two) = wires.there.within(|| (Wire::open("far1"), Wire::open("far2")));
            wires.there.within(|| ip("link set far2 down")).expect("turned off");
            for number in 0..200 {
                one.send(&packet(number));
                if number % 16 == 15 {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            std::thread::sleep(Duration::from_millis(50));
            wires.there.within(|| ip("link set far2 up")).expect("turned on");
            exchange(&one, &two, 1000..1500, 16, swapped);
        },
    );
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((found.packets, found.devices.tx_refused, found.devices.sent), (700, 200, 500), "{found:?}");
}

#[test]
fn a_detached_program_ends_the_run() {
    let wires = require!(Wires::new(2, 1));
    require!(Command::new("bpftool").arg("version").output().map_err(|e| format!("`bpftool`: {e}")));
    // The ids of the programs of `near1`: links of other tests are listed too.
    let xdp = || -> u32 {
        let shown = ip("-details link show near1").expect("shown");
        let id = shown.split("prog/xdp id ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        id.unwrap_or_else(|| panic!("{shown}"))
    };
    let tcx = || flowloom_ports::ingress_programs(&interface(1, "near1")).expect("listed")[0].0;
    for (open, program) in
        [((|| af_xdp(64)) as fn() -> Box<dyn Device>, &xdp as &(dyn Fn() -> u32 + Sync)), (raw, &tcx)]
    {
        let error = ended_by(
            &wires.here,
            || Running::new(vec![open()], Cross),
            || {
                let detach = || {
                    let said = Command::new("bpftool").args(["link", "show"]).output().expect("runs").stdout;
                    let text = String::from_utf8_lossy(&said).into_owned();
                    // `12: xdp  prog 34`.
                    let is_ours = |line: &&str| line.trim_end().ends_with(&format!("prog {}", program()));
                    let line = text.lines().find(is_ours).unwrap_or_else(|| panic!("{text}"));
                    let id = line.split(':').next().expect("an id");
                    let said = Command::new("bpftool").args(["link", "detach", "id", id]).output().expect("runs");
                    assert!(said.status.success(), "{said:?}");
                };
                wires.here.within(detach);
            },
        );
        assert!(matches!(&error, PortsError::Detached { interface, .. } if interface == "near1"), "{error}");
        assert!(error.is_environment());
    }
}

#[test]
fn queues_that_are_added_end_the_run() {
    let wires = require!(Wires::new(2, 2));
    let channels = |name: &str, queues: &str| {
        let said = Command::new("ethtool").arg("-L").arg(name).args(queues.split(' ')).output();
        said.map_err(|e| format!("`ethtool`: {e}")).map(|said| assert!(said.status.success(), "{said:?}"))
    };
    require!(wires.there.within(|| channels("far1", "tx 1")));
    wires.here.within(|| channels("near1", "rx 1")).expect("as before");
    let error = ended_by(
        &wires.here,
        || Running::new(vec![af_xdp(64)], Cross),
        || wires.here.within(|| channels("near1", "rx 2")).expect("as before"),
    );
    assert!(matches!(error, PortsError::QueuesChanged { found: 2, expected: 1, .. }), "{error}");
}

/// Waits until an interface sends: the kernel drops packets until it has seen the carrier, up to a second later.
fn await_carrier(name: &str) {
    let start = Instant::now();
    while !ip(&format!("link show {name}")).expect("shown").contains("state UP") {
        assert!(start.elapsed() < PATIENCE, "no carrier on {name}");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The queues begin to send a moment after the state is shown.
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn a_link_that_was_down_works_again() {
    let wires = require!(Wires::new(2, 1));
    for open in [|| af_xdp(64), raw] {
        let ((), found) = beside(
            &wires.here,
            || Running::new(vec![open()], Cross),
            || {
                let (one, two) = wires.there.within(|| (Wire::open("far1"), Wire::open("far2")));
                exchange(&one, &two, 0..100, 16, swapped);
                for name in ["near1", "near2"] {
                    wires.here.within(|| ip(&format!("link set {name} down"))).expect("turned off");
                    std::thread::sleep(Duration::from_millis(250));
                    wires.here.within(|| ip(&format!("link set {name} up"))).expect("turned on");
                    let far = name.replace("near", "far");
                    wires.here.within(|| await_carrier(name));
                    wires.there.within(|| await_carrier(&far));
                    exchange(&one, &two, 100..200, 16, swapped);
                    exchange(&two, &one, 100..200, 16, swapped);
                }
            },
        );
        assert_lossless(&found.unwrap_or_else(|error| panic!("{error}")), 500);
    }
}

/// Fails on the packet with this number.
struct Failing(u64);

impl InPlace for Failing {
    fn name(&self) -> &str {
        "failing"
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn run(&mut self, frames: &mut [Frame<'_>], extra: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        if frames.iter().any(|frame| frame.bytes() == packet(self.0)) {
            return Err(EngineError::Fault { engine: "failing", insn: 7, what: "no reason".to_owned() });
        }
        Cross.run(frames, extra)
    }

    fn sweep(&mut self, _: u64) -> Result<(), EngineError> {
        Ok(())
    }
}

#[test]
fn an_engine_that_fails_ends_the_run_and_loses_no_buffer() {
    let wires = require!(Wires::new(2, 1));
    for open in [|| af_xdp(64), raw] {
        let ((), found) = beside(
            &wires.here,
            || Running::new(vec![open()], Failing(50)),
            || {
                let (one, two) = wires.there.within(|| (Wire::open("far1"), Wire::open("far2")));
                exchange(&one, &two, 0..50, 1, swapped);
                one.send(&packet(50));
                assert_eq!(two.receive(Duration::from_millis(100)), None);
            },
        );
        let error = found.expect_err("fails").to_string();
        assert_eq!(error, "packet 50 or one of its batch: engine `failing` stopped at instruction 7: no reason");
    }
}

#[test]
fn packets_for_other_ports_leave_although_one_port_fails() {
    let wires = require!(Wires::new(3, 1));
    let to_both = |frames: &mut [Frame<'_>]| {
        for frame in frames {
            frame.fate = Fate::Redirect(Port(2 + u32::from(frame.bytes()[21]) % 2));
        }
        Ok(())
    };
    let raw = || Box::new(opened(|| Raw::open(&near(3), RawOptions::default()))) as Box<dyn Device>;
    let af_xdp = || Box::new(opened(|| AfXdp::open(&near(3), &AfXdpOptions::default()))) as Box<dyn Device>;
    for open in [&raw as &(dyn Fn() -> Box<dyn Device> + Sync), &af_xdp] {
        let (one, three) = wires.there.within(|| (Wire::open("far1"), Wire::open("far3")));
        let path = wires.there.path();
        wires.here.within(|| {
            let mut device = open();
            ip("link del near2").expect("deleted");
            one.send(&packet(0));
            one.send(&packet(1));
            let (mut failed, mut ran) = (Ok(()), 0);
            eventually("both packets are received", || {
                let received = device.receive(0, &mut |frames| {
                    ran += frames.len();
                    to_both(frames)
                });
                let flushed = device.flush();
                failed = std::mem::replace(&mut failed, Ok(())).and(received.map(drop)).and(flushed);
                ran == 2
            });
            let error = failed.expect_err("port 2 is gone");
            assert!(matches!(&error, PortsError::Disappeared { interface, .. } if interface == "near2"), "{error}");
            assert_eq!(three.receive(PATIENCE), Some(packet(1)), "{}", device.name());
            device.check_invariants();
            let counters = device.counters();
            if device.name().starts_with("raw") {
                assert_eq!((counters.sent, counters.tx_refused), (1, 1), "{counters:?}");
            }
            drop(device);
            // For the next round.
            ip(&format!("link add near2 type veth peer name far2 netns {path}")).expect("added");
            ip("link set near2 up").expect("turned on");
        });
        wires.there.within(|| ip("link set far2 up").expect("turned on"));
    }
}

#[test]
fn an_interface_that_disappears_ends_the_run() {
    let wires = require!(Wires::new(2, 1));
    for (open, name) in [(af_xdp as fn(u32) -> Box<dyn Device>, "near1"), (|_| raw(), "near2")] {
        let error = ended_by(
            &wires.here,
            || Running::new(vec![open(64)], Cross),
            || {
                wires.there.within(|| exchange(&Wire::open("far1"), &Wire::open("far2"), 0..50, 16, swapped));
                wires.here.within(|| ip(&format!("link del {name}"))).expect("deleted");
            },
        );
        assert!(matches!(&error, PortsError::Disappeared { interface, .. } if interface == name), "{error}");
        assert!(error.is_environment());
        // For the next round.
        let path = wires.there.path();
        wires.here.within(|| {
            let n = &name[4..];
            ip(&format!("link add {name} type veth peer name far{n} netns {path}")).expect("added");
            ip(&format!("link set {name} up")).expect("turned on");
        });
        wires.there.within(|| ip(&format!("link set far{} up", &name[4..])).expect("turned on"));
    }
}

#[test]
fn a_tap_interface_that_disappears_ends_the_run() {
    let here = require!(Namespace::new());
    let prepare = || {
        let tap = opened(|| Tap::open(&[(Port(1), "fltap%d")]));
        Running::new(vec![Box::new(tap)], Cross)
    };
    let error = ended_by(&here, prepare, || {
        here.within(|| ip("link del fltap0")).expect("deleted");
    });
    assert!(matches!(&error, PortsError::Disappeared { interface, .. } if interface == "fltap0"), "{error}");
}

/// Sends a datagram from namespace `there` to `here`; true if it arrives.
fn reaches(wires: &Wires) -> bool {
    let to = wires.here.within(|| UdpSocket::bind("10.9.0.1:0")).expect("an address of near1");
    to.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket");
    let address = to.local_addr().expect("bound");
    let from = wires.there.within(|| UdpSocket::bind("10.9.0.2:0")).expect("an address of far1");
    from.send_to(b"hello", address).expect("sent");
    to.recv(&mut [0; 16]).is_ok_and(|len| len == 5)
}

fn with_addresses(wires: &Wires) {
    wires.here.within(|| ip("addr add 10.9.0.1/24 dev near1").expect("an address"));
    wires.there.within(|| ip("addr add 10.9.0.2/24 dev far1").expect("an address"));
}

#[test]
fn a_killed_process_leaves_the_interfaces_usable() {
    let wires = require!(Wires::new(2, 1));
    with_addresses(&wires);
    assert!(reaches(&wires));
    for device in ["af_xdp", "raw"] {
        let mut child = wires.here.within(|| {
            let binary = std::env::current_exe().expect("this test");
            let arguments = ["faults::child_process", "--exact", "--nocapture"];
            Command::new(binary).args(arguments).env(CHILD, device).stdout(Stdio::piped()).spawn().expect("starts")
        });
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let is_ready = lines.any(|line| line.is_ok_and(|line| line.contains("child is ready")));
        assert!(is_ready, "{device}: {:?}", child.wait());
        // The child drops everything.
        assert!(!reaches(&wires), "{device}");
        child.kill().expect("killed");
        child.wait().expect("ended");
        eventually("packets reach the stack again", || reaches(&wires));
        let shown = wires.here.within(|| ip("-details link show near1")).expect("shown");
        assert!(!shown.contains("xdp"), "{shown}");
    }
}

#[test]
fn missing_privileges_and_memory_are_named() {
    let wires = require!(Wires::new(2, 1));
    require!(Command::new("setpriv").arg("--version").output().map_err(|e| format!("`setpriv` of util-linux: {e}")));
    let binary = std::env::current_exe().expect("this test");
    let opening = |without: &str, device: &str| {
        // The limit of locked memory counts without the capability only.
        let line = format!(
            "ulimit -l 64; exec setpriv --bounding-set {without} --inh-caps {without} '{}' \
             faults::child_process --exact --nocapture",
            binary.display()
        );
        let said = wires.here.within(|| Command::new("sh").args(["-c", &line]).env(CHILD, device).output());
        let said = said.expect("runs");
        format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr))
    };
    for (without, device, message) in [
        ("-ipc_lock", "open af_xdp", "af_xdp near1,near2: could not lock 1048576 bytes of packet memory: "),
        ("-ipc_lock", "open af_xdp", "the limit is 65536 bytes: raise it (`ulimit -l unlimited`), grant CAP_IPC_LOCK"),
        (
            "-net_raw",
            "open raw",
            "raw near1,near2: could not open a socket: Operation not permitted (os error 1); this ",
        ),
        ("-net_raw", "open raw", "this needs CAP_NET_RAW: run as root, or grant it with `setcap`"),
        ("-net_admin,-sys_admin", "open af_xdp", "this needs CAP_BPF and CAP_NET_ADMIN"),
        ("-net_admin", "open tap", "tap fltap%d: could not open `fltap%d`: Operation not permitted"),
    ] {
        let said = opening(without, device);
        assert!(said.contains(message) && said.contains("environment: true"), "{device} {without}:\n{said}");
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "the parent reads it")]
fn child_process() {
    let Ok(device) = std::env::var(CHILD) else { return };
    if let Some(device) = device.strip_prefix("open ") {
        let options = AfXdpOptions { ring_entries: 64, ..AfXdpOptions::default() };
        let error = match device {
            "raw" => Raw::open(&near(2), RawOptions::default()).map(drop),
            "tap" => Tap::open(&[(Port(1), "fltap%d")]).map(drop),
            _ => AfXdp::open(&near(2), &options).map(drop),
        };
        let error = error.expect_err("something is missing");
        println!("{error}, environment: {}", error.is_environment());
        return;
    }
    let mut devices = vec![if device == "raw" { raw() } else { af_xdp(64) }];
    println!("child is ready");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (mut engine, options) = (Always(Fate::Drop), LoopOptions::default());
    let ended = flowloom_ports::run_loop(&mut devices, &mut engine, None, &options, &stop, Default::default());
    panic!("{ended:?}");
}

#[test]
fn dropping_a_device_detaches_it() {
    let wires = require!(Wires::new(2, 1));
    with_addresses(&wires);
    for open in [|| af_xdp(64), raw] {
        let device = wires.here.within(|| {
            let device = open();
            // Once only.
            let again = AfXdp::open(&near(1), &AfXdpOptions::default());
            if device.name().starts_with("af_xdp") {
                let error = again.expect_err("occupied").to_string();
                assert!(error.contains("already runs the XDP program `fl_to_sockets`"), "{error}");
            }
            DeviceIn(device)
        });
        assert!(!reaches(&wires));
        drop(device);
        eventually("packets reach the stack again", || reaches(&wires));
    }
}

/// A device that is dropped in another thread than the one that opened it.
struct DeviceIn(#[allow(dead_code, reason = "dropped only")] Box<dyn Device>);

// SAFETY: the devices of this test own descriptors and memory mappings, none of which belongs to a thread.
#[allow(unsafe_code, reason = "trait objects of devices are not Send")]
unsafe impl Send for DeviceIn {}

#[test]
fn wrong_options_are_refused() {
    let wires = require!(Wires::new(2, 1));
    wires.here.within(|| {
        let open = |ring_entries| AfXdp::open(&near(1), &AfXdpOptions { ring_entries, ..AfXdpOptions::default() });
        let error = open(100).expect_err("not a power of two").to_string();
        assert_eq!(error, "af_xdp near1: ring_entries is 100, expected a power of two up to 65536");
        let error = AfXdp::open_workers(&near(1), &AfXdpOptions::default(), 2).expect_err("one queue").to_string();
        assert!(error.starts_with("interface `near1` has 1 receive queues, but queue 1 was requested"), "{error}");
        let options = AfXdpOptions { copy: flowloom_ports::CopyMode::ZeroCopy, ..AfXdpOptions::default() };
        let error = AfXdp::open(&near(1), &options).expect_err("veth copies");
        assert!(matches!(error, PortsError::Unsupported { .. }) && error.is_environment(), "{error}");
        let twice = [interface(1, "near1"), interface(1, "near2")];
        let error = AfXdp::open(&twice, &AfXdpOptions::default()).expect_err("one port").to_string();
        assert_eq!(error, "port 1 is bound twice, to near1 and to near2; each port has one interface");
        let error =
            AfXdp::open(&[interface(256, "near1")], &AfXdpOptions::default()).expect_err("too large").to_string();
        assert_eq!(error, "port 256 of af_xdp near1 is not below 256");
        let error = Tap::open(&[(Port(1), "near1")]).expect_err("not a TAP").to_string();
        assert!(error.contains("`near1` as a TAP interface is not supported"), "{error}");
    });
}

/// A program of others that redirects or passes ends the chain of programs.
#[test]
fn the_guard_of_raw_sockets_runs_before_other_programs() {
    let wires = require!(Wires::new(1, 1));
    wires.here.within(|| {
        let open = || opened(|| Raw::open(&near(1), RawOptions::default()));
        let devices = [open(), open()];
        let found = flowloom_ports::ingress_programs(&interface(1, "near1")).expect("listed");
        assert!(
            matches!(found.as_slice(), [(late, name), (early, _)] if late > early && name == "fl_keep"),
            "{found:?}"
        );
        drop(devices);
        eventually("both are detached", || {
            flowloom_ports::ingress_programs(&interface(1, "near1")).expect("listed").is_empty()
        });
    });
}
