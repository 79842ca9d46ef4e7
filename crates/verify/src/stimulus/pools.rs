// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Default values of fields.

use std::collections::BTreeMap;

use flowloom_efsm::model::{Condition, Expr, Function, NewValue, Wide, WriteTarget};
use flowloom_wire::field::{FieldId, Source};

use crate::solve;
use flowloom_random::{Draw, Xorshift64Star as Rng};

/// Values for each field that the function mentions: its constants, adjacent values and a few others.
pub(super) fn pools(function: &Function, rng: &mut Rng) -> (BTreeMap<FieldId, Vec<u128>>, Vec<FieldId>) {
    let mut pools: BTreeMap<FieldId, Vec<u128>> = BTreeMap::new();
    let mut constants: Vec<u64> = vec![0, 1, 255];
    for element in &function.elements {
        for field in element.stateful.iter().flat_map(|s| &s.key).flat_map(|k| k.fields()) {
            pools.entry(field).or_default();
        }
        for row in &element.rows {
            for field in row.fields() {
                pools.entry(field).or_default();
            }
            for expr in row.exprs() {
                expr.walk(&mut |e| {
                    if let Expr::Constant(c) = e {
                        constants.push(*c);
                    }
                });
            }
            for condition in &row.conditions {
                match condition {
                    Condition::Compare { left, right, .. } | Condition::Serial { left, right, .. } => {
                        for (one, other) in [(left, right), (right, left)] {
                            if let (Expr::Field(field), Expr::Constant(c)) = (one, other) {
                                let near = [*c, c.wrapping_add(1), c.wrapping_sub(1)].map(u128::from);
                                pools.entry(*field).or_default().extend(near);
                            }
                        }
                    }
                    Condition::Masked { operand: Wide::Field(field), mask, value, .. } => {
                        let near = [*value, value | !mask, value ^ (mask & mask.wrapping_neg())];
                        pools.entry(*field).or_default().extend(near);
                    }
                    Condition::Range { field, low, high, .. } => {
                        let near = [*low, *high, low.wrapping_sub(1), high.wrapping_add(1)].map(u128::from);
                        pools.entry(*field).or_default().extend(near);
                    }
                    Condition::Within { operand: Wide::Field(field), values, .. } => {
                        // Of a long list take the first, the last, and some between.
                        let step = values.len().div_ceil(16).max(1);
                        let some = values.iter().step_by(step).chain(values.last());
                        let near = some.flat_map(|(low, high)| [*low, *high, high.wrapping_add(1)]);
                        pools.entry(*field).or_default().extend(near);
                    }
                    Condition::Masked { .. }
                    | Condition::Within { .. }
                    | Condition::Same { .. }
                    | Condition::OneOf { .. }
                    | Condition::Present { .. }
                    | Condition::Full { .. } => {}
                }
            }
            for write in &row.actions.writes {
                if let (NewValue::Wide(Wide::Constant(value)), WriteTarget::Field(field)) = (&write.value, write.target)
                {
                    pools.entry(field).or_default().push(*value);
                }
            }
        }
    }
    // Both directions of a flow draw from one pool, so that they match.
    let partners: Vec<(FieldId, Vec<u128>)> =
        pools.iter().filter_map(|(f, values)| Some((f.partner()?, values.clone()))).collect();
    for (partner, values) in partners {
        if let Some(pool) = pools.get_mut(&partner) {
            pool.extend(values);
        }
    }
    for (field, pool) in &mut pools {
        let mask = u128::MAX >> (128 - u32::from(field.width_bits()));
        let others = if pool.is_empty() { 4 } else { 2 };
        for i in 0..others {
            let value = match field.source() {
                Source::Address { .. } => solve::address(rng),
                _ if field.width_bits() > 64 => 0xfd00_u128 << 112 | i,
                _ if i == 0 => rng.next_u128(),
                _ => u128::from(rng.pick(&constants).copied().unwrap_or(0)),
            };
            pool.push(value);
        }
        match field.source() {
            Source::PacketPort => pool.retain(|&port| port < 8),
            Source::PacketLen | Source::TcpPayloadLen(_) => pool.retain(|&len| len < 1500),
            _ => {}
        }
        if let Source::Address { .. } = field.source() {
            // Always two hosts of each address family.
            pool.extend([0xffff_0a00_0001, 0xffff_0a00_0002, 0xfd00_u128 << 112 | 1, 0xfd00_u128 << 112 | 2]);
        }
        for value in pool.iter_mut() {
            *value &= mask;
        }
        pool.sort_unstable();
        pool.dedup();
    }
    let mentioned = pools.keys().copied().collect();
    (pools, mentioned)
}
