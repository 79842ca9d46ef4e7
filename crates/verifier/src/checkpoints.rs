// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checkpoints: saved states, at which paths are pruned.
//!
//! ```text
//!   checkpoint ──► checkpoint ──► the path        each has its parent and the writes between them
//!      live, most      live, most                 what is read after it, the trip counts of loops after it
//! ```
//!
//! A path is pruned at a state within one from which all paths have been verified, and inherits the facts found after
//! that one. So is an iteration of a callback that begins within the state of an earlier one, as soon as that is known.

use std::collections::HashMap;

use super::marks::{Marks, Place};
use super::origin::Origins;
use super::path::{NONE, Path};
use super::refusal::Unsafe;
use super::stack;
use super::state::State;
use super::trips::{Loop, Trips};
use super::value::{Number, Value};
use super::walk::Walk;
use super::within::{Comparison, Mode};
use flowloom_isa::op::Op;

/// A checkpoint whose comparisons failed so much more often than they succeeded is evicted: more often than there are
/// other values in a usual switch. The kernel's verifier evicts after 3, which takes twice the instructions on programs
/// that repeat such switches.
const PATIENCE: u32 = 12;
/// The most checkpoints at one instruction besides those evicted as useless: for loops of so many iterations that
/// branch in each.
const KEPT: usize = 2048;
/// The most verified checkpoints that a path is compared with. Of the iterations of a loop, the first one is the one
/// that a path arrives at.
const COMPARED: usize = 64;
/// The most of its own checkpoints that a path is compared with to find infinite loops.
const OWN_COMPARED: usize = 16;

#[derive(Debug)]
pub(super) struct Checkpoint {
    /// `None` after eviction.
    state: Option<Box<State>>,
    parent: u32,
    /// What the path wrote since the parent.
    written: Marks,
    /// What is read after it before it is written.
    live: Marks,
    /// The paths and checkpoints after it that are not verified yet.
    open: u32,
    hits: u32,
    misses: u32,
    /// The back edges taken so far, by loop.
    trips: Trips,
    /// The greatest trip counts of the paths after it, as far as they are verified.
    most: Trips,
    iterations: u64,
    /// Paths pruned here because their iteration begins within this one: their last checkpoint, and their writes since.
    returns: Vec<(u32, Marks)>,
    /// The checkpoints at which paths after this one were pruned so, ascending: liveness and precision here are not
    /// complete before they are there.
    waits: Vec<u32>,
}

