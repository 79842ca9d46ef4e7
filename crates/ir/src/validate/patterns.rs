// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Patterns of calls agree with their helpers and their maps.

use flowloom_isa::MapKind;
use flowloom_isa::helpers::{self, Parameter};

use super::invalid::{Invalid, Site};
use crate::dataflow::{Argument, Dataflow, Pattern, Table};
use crate::sources::fits_helper;

/// Each pattern fits its helper; its map exists, and has keys and values of these sizes.
pub(super) fn patterns(dataflow: &Dataflow, found: &mut Vec<Invalid>) {
    for (number, own) in dataflow.patterns.iter().enumerate() {
        if let Err(invalid) = pattern(dataflow, number, own) {
            found.push(invalid);
        }
    }
}

pub(super) fn table(dataflow: &Dataflow, site: Site, found: u32) -> Result<&Table, Invalid> {
    let maps = dataflow.maps.len();
    dataflow.maps.get(found as usize).ok_or(Invalid::UnknownMap { site, found, maps })
}

fn pattern(dataflow: &Dataflow, pattern: usize, own: &Pattern) -> Result<(), Invalid> {
    let Pattern { helper, arguments } = own;
    if !fits_helper(*helper, arguments) {
        return Err(Invalid::PatternForm { pattern, helper: *helper });
    }
    // Other maps are results of lookups in maps of maps.
    let Some(map) = own.map() else { return Ok(()) };
    let table = table(dataflow, Site::Pattern(pattern), map)?;
    if !takes_kind(*helper, table.kind) {
        return Err(Invalid::MapKind { pattern, helper: *helper, map });
    }
    let mut reads = arguments.iter().filter_map(|argument| match argument {
        Argument::Read(bytes) => Some(u32::from(*bytes)),
        _ => None,
    });
    let takes = |expected: fn(&Parameter) -> bool| {
        helpers::by_number(*helper).is_some_and(|helper| helper.parameters.iter().any(expected))
    };
    let has_key = takes(|parameter| matches!(parameter, Parameter::Key));
    let key = reads.next().filter(|_| has_key);
    if let Some(found) = key.filter(|found| *found != table.key_bytes) {
        return Err(Invalid::KeyBytes { pattern, map, found, expected: table.key_bytes });
    }
    let value = reads.next().filter(|_| takes(|parameter| matches!(parameter, Parameter::Value)));
    match value.filter(|found| *found != table.value_bytes) {
        Some(found) => Err(Invalid::ValueBytes { pattern, map, found, expected: table.value_bytes }),
        None => Ok(()),
    }
}

fn takes_kind(number: i32, kind: MapKind) -> bool {
    helpers::by_number(number).is_some_and(|helper| {
        helper.parameters.iter().any(|parameter| matches!(parameter, Parameter::Map(fits, _) if fits(kind)))
    })
}
