// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each core has of a function's state.

use std::collections::BTreeMap;

use flowloom_efsm::model::Function;
use flowloom_ir::Dataflow;
use flowloom_plan::Update;
use flowloom_wire::field::FieldId;

use crate::spread::Spread;
use crate::{function, object};

/// What each core has of a map.
#[derive(Debug, Clone)]
pub(crate) enum Share {
    /// The same as all others: packets do not write it.
    Constant,
    /// The entries of its packets' keys.
    Split(Owner),
    /// As [`Share::Split`]; whether it is full has no effect on packets.
    SplitWithoutLimit(Owner),
    /// Values of its own, which are summed.
    Sums(Vec<Update>),
    /// Records, which are no state.
    Records,
}

impl Share {
    pub(crate) fn without_limit(self) -> Share {
        match self {
            Share::Split(owner) => Share::SplitWithoutLimit(owner),
            share => share,
        }
    }

    pub(crate) fn owner(&self) -> Option<&Owner> {
        match self {
            Share::Split(owner) | Share::SplitWithoutLimit(owner) => Some(owner),
            Share::Constant | Share::Sums(_) | Share::Records => None,
        }
    }
}

/// Where a key of a map has what packets are spread by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Fields, each with its offset and length in the key, in bytes.
    Fields(Vec<(FieldId, usize, usize)>),
    /// By byte of the common key, its offset.
    Key(Vec<usize>),
}

/// The state of a function on several cores.
#[derive(Debug, Clone)]
pub struct Split {
    pub(crate) spread: Spread,
    /// By map; others are constant.
    pub(crate) shares: BTreeMap<String, Share>,
    pub(crate) by: String,
    /// By map, the most entries that a packet inserts; 1 for those that are not listed.
    pub(crate) inserts: BTreeMap<String, usize>,
}

impl Split {
    /// Decides for a function.
    ///
    /// # Errors
    /// The reasons why it runs on one core.
    pub fn of_function(function: &Function) -> Result<Split, Vec<String>> {
        function::split(function)
    }

    /// Decides for a program.
    ///
    /// # Errors
    /// The reasons why it runs on one core.
    pub fn of_dataflow(dataflow: &Dataflow) -> Result<Split, Vec<String>> {
        object::split(dataflow)
    }

    /// Whether packets write state.
    pub fn has_state(&self) -> bool {
        let is_state = |share: &Share| matches!(share, Share::Split(_) | Share::Sums(_));
        self.shares.values().any(is_state)
    }

    /// What packets are spread by.
    pub fn by(&self) -> &str {
        &self.by
    }

    /// The most entries that a packet inserts into a map.
    pub(crate) fn inserts(&self, map: &str) -> usize {
        self.inserts.get(map).copied().unwrap_or(1)
    }

    /// The maps whose entries are split, without those that have no limit.
    pub fn limited(&self) -> impl Iterator<Item = &str> {
        let is_limited = |share: &Share| matches!(share, Share::Split(_));
        self.shares.iter().filter(move |(_, share)| is_limited(share)).map(|(name, _)| name.as_str())
    }
}
