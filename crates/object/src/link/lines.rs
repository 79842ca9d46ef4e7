// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Source lines of functions.

use std::collections::HashMap;

use super::Linker;
use crate::container::Budget;
use crate::error::ReadFault;
use flowloom_isa::LineInfo;
use flowloom_isa::btf::{Btf, Ext, LineRecord};

/// Line records by section name, ascending.
pub(super) fn by_section<'a>(btf: &'a Btf, ext: &Ext) -> Result<HashMap<&'a [u8], Vec<LineRecord>>, ReadFault> {
    let mut out: HashMap<&[u8], Vec<LineRecord>> = HashMap::new();
    for section in &ext.lines {
        let lines = out.entry(btf.name_bytes(section.section)?).or_default();
        for record in &section.records {
            if lines.last().is_some_and(|last| record.offset_bytes <= last.offset_bytes) {
                return Err(ReadFault::Header {
                    what: "line information",
                    why: format!("byte {} is not behind the record before it", record.offset_bytes),
                });
            }
            lines.push(*record);
        }
    }
    Ok(out)
}

impl Linker<'_> {
    /// Appends the lines of a function that begins at slot `base` of the program.
    pub(super) fn lines_of(
        &self,
        number: usize,
        base: usize,
        lines: &mut Vec<LineInfo>,
        budget: &mut Budget,
    ) -> Result<(), ReadFault> {
        let function = &self.functions[number];
        let section = self.container.sections[function.section].name;
        let (from, to) = (function.start * 8, function.end() * 8);
        let (Some(btf), Some(records)) = (self.btf, self.lines.get(section.as_bytes())) else { return Ok(()) };
        let first = records.partition_point(|r| u64::from(r.offset_bytes) < from);
        for record in records[first..].iter().take_while(|r| u64::from(r.offset_bytes) < to) {
            if !record.offset_bytes.is_multiple_of(8) {
                let (section, offset) = (section.to_owned(), record.offset_bytes.into());
                let len = self.container.sections[function.section].len;
                return Err(ReadFault::Offset { section, offset, len, unit: 8 });
            }
            let (file, text) = (btf.text_bytes(record.file)?, btf.text_bytes(record.text)?);
            budget.charge("lines", (file.len() + text.len()) as u64 * 3 + size_of::<LineInfo>() as u64)?;
            lines.push(LineInfo {
                insn: base + (u64::from(record.offset_bytes) / 8 - function.start) as usize,
                // Sources are not always UTF-8, and a comment in another encoding is no reason to refuse them.
                file: String::from_utf8_lossy(file).into_owned(),
                text: String::from_utf8_lossy(text).into_owned(),
                line: record.line,
                column: record.column,
            });
        }
        Ok(())
    }

    /// ` (file:line)` of a slot of a function, if known; for messages.
    pub(super) fn source(&self, number: usize, at: usize) -> String {
        let function = &self.functions[number];
        let section = self.container.sections[function.section].name;
        let (from, place) = (function.start * 8, (function.start + at as u64) * 8);
        let found = self.btf.zip(self.lines.get(section.as_bytes())).and_then(|(btf, records)| {
            let after = records.partition_point(|r| u64::from(r.offset_bytes) <= place);
            let record = records[..after].last().filter(|r| u64::from(r.offset_bytes) >= from)?;
            let file = btf.text_bytes(record.file).ok()?;
            Some(format!(" ({}:{})", String::from_utf8_lossy(file), record.line))
        });
        found.unwrap_or_default()
    }
}
