// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::collections::HashSet;

use super::super::profile::Profile;
use super::*;

fn network(profile: Profile, seed: u64) -> Network {
    let model = profile.model().expect("a network");
    let scale = Scale::new(&model, model.active[2]);
    Network::new(model, &scale, Lengths { fixed_bytes: None }, seed)
}

/// The network's notion of novelty matches a model, except for connections that reuse a port of an ended one.
#[test]
fn novelty_matches_a_model() {
    for (profile, packets) in [(Profile::Uni1, 60_000), (Profile::Mawi15, 100_000), (Profile::Chi15, 100_000)] {
        let mut network = network(profile, 3);
        let mut seen = HashSet::new();
        let mut last_ns = None;
        // A port may be drawn again by chance.
        let mut chances = 0;
        for _ in 0..packets {
            let (now_ns, packet) = network.next();
            assert!(last_ns < Some(now_ns), "packets come one after the other");
            last_ns = Some(now_ns);
            let ports = match packet.transport {
                Transport::Tcp { sport, dport, .. } => Some((true, sport, dport)),
                Transport::Udp { sport, dport } => Some((false, sport, dport)),
                Transport::Echo { .. } => None,
            };
            let keys = [(Some(packet.src), None, None), (Some(packet.src), Some(packet.dst), None)];
            let keys = keys.into_iter().chain(ports.map(|ports| (Some(packet.src), Some(packet.dst), Some(ports))));
            for (key, recent_ns) in keys.zip(&network.governor.recent_ns) {
                let (is_new, is_counted) = (seen.insert(key), recent_ns.back() == Some(&now_ns));
                assert!(is_counted || !is_new, "{key:?} is new and was not counted");
                chances += usize::from(is_counted && !is_new);
            }
        }
        assert!(chances <= 5, "{chances} flows of {} were known before", profile.name());
    }
}

/// Every long-lived source sends within the keep-alive period.
#[test]
fn long_lived_sources_keep_sending() {
    let mut network = network(Profile::Uni2, 1);
    let mut seen = HashSet::new();
    let mut begins_ns = 0;
    let mut sources = Vec::new();
    while sources.len() < 4 {
        let (now_ns, packet) = network.next();
        if now_ns >= begins_ns + KEEPALIVE_NS + KEEPALIVE_NS / 20 {
            sources.push(std::mem::take(&mut seen));
            begins_ns = now_ns;
        }
        seen.insert(packet.src);
    }
    let stay = network.population.pairs.iter().map(|pair| network.population.residents[pair.ends[0] as usize].host);
    let stay: HashSet<Host> = stay.collect();
    assert!(stay.len() > 300);
    assert!(sources.iter().all(|seen| stay.is_subset(seen)));
}

/// Long-lived and new flows of a scaled model add up to the requested number.
#[test]
fn scaled_parts_sum_to_the_total() {
    for profile in Profile::ALL {
        let Some(model) = profile.model() else { continue };
        for flows in [100.0, model.active[2], Scale::max_flows(&model) as f64] {
            let scale = Scale::new(&model, flows);
            for key in 0..3 {
                let renewed = if key == 2 { scale.long_lived[2] as f64 / 6.0 } else { 0.0 };
                let sum = scale.long_lived[key] as f64 + renewed + scale.new_per_second[key] * 10.0;
                let expected = model.active[key] * flows / model.active[2];
                assert!((sum / expected - 1.0).abs() < 0.05 || (sum - expected).abs() < 2.0, "{sum} of {expected}");
                assert!(scale.new_per_second[key] >= 0.0 && scale.new_per_ms[key] > 0);
            }
        }
    }
}
