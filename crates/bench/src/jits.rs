// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs without maps as machine code, beside the just-in-time compilers of other machines, and beside `gcc -O2` of
//! the same C.
//!
//! # Fairness
//! - All run the same work on the same packets, by turns over as many buffers, and must leave the same bytes. The code
//!   of ours begins with the check of the packet's length, as the kernel's verifier asks for.
//! - What a contender takes for a program that returns at once is subtracted: its harness.
//! - solana-sbpf counts no instructions, translates no addresses, and hides no constants: its fastest code.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use crate::error::BenchError;
use crate::machines::{Gcc, Machine, Rbpf, Sbpf};
use crate::measure::{Comparison, Contender, Times, by_turns, now_ns};
use crate::ours::{BATCH, Buffers, FRAMES, Ring, compiled, program};
use crate::tool;
use crate::traffic;

/// The programs: name and bytes; the short ones work on 16 packets of 64 bytes.
pub(crate) const PROGRAMS: [(&str, usize); 4] =
    [("parse", 16 * 64), ("checksum64", 16 * 64), ("checksum1500", 1500), ("hash", 64)];
/// The bytes of packets that a round goes over, at least.
const BYTES: usize = 1 << 26;
/// Flowloom is asked to be no slower than other machines, and to take 1.2 times as long as gcc at most.
const MACHINE_BAR: f64 = 1.0;
const GCC_BAR: f64 = 1.0 / 1.2;

/// The packets of a program: a 5-tuple every 64 bytes, then bytes that differ.
pub(crate) fn packet(bytes: usize) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..bytes).map(|at| (at * 37) as u8).collect();
    for (flow, packet) in (0..).zip(packet.chunks_exact_mut(traffic::PACKET_BYTES)) {
        packet[..42].copy_from_slice(&traffic::packet()[..42]);
        traffic::write_flow(packet, flow);
    }
    packet
}

/// The program of this name for each machine, and the harness in place of it.
pub(crate) struct Sources<'a> {
    pub(crate) folder: &'a Path,
}

impl Sources<'_> {
    pub(crate) fn object(&self, name: &str, kind: &str, options: &[&str]) -> Result<PathBuf, BenchError> {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        let header = format!("-DPROGRAM=\"{name}.h\"");
        let options: Vec<&str> = options.iter().copied().chain([header.as_str()]).collect();
        tool::object(self.folder, &programs.join("entry.c"), &format!("{name}-{kind}"), &options)
    }

    fn ours<'b>(&self, name: &str, buffers: &'b mut Buffers) -> Result<Ring<'b>, BenchError> {
        let object = self.object(name, "xdp", &["-mcpu=v3", "-DXDP"])?;
        Ok(buffers.ring(compiled(&program(&object, None)?)?))
    }

    /// The code of other machines.
    pub(crate) fn code(&self, name: &str, cpu: &str) -> Result<Vec<u8>, BenchError> {
        let object = self.object(name, cpu, &[&format!("-mcpu={cpu}")])?;
        Ok(program(&object, None)?.insns.iter().flat_map(|insn| insn.to_bytes()).collect())
    }

    fn gcc(&self, name: &str) -> Result<Gcc, BenchError> {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        let (header, include) = (format!("-DPROGRAM=\"{name}.h\""), format!("-I{}", programs.display()));
        let options = ["-O2", header.as_str(), include.as_str()];
        let library = tool::library(self.folder, name, include_str!("../programs/entry.c"), &options, &[])?;
        Gcc::new(library)
    }
}

/// A contender: its program and its harness.
struct Machines {
    name: &'static str,
    harness_name: &'static str,
    whole: Box<dyn Machine>,
    harness: Box<dyn Machine>,
}

fn rbpf(sources: &Sources<'_>, name: &str) -> Result<Machines, BenchError> {
    let code = |name| Ok::<_, BenchError>(Box::new(Rbpf::new(sources.code(name, "v3")?)?));
    Ok(Machines { name: "rbpf", harness_name: "rbpf, harness", whole: code(name)?, harness: code("empty")? })
}

fn sbpf(sources: &Sources<'_>, name: &str) -> Result<Machines, BenchError> {
    let code = |name| Ok::<_, BenchError>(Box::new(Sbpf::new(&sources.code(name, "v3")?)?));
    Ok(Machines {
        name: "solana-sbpf",
        harness_name: "solana-sbpf, harness",
        whole: code(name)?,
        harness: code("empty")?,
    })
}

