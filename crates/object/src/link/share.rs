// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The maps and siblings that the programs of an object share.
//!
//! Each program gets all maps of the object in the same order, except those that it does not refer to and that no
//! engine supports: a socket map of another kind of program in the same object is no reason to refuse an XDP program.
//! If a map holds programs, tail calls may lead to any program of the object: all XDP programs become siblings with one
//! list of maps.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{Draft, Linker, code, dead};
use crate::container::Budget;
use crate::error::ReadFault;
use crate::maps::ObjectMap;
use flowloom_context::StateSuccessor;
use flowloom_isa::insn::{Insn, imm64};
use flowloom_isa::{MapDef, MapKind, Member, Program, Reference, Sibling, Unresolved};

impl Linker<'_> {
    /// Gives the programs their maps and siblings; returns which maps of the object are used.
    pub(super) fn share(
        &self,
        drafts: Vec<Draft>,
        budget: &mut Budget,
    ) -> Result<(Vec<Program>, Vec<bool>), ReadFault> {
        // By function, the index of an XDP program among the XDP programs.
        let xdp = drafts.iter().filter(|draft| draft.program.kind.is_xdp());
        let numbers: HashMap<usize, usize> = xdp.enumerate().map(|(number, draft)| (draft.root, number)).collect();
        let maps = self.with_programs(&numbers);
        let mut drafts = drafts;
        for Draft { program, .. } in &mut drafts {
            update_unresolved(program, &maps);
        }
        let mut shared = vec![false; maps.len()];
        for draft in drafts.iter().filter(|draft| draft.program.kind.is_xdp()) {
            mark_named(&draft.program, &mut shared);
        }
        let holds = |map: &MapDef| map.kind == MapKind::ProgArray;
        let has_siblings = maps
            .iter()
            .zip(&shared)
            .any(|(map, named)| *named && (holds(&map.def) || map.def.inner.as_deref().is_some_and(holds)));
        if !has_siblings {
            shared.fill(false);
        }
        let mut programs = Vec::with_capacity(drafts.len());
        let mut used = vec![false; maps.len()];
        for Draft { mut program, .. } in drafts {
            let mut named = if program.kind.is_xdp() { shared.clone() } else { vec![false; maps.len()] };
            mark_named(&program, &mut named);
            let kept = self.kept(&maps, &named);
            budget.charge("maps", kept.iter().map(|index| memory(&maps[*index].def)).sum())?;
            renumber(&mut program, &maps, &kept);
            kept.iter().for_each(|index| used[*index] = true);
            programs.push(program);
        }
        if has_siblings {
            let xdp = programs.iter().filter(|program| program.kind.is_xdp());
            let bytes = xdp.clone().map(|p| p.insns.len() as u64 * 8 + p.lines.iter().map(line_memory).sum::<u64>());
            budget.charge("siblings", bytes.sum())?;
            let siblings: Arc<[Sibling]> = xdp.map(sibling).collect();
            for program in programs.iter_mut().filter(|program| program.kind.is_xdp()) {
                program.siblings = Arc::clone(&siblings);
            }
        }
        Ok((programs, used))
    }

    /// The maps of the object, with the programs that they initially hold by index.
    fn with_programs(&self, numbers: &HashMap<usize, usize>) -> Vec<ObjectMap> {
        let mut maps = self.maps.all.clone();
        for map in &mut maps {
            for (entry, (section, offset), symbol) in std::mem::take(&mut map.programs) {
                let function = self.by_place.get(&(section, offset / 8)).filter(|_| offset.is_multiple_of(8));
                match function.and_then(|function| numbers.get(function)) {
                    Some(number) => map.def.members.push((entry, Member::Program(*number))),
                    None => map.unresolved.push(Reference::Member {
                        map: map.def.name.clone(),
                        index: entry,
                        member: self.container.symbols.get(symbol).map_or("", |symbol| symbol.name).to_owned(),
                        why: "which is no XDP program that could be read".to_owned(),
                    }),
                }
            }
            if let Some(id) = map.id {
                // iproute2 puts the program of section `ID/ENTRY` into the map with that id.
                for (function, number) in numbers {
                    let section = self.container.sections[self.functions[*function].section].name;
                    let place =
                        section.split_once('/').and_then(|(id, entry)| Some((number_of(id)?, number_of(entry)?)));
                    if let Some((of, entry)) = place
                        && of == id
                    {
                        map.def.members.push((entry, Member::Program(*number)));
                    }
                }
            }
            map.def.members.sort_by_key(|(entry, _)| *entry);
        }
        maps
    }

    /// The maps that a program gets: all but those that it does not refer to and that no engine supports.
    fn kept(&self, maps: &[ObjectMap], named: &[bool]) -> Vec<usize> {
        let mut keep: Vec<bool> = maps
            .iter()
            .enumerate()
            .map(|(index, map)| {
                let is_whole = map.def.inner.is_some() || !map.def.kind.is_of_maps();
                let can_be_made = map.def.kind.is_known() && map.unresolved.is_empty() && is_whole;
                named[index] || can_be_made && self.maps.settings != Some(index)
            })
            .collect();
        // Entries of a kept map of maps are kept.
        for map in maps.iter().enumerate().filter(|(index, _)| keep[*index]).map(|(_, map)| map).collect::<Vec<_>>() {
            for (_, member) in &map.def.members {
                if let Member::Map(index) = member {
                    keep[*index] = true;
                }
            }
        }
        (0..maps.len()).filter(|index| keep[*index]).collect()
    }
}

