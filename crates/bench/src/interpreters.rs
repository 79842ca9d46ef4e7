// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interpreter on the programs of `jits`, beside that of rbpf.
//!
//! # Fairness
//! - Both run the same work on the same packets, by turns over as many buffers, and must leave the same bytes. The code
//!   of ours begins with the check of the packet's length, as the kernel's verifier asks for.
//! - What a contender takes for a program that returns at once is subtracted: its harness. Ours has the copies of the
//!   packet in and out.
//! - Both check every access to memory. Ours counts instructions, and refuses more than a budget.

use std::path::Path;

use flowloom_engine::{Choices, Datapath, Packet, Port};
use flowloom_session::engines::{EngineName, EngineOptions};
use flowloom_session::{FunctionFile, Loaded};

use crate::error::BenchError;
use crate::jits::{PROGRAMS, Sources, packet, run};
use crate::machines::Machine;
use crate::measure::{Comparison, Contender, Times, by_turns};
use crate::ours::{Buffers, FRAMES};

/// The bytes of packets that a round goes over, at least.
const BYTES: usize = 1 << 22;
/// The ratio asked for. Where both were measured, the interpreter of ubpf was 1.5 times as fast as that of rbpf, and
/// 0.8 times as fast as ubpf's is asked for.
const BAR: f64 = 1.2;

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Peer { what: format!("rbpf: {error}") }
}

/// The interpreter of rbpf, which has checked the program.
struct Rbpf(rbpf::EbpfVmRaw<'static>);

impl Rbpf {
    fn new(code: Vec<u8>) -> Result<Rbpf, BenchError> {
        // The machine borrows the code; the process ends soon.
        Ok(Rbpf(rbpf::EbpfVmRaw::new(Some(Vec::leak(code))).map_err(failed)?))
    }
}

impl Machine for Rbpf {
    fn run(&mut self, packets: &mut [&mut [u8]]) -> Result<(), BenchError> {
        for packet in packets {
            self.0.execute_program(packet).map_err(failed)?;
        }
        Ok(())
    }
}

/// Our interpreter; packets get the bytes of the outcome.
struct Ours(Box<dyn Datapath>);

impl Ours {
    fn new(sources: &Sources<'_>, name: &str) -> Result<Ours, BenchError> {
        let path = sources.object(name, "xdp", &["-mcpu=v3", "-DXDP"])?;
        let loaded = Loaded::open(&FunctionFile { path, ..FunctionFile::default() })?;
        Ok(Ours(EngineName::INTERP.load(&loaded, &EngineOptions::default())?.engine))
    }
}

impl Machine for Ours {
    fn run(&mut self, packets: &mut [&mut [u8]]) -> Result<(), BenchError> {
        let choices = Choices::seeded(0, 0, 0);
        for packet in packets {
            let outcome = self.0.process(&Packet { bytes: packet, port: Port(1) }, &choices)?;
            if let Some(sent) = outcome.outputs.first() {
                packet.copy_from_slice(&sent.bytes);
            }
        }
        Ok(())
    }
}

/// All comparisons of the interpreter.
pub(crate) fn run_all(folder: &Path, rounds: usize) -> Result<Vec<Comparison>, BenchError> {
    println!(
        "without the interpreter of ubpf: Debian has no package of it, and the crate `ubpf` 0.1.0 is under the AGPL"
    );
    let sources = Sources { folder };
    PROGRAMS.into_iter().map(|(name, bytes)| compare(&sources, name, bytes, rounds)).collect()
}

fn compare(sources: &Sources<'_>, name: &str, bytes: usize, rounds: usize) -> Result<Comparison, BenchError> {
    let packet = packet(bytes);
    let count = (BYTES / bytes).next_multiple_of(FRAMES);
    let what = format!("interpreter-{name}");
    let rbpf = |name| Ok::<_, BenchError>(Box::new(Rbpf::new(sources.code(name, "v3")?)?));
    let ours = |name| Ok::<_, BenchError>(Box::new(Ours::new(sources, name)?));
    let mut machines: Vec<(&str, Box<dyn Machine>)> = vec![
        ("flowloom, harness", ours("empty")?),
        ("flowloom", ours(name)?),
        ("rbpf, harness", rbpf("empty")?),
        ("rbpf", rbpf(name)?),
    ];
    let mut buffers: Vec<Buffers> = machines.iter().map(|_| Buffers::of(&packet)).collect();
    let mut expected: Option<Vec<u8>> = None;
    for ((machine_name, machine), buffers) in machines.iter_mut().zip(&mut buffers) {
        if machine_name.ends_with("harness") {
            continue;
        }
        let mut packets = buffers.packets();
        run(&mut **machine, &mut packets, FRAMES)?;
        let found = packets[0].to_vec();
        if found == packet || expected.as_ref().is_some_and(|expected| *expected != found) {
            return Err(BenchError::Wrong { what: format!("{what}: {machine_name} leaves other bytes than expected") });
        }
        expected = Some(found);
    }
    let pairs = machines.iter_mut().zip(&mut buffers);
    let mut contenders: Vec<Contender<'_>> = Vec::new();
    for ((name, machine), buffers) in pairs {
        let mut packets = buffers.packets();
        contenders.push((*name, Box::new(move |clock| clock.time(|| run(&mut **machine, &mut packets, count)))));
    }
    let times = by_turns(&mut contenders, rounds)?;
    drop(contenders);
    let net = Times::net(&what, &times);
    Ok(Comparison { bar: Some(BAR), ..net[0].beside(&net[1], &what, 0) })
}