fn gcc(sources: &Sources<'_>, name: &str) -> Result<Machines, BenchError> {
    Ok(Machines {
        name: "gcc -O2",
        harness_name: "gcc -O2, harness",
        whole: Box::new(sources.gcc(name)?),
        harness: Box::new(sources.gcc("empty")?),
    })
}

/// Runs a machine on all packets in turn.
pub(crate) fn run(machine: &mut dyn Machine, packets: &mut [&mut [u8]], count: usize) -> Result<u64, BenchError> {
    for _ in 0..count / packets.len() {
        machine.run(packets)?;
    }
    Ok((count / packets.len() * packets.len()) as u64)
}

fn run_ours(ring: &mut Ring<'_>, count: usize) -> Result<u64, BenchError> {
    for _ in 0..count / BATCH {
        ring.run(BATCH, now_ns(), |_, _| ())?;
    }
    Ok((count / BATCH * BATCH) as u64)
}

/// All comparisons of programs without maps.
pub(crate) fn run_all(folder: &Path, rounds: usize) -> Result<Vec<Comparison>, BenchError> {
    println!("without ubpf: Debian has no package of it, and the crate `ubpf` 0.1.0 is under the AGPL");
    let gcc_version = tool::output(Command::new("gcc").arg("--version"))?;
    println!("gcc: {}", gcc_version.lines().next().unwrap_or_default());
    let sources = Sources { folder };
    let mut found = Vec::new();
    for (name, bytes) in PROGRAMS {
        found.extend(compare(&sources, name, bytes, rounds)?);
    }
    Ok(found)
}

fn compare(sources: &Sources<'_>, name: &str, bytes: usize, rounds: usize) -> Result<Vec<Comparison>, BenchError> {
    let packet = packet(bytes);
    let count = (BYTES / bytes).next_multiple_of(FRAMES);
    let what = format!("jit-{name}");
    // What runs is compared: each machine with the bytes that ours leaves.
    let (mut buffers, mut spare) = (Buffers::of(&packet), Buffers::of(&packet));
    let (mut ours, mut idle) = (sources.ours(name, &mut buffers)?, sources.ours("empty", &mut spare)?);
    run_ours(&mut ours, FRAMES)?;
    let expected = ours.first().1.to_vec();
    if expected == packet {
        return Err(BenchError::Wrong { what: format!("{what}: the program left the packet as it was") });
    }
    let mut machines = Vec::new();
    for made in [rbpf(sources, name), sbpf(sources, name), gcc(sources, name)] {
        let mut machine = match made {
            Ok(machine) => machine,
            Err(error) => {
                eprintln!("{what}: without a peer: {error}");
                continue;
            }
        };
        let mut buffers = Buffers::of(&packet);
        run(&mut *machine.whole, &mut buffers.packets(), FRAMES)?;
        if *buffers.packets()[0] != *expected {
            return Err(BenchError::Wrong { what: format!("{what}: {} leaves other bytes than ours", machine.name) });
        }
        machines.push((machine, buffers));
    }
    let mut contenders: Vec<Contender<'_>> = vec![
        ("flowloom, harness", Box::new(|clock| clock.time(|| run_ours(&mut idle, count)))),
        ("flowloom", Box::new(|clock| clock.time(|| run_ours(&mut ours, count)))),
    ];
    for (machine, buffers) in &mut machines {
        let Machines { name, harness_name, whole, harness } = machine;
        let packets = Rc::new(RefCell::new(buffers.packets()));
        let shared = Rc::clone(&packets);
        contenders.push((
            *harness_name,
            Box::new(move |clock| clock.time(|| run(&mut **harness, &mut packets.borrow_mut(), count))),
        ));
        contenders
            .push((*name, Box::new(move |clock| clock.time(|| run(&mut **whole, &mut shared.borrow_mut(), count)))));
    }
    let times = by_turns(&mut contenders, rounds)?;
    drop(contenders);
    let net = Times::net(&what, &times);
    let (ours, peers) = net.split_at(1);
    let bar = |peer: &Times| if peer.name.starts_with("gcc") { GCC_BAR } else { MACHINE_BAR };
    Ok(peers.iter().map(|peer| Comparison { bar: Some(bar(peer)), ..ours[0].beside(peer, &what, 0) }).collect())
}
