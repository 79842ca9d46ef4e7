// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running simulations.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::error::CosimError;
use crate::harness::{ANSWERED, CHANGED, GIVEN, MADE, MONITORED, TAKEN, TRANSFER, TRANSFER_WORDS};
use crate::model::Model;
use crate::port::Port;

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

/// An access beside the words of a transfer, such as one of a host. Accesses are made in their order, one a cycle at
/// most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The words that are taken before it is tried.
    pub after_words: u32,
    /// The delay in cycles after these words, and after the access before it.
    pub delay_cycles: u32,
    /// Inputs that are set besides those of the words, until it is made.
    pub inputs: Vec<u8>,
    /// The output that is high in the cycle in which it is made.
    pub ready: Port,
    /// The output that is high in the cycle of its answer, which may be the same cycle.
    pub answered: Port,
}

/// The stalls of the output during a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stalls {
    /// The cycles of 256 in which the output is not ready, drawn at random.
    pub of_256: u8,
    /// The seed.
    pub seed: u32,
}

/// The end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The cycles without an event after which it ends.
    pub idle_cycles: u32,
    /// The same once all words are taken, all accesses have their answers, and the first monitor has been valid as
    /// often as expected.
    pub settle_cycles: u32,
    /// The expected cycles in which the first monitor is valid.
    pub monitored: u32,
}

/// A transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer<'a> {
    /// The inputs of cycles without a word.
    pub rest: &'a [u8],
    /// The words.
    pub words: &'a [Word],
    /// The accesses.
    pub accesses: &'a [Access],
    /// The stalls of the output.
    pub stalls: Stalls,
    /// The end.
    pub end: End,
}

/// The words of a memory that have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedWords {
    /// The instance with the memory, from the top module on, with dots between the names.
    pub instance: String,
    /// The number of words.
    pub words: u32,
    /// The indices of those that have changed, in order.
    pub changed: Vec<u32>,
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

    /// Whether an access was made.
    pub fn is_made(&self) -> bool {
        self.bits & MADE != 0
    }

    /// Whether accesses had their answers.
    pub fn is_answered(&self) -> bool {
        self.bits & ANSWERED != 0
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
    has_memories: bool,
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
        Ok(Simulation {
            top: model.top().to_owned(),
            process,
            input,
            output,
            input_bytes,
            output_bytes,
            has_memories: model.has_memories(),
            cycles: 0,
        })
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
    /// Returns the events in order.
    ///
    /// # Errors
    /// If a word has not the length of the inputs, or the process has ended: a design without [`crate::Streams`] takes
    /// the request for a count of cycles.
    pub fn transfer(&mut self, transfer: &Transfer<'_>) -> Result<Vec<Event>, CosimError> {
        let Transfer { rest, words, accesses, stalls, end } = transfer;
        let inputs = words.iter().map(|word| &word.inputs).chain(accesses.iter().map(|access| &access.inputs));
        let mut inputs = [*rest].into_iter().chain(inputs.map(Vec::as_slice));
        if let Some(wrong) = inputs.find(|inputs| inputs.len() != self.input_bytes) {
            let (found, expected) = (wrong.len(), self.input_bytes);
            return Err(CosimError::Length { top: self.top.clone(), found, expected });
        }
        let head: [u32; TRANSFER_WORDS] = [
            words.len() as u32,
            end.idle_cycles,
            end.settle_cycles,
            end.monitored,
            MAX_CYCLES,
            stalls.of_256.into(),
            stalls.seed,
            accesses.len() as u32,
        ];
        let mut request: Vec<u8> = TRANSFER.to_le_bytes().to_vec();
        head.iter().for_each(|word| request.extend(word.to_le_bytes()));
        request.extend(*rest);
        for access in *accesses {
            let ports = [&access.ready, &access.answered].map(|port| port.offset_bytes as u32);
            let head = [access.after_words, access.delay_cycles, ports[0], ports[1]];
            head.iter().for_each(|word| request.extend(word.to_le_bytes()));
            request.extend(&access.inputs);
        }
        for word in *words {
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

    /// The words of each memory that have changed since the call before; at the first call, all that are not zero. No cycle
    /// is simulated.
    ///
    /// # Errors
    /// The design has no [`crate::Memories`], or the process has ended.
    pub fn changed_words(&mut self) -> Result<Vec<ChangedWords>, CosimError> {
        if !self.has_memories {
            return Err(CosimError::NoMemories { top: self.top.clone() });
        }
        self.changed().map_err(|source| self.ended(source))
    }

    fn changed(&mut self) -> std::io::Result<Vec<ChangedWords>> {
        let input = self.input.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        input.write_all(&CHANGED.to_le_bytes())?;
        input.flush()?;
        let output = &mut self.output;
        let memories = number(output)?;
        let mut found = Vec::new();
        for _ in 0..memories {
            let mut name = vec![0; number(output)? as usize];
            output.read_exact(&mut name)?;
            let instance = String::from_utf8_lossy(&name).into_owned();
            let words = number(output)?;
            let mut changed = vec![0; 4 * number(output)? as usize];
            output.read_exact(&mut changed)?;
            let changed = changed.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
            found.push(ChangedWords { instance, words, changed });
        }
        Ok(found)
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

/// A number of 32 bits.
fn number(from: &mut impl Read) -> std::io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

impl Drop for Simulation {
    /// Lets the process end by itself, so that waveforms are complete.
    fn drop(&mut self) {
        self.input = None;
        _ = self.process.wait();
    }
}
