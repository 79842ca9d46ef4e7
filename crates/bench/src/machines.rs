// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other machines that run eBPF, and the processor itself.
#![allow(unsafe_code, reason = "machine code of others")]

use std::ptr::NonNull;
use std::sync::Arc;

use libloading::Library;
use solana_sbpf::elf::Executable;
use solana_sbpf::memory_region::MemoryMapping;
use solana_sbpf::program::{BuiltinProgram, FunctionRegistry, SBPFVersion};
use solana_sbpf::verifier::RequisiteVerifier;
use solana_sbpf::vm::{Config, ContextObject, EbpfVm, ExecutionMode};

use crate::error::BenchError;

/// Runs a program on packets, one after the other.
pub(crate) trait Machine {
    fn run(&mut self, packets: &mut [&mut [u8]]) -> Result<(), BenchError>;
}

fn failed(machine: &str, error: impl std::fmt::Display) -> BenchError {
    BenchError::Peer { what: format!("{machine}: {error}") }
}

/// A function that `gcc -O2` has compiled.
pub(crate) struct Gcc {
    _library: Library,
    entry: unsafe extern "C" fn(*mut u8) -> u64,
}

impl Gcc {
    pub(crate) fn new(library: Library) -> Result<Gcc, BenchError> {
        // SAFETY: the signature is that of the C source; the library lives as long as the address.
        let entry = unsafe { library.get::<unsafe extern "C" fn(*mut u8) -> u64>(b"entry") };
        let entry = *entry.map_err(|error| failed("gcc", error))?;
        Ok(Gcc { _library: library, entry })
    }
}

impl Machine for Gcc {
    fn run(&mut self, packets: &mut [&mut [u8]]) -> Result<(), BenchError> {
        for packet in packets {
            // SAFETY: the function reads and writes within a packet.
            unsafe { (self.entry)(packet.as_mut_ptr()) };
        }
        Ok(())
    }
}

/// A program that rbpf has compiled.
pub(crate) struct Rbpf(rbpf::EbpfVmRaw<'static>);

impl Rbpf {
    pub(crate) fn new(code: Vec<u8>) -> Result<Rbpf, BenchError> {
        // The machine borrows the code; the process ends soon.
        let code: &'static [u8] = Vec::leak(code);
        let mut machine = rbpf::EbpfVmRaw::new(Some(code)).map_err(|error| failed("rbpf", error))?;
        machine.jit_compile().map_err(|error| failed("rbpf", error))?;
        Ok(Rbpf(machine))
    }
}

impl Machine for Rbpf {
    fn run(&mut self, packets: &mut [&mut [u8]]) -> Result<(), BenchError> {
        for packet in packets {
            // SAFETY: the program reads and writes within a packet; the machine keeps no address of it.
            unsafe {
                let packet = std::slice::from_raw_parts_mut(packet.as_mut_ptr(), packet.len());
                self.0.execute_program_jit(packet)
            }
            .map_err(|error| failed("rbpf", error))?;
        }
        Ok(())
    }
}

/// A program that solana-sbpf has compiled.
pub(crate) struct Sbpf {
    executable: Executable<Meter>,
    loader: Arc<BuiltinProgram<Meter>>,
    meter: Meter,
}

const VERSION: SBPFVersion = SBPFVersion::V3;

/// No limit, and no memory besides the packets.
struct Meter(MemoryMapping);

impl ContextObject for Meter {
    fn consume(&mut self, _: u64) {}

    fn get_remaining(&self) -> u64 {
        u64::MAX >> 1
    }

    fn active_mapping_ptr(&mut self) -> NonNull<MemoryMapping> {
        NonNull::from_mut(&mut self.0)
    }
}

impl Sbpf {
    pub(crate) fn new(code: &[u8]) -> Result<Sbpf, BenchError> {
        let config = Config {
            enable_address_translation: false,
            enable_instruction_meter: false,
            enable_stack_frame_gaps: false,
            noop_instruction_rate: 0,
            sanitize_user_provided_values: false,
            ..Config::default()
        };
        let failed = |error| failed("solana-sbpf", error);
        // SAFETY: there are no regions.
        let mapping = unsafe { MemoryMapping::new(Vec::new(), &config, VERSION) }.map_err(failed)?;
        let loader = Arc::new(BuiltinProgram::new_loader(config));
        let executable = Executable::from_text_bytes(code, Arc::clone(&loader), VERSION, FunctionRegistry::default());
        let executable = executable.map_err(failed)?;
        executable.verify::<RequisiteVerifier>().map_err(failed)?;
        executable.jit_compile().map_err(failed)?;
        Ok(Sbpf { executable, loader, meter: Meter(mapping) })
    }
}

impl Machine for Sbpf {
    fn run(&mut self, packets: &mut [&mut [u8]]) -> Result<(), BenchError> {
        let mut machine = EbpfVm::new(Arc::clone(&self.loader), VERSION, &mut self.meter, 4096);
        for packet in packets {
            machine.registers[1] = packet.as_mut_ptr() as u64;
            let (_, result) = machine.execute_program(&self.executable, &mut ExecutionMode::Jit, &mut []);
            let result: Result<u64, _> = result.into();
            result.map_err(|error| failed("solana-sbpf", error))?;
        }
        Ok(())
    }
}
