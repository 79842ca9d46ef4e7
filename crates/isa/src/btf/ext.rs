// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `.BTF.ext`: the functions and source lines of instructions.

use super::parse::{Cursor, header_len, part};
use super::{BtfError, MAGIC, Name, TypeId};

/// The records of one kind for one ELF section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtSection<R> {
    /// The name of the ELF section.
    pub section: Name,
    /// The records, in the order of the file.
    pub records: Vec<R>,
}

/// The beginning of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FuncRecord {
    /// The byte offset in the section.
    pub offset_bytes: u32,
    /// Its [`super::Type::Func`].
    pub func: TypeId,
}

/// The beginning of a source line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineRecord {
    /// The byte offset in the section.
    pub offset_bytes: u32,
    /// The source file.
    pub file: Name,
    /// The text of the line.
    pub text: Name,
    /// The line number, below 2^22.
    pub line: u32,
    /// The column, below 2^10; 0 if unknown.
    pub column: u32,
}

/// A CO-RE relocation: an instruction that a loader adapts to its kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreRecord {
    /// The byte offset in the section.
    pub offset_bytes: u32,
    /// The type that the object was compiled with.
    pub of: TypeId,
    /// The member accessed, as numbers separated by colons.
    pub access: Name,
    /// The kind: `enum bpf_core_relo_kind`.
    pub kind: u32,
}

/// The contents of `.BTF.ext`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ext {
    /// Functions.
    pub funcs: Vec<ExtSection<FuncRecord>>,
    /// Source lines.
    pub lines: Vec<ExtSection<LineRecord>>,
    /// CO-RE relocations.
    pub adaptations: Vec<ExtSection<CoreRecord>>,
}

impl Ext {
    /// Parses a `.BTF.ext` section. Names are offsets into the string table of `.BTF`.
    ///
    /// # Errors
    /// The first error and its place; every offset and length is checked.
    pub fn parse(bytes: &[u8]) -> Result<Ext, BtfError> {
        let header = header_len(bytes, "header", 24)?;
        let mut cursor = Cursor::new(bytes);
        cursor.at = 8;
        let mut parts = [(0, 0); 3];
        for (i, range) in parts.iter_mut().enumerate() {
            // Old compilers write a header without the third part.
            if header as usize >= 16 + 8 * i {
                *range = (cursor.u32("header")?, cursor.u32("header")?);
            }
        }
        let [funcs, lines, adaptations] = parts;
        Ok(Ext {
            funcs: sections(part(bytes, "function information", header, funcs.0, funcs.1)?, "function", 8, |c| {
                Ok(FuncRecord { offset_bytes: c.u32("function record")?, func: TypeId(c.u32("function record")?) })
            })?,
            lines: sections(part(bytes, "line information", header, lines.0, lines.1)?, "line", 16, |c| {
                let offset_bytes = c.u32("line record")?;
                let (file, text) = (Name(c.u32("line record")?), Name(c.u32("line record")?));
                let place = c.u32("line record")?;
                Ok(LineRecord { offset_bytes, file, text, line: place >> 10, column: place & 0x3ff })
            })?,
            adaptations: sections(
                part(bytes, "adaptation information", header, adaptations.0, adaptations.1)?,
                "adaptation",
                16,
                |c| {
                    let mut word = || c.u32("adaptation record");
                    let (offset_bytes, of) = (word()?, TypeId(word()?));
                    Ok(CoreRecord { offset_bytes, of, access: Name(word()?), kind: word()? })
                },
            )?,
        })
    }

    /// The contents of a `.BTF.ext` section with functions and lines.
    ///
    /// # Errors
    /// [`BtfError::TooLarge`] if they exceed 4 GiB. CO-RE relocations are not written.
    pub fn emit(&self) -> Result<Vec<u8>, BtfError> {
        let funcs = emit_sections(&self.funcs, 8, |out, f| {
            out.extend([f.offset_bytes, f.func.0]);
        });
        let lines = emit_sections(&self.lines, 16, |out, l| {
            out.extend([l.offset_bytes, l.file.0, l.text.0, l.line << 10 | l.column & 0x3ff]);
        });
        let total = (funcs.len() + lines.len()) * 4;
        if total > u32::MAX as usize {
            return Err(BtfError::TooLarge { what: "lines", found: total, limit: u32::MAX as usize });
        }
        let (funcs_len, lines_len) = (funcs.len() as u32 * 4, lines.len() as u32 * 4);
        let mut out = Vec::with_capacity(32 + total);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&[1, 0]);
        let header = [32, 0, funcs_len, funcs_len, lines_len, funcs_len + lines_len, 0];
        for word in header.into_iter().chain(funcs).chain(lines) {
            out.extend_from_slice(&word.to_le_bytes());
        }
        Ok(out)
    }
}

fn emit_sections<R>(sections: &[ExtSection<R>], size: u32, emit: impl Fn(&mut Vec<u32>, &R)) -> Vec<u32> {
    let mut out = vec![size];
    for section in sections.iter().filter(|s| !s.records.is_empty()) {
        out.extend([section.section.0, section.records.len() as u32]);
        for record in &section.records {
            emit(&mut out, record);
        }
    }
    // An empty part is omitted; a record size alone makes loaders complain.
    if out.len() == 1 { Vec::new() } else { out }
}

fn sections<R>(
    bytes: &[u8],
    what: &'static str,
    least: u32,
    read: impl Fn(&mut Cursor<'_>) -> Result<R, BtfError>,
) -> Result<Vec<ExtSection<R>>, BtfError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let mut cursor = Cursor::new(bytes);
    let size = cursor.u32(what)?;
    if size < least || !size.is_multiple_of(4) {
        return Err(BtfError::RecordSize { what, found: size, expected: least });
    }
    let mut out = Vec::new();
    while !cursor.is_done() {
        let section = Name(cursor.u32(what)?);
        let count = cursor.u32(what)?;
        if count == 0 {
            return Err(BtfError::NoRecords { what, offset: cursor.at - 8 });
        }
        let mut records = Vec::new();
        for _ in 0..count {
            // Records of newer compilers may be longer: the rest is skipped.
            let record = cursor.take(what, size as usize)?;
            records.push(read(&mut Cursor::new(record))?);
        }
        out.push(ExtSection { section, records });
    }
    Ok(out)
}