impl Walk<'_> {
    /// Records the trip count of a loop when a path leaves it.
    pub(super) fn record_trips(&mut self, parent: u32, which: Loop, trips: u64) {
        let most = self.proof.loops.entry(which.head).or_insert(Some(0));
        *most = (*most).max(Some(trips));
        if let Some(checkpoint) = self.checkpoints.get_mut(parent as usize) {
            checkpoint.most.raise(which, trips);
        }
    }

    /// Another path starts from this checkpoint.
    pub(super) fn opened(&mut self, number: u32) {
        if let Some(checkpoint) = self.checkpoints.get_mut(number as usize) {
            checkpoint.open += 1;
        }
    }

    /// A path from this checkpoint has been verified.
    pub(super) fn close(&mut self, mut parent: u32) {
        while let Some(checkpoint) = self.checkpoints.get_mut(parent as usize) {
            checkpoint.open -= 1;
            if checkpoint.open > 0 {
                return;
            }
            let (before, most) = (checkpoint.parent, checkpoint.most.clone());
            if let Some(before) = self.checkpoints.get_mut(before as usize) {
                most.iter().for_each(|(which, trips)| before.most.raise(which, trips));
            }
            parent = before;
        }
    }

    /// Handles a join point: returns whether the path is pruned, and saves its state otherwise.
    pub(super) fn meet(&mut self, path: &mut Path) -> Result<bool, Unsafe> {
        let at = path.state.at;
        let (mut settled, mut own, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for number in self.near(at) {
            let list = match self.checkpoints[*number as usize].open {
                0 if self.is_settled(*number) => &mut settled,
                0 => &mut waiting,
                _ => &mut own,
            };
            list.push(*number);
        }
        for number in own.iter().rev().take(OWN_COMPARED) {
            if self.is_iteration_again(*number, path) {
                return Err(Unsafe::Endless);
            }
        }
        let most = if self.options.prune { COMPARED } else { 0 };
        for number in settled.iter().take(most) {
            if self.compare(*number, path) {
                self.joined(*number, path);
                return Ok(true);
            }
        }
        for number in waiting.iter().rev().take(most) {
            if self.begins_within(*number, &path.state) && self.joins_waiting(*number, path) {
                return Ok(true);
            }
        }
        let is_near = [path.since, self.since].iter().all(|since| since.0 < self.apart.0 || since.1 < self.apart.1);
        if is_near && path.parent != NONE && !self.is_before_long_run(at) {
            return Ok(false);
        }
        self.keep(path, false);
        Ok(false)
    }

    /// The checkpoints at an instruction that a path is compared with. Of many these are the ones around the first that
    /// are verified: iterations of a loop are verified from the last one back, so those before are the path's own, and
    /// the first verified one is where it arrives.
    fn near(&self, at: usize) -> &[u32] {
        let kept = self.kept.get(&at).map(Vec::as_slice).unwrap_or_default();
        if kept.len() <= OWN_COMPARED + COMPARED {
            return kept;
        }
        let first = kept.partition_point(|number| !self.is_settled(*number)).saturating_sub(OWN_COMPARED);
        &kept[first..kept.len().min(first + OWN_COMPARED + COMPARED)]
    }

    /// Whether a state is within a checkpoint, whatever is read and becomes precise later.
    pub(super) fn begins_within(&self, number: u32, state: &State) -> bool {
        let checkpoint = &self.checkpoints[number as usize];
        let live = self.live.marks(state);
        let within = |old| Comparison::is_within(&self.origins, Mode::Within, old, &live, state);
        checkpoint.state.as_ref().is_some_and(|old| within(old))
    }

    pub(super) fn kept_state(&self, number: u32) -> Option<State> {
        self.checkpoints[number as usize].state.as_deref().cloned()
    }

    /// Whether the path is back at one of its own states unchanged: an infinite loop.
    fn is_iteration_again(&self, number: u32, path: &Path) -> bool {
        let checkpoint = &self.checkpoints[number as usize];
        let live = self.live.marks(&path.state);
        let is_same = |old| Comparison::is_within(&self.origins, Mode::Same, old, &live, &path.state);
        checkpoint.iterations == path.iterations
            && checkpoint.state.as_ref().is_some_and(|old| is_same(old))
            && self.is_ancestor(number, path.parent)
    }

    /// Whether the path is within a verified checkpoint. A checkpoint that is compared in vain too often is evicted.
    fn compare(&mut self, number: u32, path: &Path) -> bool {
        let checkpoint = &self.checkpoints[number as usize];
        let Some(old) = &checkpoint.state else { return false };
        let is_within = Comparison::is_within(&self.origins, Mode::Settled, old, &checkpoint.live, &path.state);
        let checkpoint = &mut self.checkpoints[number as usize];
        if is_within {
            checkpoint.hits += 1;
            return true;
        }
        checkpoint.misses += 1;
        if checkpoint.misses > checkpoint.hits * PATIENCE + PATIENCE {
            checkpoint.state = None;
            if let Some(kept) = self.kept.get_mut(&path.state.at) {
                kept.retain(|other| *other != number);
            }
        }
        false
    }

    /// Whether all paths from a checkpoint are verified, those included that were pruned at an earlier iteration. The
    /// checkpoint they were pruned at precedes it, and everything between the two completes with the former.
    fn is_settled(&self, mut number: u32) -> bool {
        loop {
            let checkpoint = &self.checkpoints[number as usize];
            match checkpoint.waits.first() {
                _ if checkpoint.open > 0 => return false,
                None => return true,
                Some(other) => number = *other,
            }
        }
    }

    fn is_ancestor(&self, number: u32, mut parent: u32) -> bool {
        while parent != NONE {
            if parent == number {
                return true;
            }
            parent = self.checkpoints[parent as usize].parent;
        }
        false
    }

    /// Prunes the path at a checkpoint: reads and precision after the checkpoint apply to the path as well.
    fn joined(&mut self, number: u32, path: &Path) {
        let live = self.checkpoints[number as usize].live;
        let Some(old) = self.checkpoints[number as usize].state.take() else { return };
        for place in live.places() {
            self.used(path, place);
            let values = (old.value(place), path.state.value(place));
            if let (Some(Value::Number(before)), Some(Value::Number(now))) = values
                && self.origins.matters(before.origin)
            {
                self.origins.mark(now.origin);
            }
        }
        let (behind, _) = self.behind(number);
        self.rest_of_loops(&behind, path);
        self.checkpoints[number as usize].state = Some(old);
    }

    /// Adds the trip counts of the rest of loops: from the checkpoint where the path is pruned, and from the iterations
    /// where paths after it were pruned.
    fn rest_of_loops(&mut self, behind: &[u32], path: &Path) {
        if self.proof.loops.is_empty() {
            return;
        }
        for place in behind {
            for (which, most) in self.checkpoints[*place as usize].most.clone().iter() {
                let rest = most.saturating_sub(self.checkpoints[*place as usize].trips.of(which));
                self.record_trips(path.parent, which, path.trips.of(which).saturating_add(rest));
            }
        }
    }

    /// This checkpoint and those at which paths after it were pruned, split into complete and incomplete ones.
    fn behind(&self, number: u32) -> (Vec<u32>, Vec<u32>) {
        let (mut ended, mut open, mut work) = (Vec::new(), Vec::new(), vec![number]);
        while let Some(number) = work.pop() {
            let checkpoint = &self.checkpoints[number as usize];
            let list = if checkpoint.open == 0 { &mut ended } else { &mut open };
            if !list.contains(&number) {
                list.push(number);
                // What an incomplete one waits for precedes it: either the path has begun it too, or the path belongs
                // to another one.
                work.extend(checkpoint.waits.iter().filter(|_| checkpoint.open == 0));
            }
        }
        (ended, open)
    }

    /// Prunes the path within a verified state of which some paths were pruned at an iteration still in progress, if
    /// each of these iterations belongs to a call or loop that the path is in: then whatever iterates there begins
    /// another iteration, of which there are finitely many. Iterations of an earlier call could repeat forever.
    fn joins_waiting(&mut self, number: u32, path: &Path) -> bool {
        let (behind, open) = self.behind(number);
        if !open.iter().all(|number| path.begun.iter().any(|begun| begun.state == *number)) {
            return false;
        }
        self.rest_of_loops(&behind, path);
        self.depends_on(number, path);
        for number in open {
            self.not_bounded(number, path);
            self.waits_for(number, path);
        }
        true
    }

    pub(super) fn keep(&mut self, path: &mut Path, is_iteration: bool) {
        drop_single_links(&mut path.state);
        self.renew(&mut path.state);
        self.since = (0, 0);
        let number = self.checkpoints.len() as u32;
        self.checkpoints.push(Checkpoint {
            state: Some(Box::new(path.state.clone())),
            parent: path.parent,
            written: path.written,
            live: Marks::default(),
            open: 1,
            hits: 0,
            misses: 0,
            trips: path.trips.clone(),
            most: Trips::default(),
            iterations: path.iterations,
            returns: Vec::new(),
            waits: Vec::new(),
        });
        if is_iteration {
            // It is compared with its own iterations only, and never evicted.
            (path.parent, path.written, path.since) = (number, Marks::default(), (0, 0));
            return;
        }
        let kept = self.kept.entry(path.state.at).or_default();
        kept.push(number);
        if kept.len() > KEPT {
            let oldest = kept.remove(0);
            // It still counts the paths after it.
            self.checkpoints[oldest as usize].state = None;
        }
        path.parent = number;
        path.written = Marks::default();
        path.since = (0, 0);
    }

    /// Gives the numbers of a state new origins: what they decided before the state does not make them precise after
    /// it. A slot that was neither copied nor precise keeps its origin, so that the stack stays shared.
    fn renew(&mut self, state: &mut State) {
        let origins = &mut self.origins;
        let used =
            |origins: &Origins, value: &Value| value.number().is_some_and(|number| origins.is_used(number.origin));
        for frame in &mut state.frames {
            for value in &mut frame.registers {
                if let Value::Number(number) = value {
                    number.origin = origins.copy(number.origin);
                }
            }
            if frame.stack.any(|value| used(origins, value)) {
                for value in frame.stack.values_mut() {
                    if let Value::Number(number) = value
                        && origins.is_used(number.origin)
                    {
                        number.origin = origins.copy(number.origin);
                    }
                }
            }
        }
    }

    /// Records a read of a register or slot.
    pub(super) fn used(&mut self, path: &Path, place: Place) {
        if !path.written.has(place) {
            self.live(path.parent, place);
        }
    }

    /// Records a read after a checkpoint of a place not written since.
    fn live(&mut self, parent: u32, place: Place) {
        let mut work = vec![parent];
        while let Some(mut parent) = work.pop() {
            while let Some(checkpoint) = self.checkpoints.get_mut(parent as usize) {
                if checkpoint.live.has(place) {
                    break;
                }
                checkpoint.live.add(place);
                let returns = checkpoint.returns.iter().filter(|(_, written)| !written.has(place));
                work.extend(returns.map(|(parent, _)| *parent));
                if checkpoint.written.has(place) {
                    break;
                }
                parent = checkpoint.parent;
            }
        }
    }

    /// Prunes the path at an earlier iteration of itself.
    pub(super) fn returns_to(&mut self, number: u32, path: &Path) {
        self.depends_on(number, path);
        self.waits_for(number, path);
    }

    /// Reads and precision after a checkpoint, now or later, propagate to the path.
    fn depends_on(&mut self, number: u32, path: &Path) {
        self.checkpoints[number as usize].returns.push((path.parent, path.written));
        let live = self.checkpoints[number as usize].live;
        live.places().for_each(|place| self.used(path, place));
        if let Some(old) = self.checkpoints[number as usize].state.take() {
            for (before, now) in old.frames.iter().zip(&path.state.frames) {
                let slots = 0..before.stack.depth().max(now.stack.depth());
                let slots = slots.map(|number| (before.stack.slot(number).value, now.stack.slot(number).value));
                let registers = before.registers.iter().copied().zip(now.registers);
                for pair in registers.chain(slots) {
                    if let (Value::Number(before), Value::Number(now)) = pair {
                        self.origins.carry_over(before.origin, now.origin);
                    }
                }
            }
            self.checkpoints[number as usize].state = Some(old);
        }
    }

    /// The checkpoints between `number` and the end of the path complete no earlier than `number`.
    fn waits_for(&mut self, number: u32, path: &Path) {
        let mut parent = path.parent;
        while parent != number && parent != NONE {
            let checkpoint = &mut self.checkpoints[parent as usize];
            if let Err(place) = checkpoint.waits.binary_search(&number) {
                checkpoint.waits.insert(place, number);
            }
            parent = checkpoint.parent;
        }
    }

    /// Prunes the path at a `may_goto` within an earlier iteration: the trip counts of loops that contain the
    /// `may_goto` and that it went through since are unknown.
    pub(super) fn not_bounded(&mut self, number: u32, path: &Path) {
        let Some(begun) = path.begun.iter().find(|begun| begun.state == number) else { return };
        if !matches!(self.code.get(begun.at), Some(Some(Op::MayGoto { .. }))) {
            return;
        }
        let before = &self.checkpoints[number as usize].trips;
        let depth = begun.depth;
        for (which, trips) in path.trips.iter().filter(|(which, _)| which.depth == depth) {
            if trips > before.of(which) {
                self.timed.entry(which.head).or_default().insert(begun.at);
            }
        }
    }

    /// Records a read of stack slots.
    pub(super) fn used_stack(&mut self, path: &Path, frame: usize, offset: i64, len: usize) {
        for number in stack::touched(offset, len) {
            self.used(path, Place::Slot { frame, number });
        }
    }
}

/// Drops links of numbers that are linked to no other.
fn drop_single_links(state: &mut State) {
    let mut families: HashMap<u32, u32> = HashMap::new();
    let mut count = |value: &Value| {
        if let Value::Number(Number { link: Some(link), .. }) = value {
            *families.entry(link.family).or_default() += 1;
        }
    };
    for frame in &state.frames {
        frame.registers.iter().for_each(&mut count);
        for number in 0..frame.stack.depth() {
            if let Some((value, _)) = frame.stack.slot(number).whole() {
                count(&value);
            }
        }
    }
    if families.values().all(|count| *count > 1) {
        return;
    }
    let is_single = |value: &Value| match value {
        Value::Number(Number { link: Some(link), .. }) => families.get(&link.family).is_some_and(|count| *count < 2),
        _ => false,
    };
    state.change(is_single, |value| {
        if let Value::Number(number) = value {
            number.link = None;
        }
    });
}
