// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table against a model that scans: random operations, all contexts and the victim compared after each.
#![allow(clippy::expect_used, clippy::panic, reason = "tests stop")]

use std::collections::BTreeMap;

use flowloom_testkit::Rng;

use super::Contexts;
use crate::context::{Aging, Context};
use crate::layout::RecordLayout;
use crate::model::{Function, Stateful};

/// Contexts in the order of their keys; every operation is a scan.
#[derive(Default)]
struct Scanned(BTreeMap<Vec<u8>, Context>);

impl Scanned {
    fn meet(&mut self, stateful: &Stateful, layout: &RecordLayout, key: &[u8], now_ns: u64) -> Aging {
        let context = self.0.get_mut(key).expect("a context that is met");
        let aging = context.age(stateful, layout, now_ns);
        match aging {
            Aging::Expired(_) => drop(self.0.remove(key)),
            Aging::Live | Aging::Succeeded(_) => context.touch(layout, now_ns),
        }
        aging
    }

    fn sweep(&mut self, stateful: &Stateful, layout: &RecordLayout, now_ns: u64) {
        self.0.retain(|_, context| !matches!(context.age(stateful, layout, now_ns), Aging::Expired(_)));
    }

    /// The smallest rank; of several the smallest key.
    fn victim(&self, stateful: &Stateful) -> Option<&[u8]> {
        let ranked =
            self.0.iter().filter_map(|(key, context)| Some((context.eviction_rank(stateful)?, key.as_slice())));
        ranked.min().map(|(_, key)| key)
    }
}

/// An element with successors and every timer under a policy.
fn function(policy: &str) -> Function {
    let text = format!(
        "function f; stateful e {{ key ip.src; size 8; {policy} states a, b, c; reg n: i8; reg m: u16;
         expire b -> c (idle 20ns, hard 30ns);
         on a -> b (idle 10ns, hard 40ns) {{ n += 1; pass; }} on b, c stay {{ n -= 1; pass; }} }}"
    );
    crate::compile("f.efsm", &text, &[]).unwrap_or_else(|errors| panic!("{:#?}", errors.list)).0
}

/// A context after a row: other registers, and perhaps another state with its timers.
fn changed(rng: &mut Rng, context: &Context, now_ns: u64) -> Context {
    let mut after = context.clone();
    if rng.chance(7, 10) {
        after.registers = [rng.below(256) as u128, rng.below(3) as u128].into_iter().collect();
    }
    if rng.chance(1, 2) {
        let timeout = |rng: &mut Rng| rng.chance(6, 10).then(|| 1 + rng.below(50) as u64);
        let (idle_ns, hard_ns) = (timeout(rng), timeout(rng));
        after.enter(rng.below(3) as u16, idle_ns, hard_ns, now_ns);
    }
    after
}

fn compare(table: &Contexts, model: &Scanned, stateful: &Stateful, layout: &RecordLayout, what: &str) {
    table.check_invariants(stateful, layout);
    let found: Vec<_> = table.iter().map(|(key, context)| (key.to_vec(), context.clone())).collect();
    let expected: Vec<_> = model.0.iter().map(|(key, context)| (key.clone(), context.clone())).collect();
    assert_eq!(found, expected, "{what}");
    assert_eq!(table.len(), model.0.len());
}

#[test]
fn random_operations_equal_scans() {
    let mut rng = Rng::from_env(0x7ab1e);
    let policies = ["", "full evict lowest n;", "full evict highest n;", "full evict lowest m;", "full evict oldest;"];
    let mut seen = [0; 6];
    for round in 0..150 {
        let policy = policies[round % policies.len()];
        let function = function(policy);
        let element = &function.elements[0];
        let stateful = element.stateful.as_ref().expect("stateful");
        let layout = RecordLayout::of(element, stateful);
        let (mut table, mut model) = (Contexts::default(), Scanned::default());
        // Deadlines also wrap around.
        let mut now_ns = if rng.chance(1, 5) { u64::MAX - 200 } else { 0 };
        for step in 0..80 {
            now_ns = now_ns.saturating_add(if rng.chance(1, 2) { 0 } else { rng.below(12) as u64 });
            let key = vec![0, 0, 0, rng.below(12) as u8];
            let chosen = rng.below(10);
            let what = format!("step {step} of round {round} ({policy}) at {now_ns}, key {key:?}, choice {chosen}");
            match (chosen, table.find(&key)) {
                (0, _) => {
                    table.sweep(stateful, &layout, now_ns);
                    model.sweep(stateful, &layout, now_ns);
                    seen[0] += 1;
                }
                (1, _) => {
                    let victim = model.victim(stateful).map(<[u8]>::to_vec);
                    let found = table.victim(stateful);
                    assert_eq!(found, victim.as_deref().map(|key| table.find(key).expect("stored")), "{what}");
                    if let (Some(slot), Some(key)) = (found, victim) {
                        table.remove(slot);
                        model.0.remove(&key);
                        seen[1] += 1;
                    }
                }
                (2, Some(slot)) => {
                    table.remove(slot);
                    model.0.remove(&key);
                    seen[2] += 1;
                }
                (_, Some(slot)) => {
                    let expired = table.meet(stateful, &layout, slot, now_ns);
                    assert_eq!(expired, model.meet(stateful, &layout, &key, now_ns), "{what}");
                    if let Aging::Expired(_) = expired {
                        seen[3] += 1;
                    } else {
                        let after = changed(&mut rng, table.get(slot), now_ns);
                        table.set(stateful, &layout, slot, &after);
                        model.0.insert(key, after);
                        seen[4] += 1;
                    }
                }
                (_, None) => {
                    let mut context = changed(&mut rng, &Context::initial(stateful), now_ns);
                    context.touched_ns = if layout.touched.is_some() { now_ns } else { 0 };
                    table.insert(stateful, &layout, &key, &context);
                    model.0.insert(key, context);
                    seen[5] += 1;
                }
            }
            compare(&table, &model, stateful, &layout, &what);
        }
    }
    assert!(seen.iter().all(|&count| count > 100), "operations too rare: {seen:?}");
}

#[test]
fn a_sweep_visits_only_contexts_whose_filed_deadlines_have_passed() {
    let function = function("full evict oldest;");
    let element = &function.elements[0];
    let stateful = element.stateful.as_ref().expect("stateful");
    let layout = RecordLayout::of(element, stateful);
    let mut table = Contexts::default();
    for host in 0..1000_u64 {
        let mut context = Context::initial(stateful);
        context.enter(2, Some(100 + host), None, 0);
        table.insert(stateful, &layout, &(host as u32).to_be_bytes(), &context);
    }
    // Packets of all contexts at 50 leave both orders as they are: a sweep until 110 moves the first 11 only.
    let slots: Vec<_> = (0..1000_u32).filter_map(|host| table.find(&host.to_be_bytes())).collect();
    let before = (table.by_deadline.clone(), table.by_eviction_rank.clone());
    for slot in slots {
        assert_eq!(table.meet(stateful, &layout, slot, 50), Aging::Live);
    }
    assert_eq!((&table.by_deadline, &table.by_eviction_rank), (&before.0, &before.1));
    table.sweep(stateful, &layout, 110);
    assert_eq!(before.0.difference(&table.by_deadline).count(), 11);
    assert_eq!(table.len(), 1000);
    table.check_invariants(stateful, &layout);
}