/// Drops unresolved references in unreachable code, and adds those of the maps that the program refers to, at the first
/// instruction that does.
fn update_unresolved(program: &mut Program, maps: &[ObjectMap]) {
    let is_unresolved = |index: usize| maps.get(index).is_some_and(|map| !map.unresolved.is_empty());
    let named: Vec<(usize, usize)> = code::instructions(&program.insns)
        .filter_map(|(at, insn)| map_of(insn).filter(|index| is_unresolved(*index)).map(|index| (at, index)))
        .collect();
    if program.unresolved.is_empty() && named.is_empty() {
        return;
    }
    let reached = dead::reached(&program.insns, maps);
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for unresolved in std::mem::take(&mut program.unresolved) {
        match reached[unresolved.insn] {
            true => found.push(unresolved),
            false => dead::neutralise(&mut program.insns, unresolved.insn),
        }
    }
    for (at, index) in named {
        if !reached[at] {
            dead::neutralise(&mut program.insns, at);
        } else if seen.insert(index) {
            found.extend(
                maps[index].unresolved.iter().map(|reference| Unresolved { insn: at, reference: reference.clone() }),
            );
        }
    }
    found.sort_by_key(|unresolved| unresolved.insn);
    program.unresolved = found;
}

fn number_of(text: &str) -> Option<u32> {
    text.parse().ok()
}

/// The map that an instruction loads, or the one of whose value it loads an address.
fn map_of(insn: Insn) -> Option<usize> {
    let names = insn.is_wide() && matches!(insn.src, imm64::MAP | imm64::MAP_VALUE);
    names.then(|| usize::try_from(insn.imm).ok()).flatten()
}

fn mark_named(program: &Program, named: &mut [bool]) {
    for (_, insn) in code::instructions(&program.insns) {
        if let Some(named) = map_of(insn).and_then(|index| named.get_mut(index)) {
            *named = true;
        }
    }
}

/// Gives the program the maps `kept` of the object, ascending.
fn renumber(program: &mut Program, maps: &[ObjectMap], kept: &[usize]) {
    let number = |index: usize| kept.binary_search(&index).unwrap_or(usize::MAX);
    program.maps = kept.iter().map(|index| maps[*index].def.clone()).collect();
    for (_, member) in program.maps.iter_mut().flat_map(|map| &mut map.members) {
        if let Member::Map(index) = member {
            *index = number(*index);
        }
    }
    let places: Vec<(usize, usize)> =
        code::instructions(&program.insns).filter_map(|(at, insn)| Some((at, map_of(insn)?))).collect();
    for (at, index) in places {
        program.insns[at].imm = number(index) as i32;
    }
}

fn sibling(program: &Program) -> Sibling {
    Sibling {
        name: program.name.clone(),
        section: program.section.clone(),
        insns: program.insns.clone(),
        lines: program.lines.clone(),
    }
}

fn line_memory(line: &flowloom_isa::LineInfo) -> u64 {
    (line.file.len() + line.text.len() + size_of::<flowloom_isa::LineInfo>()) as u64
}

/// The size of a copy of the map in memory.
fn memory(map: &MapDef) -> u64 {
    let text = |s: &String| s.len() + size_of::<String>();
    let layout = map.layout.as_ref().map_or(0, |layout| {
        layout.states.iter().map(text).sum::<usize>()
            + layout.fields.iter().map(|f| text(&f.name) + 16).sum::<usize>()
            + layout.deadline_offsets.len() * 4
            + layout.element.len()
            + layout.succession.as_ref().map_or(0, |s| s.successors.len() * size_of::<Option<StateSuccessor>>())
            + layout
                .preloaded
                .iter()
                .map(|(key, value)| key.len() + value.len() + 2 * size_of::<Vec<u8>>())
                .sum::<usize>()
    });
    let data = map.initial.as_ref().map_or(0, Vec::len);
    let inner = map.inner.as_ref().map_or(0, |inner| size_of::<MapDef>() + inner.name.len());
    (size_of::<MapDef>() + map.name.len() + data + layout + inner + map.members.len() * size_of::<(u32, Member)>())
        as u64
}
