// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running simulations.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::error::CosimError;
use crate::harness::{GIVEN, MONITORED, TAKEN, TRANSFER, TRANSFER_WORDS};
use crate::model::Model;

/// Cycles of one exchange with the process, which holds all their outputs in memory.
const BATCH_CYCLES: usize = 1 << 16;

/// Cycles of a transfer at most.
const MAX_CYCLES: u32 = 1 << 31;

/// A word of a transfer: the cycles of delay before it, and the inputs while it waits to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The delay in cycles.
    pub delay_cycles: u32,
    /// All inputs; valid is among them.
    pub inputs: Vec<u8>,
}

/// The stalls of the output during a transfer, and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stalls {
    /// The cycles of 256 in which the output is not ready, drawn at random.
    pub of_256: u8,
    /// The seed.
    pub seed: u32,
    /// The cycles without an event after which the transfer ends.
    pub idle_cycles: u32,
}

/// A cycle of a transfer in which something happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The cycle, from the beginning of the transfer.
    pub cycle: u64,
    bits: u8,
    /// All outputs in this cycle.
    pub outputs: Vec<u8>,
}

impl Event {
    /// Whether a word was taken at the input.
    pub fn is_taken(&self) -> bool {
        self.bits & TAKEN != 0
    }

    /// Whether a word was given at the output.
    pub fn is_given(&self) -> bool {
        self.bits & GIVEN != 0
    }

    /// Whether a monitor was valid, by its position.
    pub fn is_monitored(&self, monitor: usize) -> bool {
        self.bits & (MONITORED << monitor) != 0
    }
}

/// A simulation: the process of a model. It ends when this is dropped.
#[derive(Debug)]
pub struct Simulation {
    top: String,
    process: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    input_bytes: usize,
    output_bytes: usize,
    cycles: u64,
}

impl Simulation {
    pub(crate) fn start(model: &Model, command: &mut Command) -> Result<Simulation, CosimError> {
        let ended = |source| CosimError::Ended { top: model.top().to_owned(), source, output: String::new() };
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = piped.spawn().map_err(ended)?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let output = output.ok_or_else(|| ended(std::io::ErrorKind::BrokenPipe.into()))?;
        let (input_bytes, output_bytes) = (model.input_bytes(), model.output_bytes());
        Ok(Simulation { top: model.top().to_owned(), process, input, output, input_bytes, output_bytes, cycles: 0 })
    }

    /// Cycles simulated so far.
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Simulates one cycle for each set of inputs. Returns the outputs of each, sampled before the rising edge.
    ///
    /// # Errors
    /// If the inputs are not those of a whole number of cycles, or the process has ended.
    pub fn run(&mut self, inputs: &[u8]) -> Result<Vec<u8>, CosimError> {
        if self.input_bytes == 0 || !inputs.len().is_multiple_of(self.input_bytes) {
            let (found, expected) = (inputs.len(), self.input_bytes);
            return Err(CosimError::Length { top: self.top.clone(), found, expected });
        }
        let mut outputs = vec![0; inputs.len() / self.input_bytes * self.output_bytes];
        let batches = inputs.chunks(BATCH_CYCLES * self.input_bytes);
        let answers = outputs.chunks_mut((BATCH_CYCLES * self.output_bytes).max(1));
        for (batch, answer) in batches.zip(answers) {
            self.exchange(batch, answer).map_err(|source| self.ended(source))?;
        }
        Ok(outputs)
    }

    fn exchange(&mut self, batch: &[u8], answer: &mut [u8]) -> std::io::Result<()> {
        let cycles = (batch.len() / self.input_bytes) as u32;
        let input = self.input.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        input.write_all(&[&cycles.to_le_bytes(), batch].concat())?;
        input.flush()?;
        self.output.read_exact(answer)?;
        self.cycles += u64::from(cycles);
        Ok(())
    }

    /// Sends words through the input stream and takes what the output stream gives, until nothing happens any more.
    /// `rest` are the inputs of cycles without a word. Returns the events in order.
    ///
    /// # Errors
    /// If a word has not the length of the inputs, or the process has ended: a design without [`crate::Streams`] takes the
    /// request for a count of cycles.
    pub fn transfer(&mut self, rest: &[u8], words: &[Word], stalls: Stalls) -> Result<Vec<Event>, CosimError> {
        let wrong =
            [rest].into_iter().chain(words.iter().map(|word| &*word.inputs)).find(|i| i.len() != self.input_bytes);
        if let Some(wrong) = wrong {
            let (found, expected) = (wrong.len(), self.input_bytes);
            return Err(CosimError::Length { top: self.top.clone(), found, expected });
        }
        let head: [u32; TRANSFER_WORDS] =
            [words.len() as u32, stalls.idle_cycles, MAX_CYCLES, stalls.of_256.into(), stalls.seed];
        let mut request: Vec<u8> = TRANSFER.to_le_bytes().to_vec();
        head.iter().for_each(|word| request.extend(word.to_le_bytes()));
        request.extend(rest);
        for word in words {
            request.extend(word.delay_cycles.to_le_bytes());
            request.extend(&word.inputs);
        }
        self.transferred(request).map_err(|source| self.ended(source))
    }

    /// Writes the request while the events are read: both are longer than a pipe.
    fn transferred(&mut self, request: Vec<u8>) -> std::io::Result<Vec<Event>> {
        let input = self.input.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        let output = &mut self.output;
        let output_bytes = self.output_bytes;
        let events = std::thread::scope(|scope| {
            let written = scope.spawn(move || input.write_all(&request).and_then(|()| input.flush()));
            let mut output = std::io::BufReader::new(output);
            let mut events = Vec::new();
            loop {
                let (mut head, mut outputs) = ([0; 9], vec![0; output_bytes]);
                output.read_exact(&mut head)?;
                output.read_exact(&mut outputs)?;
                let [cycle @ .., bits] = head;
                let cycle = u64::from_le_bytes(cycle);
                if bits == 0 {
                    written.join().map_err(|_| std::io::ErrorKind::BrokenPipe)??;
                    return Ok::<_, std::io::Error>((events, cycle));
                }
                events.push(Event { cycle, bits, outputs });
            }
        });
        let (events, cycles) = events?;
        self.cycles += cycles;
        Ok(events)
    }

    /// The error of a process that has ended, with what it printed.
    fn ended(&mut self, source: std::io::Error) -> CosimError {
        self.input = None;
        let mut output = String::new();
        if let Some(mut stream) = self.process.stderr.take() {
            _ = stream.read_to_string(&mut output);
        }
        let output = if output.is_empty() { output } else { format!("\n{}", output.trim()) };
        CosimError::Ended { top: self.top.clone(), source, output }
    }
}

impl Drop for Simulation {
    /// Lets the process end by itself, so that waveforms are complete.
    fn drop(&mut self) {
        self.input = None;
        _ = self.process.wait();
    }
}
