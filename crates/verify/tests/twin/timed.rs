// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cost of a packet in the kernel: alternating test runs of the lowered function and its twin.
//!
//! A test run passes the program the same frame repeatedly, as the last run left it. So each function has parameters
//! with which its writes do not change the frame: it does all its work on an unchanged frame.

use std::path::{Path, PathBuf};

use flowloom_testkit::PacketBuilder;
use flowloom_testkit::scratch::{Scratch, name, output};

use super::{CPUS, Clang, Variant};

/// Number of rounds; each runs every program in turn.
const ROUNDS: usize = 21;
/// Runs of a program per round.
const REPEAT: u32 = 100_000;

/// A function, and the frame that it is timed with.
pub struct Timed {
    pub variant: Variant,
    /// Frames sent once each before timing.
    before: fn() -> Vec<Vec<u8>>,
    frame: fn() -> Vec<u8>,
    pub does: &'static str,
}

/// Quartiles of the nanoseconds per run.
#[derive(Debug, Clone, Copy)]
pub struct Nanoseconds {
    pub low: u32,
    pub median: u32,
    pub high: u32,
}

fn nothing() -> Vec<Vec<u8>> {
    Vec::new()
}

fn udp(dport: u16) -> Vec<u8> {
    PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(9, dport).payload(&[7; 22]).build()
}

/// Frames of a test run have input port 1.
pub const TIMED: [Timed; 6] = [
    Timed {
        variant: Variant { function: "port_knocking", params: &[], macros: &[] },
        before: || [5123, 6234, 7345, 8456].map(udp).to_vec(),
        frame: || udp(22),
        does: "the door is open",
    },
    Timed {
        variant: Variant { function: "big_flow", params: &[], macros: &[] },
        before: nothing,
        frame: || udp(80),
        does: "marks a big flow",
    },
    Timed {
        variant: Variant {
            function: "udp_firewall",
            params: &[("inside", "1"), ("outside", "2")],
            macros: &["INSIDE=1", "OUTSIDE=2"],
        },
        before: nothing,
        frame: || udp(80),
        does: "a known flow, from inside",
    },
    Timed {
        variant: Variant { function: "policer", params: &[], macros: &[] },
        before: nothing,
        frame: || udp(80),
        does: "drops: the bucket is empty",
    },
    Timed {
        variant: Variant {
            function: "dynamic_nat",
            params: &[("inside", "1"), ("outside", "2"), ("first_port", "0xffff")],
            macros: &["INSIDE=1", "OUTSIDE=2", "FIRST_PORT=0xffff"],
        },
        before: nothing,
        frame: || PacketBuilder::new().ipv4([203, 0, 113, 2], [10, 0, 0, 2]).udp(0xffff, 53).payload(&[7; 22]).build(),
        does: "a known flow, from inside",
    },
    Timed {
        variant: Variant {
            function: "server_load_balancer",
            params: &[("server1", "1.0.0.1"), ("server2", "1.0.0.1")],
            macros: &["SERVER1=0x01000001", "SERVER2=0x01000001"],
        },
        before: nothing,
        frame: || PacketBuilder::new().ipv4([10, 0, 0, 9], [1, 0, 0, 1]).tcp(4000, 80).build(),
        does: "a known connection, from its client",
    },
];

/// Times of the function as built, then lowered without locks, then of its twin for each of [`CPUS`]; `None` where no
/// program can be run.
///
/// # Panics
/// The programs disagree in their verdicts, or the kernel refuses one.
pub fn measure(test: &str, clang: &Clang, timed: &Timed) -> Option<Vec<Nanoseconds>> {
    let scratch = Scratch::with_kernel(test)?;
    let own = [timed.variant.built(), timed.variant.lowered()];
    let mut objects: Vec<Vec<u8>> = own.iter().map(|program| flowloom_object::write(program).unwrap()).collect();
    objects.extend(CPUS.map(|cpu| timed.variant.twin_object(clang, cpu)));
    let frames = (timed.before)().into_iter().chain([(timed.frame)()]).enumerate();
    let frame_files: Vec<PathBuf> = frames.map(|(i, frame)| scratch.put(&format!("frame{i}"), &frame)).collect();
    let load = |(i, object): (usize, &Vec<u8>)| scratch.load(object, &format!("program{i}")).0;
    let programs: Vec<PathBuf> = objects.iter().enumerate().map(load).collect();
    let run = |pin: &Path, file: &Path, repeat: u32| {
        let (pin, file, repeat) = (name(pin), name(file), repeat.to_string());
        let found = output("bpftool", &["-j", "prog", "run", "pinned", pin, "data_in", file, "repeat", &repeat]);
        (number(&found, "retval"), number(&found, "duration"))
    };
    let (last, before) = frame_files.split_last().unwrap();
    for pin in &programs {
        for file in before {
            run(pin, file, 1);
        }
        // Warm up, until a flow is big and one-time work is done.
        run(pin, last, REPEAT);
    }
    let mut times = vec![Vec::new(); programs.len()];
    for _ in 0..ROUNDS {
        let mut verdicts = Vec::new();
        for (pin, times) in programs.iter().zip(&mut times) {
            let (verdict, duration) = run(pin, last, REPEAT);
            verdicts.push(verdict);
            times.push(duration);
        }
        assert!(verdicts.iter().all(|v| *v == verdicts[0]), "{}: verdicts {verdicts:?}", timed.variant.title());
    }
    let quartiles = |mut times: Vec<u32>| {
        times.sort_unstable();
        let at = |quarter: usize| times[(times.len() - 1) * quarter / 4];
        Nanoseconds { low: at(1), median: at(2), high: at(3) }
    };
    Some(times.into_iter().map(quartiles).collect())
}

/// The number after a name in the output of `bpftool -j prog run`.
fn number(json: &str, name: &str) -> u32 {
    let after = json.split_once(&format!("\"{name}\":")).map(|(_, after)| after.trim_start());
    let digits: String = after.unwrap_or_default().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no `{name}` in `{json}`"))
}
