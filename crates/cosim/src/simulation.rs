// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running simulations.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::error::CosimError;
use crate::model::Model;

/// Cycles of one exchange with the process, which holds all their outputs in memory.
const BATCH_CYCLES: usize = 1 << 16;

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
