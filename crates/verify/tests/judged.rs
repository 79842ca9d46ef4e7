// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Short tests of functions of the repository against independent models; the long ones are evidence.
#![allow(clippy::panic, clippy::print_stderr)]

use crate::common::shipped::function;
use crate::judges;

use flowloom_testkit::Rng;
use judges::{gtpu, kvs, netfilter, paxos, tcp, tracked};

#[test]
fn conntrack_passes_what_netfilter_calls_valid_and_no_attack() {
    let test = "conntrack_passes_what_netfilter_calls_valid_and_no_attack";
    let mut rng = Rng::from_env(0xc0);
    let packets = tcp::connections(&mut rng, 60);
    let Some(opinion) = netfilter::opinion(test, &packets, false) else { return };
    let judged = tracked::judge(&mut rng, &function("conntrack", &[]), &packets, &opinion, 10);
    eprintln!("{judged}");
    assert!(opinion.valid.len() * 10 > packets.len() * 9, "connections that are none: {judged}");
    assert!(judged.attacks.values().all(|a| a.sent > 20), "too few attacks: {judged}");
    judged.assert();
}

#[test]
fn paxos_agrees_and_does_not_without_its_comparison_of_rounds() {
    let mut rng = Rng::from_env(0xa0);
    let agrees = paxos::run(&mut rng, 1000, true);
    eprintln!("{agrees}");
    assert!(agrees.split == 0 && agrees.decided > 950 && agrees.others > 20, "{agrees}");
    let without = paxos::run(&mut rng, 1000, false);
    eprintln!("without: {without}");
    assert!(without.split > 0, "{without}");
}

#[test]
fn a_cache_returns_nothing_stale_until_answers_come_late() {
    let mut rng = Rng::from_env(0xa1);
    let ended = kvs::run(&mut rng, 20_000, false);
    eprintln!("{ended}");
    assert!(ended.stale == 0 && ended.answered > 1000, "{ended}");
    let late = kvs::run(&mut rng, 20_000, true);
    eprintln!("late: {late}");
    assert!(late.stale > 0, "{late}");
    assert_eq!(kvs::race().last().and_then(|(_, answer)| *answer), Some(1), "{:?}", kvs::race());
}

#[test]
fn offloaded_connections_leave_and_return_in_the_right_tunnel() {
    let test = "offloaded_connections_leave_and_return_in_the_right_tunnel";
    let mut rng = Rng::from_env(0xa4);
    for nat in [false, true] {
        let ended = gtpu::run(&mut rng, 20, 2000, nat);
        eprintln!("{ended}");
        assert!(
            ended.learnt == ended.ues && ended.to_edge > 200 && ended.from_edge > 100 && ended.untouched > 200,
            "{ended}"
        );
        gtpu::judge(test, &ended.made);
    }
}
