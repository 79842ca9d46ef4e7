// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ELF container: sections, symbols and relocations, each validated once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};
use object::{LittleEndian, elf};

use super::error::ReadFault;

const LE: LittleEndian = LittleEndian;
/// The longest name of a section or symbol; the kernel's own symbols have up to 512 bytes.
const MAX_NAME: usize = 4096;

/// A section with its contents.
pub(super) struct Section<'a> {
    pub(super) name: &'a str,
    pub(super) kind: SectionKind,
    /// Its bytes; none for [`SectionKind::Zero`].
    pub(super) bytes: &'a [u8],
    /// Its size, also if it occupies no bytes of the file.
    pub(super) len: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SectionKind {
    /// Instructions.
    Code,
    /// Data that is loaded or read.
    Bytes,
    /// Zeros that occupy no bytes of the file.
    Zero,
    /// Tables of the container itself.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SymbolKind {
    Function,
    Section,
    /// No type: a function of an old compiler, a label, a definition.
    Untyped,
    Other,
}

/// The location of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the section of this index.
    Section(usize),
    /// Undefined: resolved by the loader.
    Extern,
    /// An absolute value.
    Absolute,
    /// A common symbol, allocated by a linker.
    Common,
}

pub(super) struct Symbol<'a> {
    /// The name; a section symbol has that of its section.
    pub(super) name: &'a str,
    pub(super) kind: SymbolKind,
    pub(super) local: bool,
    /// Whether it is weak: it may stay undefined.
    pub(super) weak: bool,
    /// Whether its visibility is hidden, although it is not local.
    pub(super) hidden: bool,
    pub(super) place: Place,
    pub(super) value: u64,
    pub(super) len: u64,
}

/// A relocation of code or data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Relocation {
    pub(super) symbol: usize,
    /// The explicit addend (RELA); `None` if the relocated field holds it (REL).
    pub(super) addend: Option<i64>,
}

pub(super) struct Container<'a> {
    /// By section index; the first one is the null section.
    pub(super) sections: Vec<Section<'a>>,
    pub(super) symbols: Vec<Symbol<'a>>,
    /// The relocations of code, map definitions and data, by section and byte offset.
    pub(super) relocations: BTreeMap<(usize, u64), Relocation>,
    /// By section, the contents of type sections whose relocations have explicit addends (RELA).
    relocated: BTreeMap<usize, Vec<u8>>,
}

/// The budget of memory for an object. Its parts may refer to the same bytes repeatedly, so that a small file could ask
/// for all memory.
pub(super) struct Budget {
    left: u64,
}

impl Budget {
    pub(super) fn new() -> Budget {
        Budget { left: super::MAX_UNFOLDED }
    }

    pub(super) fn charge(&mut self, what: &'static str, bytes: u64) -> Result<(), ReadFault> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(ReadFault::TooLarge { what, limit: super::MAX_UNFOLDED }),
        }
    }
}

