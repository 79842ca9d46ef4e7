// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Designs: a top module with its files and parameters.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::error::CosimError;

/// A top module, the files that contain it and what it instantiates, and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Design {
    top: String,
    files: Vec<PathBuf>,
    parameters: Vec<(String, String)>,
    has_waves: bool,
    streams: Option<Streams>,
    memories: Vec<Memories>,
}

/// The streams of a top module, by the prefix of their ports: an input with `<input>_valid_i` and `<input>_ready_o`, an
/// output with `<output>_valid_o` and `<output>_ready_i`, and monitors, which have `<monitor>_valid_o` alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Streams {
    /// The prefix of the input.
    pub input: String,
    /// The prefix of the output.
    pub output: String,
    /// The prefixes of the monitors, at most 4.
    pub monitors: Vec<String>,
}

/// The memories that all instances of a module have: an unpacked array of this name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Memories {
    /// The module.
    pub module: String,
    /// The array.
    pub signal: String,
}

impl Design {
    /// A top module with its files, packages first.
    pub fn new(top: &str, files: &[&Path]) -> Design {
        let files = files.iter().map(|&file| file.to_owned()).collect();
        Design {
            top: top.to_owned(),
            files,
            parameters: Vec::new(),
            has_waves: false,
            streams: None,
            memories: Vec::new(),
        }
    }

    /// Sets a parameter of the top module: a literal of SystemVerilog, such as `12` or `8'hff`.
    #[must_use]
    pub fn parameter(mut self, name: &str, value: impl ToString) -> Design {
        self.parameters.push((name.to_owned(), value.to_string()));
        self
    }

    /// Makes simulations able to write waveforms, which slows them down.
    #[must_use]
    pub fn with_waves(mut self) -> Design {
        self.has_waves = true;
        self
    }

    /// Makes simulations able to transfer words through streams ([`crate::Simulation::transfer`]).
    #[must_use]
    pub fn with_streams(mut self, streams: Streams) -> Design {
        self.streams = Some(streams);
        self
    }

    /// Makes simulations able to tell which words of memories have changed ([`crate::Simulation::changed_words`]).
    #[must_use]
    pub fn with_memories(mut self, memories: Memories) -> Design {
        self.memories.push(memories);
        self
    }

    pub(crate) fn memories(&self) -> &[Memories] {
        &self.memories
    }

    pub(crate) fn streams(&self) -> Option<&Streams> {
        self.streams.as_ref()
    }

    /// The top module.
    pub fn top(&self) -> &str {
        &self.top
    }

    pub(crate) fn has_waves(&self) -> bool {
        self.has_waves
    }

    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Arguments of Verilator for the parameters.
    pub(crate) fn parameter_arguments(&self) -> impl Iterator<Item = String> + '_ {
        self.parameters.iter().map(|(name, value)| format!("-G{name}={value}"))
    }

    /// A hash of all that the executable depends on, besides `tools`.
    pub(crate) fn digest(&self, tools: &str) -> Result<u64, CosimError> {
        let mut hasher = DefaultHasher::new();
        (tools, &self.top, &self.parameters, self.has_waves, &self.streams, &self.memories).hash(&mut hasher);
        for path in &self.files {
            let text = std::fs::read(path).map_err(|source| CosimError::File { path: path.clone(), source })?;
            // The same text in another folder is the same model.
            (path.file_name(), text).hash(&mut hasher);
        }
        Ok(hasher.finish())
    }
}
