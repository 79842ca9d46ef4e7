// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records for user space as lines of JSON.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flowloom_engine::Event;
use serde_json::json;

/// Writes a line for each record: `{"packet":7,"time_ns":1200,"map":"events","cpu":0,"bytes":"0a0b"}`.
#[derive(Debug)]
pub struct EventWriter {
    file: BufWriter<File>,
    written: u64,
}

impl EventWriter {
    /// Creates or truncates the file.
    ///
    /// # Errors
    /// The system's.
    pub fn create(path: &Path) -> io::Result<EventWriter> {
        Ok(EventWriter { file: BufWriter::new(File::create(path)?), written: 0 })
    }

    /// Writes a record of packet number `packet`, counted from 0.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&mut self, packet: u64, time_ns: u64, event: &Event) -> io::Result<()> {
        let bytes: String = event.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let Event { map, cpu, .. } = event;
        let line = json!({"packet": packet, "time_ns": time_ns, "map": map, "cpu": cpu, "bytes": bytes});
        self.written += 1;
        writeln!(self.file, "{line}")
    }

    /// Flushes the file; returns the number of records.
    ///
    /// # Errors
    /// The system's.
    pub fn finish(mut self) -> io::Result<u64> {
        self.file.flush()?;
        Ok(self.written)
    }
}