impl<'a> Container<'a> {
    pub(super) fn parse(bytes: &'a [u8], budget: &mut Budget) -> Result<Container<'a>, ReadFault> {
        let header = check_header(bytes)?;
        let fail = |e: object::read::Error| ReadFault::Header { what: "section headers", why: e.to_string() };
        let headers = header.section_headers(LE, bytes).map_err(fail)?;
        let names = match headers.len() {
            0 => &[][..],
            _ => {
                let index = header.section_strings_index(LE, bytes).map_err(fail)?;
                let table = headers.get(index.0).ok_or(ReadFault::Index {
                    what: "section of section names",
                    found: index.0 as u64,
                    count: headers.len(),
                })?;
                contents(bytes, "section of section names", table)?
            }
        };
        let mut sections = Vec::with_capacity(headers.len());
        for (number, header) in headers.iter().enumerate() {
            sections.push(section(bytes, names, number, header)?);
        }
        let (relocations, relocated) = (BTreeMap::new(), BTreeMap::new());
        let mut out = Container { sections, symbols: Vec::new(), relocations, relocated };
        out.read_symbols(headers)?;
        out.read_relocations(headers, budget)?;
        Ok(out)
    }

    /// The bytes of a section of types or lines, relocated.
    pub(super) fn types(&self, section: usize) -> &[u8] {
        self.relocated.get(&section).map_or(self.sections[section].bytes, Vec::as_slice)
    }

    /// The relocations of bytes `from` to `to` of a section, in ascending order.
    pub(super) fn relocations_in(
        &self,
        section: usize,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (u64, Relocation)> + '_ {
        let range = if from < to { (section, from)..(section, to) } else { (section, from)..(section, from) };
        self.relocations.range(range).map(|((_, offset), relocation)| (*offset, *relocation))
    }

    /// The only section with this name, and its index.
    pub(super) fn named(&self, name: &str) -> Result<Option<(usize, &Section<'a>)>, ReadFault> {
        let mut found =
            self.sections.iter().enumerate().filter(|(_, s)| s.name == name && s.kind != SectionKind::Other);
        let first = found.next();
        match found.next() {
            Some(_) => Err(ReadFault::Twice { what: "section", name: name.to_owned() }),
            None => Ok(first),
        }
    }

    fn read_symbols(&mut self, headers: &[elf::SectionHeader64<LittleEndian>]) -> Result<(), ReadFault> {
        let mut tables = headers.iter().enumerate().filter(|(_, h)| h.sh_type(LE) == elf::SHT_SYMTAB);
        let Some((number, header)) = tables.next() else { return Ok(()) };
        if tables.next().is_some() {
            return Err(ReadFault::Twice { what: "symbol table", name: self.sections[number].name.to_owned() });
        }
        let table = table::<elf::Sym64<LittleEndian>>(self.sections[number].bytes, "symbol table")?;
        let link = header.sh_link(LE);
        let strings = self.sections.get(link as usize).ok_or(ReadFault::Index {
            what: "section of symbol names",
            found: link.into(),
            count: self.sections.len(),
        })?;
        let strings = strings.bytes;
        let mut symbols = Vec::with_capacity(table.len());
        for (index, raw) in table.iter().enumerate() {
            let place = match raw.st_shndx(LE) {
                elf::SHN_UNDEF => Place::Extern,
                elf::SHN_ABS => Place::Absolute,
                elf::SHN_COMMON => Place::Common,
                number if usize::from(number.0) < self.sections.len() => Place::Section(number.0.into()),
                number => {
                    return Err(ReadFault::Index {
                        what: "section of a symbol",
                        found: number.0.into(),
                        count: self.sections.len(),
                    });
                }
            };
            let kind = match raw.st_type() {
                elf::STT_FUNC => SymbolKind::Function,
                elf::STT_SECTION => SymbolKind::Section,
                elf::STT_NOTYPE => SymbolKind::Untyped,
                _ => SymbolKind::Other,
            };
            let name = match (kind, place) {
                (SymbolKind::Section, Place::Section(number)) => self.sections[number].name,
                _ => string(strings, raw.st_name(LE), "symbol", index)?,
            };
            symbols.push(Symbol {
                hidden: matches!(raw.st_visibility(), elf::STV_HIDDEN | elf::STV_INTERNAL),
                name,
                kind,
                local: raw.st_bind() == elf::STB_LOCAL,
                weak: raw.st_bind() == elf::STB_WEAK,
                place,
                value: raw.st_value(LE),
                len: raw.st_size(LE),
            });
        }
        self.symbols = symbols;
        Ok(())
    }

    fn read_relocations(
        &mut self,
        headers: &[elf::SectionHeader64<LittleEndian>],
        budget: &mut Budget,
    ) -> Result<(), ReadFault> {
        for (number, header) in headers.iter().enumerate() {
            let (is_rel, is_rela) = (header.sh_type(LE) == elf::SHT_REL, header.sh_type(LE) == elf::SHT_RELA);
            if !is_rel && !is_rela {
                continue;
            }
            let of = header.sh_info(LE) as usize;
            let section = self.sections[number].name.to_owned();
            let target = self.sections.get(of).ok_or(ReadFault::Index {
                what: "section that is relocated",
                found: of as u64,
                count: self.sections.len(),
            })?;
            let is_code = target.kind == SectionKind::Code;
            let is_types = matches!(target.name, super::names::BTF | super::names::BTF_EXT);
            let is_data = target.name == super::names::MAPS || super::DataKind::of(target.name).is_some();
            // In types and debug information the fields hold all that is needed, unless addends are explicit.
            let is_used = is_code || is_data || is_types && is_rela;
            if !is_used {
                continue;
            }
            let bytes = self.sections[number].bytes;
            let records: Vec<(u64, Relocation)> = if is_rela {
                let records = table::<elf::Rela64<LittleEndian>>(bytes, "relocations with addends")?;
                budget.charge("relocations", records.len() as u64 * 64)?;
                let record = |r: &elf::Rela64<LittleEndian>| {
                    let (symbol, addend) = (r.r_sym(LE, false) as usize, Some(r.r_addend.get(LE)));
                    (r.r_offset.get(LE), Relocation { symbol, addend })
                };
                records.iter().map(record).collect()
            } else {
                let records = table::<elf::Rel64<LittleEndian>>(bytes, "relocations")?;
                budget.charge("relocations", records.len() as u64 * 64)?;
                let record = |r: &elf::Rel64<LittleEndian>| {
                    (r.r_offset.get(LE), Relocation { symbol: r.r_sym(LE) as usize, addend: None })
                };
                records.iter().map(record).collect()
            };
            let (target_name, target_len) = (target.name, target.len);
            for (offset, relocation) in records {
                // Relocations of code are at slot boundaries; data may be packed.
                let unit = if is_code { 8 } else { 1 };
                if offset >= target_len || !offset.is_multiple_of(unit) {
                    return Err(ReadFault::Offset { section, offset, len: target_len, unit });
                }
                let symbol = relocation.symbol;
                if symbol >= self.symbols.len() {
                    return Err(ReadFault::Index {
                        what: "symbol of a relocation",
                        found: symbol as u64,
                        count: self.symbols.len(),
                    });
                }
                if is_types {
                    self.relocate_types(of, offset, relocation, budget)?;
                } else if self.relocations.insert((of, offset), relocation).is_some() {
                    let name = format!("byte {offset} of `{target_name}`");
                    return Err(ReadFault::Twice { what: "relocation of", name });
                }
            }
        }
        Ok(())
    }

    /// Applies a relocation of types or lines to its field of 4 bytes, if its symbol is defined in the object.
    fn relocate_types(
        &mut self,
        section: usize,
        offset: u64,
        relocation: Relocation,
        budget: &mut Budget,
    ) -> Result<(), ReadFault> {
        let symbol = &self.symbols[relocation.symbol];
        if !matches!(symbol.place, Place::Section(_)) {
            return Ok(());
        }
        let value = symbol.value.wrapping_add_signed(relocation.addend.unwrap_or(0));
        let original = &self.sections[section];
        let (name, len) = (original.name, original.len);
        if let Entry::Vacant(place) = self.relocated.entry(section) {
            budget.charge("types", len)?;
            place.insert(original.bytes.to_vec());
        }
        let field = self.relocated.get_mut(&section).zip(usize::try_from(offset).ok());
        let field = field.and_then(|(bytes, at)| bytes.get_mut(at..)?.first_chunk_mut::<4>());
        match (field, u32::try_from(value)) {
            (Some(field), Ok(value)) => {
                *field = value.to_le_bytes();
                Ok(())
            }
            _ => Err(ReadFault::Offset { section: name.to_owned(), offset, len, unit: 1 }),
        }
    }
}

fn check_header(bytes: &[u8]) -> Result<&elf::FileHeader64<LittleEndian>, ReadFault> {
    let expect = |what, at: usize, expected: &[u8], text: &'static str| {
        let found = bytes.get(at..at + expected.len()).unwrap_or_default();
        if found == expected { Ok(()) } else { Err(ReadFault::NotBpf { what, found: found.to_vec(), expected: text }) }
    };
    expect("magic number", 0, b"\x7fELF", "0x7f `ELF`")?;
    expect("class", 4, &[2], "2, 64 bits")?;
    expect("byte order", 5, &[1], "1, little endian")?;
    expect("kind of file", 16, &[1, 0], "1, relocatable")?;
    // Before eBPF had a machine number, LLVM wrote 0; libbpf accepts both.
    if bytes.get(18..20) != Some(&[0, 0]) {
        expect("machine", 18, &[247, 0], "247, eBPF, or 0 of old LLVM")?;
    }
    elf::FileHeader64::<LittleEndian>::parse(bytes)
        .map_err(|e| ReadFault::Header { what: "file header", why: e.to_string() })
}

