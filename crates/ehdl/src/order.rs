// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Layout order of blocks.

use std::collections::BTreeSet;

use super::graph::{Block, Walked};

/// The reachable blocks in topological order, with ties broken by program order. A block with one successor is merged
/// with it if it is its only predecessor.
pub(super) fn ordered(walked: Vec<Walked>) -> Vec<Block> {
    let count = walked.len();
    let mut in_degree = vec![0usize; count];
    walked.iter().flat_map(|walked| &walked.block.successors).for_each(|next| in_degree[*next] += 1);
    let places: Vec<Vec<u32>> = walked.iter().map(|walked| walked.place.clone()).collect();
    let mut blocks: Vec<Option<Block>> = walked.into_iter().map(|walked| Some(walked.block)).collect();
    let mut remaining = in_degree.clone();
    let mut ready = BTreeSet::from([(&places[0], 0)]);
    // Number of each block in the new order.
    let mut numbers = vec![usize::MAX; count];
    let mut order: Vec<Block> = Vec::new();
    while let Some((_, first)) = ready.pop_first() {
        let Some(mut block) = blocks[first].take() else { continue };
        numbers[first] = order.len();
        while let [only] = *block.successors.as_slice()
            && in_degree[only] == 1
            && let Some(next) = blocks[only].take()
        {
            numbers[only] = order.len();
            block.steps.extend(next.steps);
            block.successors = next.successors;
        }
        for next in &block.successors {
            remaining[*next] -= 1;
            if remaining[*next] == 0 {
                ready.insert((&places[*next], *next));
            }
        }
        order.push(block);
    }
    for next in order.iter_mut().flat_map(|block| &mut block.successors) {
        *next = numbers[*next];
    }
    order
}
