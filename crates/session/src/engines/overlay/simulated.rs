// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine in simulation: packets through its streams, its registers through AXI4-Lite.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use flowloom_cosim::{CosimError, Design, End, Model, Port, Simulation, Stalls, Streams, Transfer};
use flowloom_overlay::rtl::{self, File};
use flowloom_overlay::{Bus, Driver, DriverError, Parameters};

use crate::engines::stream::{Arrival, Departure, OutputStalls, PacketStream, SendError};

/// The bytes of a word of the streams.
const WORD_BYTES: usize = 64;
/// The bytes of the longest packet.
const MAX_BYTES: usize = 144 * WORD_BYTES;
/// Cycles in which a packet leaves, whatever it waits for.
const IDLE_CYCLES: u32 = 4096;
/// Cycles without an event after the last verdict.
const SETTLE_CYCLES: u32 = 64;
/// Cycles from an access to the registers to the next one: its response comes within them.
const ACCESS_CYCLES: usize = 4;
/// Cycles that pass while the driver waits.
const LEAST_WAIT_CYCLES: u32 = 4;
const MOST_WAIT_CYCLES: u32 = 512;
/// Accesses in one exchange with the simulation.
const BATCH: usize = 1 << 12;
/// The response `OKAY` of AXI4-Lite.
const OKAY: u64 = 0;

/// A failure of the machine in simulation.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The simulation failed.
    #[error(transparent)]
    Cosim(#[from] CosimError),
    /// Packets did not come out.
    #[error(transparent)]
    Send(#[from] SendError),
    /// An access to a register was not answered, or with an error.
    #[error("register 0x{address:x}: {what}")]
    Register {
        /// The address.
        address: u32,
        /// The failure.
        what: String,
    },
}

/// A write of a register while packets are in the machine. Writes are made in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterWrite {
    /// The packets that are taken at the input before it.
    pub after_packets: usize,
    /// The cycles after these packets, and after the write before it.
    pub delay_cycles: u32,
    /// The address.
    pub address: u32,
    /// The value.
    pub value: u32,
}

/// The ports of AXI4-Lite.
#[derive(Debug)]
struct RegisterPorts {
    aw_valid: Port,
    aw_ready: Port,
    aw_address: Port,
    w_valid: Port,
    w_ready: Port,
    w_data: Port,
    w_strobe: Port,
    b_valid: Port,
    b_ready: Port,
    b_response: Port,
    ar_valid: Port,
    ar_ready: Port,
    ar_address: Port,
    r_valid: Port,
    r_ready: Port,
    r_data: Port,
    r_response: Port,
}

impl RegisterPorts {
    fn of(model: &Model) -> Result<RegisterPorts, CosimError> {
        let (input, output) = (|name: &str| model.input(name), |name: &str| model.output(name));
        Ok(RegisterPorts {
            aw_valid: input("aw_valid_i")?,
            aw_ready: output("aw_ready_o")?,
            aw_address: input("aw_address_i")?,
            w_valid: input("w_valid_i")?,
            w_ready: output("w_ready_o")?,
            w_data: input("w_data_i")?,
            w_strobe: input("w_strobe_i")?,
            b_valid: output("b_valid_o")?,
            b_ready: input("b_ready_i")?,
            b_response: output("b_response_o")?,
            ar_valid: input("ar_valid_i")?,
            ar_ready: output("ar_ready_o")?,
            ar_address: input("ar_address_i")?,
            r_valid: output("r_valid_o")?,
            r_ready: input("r_ready_i")?,
            r_data: output("r_data_o")?,
            r_response: output("r_response_o")?,
        })
    }
}

/// The machine in simulation: a bus for its driver, and streams for packets.
#[derive(Debug)]
pub struct SimulatedMachine {
    simulation: Simulation,
    stream: PacketStream,
    registers: RegisterPorts,
    input_bytes: usize,
    output_bytes: usize,
}

impl SimulatedMachine {
    /// Compiles a machine with these parameters, or finds it in `cache`, and starts it. Registers have random values of
    /// the seed at first.
    ///
    /// # Errors
    /// Those of [`Model::build`], or the machine is not that of the parameters.
    pub fn start(
        parameters: &Parameters,
        cache: &Path,
        seed: u32,
    ) -> Result<Driver<SimulatedMachine>, DriverError<MachineError>> {
        SimulatedMachine::start_files(&rtl::files_of(rtl::MACHINE), parameters, cache, seed)
    }