fn contents<'a>(
    bytes: &'a [u8],
    name: &str,
    header: &elf::SectionHeader64<LittleEndian>,
) -> Result<&'a [u8], ReadFault> {
    header.data(LE, bytes).map_err(|_| ReadFault::Contents {
        section: name.to_owned(),
        offset: header.sh_offset.get(LE),
        len: header.sh_size.get(LE),
        file: bytes.len(),
    })
}

fn section<'a>(
    bytes: &'a [u8],
    names: &'a [u8],
    number: usize,
    header: &elf::SectionHeader64<LittleEndian>,
) -> Result<Section<'a>, ReadFault> {
    if number == 0 {
        // Its fields have other meanings.
        return Ok(Section { name: "", kind: SectionKind::Other, bytes: &[], len: 0 });
    }
    let name = string(names, header.sh_name(LE), "section", number)?;
    let is_code = header.sh_flags(LE).0 & elf::SHF_EXECINSTR.0 != 0;
    let kind = match header.sh_type(LE) {
        elf::SHT_PROGBITS if is_code => SectionKind::Code,
        elf::SHT_PROGBITS => SectionKind::Bytes,
        elf::SHT_NOBITS => SectionKind::Zero,
        _ => SectionKind::Other,
    };
    Ok(Section { name, kind, bytes: contents(bytes, name, header)?, len: header.sh_size.get(LE) })
}

/// A table of fixed-size records.
fn table<'a, T: object::Pod>(bytes: &'a [u8], what: &'static str) -> Result<&'a [T], ReadFault> {
    object::slice_from_all_bytes(bytes).map_err(|()| ReadFault::Header {
        what,
        why: format!("its length in bytes is {}, not a multiple of {}", bytes.len(), size_of::<T>()),
    })
}

/// The name at `offset` of a string table. At most the longest name is scanned.
fn string<'a>(table: &'a [u8], offset: u32, what: &'static str, number: usize) -> Result<&'a str, ReadFault> {
    let fail = |why| ReadFault::Name { what, number, offset, why };
    if offset == 0 {
        return Ok("");
    }
    let tail = table.get(offset as usize..).ok_or(fail("it begins outside of the string table"))?;
    let tail = &tail[..tail.len().min(MAX_NAME + 1)];
    let end = tail.iter().position(|b| *b == 0).ok_or(fail("it has no end within 4096 bytes"))?;
    std::str::from_utf8(&tail[..end]).map_err(|_| fail("it is not UTF-8"))
}
