// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the scheduler, beside its model.

use std::collections::HashMap;

use proptest::prelude::*;

use super::model::Model;
use super::*;

/// The machine's parameters [FlowBlaze, Table 4].
const PAPER: SchedulerParameters = SchedulerParameters { queues: 1, queue_depth: 20, hold_cycles: 5, hash_bits: 16 };

/// Entry cycles and grants of headers, each with its distance from the previous one and its hash.
fn by_model(parameters: SchedulerParameters, headers: &[(u8, u16)]) -> (Vec<u64>, Vec<Grant>) {
    let (mut model, mut entries, mut grants) = (Model::new(parameters), Vec::new(), Vec::new());
    let (mut cycle, mut at) = (0, 0);
    let mut offered_from = headers.first().map_or(0, |(gap, _)| u64::from(*gap));
    while grants.len() < headers.len() {
        let offered = headers.get(at).filter(|_| offered_from <= cycle).map(|(_, hash)| (*hash, at as u64));
        let (enters, granted) = model.cycle(cycle, offered);
        grants.extend(granted.map(|tag| Grant { cycle, tag }));
        if enters {
            entries.push(cycle);
            at += 1;
            offered_from += headers.get(at).map_or(0, |(gap, _)| u64::from(*gap));
        }
        cycle += 1;
    }
    (entries, grants)
}

fn by_scheduler(parameters: SchedulerParameters, headers: &[(u8, u16)]) -> (Vec<u64>, Vec<Grant>) {
    let (mut scheduler, mut entries, mut grants) = (Scheduler::new(parameters).unwrap(), Vec::new(), Vec::new());
    let mut cycle = 0;
    for (tag, (gap, hash)) in headers.iter().enumerate() {
        cycle += u64::from(*gap);
        entries.push(scheduler.offer(cycle, *hash, tag as u64, &mut grants));
        scheduler.check_invariants();
    }
    scheduler.drain(&mut grants);
    scheduler.check_invariants();
    assert_eq!(scheduler.waiting(), 0);
    (entries, grants)
}

/// Few hashes, so that headers wait, of as many bits as the parameter says.
fn case() -> impl Strategy<Value = (SchedulerParameters, Vec<(u8, u16)>)> {
    let parameters = (1..9u32, 1..6u32, 1..9u32, 1..17u32);
    (parameters, prop::collection::vec((0..4u8, 0..8u16), 0..200)).prop_map(|(parameters, headers)| {
        let (queues, queue_depth, hold_cycles, hash_bits) = parameters;
        let spread = |hash: u16| hash.wrapping_mul(0x9e37) >> (16 - hash_bits);
        let headers = headers.into_iter().map(|(gap, hash)| (gap, spread(hash))).collect();
        (SchedulerParameters { queues, queue_depth, hold_cycles, hash_bits }, headers)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn the_scheduler_does_what_its_contract_says((parameters, headers) in case()) {
        prop_assert_eq!(by_scheduler(parameters, &headers), by_model(parameters, &headers));
    }

    #[test]
    fn a_flow_keeps_its_order_and_its_distance((parameters, headers) in case()) {
        let (_, grants) = by_scheduler(parameters, &headers);
        let mut last: HashMap<u16, Grant> = HashMap::new();
        for grant in grants {
            if let Some(before) = last.insert(headers[grant.tag as usize].1, grant) {
                prop_assert!(before.tag < grant.tag);
                prop_assert!(grant.cycle - before.cycle >= u64::from(parameters.hold_cycles));
            }
        }
    }
}

#[test]
fn an_empty_queue_is_transparent() {
    let (entries, grants) = by_scheduler(PAPER, &[(3, 1), (1, 2), (1, 3)]);
    assert_eq!(entries, [3, 4, 5]);
    assert_eq!(grants.iter().map(|grant| grant.cycle).collect::<Vec<_>>(), [3, 4, 5]);
}

#[test]
fn a_full_queue_holds_the_input() {
    let parameters = SchedulerParameters { queue_depth: 2, ..PAPER };
    // One flow in every cycle: one header is in flight, two wait, the fourth enters after the second grant.
    let (entries, grants) = by_scheduler(parameters, &[(0, 1), (1, 1), (1, 1), (1, 1), (1, 2)]);
    assert_eq!(entries, [0, 1, 2, 6, 11]);
    assert_eq!(grants.iter().map(|grant| grant.cycle).collect::<Vec<_>>(), [0, 5, 10, 15, 16]);
}

#[test]
fn another_queue_overtakes_a_flow_in_flight() {
    let parameters = SchedulerParameters { queues: 2, ..PAPER };
    let order = |parameters: SchedulerParameters| -> Vec<u64> {
        let (_, grants) = by_scheduler(parameters, &[(0, 0), (1, 0), (1, 0xffff)]);
        grants.iter().map(|grant| grant.tag).collect()
    };
    assert_eq!(order(parameters), [0, 2, 1], "queues 0, 1, 0");
    assert_eq!(order(PAPER), [0, 1, 2], "in a single queue, the head blocks the others");
}

#[test]
fn parameters_have_limits() {
    let refused = |parameters: SchedulerParameters| Scheduler::new(parameters).unwrap_err().to_string();
    assert_eq!(refused(SchedulerParameters { queues: 0, ..PAPER }), "`queues` is 0, a machine takes 1 to 64");
    for parameters in [
        SchedulerParameters { queues: 65, ..PAPER },
        SchedulerParameters { queue_depth: 0, ..PAPER },
        SchedulerParameters { queue_depth: 65_537, ..PAPER },
        SchedulerParameters { hold_cycles: 0, ..PAPER },
        SchedulerParameters { hold_cycles: 65, ..PAPER },
        SchedulerParameters { hash_bits: 0, ..PAPER },
        SchedulerParameters { hash_bits: 17, ..PAPER },
    ] {
        assert!(refused(parameters).contains("a machine takes"), "{parameters:?}");
    }
}
