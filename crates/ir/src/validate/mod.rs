// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Well-formedness of dataflow, and translation validation of passes.
//!
//! **Goal.** A bug of the construction or of a pass is a named fault at its node, never another program.
//!
//! ```text
//!   v7 = add v5 v6            v5 has 16 bits, v6 has 8       argument 1 of v7 has 8 bits, expected 16
//!   v9 = store w if v3: …     v3 has 8 bits                  predicate v3 of v9 has 8 bits, expected 1
//! ```
//!
//! A well-formed dataflow satisfies these invariants:
//! - The arguments of a node are earlier nodes (`nodes.rs`), of the number and the widths that its operation takes.
//!   Equal pure nodes are one node. Constants have no bits above their width.
//! - The pattern of a call fits its helper, and keys and values fit their map (`patterns.rs`).
//! - The predicate of an effect has one bit. Its base is the address of a value of one map. A read waits for earlier
//!   writes of the same map only (`effects.rs`).
//! - Outputs have their widths. The slow-path bit, the conditions of reaches and their tests depend on no effect; no
//!   reach is left once a window was chosen (`outputs.rs`).
//!
//! The program order of effects is the order of their nodes. A pass keeps it, and keeps all effects and waits that
//! matter ([`mistranslations`], `translation.rs`).
//!
//! [`build`](crate::build()) and the pipeline of passes check all of this in builds with debug assertions.

mod effects;
mod invalid;
mod nodes;
mod outputs;
mod patterns;
mod translation;

use crate::dataflow::Dataflow;
use crate::graph::Id;

pub use invalid::{Invalid, Site};
pub(crate) use nodes::{node, references};
pub use translation::{Mistranslation, missing_waits, mistranslations};

/// A check of some of the invariants; adds those that are violated to the list.
type Check = fn(&Dataflow, &mut Vec<Invalid>);

impl Dataflow {
    /// Checks all invariants of dataflow. The list is empty if it is well-formed.
    ///
    /// References are checked first, then nodes and patterns, then effects and outputs; a group is checked only if the
    /// groups before it are sound.
    ///
    /// # Cost
    /// Linear in the nodes and their arguments; each pure node is hashed once.
    pub fn validate(&self) -> Vec<Invalid> {
        let groups: [&[Check]; 3] =
            [&[nodes::references], &[patterns::patterns, nodes::nodes], &[effects::effects, outputs::outputs]];
        let mut found = Vec::new();
        for group in groups {
            group.iter().for_each(|check| check(self, &mut found));
            if !found.is_empty() {
                break;
            }
        }
        found
    }

    /// Every reference to a node outside of the graph, with its user.
    fn references(&self) -> impl Iterator<Item = (Site, Id)> + '_ {
        let ending = &self.ending;
        let outputs =
            [("verdict", ending.verdict), ("head", ending.head), ("tail", ending.tail), ("slow", ending.slow)];
        let outputs = outputs.into_iter().chain(ending.kept.map(|kept| ("kept", kept)));
        let outputs = outputs.map(|(name, id)| (Site::Output(name), id));
        let packet = ending.packet.iter().map(|(at, byte)| (Site::Packet(*at), *byte));
        let overlays = ending.overlays.iter().enumerate().flat_map(|(number, overlay)| {
            let bytes = overlay.bytes.values().flat_map(|laid| [laid.when, laid.byte]);
            bytes.chain([overlay.base]).map(move |id| (Site::Overlay(number), id))
        });
        let waits = self.waits.iter().flat_map(|(read, writes)| {
            let both = writes.iter().chain([read]);
            both.map(|id| (Site::Wait(*read), *id))
        });
        let wanted = self.wanted.iter();
        let wanted = wanted.flat_map(|(lookup, when)| [*lookup, *when].map(|id| (Site::Wanted(*lookup), id)));
        let reaches = self.reaches.iter().enumerate();
        let reaches =
            reaches.flat_map(|(number, reach)| [reach.when, reach.by.subject()].map(|id| (Site::Reach(number), id)));
        outputs.chain(packet).chain(overlays).chain(waits).chain(wanted).chain(reaches)
    }
}