    /// As [`SimulatedMachine::start`], with these files.
    ///
    /// # Errors
    /// As there.
    pub fn start_files(
        files: &[File<'_>],
        parameters: &Parameters,
        cache: &Path,
        seed: u32,
    ) -> Result<Driver<SimulatedMachine>, DriverError<MachineError>> {
        let build = || -> Result<SimulatedMachine, CosimError> {
            let model = Model::build(&design(files, parameters, cache)?, cache)?;
            let stream = PacketStream::of(&model, WORD_BYTES, false, false)?;
            let mut simulation = model.start(seed)?;
            stream.reset(&mut simulation)?;
            Ok(SimulatedMachine {
                simulation,
                stream,
                registers: RegisterPorts::of(&model)?,
                input_bytes: model.input_bytes(),
                output_bytes: model.output_bytes(),
            })
        };
        Driver::open(build().map_err(|error| DriverError::Bus(error.into()))?, parameters)
    }

    /// The longest packet; longer ones are discarded.
    pub fn max_bytes(&self) -> usize {
        MAX_BYTES
    }

    /// Lets the times of the next packets be before those of the last ones. No packet may be in the machine.
    ///
    /// # Errors
    /// The simulation has ended.
    pub fn restart_times(&mut self) -> Result<(), MachineError> {
        Ok(self.stream.restart_times(&mut self.simulation)?)
    }

    /// Sends packets back to back, but for their delays, and returns the result of each. All of them have left in the
    /// end.
    ///
    /// # Errors
    /// The simulation has ended, or a packet did not come out.
    pub fn send(&mut self, packets: &[Arrival<'_>], stalls: OutputStalls) -> Result<Vec<Departure>, MachineError> {
        self.send_and_write(packets, &[], stalls)
    }

    /// As [`SimulatedMachine::send`], while registers are written.
    ///
    /// # Errors
    /// As for [`SimulatedMachine::send`].
    pub fn send_and_write(
        &mut self,
        packets: &[Arrival<'_>],
        writes: &[RegisterWrite],
        stalls: OutputStalls,
    ) -> Result<Vec<Departure>, MachineError> {
        let (mut words, before) = self.stream.words(packets, &[]);
        let mut rest = vec![0; self.input_bytes];
        let accepts_responses = |inputs: &mut Vec<u8>| {
            self.registers.b_ready.set(inputs, 1);
            self.registers.r_ready.set(inputs, 1);
        };
        accepts_responses(&mut rest);
        words.iter_mut().for_each(|word| accepts_responses(&mut word.inputs));
        let accesses = writes.iter().map(|&RegisterWrite { after_packets, delay_cycles, address, value }| {
            let mut inputs = vec![0; self.input_bytes];
            self.set_write(&mut inputs, address, value);
            let after = before.get(after_packets).or(before.last()).copied().unwrap_or(0);
            flowloom_cosim::Access {
                after_words: after as u32,
                delay_cycles,
                inputs,
                ready: self.registers.aw_ready.clone(),
                answered: self.registers.b_valid.clone(),
            }
        });
        let accesses: Vec<_> = accesses.collect();
        let slowed = |cycles: u32| cycles * 256 / (256 - u32::from(stalls.of_256));
        let end = End {
            idle_cycles: slowed(IDLE_CYCLES),
            settle_cycles: slowed(SETTLE_CYCLES),
            monitored: packets.len() as u32,
        };
        let stalls = Stalls { of_256: stalls.of_256, seed: stalls.seed };
        let transfer = Transfer { rest: &rest, words: &words, accesses: &accesses, stalls, end };
        let events = self.simulation.transfer(&transfer)?;
        Ok(self.stream.departures(packets, &events)?)
    }

    fn set_write(&self, inputs: &mut [u8], address: u32, value: u32) {
        let ports = &self.registers;
        ports.aw_valid.set(inputs, 1);
        ports.aw_address.set(inputs, address.into());
        ports.w_valid.set(inputs, 1);
        ports.w_data.set(inputs, value.into());
        ports.w_strobe.set(inputs, 0xf);
        ports.b_ready.set(inputs, 1);
    }

    /// Makes accesses, each in [`ACCESS_CYCLES`] cycles; returns the outputs of these cycles.
    fn access(
        &mut self,
        count: usize,
        set: impl Fn(&SimulatedMachine, usize, &mut [u8]),
    ) -> Result<Vec<u8>, CosimError> {
        let mut inputs = vec![0; count * ACCESS_CYCLES * self.input_bytes];
        for (number, cycle) in inputs.chunks_mut(self.input_bytes).enumerate() {
            self.registers.b_ready.set(cycle, 1);
            self.registers.r_ready.set(cycle, 1);
            if number % ACCESS_CYCLES == 0 {
                set(self, number / ACCESS_CYCLES, cycle);
            }
        }
        self.simulation.run(&inputs)
    }
}

impl Bus for SimulatedMachine {
    type Error = MachineError;

    fn read(&mut self, address: u32) -> Result<u32, MachineError> {
        let outputs = self.access(1, |own, _, cycle| {
            own.registers.ar_valid.set(cycle, 1);
            own.registers.ar_address.set(cycle, address.into());
        })?;
        let ports = &self.registers;
        let mut cycles = outputs.chunks(self.output_bytes);
        let is_taken = cycles.next().is_some_and(|cycle| ports.ar_ready.get(cycle) == 1);
        let answer = cycles.find(|cycle| ports.r_valid.get(cycle) == 1).filter(|_| is_taken);
        match answer.map(|cycle| (ports.r_response.get(cycle), ports.r_data.get(cycle))) {
            Some((OKAY, data)) => Ok(data as u32),
            Some((response, _)) => {
                Err(MachineError::Register { address, what: format!("a read was answered with {response}") })
            }
            None => Err(MachineError::Register { address, what: "a read was not answered".to_owned() }),
        }
    }

    fn write(&mut self, writes: &[(u32, u32)]) -> Result<(), MachineError> {
        for batch in writes.chunks(BATCH) {
            let outputs = self.access(batch.len(), |own, at, cycle| own.set_write(cycle, batch[at].0, batch[at].1))?;
            let ports = &self.registers;
            for (&(address, _), cycles) in batch.iter().zip(outputs.chunks(ACCESS_CYCLES * self.output_bytes)) {
                let mut cycles = cycles.chunks(self.output_bytes);
                let ready = |cycle: &[u8]| ports.aw_ready.get(cycle) == 1 && ports.w_ready.get(cycle) == 1;
                let is_taken = cycles.next().is_some_and(ready);
                let answer = cycles.find(|cycle| ports.b_valid.get(cycle) == 1).filter(|_| is_taken);
                match answer.map(|cycle| ports.b_response.get(cycle)) {
                    Some(OKAY) => {}
                    Some(response) => {
                        let what = format!("a write was answered with {response}");
                        return Err(MachineError::Register { address, what });
                    }
                    None => {
                        return Err(MachineError::Register { address, what: "a write was not answered".to_owned() });
                    }
                }
            }
        }
        Ok(())
    }

    fn pass_time(&mut self, reads: u32) -> Result<(), MachineError> {
        let cycles = (LEAST_WAIT_CYCLES << reads.min(16)).min(MOST_WAIT_CYCLES);
        // Without words, no outputs are handed over.
        let rest = vec![0; self.input_bytes];
        let end = End { idle_cycles: cycles, settle_cycles: cycles, monitored: 0 };
        let wait = Transfer { rest: &rest, words: &[], accesses: &[], stalls: Stalls { of_256: 0, seed: 0 }, end };
        self.simulation.transfer(&wait)?;
        Ok(())
    }
}

/// The design of a machine; its files are written into the cache.
fn design(files: &[File<'_>], parameters: &Parameters, cache: &Path) -> Result<Design, CosimError> {
    let mut hasher = DefaultHasher::new();
    files.iter().for_each(|file| (file.module, file.text).hash(&mut hasher));
    let folder = cache.join("sources").join(format!("{}-{:016x}", rtl::MACHINE, hasher.finish()));
    let error = |path: &Path| {
        let path = path.to_owned();
        move |source| CosimError::File { path, source }
    };
    std::fs::create_dir_all(&folder).map_err(error(&folder))?;
    let mut paths: Vec<PathBuf> = Vec::new();
    for File { module, text } in files {
        let path = folder.join(module).with_extension("sv");
        // Renamed when complete: another process may read the file.
        let own = folder.join(format!("{module}.{}.{:?}", std::process::id(), std::thread::current().id()));
        std::fs::write(&own, text).map_err(error(&own))?;
        std::fs::rename(&own, &path).map_err(error(&path))?;
        paths.push(path);
    }
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let streams = Streams { input: "in".to_owned(), output: "out".to_owned(), monitors: vec!["done".to_owned()] };
    let mut design = Design::new(rtl::MACHINE, &paths).with_streams(streams);
    for (name, value) in rtl::module_parameters(parameters) {
        design = design.parameter(name, value);
    }
    Ok(design)
}
