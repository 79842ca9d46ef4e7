//! Functions of the repository beside judges that know nothing of them: the small forms; the long ones are evidence.
#![allow(clippy::panic, clippy::print_stderr)]

mod judges;

use flowloom_testkit::Rng;
use judges::{netfilter, shipped, tcp, tracked};

#[test]
fn conntrack_passes_what_netfilter_calls_valid_and_no_attack() {
    let test = "conntrack_passes_what_netfilter_calls_valid_and_no_attack";
    let mut rng = Rng::from_env(0xc0);
    let packets = tcp::connections(&mut rng, 60);
    let Some(opinion) = netfilter::opinion(test, &packets, false) else { return };
    let judged = tracked::judge(&mut rng, &shipped("conntrack", &[]), &packets, &opinion, 10);
    eprintln!("{judged}");
    assert!(opinion.valid.len() * 10 > packets.len() * 9, "connections that are none: {judged}");
    assert!(judged.attacks.values().all(|a| a.sent > 20), "too few attacks: {judged}");
    judged.assert();
}
