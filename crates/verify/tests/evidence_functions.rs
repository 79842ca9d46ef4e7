// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long tests of single functions of the repository against independent models.
#![allow(clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use crate::common::captures;
use crate::common::shipped::function;
use crate::judges;

use flowloom_testkit::{Rng, skip};
use flowloom_verify::Arrival;
use judges::{gtpu, kvs, netfilter, paxos, tcp, tracked};

/// The packets of a capture, named without its extension; `None` where it is not available.
fn capture(test: &str, name: &str) -> Option<Vec<Arrival>> {
    let path = captures::paths().unwrap_or_default().into_iter().find(|path| captures::name_of(path).starts_with(name));
    if path.is_none() {
        skip(test, &format!("`FLOWLOOM_TRACES` has no `{name}`"));
    }
    path.map(|path| captures::read(&path))
}

/// `conntrack` against the kernel's connection tracking, on captures and on generated connections: every packet that
/// the kernel calls valid passes, also between attacks; data outside the window, acknowledgements of data that was
/// never sent and blind resets are dropped.
#[test]
#[ignore = "a minute"]
fn evidence_conntrack() {
    let test = "evidence_conntrack";
    let mut rng = Rng::from_env(0xc1);
    let made = tcp::connections(&mut rng, 500);
    let mut traces = vec![("made connections", made)];
    for name in ["tcp-ooo", "real-mix-debian-hdronly"] {
        traces.extend(capture(test, name).map(|packets| (name, packets)));
    }
    let mut all = Vec::new();
    for (name, packets) in traces {
        for loose in [false, true] {
            let Some(opinion) = netfilter::opinion(test, &packets, loose) else { return };
            let function = function("conntrack", &[("loose", if loose { "1" } else { "0" })]);
            let judged = tracked::judge(&mut rng, &function, &packets, &opinion, 10);
            println!(
                "{name}, connections are taken up in their middle: {}\n{judged}",
                if loose { "yes" } else { "no" }
            );
            all.push(judged);
        }
    }
    all.iter().for_each(tracked::Judged::assert);
}

/// Paxos with the functions as coordinator and three acceptors, and models as two more proposers and as learners, on a
/// network that loses 10% of the messages, reorders the others, and duplicates some: none of 100,000 instances has two
/// values. Without the comparison of rounds some have.
#[test]
#[ignore = "a minute"]
fn evidence_paxos() {
    let mut rng = Rng::from_env(0xa2);
    println!("{:20} {}", "comparison of rounds", paxos::Ended::head());
    let agrees = paxos::run(&mut rng, 100_000, true);
    println!("{:20} {agrees}", "as shipped");
    let without = paxos::run(&mut rng, 100_000, false);
    println!("{:20} {without}", "removed");
    assert_eq!(agrees.split, 0);
    assert!(agrees.decided > 95_000 && without.split > 0);
    assert!(agrees.lost * 100 > agrees.messages * 9 && agrees.late * 2 > agrees.messages, "not lost, not reordered");
}

/// The key-value cache against a model over a million operations, one outstanding for each key, with packets lost on
/// both sides, expired values and keys that find no room: nothing is stale. Where answers may arrive after the next
/// operation on their key, some are stale; the race in four steps.
#[test]
#[ignore = "a minute"]
fn evidence_kv_cache() {
    let mut rng = Rng::from_env(0xa3);
    println!("{:28} {}", "operations of a key", kvs::Ended::head());
    let ended = kvs::run(&mut rng, 1_000_000, false);
    println!("{:28} {ended}", "one after the other");
    let late = kvs::run(&mut rng, 100_000, true);
    println!("{:28} {late}", "answers may come late");
    println!("\n{:54} what the cache then answers to a GET", "the race");
    let race = kvs::race();
    for (step, answer) in &race {
        let answer = answer.map_or("nothing: the server is asked".to_owned(), |value| value.to_string());
        println!("{step:54} {answer}");
    }
    assert_eq!(ended.stale, 0);
    assert!(ended.operations == 1_000_000 && ended.answered > 100_000 && ended.lost > 10_000);
    assert!(late.stale > 0);
    assert_eq!(race.iter().map(|(_, answer)| *answer).collect::<Vec<_>>(), [None, None, Some(2), Some(1)]);
}

/// GTP-U offloading: both tunnels of every UE are learnt by an echo request of the function, matching connections leave
/// for the edge as sent and return in the right tunnel, with and without address translation; all other packets pass
/// bit for bit. Runs with models of UEs, core and edge; with the capture and a service that no packet of it addresses,
/// sent up and down; and with the capture and every connection that begins in it offloaded. `scapy` rebuilds the
/// generated packets to the same bytes, `tshark` verifies every checksum.
#[test]
#[ignore = "a minute"]
fn evidence_gtpu_offload() {
    let test = "evidence_gtpu_offload";
    let mut rng = Rng::from_env(0xa5);
    let print = |run: &str, ended: &gtpu::Ended| println!("{run:34} {ended}");
    println!("{:34} {}", "", gtpu::Ended::head());
    for nat in [false, true] {
        let ended = gtpu::run(&mut rng, 200, 20_000, nat);
        print(if nat { "models, address translation" } else { "models" }, &ended);
        assert!(ended.learnt == ended.ues && ended.to_edge > 1000 && ended.from_edge > 500);
        gtpu::judge(test, &ended.made);
    }
    let Some(packets) = capture(test, "gtpu") else { return };
    let ended = gtpu::passes_untouched(&packets);
    print("the capture, both ways", &ended);
    assert!(ended.untouched == 2 * packets.len() && ended.echoes > 0);
    gtpu::judge(test, &ended.made);
    let ended = gtpu::offloads(&packets);
    print("the capture, all that begins in it", &ended);
    assert!(ended.learnt == ended.ues && ended.to_edge > 50 && ended.from_edge == ended.to_edge);
    assert_eq!(ended.to_edge + ended.untouched, packets.len());
    gtpu::judge(test, &ended.made);
}
